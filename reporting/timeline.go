package reporting

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/svg"
	"railbed/internal/units"
)

// endOf returns the end of the last interval.
func endOf(s *report.Series) float64 {
	points := 0
	for i := range s.Links {
		for _, values := range listsOf(&s.Links[i]) {
			points = max(points, len(values))
		}
	}
	return s.Start + float64(points)*s.Interval
}

func listsOf(l *report.LinkSeries) [][]uint64 {
	return [][]uint64{l.Bits, l.Depth, l.Pauses, l.Marks, l.Drops, l.Again}
}

// timeline is the chart of the steps, with the time lines of links below them.
type timeline struct {
	frame
	Height int
	Bars   []bar
	Strips []strip
}

type bar struct {
	report.Step
	X, Width, Labels float64 // Labels is where the text begins or ends
	Y, Middle        int
	Anchor           string
	Text             string
}

// strip is the time line of one thing.
type strip struct {
	Y, Base, Middle int // Base is the zero of its values
	Start           int // end of the text
	Text            string
	Title           string
	// Note is the value at the strip's full height.
	Note string
	// Area and Line are paths. Signs are the paths of drops, marks and the like.
	Area, Line string
	Signs      []sign
}

// sign is a shape at each time at which something happened.
type sign struct{ Class, Path string }

// Sizes of the timeline, in units of its view box, which is 1000 wide.
const (
	timelineWidth = 1000
	laneHeight    = 26
	barHeight     = 16
	barLeast      = 4 // keeps an instant visible
	axisHeight    = 22
	stripLabels   = 196 // width of the labels at the left
	stripNotes    = 78  // and of the notes at the right
	stripHeight   = 24
	signHeight    = 9
	stripGap      = 6
	signColumns   = 40 // places of signs in a strip, each with room for one of each kind
	signPitch     = 4.5
	stripsShown   = 12 // at once; the others unfold
)

// newTimeline draws the steps and, below, the busiest links.
func newTimeline(r *report.Report) timeline {
	var t timeline
	x := axisOf(r)
	for i, s := range r.Steps {
		t.Bars = append(t.Bars, newBar(&s, i*laneHeight, x))
	}
	y := len(r.Steps) * laneHeight
	if r.Series != nil {
		y += stripGap
		t.Strips = append(totals(r.Series, x), linkStrips(r.Series, x, 0, stripsShown)...)
		y = stack(t.Strips, y)
	}
	t.frame, t.Height = frame{0, float64(y), x.Ticks(units.Seconds)}, y+axisHeight
	return t
}

// axisOf returns the axis of a run's time. Beside time lines of links it leaves room for their labels.
func axisOf(r *report.Report) svg.Axis {
	x := svg.Axis{Size: timelineWidth - barLeast}
	for _, s := range r.Steps {
		x.To = max(x.To, s.End)
	}
	if r.Series != nil {
		x.To, x.Left = max(x.To, endOf(r.Series)), stripLabels
		x.Size -= stripLabels + stripNotes
	}
	x.To = cmp.Or(x.To, 1e-3)
	return x
}

// restOfTimeline draws the links beyond the busiest.
func restOfTimeline(r *report.Report) timeline {
	if r.Series == nil || len(r.Series.Links) <= stripsShown {
		return timeline{}
	}
	x := axisOf(r)
	t := timeline{Strips: linkStrips(r.Series, x, stripsShown, len(r.Series.Links))}
	y := stack(t.Strips, 0)
	t.frame, t.Height = frame{0, float64(y), x.Ticks(units.Seconds)}, y+axisHeight
	return t
}

func newBar(s *report.Step, y int, x svg.Axis) bar {
	b := bar{Step: *s, X: x.Place(s.Start), Y: y + (laneHeight-barHeight)/2, Middle: y + laneHeight/2}
	b.Width = max(barLeast, x.Place(s.End)-b.X)
	took := ""
	if s.State != report.Skipped {
		took = ", " + units.Seconds(s.End-s.Start)
	} else {
		b.X, b.Width = x.Left, 0
	}
	if s.State != report.Passed {
		took += fmt.Sprintf(" (%s)", s.State)
	}
	// The label goes where there is more room: inside a wide bar, otherwise beside it.
	const wide, size = 400, 14 // as wide as 13 in bold
	room := b.Width - 16
	switch {
	case b.Width >= wide:
		b.Labels, b.Anchor = b.X+8, "inside"
	case b.X+b.Width > x.Left+x.Size*0.6:
		b.Labels, b.Anchor = b.X-6, "end"
		room = b.Labels
	default:
		b.Labels, b.Anchor = b.X+b.Width+6, "start"
		room = timelineWidth - b.Labels
	}
	b.Text = svg.Fit(s.Name, size, room-svg.Width(took, size)) + took
	return b
}

// stack moves strips, which are drawn at 0, below each other.
func stack(strips []strip, y int) int {
	names := make([]string, len(strips))
	for i := range strips {
		names[i] = strips[i].Text
	}
	names = fitAll(names, 12, stripLabels-8)
	for i := range strips {
		strips[i].Y, strips[i].Start, strips[i].Middle = y, stripLabels-8, stripHeight/2
		strips[i].Text = names[i]
		y += strips[i].Base + stripGap
		if len(strips[i].Signs) > 0 {
			y += signHeight
		}
	}
	return y
}

