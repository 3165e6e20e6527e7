package reporting

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"path"
	"strconv"
	"time"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/internal/verdict"
)

//go:embed *.html
var templates embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"seconds":   units.Seconds,
	"bits":      units.BitRate,
	"rate":      func(bits uint64) string { return units.BitRate(float64(bits)) },
	"percent":   units.Percent,
	"micros":    units.Micros,
	"number":    units.Number,
	"shell":     ShellLine,
	"class":     Class,
	"mark":      mark,
	"nccltable": ncclTable,
	"bytes":     byteCount,
	"clock":     func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"in":        inUnit,
	"unitname":  func(u units.Unit) string { return u.Name },
	"linkunits": unitsOfLinks,
	"timesunit": unitOfTimes,
	"lines":     lines,
	"workloads": func(r *report.Report) *figureTable { return workloadTable(pageView, r) },
	"learned":   func(all []report.Workload) *figureTable { return learningTable(pageView, all) },
	"mixture": func(m *report.Mixture) *figureTable {
		return mixtureTable(pageView,
			[]report.Workload{{Mixture: m}})
	},
	"trainings": func(all []report.Training) *figureTable { return trainingTable(pageView, all) },
	"messages":  func(all []report.Messages) *figureTable { return messageTable(pageView, all) },
	"sizes":     Sizes,
	"reactions": routingTable,
	"legend":    legend,
	"holds":     holds,
	"did":       didOf,
	"unit":      unitText,
	"bars":      newBars,
	"curves":    newCurves,
	"gantt":     func(t report.Training) gantt { return newGantt(&t) },
	"activity":  func(a report.Activity) gantt { return newActivity(&a) },
	"times":     newTimes,
	"deref":     func(n *int) int { return *n },
	"base":      path.Base,
	"split":     func(t report.Training) split { return newSplit(&t) },
	"inc":       func(i int) int { return i + 1 },
}).ParseFS(templates, "*.html"))

// rowsShown bounds the rows of a table on the page. report.json has all rows.
const rowsShown = 64

// HTMLOptions are the options of WriteHTML. The zero value works.
type HTMLOptions struct {
	// Topology is a drawing of the fabric, an SVG element. Empty leaves it out. It becomes a part of the page
	// as it is, so that its titles show. Its styles must not apply to other elements.
	Topology []byte
}

// pageData is the data of the page's template.
type pageData struct {
	*report.Report
	Topology template.HTML
	Timeline timeline
	Rest     timeline
	Links    []linkBar
	Nodes    []report.NodeKernel
	MoreLinks, MoreNodes,
	Counted int
}

// linkBar is a row of the links' table: the rate of the link as a share of the asked rate.
type linkBar struct {
	report.LinkRate
	Share     float64 // of the asked rate, for the width of the bar, 0 to 100
	Deviation string
}

// WriteHTML writes the page: one file without scripts, which loads nothing from elsewhere, so that
// it can be mailed and archived.
func WriteHTML(w io.Writer, r *report.Report, o HTMLOptions) error {
	r = printableCopy(r)
	data := pageData{Report: r, Timeline: newTimeline(r), Rest: restOfTimeline(r),
		Topology: template.HTML(o.Topology)}
	if r.Fidelity != nil {
		data.Nodes = r.Fidelity.Nodes[:min(len(r.Fidelity.Nodes), rowsShown)]
		data.MoreNodes = len(r.Fidelity.Nodes) - len(data.Nodes)
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

func newLinkBar(l report.LinkRate) linkBar {
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

// unitText returns the smallest time of the links in use, if it is known.
func unitText(t *report.Timing) string {
	if t.Unit == 0 {
		return "not known"
	}
	return units.Micros(t.Unit)
}

// Style is the style of pages about runs.
func Style() template.HTML {
	text, err := templates.ReadFile("style.html")
	if err != nil {
		panic(err) // it is embedded
	}
	return template.HTML(text)
}

// Class returns the page's colour class for a verdict, a step's state or a fidelity.
func Class(of any) string {
	switch fmt.Sprint(of) {
	case string(verdict.Pass), string(report.Passed), report.Faithful:
		return "good"
	case string(verdict.Fail), string(verdict.Aborted), string(report.Failed), report.Overloaded:
		return "bad"
	case string(report.Skipped):
		return "idle"
	}
	return "unsure"
}

// mark returns a sign to show beside the word, for readers who do not see the colour.
func mark(of any) string {
	return map[string]string{"good": "✓", "bad": "✗", "idle": "–", "unsure": "?"}[Class(of)]
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
