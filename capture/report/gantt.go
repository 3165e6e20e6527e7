package report

import (
	"fmt"
	"slices"
)

// gantt is the chart of a training job's last iteration. It has a band for each rank. A band has a
// lane for computation and a lane for the exchanges of each kind of group.
type gantt struct {
	Height, Axis int
	Ticks        []tick
	Keys         []ganttKey
	Bands        []ganttBand
}

// ganttKey explains the bars of a colour.
type ganttKey struct {
	X     int
	Class string
	Text  string
}

type ganttBand struct {
	Y, Middle, Height int
	Text              string
	Bars              []ganttBar
}

type ganttBar struct {
	X, Width float64
	Y        int
	Class    string
	Text     string
}

// Groups of bars that are not exchanges.
const (
	ganttCompute = "compute"
	ganttDelay   = "delay" // time without a device
	ganttWaits   = "waits" // for other ranks to begin
)

// Sizes of the chart, in units of its view box, which is timelineWidth wide.
const (
	ganttLabels = 120
	ganttLane   = 9
	ganttGap    = 8
	ganttKeys   = 26 // height of the line of keys
	ganttShown  = 16 // ranks
	ganttColors = 5  // of groups, in page.html
)

// newGantt draws the job. Without bars the chart is empty.
func newGantt(t *Training) gantt {
	ranks := t.Bars[:min(len(t.Bars), ganttShown)]
	var groups []string
	var end float64
	for _, bars := range ranks {
		for _, b := range bars {
			end = max(end, b.End)
			if b.Group != ganttCompute && b.Group != ganttDelay && !slices.Contains(groups, b.Group) {
				groups = append(groups, b.Group)
			}
		}
	}
	if end == 0 {
		return gantt{}
	}
	slices.Sort(groups)
	g := gantt{Keys: []ganttKey{{X: ganttLabels, Class: ganttCompute, Text: ganttCompute}}}
	for i, name := range groups {
		g.Keys = append(g.Keys, ganttKey{X: ganttLabels * (i + 2), Class: ganttClass(i), Text: name})
	}
	g.Keys = append(g.Keys, ganttKey{X: ganttLabels * (len(groups) + 2), Class: ganttWaits,
		Text: "waits for others"})
	lanes := len(groups) + 1
	scale := (timelineWidth - ganttLabels) / end
	y := ganttKeys
	for rank, bars := range ranks {
		band := ganttBand{Y: y, Height: lanes * ganttLane, Middle: y + lanes*ganttLane/2,
			Text: fmt.Sprintf("rank %d", rank)}
		if rank < len(t.PerRank) {
			band.Text = fmt.Sprintf("rank %d, %s", t.PerRank[rank].Rank, t.PerRank[rank].Node)
		}
		var waiting []ganttBar
		for _, b := range bars {
			bar := ganttBar{X: ganttLabels + b.Start*scale, Width: max(1, (b.End-b.Start)*scale), Y: y,
				Class: b.Group, Text: fmt.Sprintf("%s (%s): %s to %s", b.Name, b.Group, seconds(b.Start),
					seconds(b.End))}
			if i := slices.Index(groups, b.Group); i >= 0 {
				bar.Y, bar.Class = y+(i+1)*ganttLane, ganttClass(i)
			}
			if begun := ganttLabels + b.Begun*scale; b.Begun > b.Start {
				waits := bar
				waits.Class, waits.Width, waits.Text = ganttWaits, max(1, begun-bar.X),
					waits.Text+", waited until "+seconds(b.Begun)
				waiting = append(waiting, waits)
				bar.Width, bar.X = max(1, bar.X+bar.Width-begun), begun
			}
			band.Bars = append(band.Bars, bar)
		}
		band.Bars = append(waiting, band.Bars...) // drawn below the others
		g.Bands = append(g.Bands, band)
		y += band.Height + ganttGap
	}
	g.Axis, g.Height = y, y+axisHeight
	for at := 0.0; at <= end*1.0001; at += tickStep(end) {
		g.Ticks = append(g.Ticks, tick{X: ganttLabels + at*scale, Text: seconds(at),
			Last: ganttLabels+at*scale > 0.95*timelineWidth})
	}
	return g
}

// ganttClass is the colour of the i-th group.
func ganttClass(i int) string { return fmt.Sprintf("group%d", i%ganttColors) }