// happened are the things that happen now and then, with their signs: a cross, a triangle, two bars and a
// ring, which can be told apart without colour.
var happened = []struct {
	what, class string
	of          func(*report.LinkSeries) []uint64
	draw        func(p *svg.Path, x, y float64)
}{
	{"packets dropped", "drops", func(l *report.LinkSeries) []uint64 { return l.Drops },
		func(p *svg.Path, x, y float64) { p.To("M", x-3, y-3).To("l", 6, 6).To("m", 0, -6).To("l", -6, 6) }},
	{"packets marked", "marks", func(l *report.LinkSeries) []uint64 { return l.Marks },
		func(p *svg.Path, x, y float64) { p.To("M", x-3, y+3).To("l", 3, -6).To("l", 3, 6).To("z") }},
	{"pauses", "pauses", func(l *report.LinkSeries) []uint64 { return l.Pauses },
		func(p *svg.Path, x, y float64) { p.To("M", x-1.5, y-3).To("v", 6).To("m", 3, -6).To("v", 6) }},
	{"packets sent again", "again", func(l *report.LinkSeries) []uint64 { return l.Again },
		func(p *svg.Path, x, y float64) {
			p.To("M", x-3, y).To("a", 3, 3, 0, 1, 0, 6, 0).To("a", 3, 3, 0, 1, 0, -6, 0)
		}},
}

// totals returns a strip for each kind of thing that happened, over all links.
func totals(s *report.Series, x svg.Axis) (strips []strip) {
	for _, h := range happened {
		var sum []uint64
		for i := range s.Links {
			for at, n := range h.of(&s.Links[i]) {
				for len(sum) <= at {
					sum = append(sum, 0)
				}
				sum[at] += n
			}
		}
		if len(sum) == 0 {
			continue
		}
		most := slices.Max(sum)
		y := svg.Axis{To: float64(most), Left: stripHeight, Size: -stripHeight}
		strips = append(strips, strip{Base: stripHeight, Text: "all: " + h.what,
			Title: fmt.Sprintf("%d %s", total(sum), h.what), Note: fmt.Sprint(most),
			Area: steps(x, y, s.Start, s.Interval, sum, true)})
	}
	return strips
}

func total(values []uint64) (sum uint64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// deepest returns the greatest depth of all links.
func deepest(s *report.Series) (depth uint64) {
	for i := range s.Links {
		depth = max(depth, slices.Max(append(s.Links[i].Depth, 0)))
	}
	return depth
}

// scaleOf returns the share of a link's rate at the full height of its strip, the same for all links: 1, or
// less where no link comes near its rate.
func scaleOf(s *report.Series) float64 {
	most := 0.0
	for i := range s.Links {
		if l := &s.Links[i]; l.Asked > 0 {
			most = max(most, float64(slices.Max(append(l.Bits, 0)))/float64(l.Asked))
		}
	}
	for _, scale := range []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5} {
		if most <= scale {
			return scale
		}
	}
	return 1
}

// linkStrips draws the links from one to another.
func linkStrips(s *report.Series, x svg.Axis, from, to int) (strips []strip) {
	deepest := deepest(s)
	for _, l := range s.Links[from:min(to, len(s.Links))] {
		peak := slices.Max(append(slices.Clone(l.Bits), 0))
		full := uint64(float64(l.Asked) * scaleOf(s))
		if full == 0 {
			full = peak
		}
		made := strip{Base: stripHeight, Text: l.From + " → " + l.To,
			Title: fmt.Sprintf("%s to %s: at most %s", l.From, l.To, units.BitRate(float64(peak))),
			Note:  units.BitRate(float64(full))}
		bits := slices.Clone(l.Bits)
		for i := range bits {
			bits[i] = min(bits[i], full)
		}
		y := svg.Axis{To: float64(full), Left: stripHeight, Size: -stripHeight}
		made.Area = steps(x, y, s.Start, s.Interval, bits, true)
		if len(l.Depth) > 0 {
			y.To = float64(deepest)
			made.Line = steps(x, y, s.Start, s.Interval, l.Depth, false)
			made.Title += fmt.Sprintf(", queue at most %s", byteCount(slices.Max(l.Depth)))
		}
		for kind, h := range happened {
			values := h.of(&l)
			if len(values) == 0 {
				continue
			}
			made.Title += fmt.Sprintf(", %d %s", total(values), h.what)
			var p svg.Path
			place := -1
			for at, n := range values {
				left := x.Place(s.Start + (float64(at)+0.5)*s.Interval)
				column := int((left - x.Left) / x.Size * signColumns)
				if n > 0 && column != place {
					place = column
					h.draw(&p, left+signPitch*(float64(kind)-1.5), stripHeight+float64(signHeight)/2+1)
				}
			}
			made.Signs = append(made.Signs, sign{h.class, p.String()})
		}
		strips = append(strips, made)
	}
	return strips
}

// legend explains the strips below the chart.
func legend(s *report.Series) string {
	of := ""
	if scale := scaleOf(s); scale < 1 {
		of = fmt.Sprintf("%.0f%% of ", 100*scale)
	}
	text := "Filled: throughput; the full height is " + of + "the link's rate, at the right."
	if deepest := deepest(s); deepest > 0 {
		text += fmt.Sprintf(" Line: depth of the queue; the full height is %s.", byteCount(deepest))
	}
	text += " Signs below: × drops, △ marks, ‖ pauses, ○ packets sent again."
	from := "From the links' counters"
	if s.Source != report.CountersSource {
		from = "From the recording " + s.Source
	}
	text += fmt.Sprintf(" %s, each %s.", from, units.Seconds(s.Interval))
	if s.LeftOut > 0 {
		text += fmt.Sprintf(" %s left out.", plural.Count(s.LeftOut, "other directions"))
	}
	return text
}
