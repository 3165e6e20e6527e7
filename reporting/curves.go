package reporting

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"

	"railbed/capture/report"
	"railbed/internal/svg"
	"railbed/internal/units"
)

// curves is a chart of lines, in units of its view box. The lines' names are at the right, below each other.
type curves struct {
	frame
	Width, Height, Plot float64
	Label               string // of the whole chart
	Lines               []curve
	Levels              []svg.Tick
}

type curve struct {
	Name string
	// Label is the name in lines, beside its sample.
	Label []textLine
	Path  string
	// Points are the values of a line that has few.
	Points []point
	// Class and Dashes tell the lines apart, with and without colours.
	Class, Dashes string
	X, KeyEnd     float64 // of the sample beside the name
	Y             float64
}

type point struct {
	X, Y float64
	Text string
}

type textLine struct {
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

// newChart returns the chart without lines, and its axes. c has what differs from other charts.
func newChart(c curves, x, y svg.Axis) (chart curves, across, up svg.Axis) {
	c.Width, c.Plot = curvesWide, cmp.Or(c.Plot, curvesWide-curvesNames)
	c.Top, c.Foot = 10, cmp.Or(c.Foot, curvesHigh)
	c.Height = c.Foot + axisHeight
	x.Left, x.Size = 44, c.Plot-44
	y.Left, y.Size = c.Foot, c.Top-c.Foot
	return c, x, y
}

// add adds a line through points.
func (c *curves) add(l curve, x, y svg.Axis, across, up []float64) {
	var p svg.Path
	for i := range across {
		p.To("L", x.Place(across[i]), y.Place(up[i]))
	}
	l.Path = "M" + p.String()[1:]
	c.line(l)
}

// line adds a line. Without a class it looks different from the lines before it.
func (c *curves) line(l curve) {
	if k := len(c.Lines); l.Class == "" {
		l.Class, l.Dashes = fmt.Sprintf("hue%d", k%len(dashes)), dashes[k%len(dashes)]
		if k >= len(dashes) {
			l.Class += " thin"
		}
	}
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
			l.Label = append(l.Label, textLine{Y: curvesLabel * float64(lines), Text: text})
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
			most = max(most, slices.Max(append([]float64{0}, w.Learning.Loss...)))
			longest = max(longest, len(w.Learning.Loss))
		}
	}
	if longest < 2 || !(most > 0) {
		return curves{}
	}
	c, x, y := newChart(curves{Label: "Loss in nats by iteration"}, svg.Axis{From: 1, To: float64(longest)},
		svg.Axis{To: most})
	c.Levels = y.Marks(func(v float64) string { return fmt.Sprintf("%.2f", v) }, 0, most/2, most)
	c.Ticks = x.Ticks(units.Number)
	for _, w := range workloads {
		if w.Learning == nil || len(w.Learning.Loss) == 0 {
			continue
		}
		iterations := make([]float64, len(w.Learning.Loss))
		for i := range iterations {
			iterations[i] = float64(i + 1)
		}
		c.add(curve{Name: w.Name}, x, y, iterations, w.Learning.Loss)
	}
	c.legend()
	return c
}

// newTimes draws distributions: the share of things that took at most a time, by the time.
func newTimes(all []report.Distribution) curves {
	x := svg.Axis{From: math.Inf(1)}
	for _, d := range all {
		extend(&x, d.Times)
	}
	if x.To == 0 {
		return curves{}
	}
	if x.To < x.From*2 {
		x.From, x.To = x.From/1.5, x.To*1.5
	}
	if x.To > x.From*20 {
		x.Scale = svg.Log
	}
	c, x, y := newChart(curves{Label: "Share of messages and operations that took at most a time"}, x,
		svg.Axis{To: 1})
	c.Levels = y.Marks(func(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) },
		0, 0.25, 0.5, 0.75, 1)
	c.Ticks = x.Ticks(units.Seconds)
	for _, d := range all[:min(len(all), curvesShown)] {
		name := d.Step
		if name != "" {
			name += ": "
		}
		c.add(curve{Name: name + d.What + "s"}, x, y,
			append(d.Times[:1:1], d.Times...), append([]float64{0}, d.Shares...))
	}
	c.legend()
	return c
}

// extend extends an axis of times to more times. Those of 0 have no place on a logarithmic axis.
func extend(x *svg.Axis, times []float64) {
	for _, t := range times {
		if t > 0 {
			x.From, x.To = min(x.From, t), max(x.To, t)
		}
	}
}

// sharesHigh is the height of a chart of shares, whose lines differ most at both ends.
const sharesHigh = 400

// DrawShares returns a chart of distributions as an SVG element for a page with Style. The lines of a side
// have the class hue0, which is dashed, or hue1. The axis of times is logarithmic, and the axis of shares
// stretches both ends.
func DrawShares(label string, sides [2][]report.Distribution) (template.HTML, error) {
	x := svg.Axis{From: math.Inf(1), Scale: svg.Log}
	for _, d := range slices.Concat(sides[:]...) {
		extend(&x, d.Times)
	}
	if x.To == 0 {
		return "", nil
	}
	if x.To < x.From*1.01 {
		x.From, x.To = x.From/2, x.To*2
	}
	c, x, y := newChart(curves{Label: label, Plot: curvesWide - 16, frame: frame{Foot: sharesHigh}}, x,
		svg.Axis{From: 0.001, To: 0.999, Scale: svg.LogOdds})
	c.Levels = y.Marks(func(share float64) string { return fmt.Sprintf("%g%%", 100*share) },
		0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
	c.Ticks = x.Ticks(units.Seconds)
	for i, side := range sides {
		for _, d := range side {
			c.add(curve{Name: d.Step, Class: fmt.Sprintf("hue%d", i), Dashes: dashes[1-i]}, x, y, d.Times,
				d.Shares)
		}
	}
	return drawn("curves", label, c)
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
	c, x, y := newChart(curves{Label: label}, svg.Axis{From: from, To: to, Scale: svg.Log},
		svg.Axis{To: most})
	c.Levels = y.Ticks(func(v float64) string { return short(text(v)) })
	var named []float64
	for i := 0; i < len(sizes); i += (len(sizes) + sizesNamed - 1) / sizesNamed {
		named = append(named, float64(sizes[i]))
	}
	c.Ticks = x.Marks(func(v float64) string { return units.Bytes(v).String() }, named...)
	for _, l := range lines {
		var p svg.Path
		made, command := curve{Name: l.Name}, "M"
		for i, v := range l.Values {
			if v == nil {
				command = "M" // a gap
				continue
			}
			at := point{x.Place(float64(sizes[i])), y.Place(*v),
				fmt.Sprintf("%s, %s: %s", l.Name, units.Bytes(sizes[i]), text(*v))}
			p.To(command, at.X, at.Y)
			made.Points, command = append(made.Points, at), "L"
		}
		if made.Path = p.String(); made.Path != "" {
			c.line(made)
		}
	}
	c.legend()
	return drawn("curves", label, c)
}
