package reporting

import (
	"fmt"
	"html/template"
	"strings"

	"railbed/capture/report"
	"railbed/internal/units"
)

// curves is a chart of lines, in units of its view box. The lines' names are at the right, below each other.
type curves struct {
	frame
	Width, Height, Plot float64
	Label               string // of the whole chart
	Lines               []curve
	Levels              []level
}

type curve struct {
	Name string
	// Label is the name in lines, beside its sample.
	Label []level
	Path  string
	// Points are the values of a line that has few.
	Points []point
	// Dashes, Thin and Hue tell the lines apart, with and without colours.
	Dashes    string
	Thin      bool
	Hue       int
	X, KeyEnd float64 // of the sample beside the name
	Y         float64
}

type point struct {
	X, Y float64
	Text string
}

type level struct {
	Y    float64
	Text string
}

// Sizes of the chart.
const (
	curvesWide, curvesHigh = 1000, 240
	curvesNames            = 260 // width for the names, at the right
	curvesLabel            = 16  // from one name to the next
	curvesShown            = 12
)

// newChart returns the chart without lines, and its axes.
func newChart(label string, x, y axis) (c curves, across, up axis) {
	c = curves{Width: curvesWide, Height: curvesHigh + axisHeight, Plot: curvesWide - curvesNames,
		Label: label}
	x.left, x.size = 44, c.Plot-44
	y.left, y.size = curvesHigh, -(curvesHigh - 10)
	c.frame = frame{10, curvesHigh, nil}
	return c, x, y
}

// add adds a line through points.
func (c *curves) add(name string, x, y axis, across, up []float64) {
	var p outline
	for i := range across {
		p.to("L", x.place(across[i]), y.place(up[i]))
	}
	c.line(curve{Name: name, Path: "M" + p.String()[1:]})
}

// line adds a line.
func (c *curves) line(l curve) {
	k := len(c.Lines)
	l.Dashes, l.Thin, l.Hue = dashes[k%len(dashes)], k >= len(dashes), k%len(dashes)
	c.Lines = append(c.Lines, l)
}

// legend places the names of the lines below each other.
func (c *curves) legend() {
	names := make([]string, len(c.Lines))
	for i := range c.Lines {
		names[i] = c.Lines[i].Name
	}
	lines := 0
	for i, wrapped := range wrapAll(names, 12, curvesNames-56) {
		l := &c.Lines[i]
		l.X, l.KeyEnd, l.Y = c.Plot+12, c.Plot+46, curvesLabel*float64(lines+1)
		for _, text := range wrapped {
			lines++
			l.Label = append(l.Label, level{Y: curvesLabel * float64(lines), Text: text})
		}
	}
	c.Height = max(c.Height, curvesLabel*float64(lines+1))
}

// newCurves draws the losses of trainings by iteration. It has no lines if no workload trained.
func newCurves(workloads []report.Workload) curves {
	var most float64
	longest := 0
	for _, w := range workloads {
		if w.Learning != nil {
			for _, v := range w.Learning.Loss {
				most = max(most, v)
			}
			longest = max(longest, len(w.Learning.Loss))
		}
	}
	if longest < 2 || !(most > 0) {
		return curves{}
	}
	c, x, y := newChart("Loss in nats by iteration", axis{from: 1, to: float64(longest)}, axis{to: most})
	for i := range 3 {
		v := most * float64(i) / 2
		c.Levels = append(c.Levels, level{Y: y.place(v), Text: fmt.Sprintf("%.2f", v)})
	}
	c.Ticks = x.ticks(units.Number)
	for _, w := range workloads {
		if w.Learning == nil || len(w.Learning.Loss) == 0 {
			continue
		}
		iterations := make([]float64, len(w.Learning.Loss))
		for i := range iterations {
			iterations[i] = float64(i + 1)
		}
		c.add(w.Name, x, y, iterations, w.Learning.Loss)
	}
	c.legend()
	return c
}

// newTimes draws distributions: the share of things that took at most a time, by the time.
func newTimes(all []report.Distribution) curves {
	least, most := 0.0, 0.0
	for _, d := range all {
		for _, t := range d.Times {
			if t > 0 && (least == 0 || t < least) {
				least = t
			}
			most = max(most, t)
		}
	}
	if least == 0 {
		return curves{}
	}
	if most < least*2 {
		least, most = least/1.5, most*1.5
	}
	c, x, y := newChart("Share of messages and operations that took at most a time", axis{from: least,
		to:  most,
		log: most > least*20}, axis{to: 1})
	for i := range 5 {
		share := float64(i) / 4
		c.Levels = append(c.Levels, level{Y: y.place(share), Text: fmt.Sprintf("%.0f%%", 100*share)})
	}
	c.Ticks = x.ticks(units.Seconds)
	for _, d := range all[:min(len(all), curvesShown)] {
		name := d.Step
		if name != "" {
			name += ": "
		}
		c.add(name+d.What+"s", x, y,
			append(d.Times[:1:1], d.Times...), append([]float64{0}, d.Shares...))
	}
	c.legend()
	return c
}

// Line is a line of a chart by size.
type Line struct {
	Name string
	// Values has a value for each size, or nil where there is none.
	Values []*float64
}

// sizesNamed bounds the sizes at the foot of a chart.
const sizesNamed = 12

// DrawLines returns a chart of values by size as an SVG element for a page with Style. The axis of sizes is
// logarithmic. text formats a value.
func DrawLines(label string, sizes []uint64, lines []Line, text func(float64) string) (template.HTML, error) {
	most := 0.0
	for _, l := range lines {
		for _, v := range l.Values {
			if v != nil {
				most = max(most, *v)
			}
		}
	}
	if len(sizes) == 0 || !(most > 0) {
		return "", nil
	}
	from, to := float64(max(sizes[0], 1)), float64(max(sizes[len(sizes)-1], 1))
	c, x, y := newChart(label, axis{from: from, to: to, log: true}, axis{to: most})
	for _, t := range y.ticks(func(v float64) string { return short(text(v)) }) {
		c.Levels = append(c.Levels, level{Y: t.X, Text: t.Text})
	}
	every := (len(sizes) + sizesNamed - 1) / sizesNamed
	for i := 0; i < len(sizes); i += every {
		at := x.place(float64(sizes[i]))
		c.Ticks = append(c.Ticks, tick{X: at, Text: units.Bytes(sizes[i]).String(), Last: at > c.Plot-30})
	}
	for _, l := range lines {
		var p outline
		made, command := curve{Name: l.Name}, "M"
		for i, v := range l.Values {
			if v == nil {
				command = "M" // a gap
				continue
			}
			at := point{x.place(float64(sizes[i])), y.place(*v),
				fmt.Sprintf("%s, %s: %s", l.Name, units.Bytes(sizes[i]), text(*v))}
			p.to(command, at.X, at.Y)
			made.Points, command = append(made.Points, at), "L"
		}
		if made.Path = p.String(); made.Path != "" {
			c.line(made)
		}
	}
	c.legend()
	var drawn strings.Builder
	if err := page.ExecuteTemplate(&drawn, "curves", c); err != nil {
		return "", fmt.Errorf("draw %s: %w", label, err)
	}
	return template.HTML(drawn.String()), nil
}
