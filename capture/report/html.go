package report

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"path"
	"strconv"
	"time"

	"railbed/internal/verdict"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"seconds":   seconds,
	"bits":      Bits,
	"rate":      func(bits uint64) string { return Bits(float64(bits)) },
	"percent":   percent,
	"micros":    Micros,
	"number":    number,
	"shell":     ShellLine,
	"class":     class,
	"mark":      mark,
	"nccltime":  ncclNumber,
	"nccltable": ncclTable,
	"bytes":     byteCount,
	"clock":     func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"fixed":     func(v float64) string { return fmt.Sprintf("%.4f", v) },
	"sizes":     Testbed.Sizes,
	"holds":     Capture.holds,
	"did":       LinkRate.did,
	"unit":      (*Timing).unit,
	"bars":      newBars,
	"curves":    newCurves,
	"gantt":     func(t Training) gantt { return newGantt(&t) },
	"base":      path.Base,
	"split":     func(t Training) split { return newSplit(&t) },
	"loss":      loss,
	"inc":       func(i int) int { return i + 1 },
}).Parse(pageText))

// rowsShown bounds the rows of a table on the page. report.json has all rows.
const rowsShown = 64

// HTMLOptions are the options of WriteHTML. The zero value works.
type HTMLOptions struct {
	// Topology is a drawing of the fabric, an SVG file. Empty leaves it out. It becomes an image of
	// its own, so that its styles and the page's styles do not mix.
	Topology []byte
}

// pageData is the data of the page's template.
type pageData struct {
	*Report
	Topology template.URL
	Timeline timeline
	Links    []linkBar
	MoreLinks,
	Counted int
}

// linkBar is a row of the links' table: the rate of the link as a share of the asked rate.
type linkBar struct {
	LinkRate
	Share     float64 // of the asked rate, for the width of the bar, 0 to 100
	Deviation string
}

// WriteHTML writes the page: one file without scripts, which loads nothing from elsewhere, so that
// it can be mailed and archived.
func (r *Report) WriteHTML(w io.Writer, o HTMLOptions) error {
	r = r.printable()
	data := pageData{Report: r, Timeline: newTimeline(r.Steps)}
	if len(o.Topology) > 0 {
		data.Topology = template.URL(
			"data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(o.Topology))
	}
	if r.Fidelity != nil {
		for i, l := range r.Fidelity.Links {
			if i == rowsShown {
				data.MoreLinks = len(r.Fidelity.Links) - i
				break
			}
			data.Links = append(data.Links, newLinkBar(l))
		}
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

func newLinkBar(l LinkRate) linkBar {
	bar := linkBar{LinkRate: l}
	if l.Asked == 0 {
		return bar
	}
	shown := l.Peak
	if l.Busy > 0 {
		shown = l.Achieved
		bar.Deviation = fmt.Sprintf("%+.1f%%", (float64(l.Achieved)/float64(l.Asked)-1)*100)
	}
	bar.Share = min(100, float64(shown)/float64(l.Asked)*100)
	return bar
}

// unit returns the smallest time of the links in use, if it is known.
func (t *Timing) unit() string {
	if t.Unit == 0 {
		return "not known"
	}
	return Micros(t.Unit)
}

// timeline is the chart of the steps.
type timeline struct {
	Height, Axis int
	Ticks        []tick
	Bars         []bar
}

type tick struct {
	X    float64
	Text string
	Last bool // so far right that the text is placed to its left
}

type bar struct {
	Step
	X, Width, Labels float64 // Labels is where the text begins or ends
	Y, Middle        int
	Anchor           string
	Text             string
}

// Sizes of the timeline, in units of its view box, which is 1000 wide.
const (
	timelineWidth = 1000
	laneHeight    = 26
	barHeight     = 16
	barLeast      = 4 // keeps an instant visible
	axisHeight    = 22
)

func newTimeline(steps []Step) timeline {
	var end float64
	for _, s := range steps {
		end = max(end, s.End)
	}
	if end == 0 {
		end = 1e-3
	}
	t := timeline{Height: len(steps)*laneHeight + axisHeight, Axis: len(steps) * laneHeight}
	scale := (timelineWidth - barLeast) / end
	for at := 0.0; at <= end*1.0001; at += tickStep(end) {
		t.Ticks = append(t.Ticks, tick{X: at * scale, Text: seconds(at), Last: at*scale > 0.95*timelineWidth})
	}
	for i, s := range steps {
		b := bar{Step: s, X: s.Start * scale, Width: max(barLeast, (s.End-s.Start)*scale),
			Y: i*laneHeight + (laneHeight-barHeight)/2, Middle: i*laneHeight + laneHeight/2}
		b.Text = s.Name
		if s.State != Skipped {
			b.Text += ", " + seconds(s.End-s.Start)
		} else {
			b.X, b.Width = 0, 0
		}
		// The label goes where there is more room: inside a wide bar, otherwise beside it.
		const wide = 400
		switch {
		case b.Width >= wide:
			b.Labels, b.Anchor = b.X+8, "inside"
		case b.X+b.Width > timelineWidth*0.6:
			b.Labels, b.Anchor = b.X-6, "end"
		default:
			b.Labels, b.Anchor = b.X+b.Width+6, "start"
		}
		t.Bars = append(t.Bars, b)
	}
	return t
}

// tickStep returns 1, 2 or 5 times a power of ten, so that the axis has 4 to 10 ticks.
func tickStep(end float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(end)))
	for _, factor := range []float64{0.1, 0.2, 0.5} {
		if end/(power*factor) <= 10 {
			return power * factor
		}
	}
	return power
}

// class returns the page's colour class for a verdict, a step's state or a fidelity.
func class(of any) string {
	switch fmt.Sprint(of) {
	case string(verdict.Pass), string(Passed), Faithful:
		return "good"
	case string(verdict.Fail), string(verdict.Aborted), string(Failed), Overloaded:
		return "bad"
	case string(Skipped):
		return "idle"
	}
	return "unsure"
}

// mark returns a sign to show beside the word, for readers who do not see the colour.
func mark(of any) string {
	return map[string]string{"good": "✓", "bad": "✗", "idle": "–", "unsure": "?"}[class(of)]
}

// byteCount formats a size with binary units and three digits.
func byteCount(n any) string {
	value, err := strconv.ParseFloat(fmt.Sprint(n), 64)
	if err != nil {
		return fmt.Sprint(n)
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if value < 1024 {
			return strconv.FormatFloat(value, 'f', -1,
				64)[:min(5, len(strconv.FormatFloat(value, 'f', -1, 64)))] + " " + unit
		}
		value /= 1024
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " TiB"
}
