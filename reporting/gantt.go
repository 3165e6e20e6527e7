package reporting

import (
	"fmt"
	"slices"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/svg"
	"railbed/internal/units"
)

// gantt is the chart of a training job's last iteration. It has a band for each rank. A band has a
// lane for computation and a lane for the exchanges of each kind of group.
type gantt struct {
	frame
	Height int
	Label  string
	Note   string // below the chart
	Keys   []ganttKey
	Bands  []ganttBand
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
	Path     string // instead of a rectangle
}

// Groups of bars that are not exchanges.
const (
	ganttCompute = "compute"
	ganttDelay   = "delay" // time without a device
	ganttWaits   = "waits" // for other ranks to begin
	ganttMessage = "message"
	ganttAgain   = "message again"
	ganttStep    = "step"
	ganttOdd     = "step odd" // every second step
	ganttInside  = "inside"   // every second step of an exchange
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
func newGantt(t *report.Training) gantt {
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
	g := gantt{Label: "What each rank of " + t.Name + " did in the last iteration"}
	g.key(ganttCompute, ganttCompute)
	for i, name := range groups {
		g.key(ganttClass(i), name)
	}
	g.key(ganttWaits, "waits for others")
	lanes := len(groups) + 1
	x := svg.Axis{To: end, Left: ganttLabels, Size: timelineWidth - ganttLabels}
	y := ganttKeys
	for rank, bars := range ranks {
		band := ganttBand{Y: y, Height: lanes * ganttLane, Middle: y + lanes*ganttLane/2,
			Text: fmt.Sprintf("rank %d", rank)}
		if rank < len(t.PerRank) {
			band.Text = fmt.Sprintf("rank %d, %s", t.PerRank[rank].Rank, t.PerRank[rank].Node)
		}
		var waiting, inside []ganttBar
		for _, b := range bars {
			bar := ganttBar{X: x.Place(b.Start), Width: max(1, x.Place(b.End)-x.Place(b.Start)), Y: y,
				Class: b.Group, Text: fmt.Sprintf("%s (%s): %s to %s", b.Name, b.Group,
					units.Seconds(b.Start),
					units.Seconds(b.End))}
			if i := slices.Index(groups, b.Group); i >= 0 {
				bar.Y, bar.Class = y+(i+1)*ganttLane, ganttClass(i)
			}
			if begun := x.Place(b.Begun); b.Begun > b.Start {
				waits := bar
				waits.Class, waits.Width, waits.Text = ganttWaits, max(1, begun-bar.X),
					waits.Text+", waited until "+units.Seconds(b.Begun)
				waiting = append(waiting, waits)
				bar.Width, bar.X = max(1, bar.X+bar.Width-begun), begun
			}
			bar.Text += longestOfBar(&b)
			band.Bars = append(band.Bars, bar)
			inside = append(inside, stepsOfBar(&b, x, bar.Y)...)
		}
		band.Bars = append(band.Bars, inside...)
		if len(inside) > 0 {
			g.Note = "Every second step of an exchange is lighter."
		}
		band.Bars = append(waiting, band.Bars...) // drawn below the others
		g.Bands = append(g.Bands, band)
		y += band.Height + ganttGap
	}
	g.label()
	g.frame, g.Height = frame{ganttKeys - 4, float64(y), x.Ticks(units.Seconds)}, y+axisHeight
	return g
}

// key adds a key to the right of the others.
func (g *gantt) key(class, text string) {
	x := ganttLabels
	if n := len(g.Keys); n > 0 {
		x = g.Keys[n-1].X + 34 + 6*len(g.Keys[n-1].Text)
	}
	g.Keys = append(g.Keys, ganttKey{x, class, text})
}

// label shortens the labels of the bands to their width.
func (g *gantt) label() {
	names := make([]string, len(g.Bands))
	for i := range g.Bands {
		names[i] = g.Bands[i].Text
	}
	for i, name := range fitAll(names, 12, ganttLabels-8) {
		g.Bands[i].Text = name
	}
}

// ganttClass is the colour of the i-th group.
func ganttClass(i int) string { return fmt.Sprintf("group%d", i%ganttColors) }

// messageLanes bounds the lanes of a rank's messages. Messages beyond them are drawn over others.
const messageLanes = 4

// newActivity draws what the ranks of a step did: the operation above the steps of its algorithm and the
// messages that the rank sent.
func newActivity(a *report.Activity) gantt {
	end := 0.0
	for _, lane := range a.Lanes {
		for _, s := range lane.Spans {
			end = max(end, s.End)
		}
	}
	if end == 0 {
		return gantt{}
	}
	g := gantt{Label: "What each rank of " + a.Step + " did: " + a.What, Note: stepsNote(a)}
	titled := endsOf(a) <= stepsTitled
	x := svg.Axis{To: end, Left: ganttLabels, Size: timelineWidth - ganttLabels}
	y := ganttKeys
	used := map[string]bool{}
	for _, lane := range a.Lanes {
		band := ganttBand{Y: y, Text: lane.Node}
		if lane.Rank != nil {
			band.Text = fmt.Sprintf("rank %d, %s", *lane.Rank, lane.Node)
		}
		band.Bars, band.Height = laneBars(&lane, x, y, titled)
		band.Middle = y + band.Height/2
		for _, b := range band.Bars {
			used[b.Class] = true
		}
		g.Bands = append(g.Bands, band)
		y += band.Height + ganttGap
	}
	g.label()
	for _, key := range []ganttKey{{Class: ganttCompute, Text: "operation: works"},
		{Class: ganttWaits, Text: "waits until others send"},
		{Class: ganttOdd, Text: "steps, light and dark in turn"},
		{Class: ganttMessage, Text: "messages sent"}, {Class: ganttAgain, Text: "with packets sent again"}} {
		if used[key.Class] {
			g.key(key.Class, key.Text)
		}
	}
	g.frame, g.Height = frame{ganttKeys - 4, float64(y), x.Ticks(units.Seconds)}, y+axisHeight
	return g
}

// laneBars draws the spans of a lane from a height on. Messages that overlap are below each other. titled is
// as for stepBars.
func laneBars(l *report.Lane, x svg.Axis, y int, titled bool) (bars []ganttBar, height int) {
	height = ganttLane
	steps, rows := stepBars(l, x, y+ganttLane, titled)
	first, free := 0, make([]float64, messageLanes)
	waits := slices.ContainsFunc(l.Spans, func(s report.Span) bool { return s.Of == report.WaitSpan })
	waited := dashedLine{x: x, y: y}
	for _, s := range l.Spans {
		b := ganttBar{X: x.Place(s.Start), Width: max(1, x.Place(s.End)-x.Place(s.Start)), Y: y,
			Text: spanText(&s)}
		switch s.Of {
		case report.OperationSpan:
			first = 1 + rows
			b.Class = ganttCompute
			bars = append(bars, b)
			if s.Waited > 0 && !waits {
				b.Class, b.Width = ganttWaits, x.Place(min(s.Waited, s.End-s.Start))-x.Left
				b.X = x.Place(s.End) - b.Width
				bars = append(bars, b)
			}
			continue
		case report.WaitSpan: // one element for all of a lane keeps the page small
			waited.add(s.Start, s.End)
			continue
		}
		lane := slices.IndexFunc(free, func(until float64) bool { return until <= s.Start })
		lane = max(lane, 0)
		free[lane] = max(free[lane], s.End)
		b.Y = y + (first+lane)*ganttLane
		height = max(height, (first+lane+1)*ganttLane)
		if b.Class = ganttMessage; s.Again > 0 {
			b.Class = ganttAgain
		}
		bars = append(bars, b)
	}
	if waits {
		bars = append(bars, ganttBar{Class: ganttWaits, Path: waited.String(), Text: "waits for others"})
	}
	return append(bars, steps...), max(height, first*ganttLane)
}

// spanText describes a span.
func spanText(s *report.Span) string {
	if s.Of == report.OperationSpan {
		text := fmt.Sprintf("operation: %s to %s", units.Seconds(s.Start), units.Seconds(s.End))
		if s.Waited > 0 {
			text += fmt.Sprintf(", waited for others for %s of it", units.Seconds(s.Waited))
		}
		return text
	}
	what := "message"
	switch {
	case s.Count > 1:
		what = plural.Count(s.Count, what+"s")
	case s.Message > 0:
		what = fmt.Sprintf("message %d", s.Message)
	}
	text := fmt.Sprintf("%s to %s, %s: %s to %s", what, s.To, byteCount(s.Bytes), units.Seconds(s.Start),
		units.Seconds(s.End))
	if s.Again > 0 {
		text += ", " + plural.Count(s.Again, "packets") + " sent again"
	}
	return text
}
