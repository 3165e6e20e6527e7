package sweep

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"railbed/reporting"
)

//go:embed sweep.html
var text string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"style": reporting.Style}).Parse(text))

// section is the data of a sweep on a page.
type section struct {
	*Sweep
	Plot template.HTML
}

// HTML returns a section of a page with report.Style: a plot and a table.
func (s *Sweep) HTML() (template.HTML, error) {
	lines := make([]reporting.Line, len(s.Lines))
	var sizes []uint64
	for i, name := range s.Lines {
		lines[i].Name = name
	}
	for _, row := range s.Rows {
		sizes = append(sizes, row.Size)
		for i, c := range row.Cells {
			lines[i].Values = append(lines[i].Values, c.Value)
		}
	}
	plot, err := reporting.DrawLines(s.Title(), sizes, lines, s.unit().Text)
	if err != nil {
		return "", err
	}
	var drawn strings.Builder
	if err := page.ExecuteTemplate(&drawn, "sweep", section{s, plot}); err != nil {
		return "", fmt.Errorf("draw %s: %w", s.Title(), err)
	}
	return template.HTML(drawn.String()), nil
}

// WritePage writes a page of sweeps. CSV is the name of the file with their numbers.
func WritePage(w io.Writer, title, csv string, sweeps []Sweep) error {
	data := struct {
		Title, CSV string
		Sections   []template.HTML
	}{Title: title, CSV: csv}
	for i := range sweeps {
		drawn, err := sweeps[i].HTML()
		if err != nil {
			return err
		}
		data.Sections = append(data.Sections, drawn)
	}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
