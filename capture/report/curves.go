package report

import "fmt"

// curves is a chart of lines, in units of its view box. The lines' names are at the right, below each other.
type curves struct {
	frame
	Width, Height, Plot float64
	Label               string // of the whole chart
	Lines               []curve
	Levels              []level
}

type curve struct {
	Name, Label string // Label is the name as far as there is room
	Path        string
	// Dashes and Thin tell the lines apart, since all have one colour.
	Dashes    string
	Thin      bool
	X, KeyEnd float64 // of the sample beside the name
	Y         float64
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
	k := len(c.Lines)
	c.Lines = append(c.Lines, curve{Name: name, Label: fit(name, 12, curvesNames-56), Path: "M" +
		p.String()[1:], Dashes: dashes[k%len(dashes)], Thin: k >= len(dashes),
		X: c.Plot + 12, KeyEnd: c.Plot + 46, Y: curvesLabel * float64(k+1)})
	c.Height = max(c.Height, curvesLabel*float64(k+2))
}

// newCurves draws the losses of trainings by iteration. It has no lines if no workload trained.
func newCurves(workloads []Workload) curves {
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
	c.Ticks = x.ticks(number)
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
	return c
}

// newTimes draws distributions: the share of things that took at most a time, by the time.
func newTimes(all []Distribution) curves {
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
	c.Ticks = x.ticks(seconds)
	for _, d := range all[:min(len(all), curvesShown)] {
		name := d.Step
		if name != "" {
			name += ": "
		}
		c.add(name+d.What+"s", x, y,
			append(d.Times[:1:1], d.Times...), append([]float64{0}, d.Shares...))
	}
	return c
}
