package compare

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/internal/printable"
	"railbed/internal/verdict"
	"railbed/reporting"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"chip":  func(word string) bool { return class(word) != idle },
	"clock": func(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") },
	"class": class,
	"mark":  mark,
	"style": reporting.Style,
}).Parse(pageText))

// pageData is the data of the page's template.
type pageData struct {
	*Comparison
	Title   string
	Sides   []pageSide
	Changes []string
	// MoreChanges and MoreFigures count what is left out.
	MoreChanges, MoreFigures int
	Figures                  []figure
}

type pageSide struct {
	Name string
	Runs []Run
}

// WriteHTML writes the comparison as one page without scripts, which loads nothing from elsewhere.
func (c *Comparison) WriteHTML(w io.Writer) error {
	data := pageData{Comparison: c, Title: names(c.Base) + " and " + names(c.New),
		Sides: []pageSide{{"base", c.Base}, {"new", c.New}}}
	data.Changes, data.MoreChanges = c.Changes()
	for i := range c.Curves {
		if i == figuresShown {
			data.MoreFigures = len(c.Curves) - i
			break
		}
		drawn, err := newFigure(&c.Curves[i], c.Numbers)
		if err != nil {
			return err
		}
		data.Figures = append(data.Figures, drawn)
	}
	if err := page.Execute(printable.NewWriter(w), data); err != nil { // names in runs are anybody's
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// names returns the runs of a side for a title.
func names(runs []Run) string {
	var all []string
	for i, r := range runs {
		if i == 2 && len(runs) > 3 {
			return fmt.Sprintf("%s and %d more", strings.Join(all, ", "), len(runs)-i)
		}
		all = append(all, r.Name)
	}
	return strings.Join(all, ", ")
}

// idle is the class of words that are neither good nor bad.
const idle = "idle"

// class returns the page's colour class for an outcome or for a word of a verdict.
func class(of any) string {
	switch fmt.Sprint(of) {
	case string(Better), string(verdict.Pass), report.Faithful:
		return "good"
	case string(Worse), string(verdict.Fail), string(verdict.Aborted), report.Overloaded:
		return "bad"
	case report.Degraded, string(verdict.Inconclusive), string(verdict.Overloaded),
		string(verdict.Unsupported):
		return "unsure"
	}
	return idle
}

// mark returns a sign to show beside the word, for readers who do not see the colour.
func mark(of any) string {
	switch of {
	case Differs:
		return "≠"
	case Perhaps:
		return "?"
	}
	return map[string]string{"good": "✓", "bad": "✗", "unsure": "?", idle: "–"}[class(of)]
}
