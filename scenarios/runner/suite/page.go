package suite

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"railbed/reporting"
	"railbed/reporting/compare"
)

// Columns are the names of the columns of a number's table.
var Columns = []string{"Cell", "Runs", "Median", "95% interval", "P25", "P75", "Min", "Max", "CV"}

// Rows returns the table of a number for people, with a row for each cell.
func (m *Matrix) Rows(n *Number) (rows [][]string) {
	for i, s := range n.Cells {
		row := []string{m.Label(i), strconv.Itoa(s.Runs)}
		if s.Runs > 0 {
			interval, variation := "-", "-"
			if s.Low != nil {
				interval = n.Text(*s.Low) + " to " + n.Text(*s.High)
			}
			if s.Variation != nil {
				variation = compare.Text(*s.Variation, reporting.Share)
			}
			row = append(row, n.Text(s.Median), interval, n.Text(s.P25), n.Text(s.P75), n.Text(s.Least),
				n.Text(s.Most), variation)
		}
		for len(row) < len(Columns) {
			row = append(row, "-")
		}
		rows = append(rows, row)
	}
	return rows
}

// Shown returns the numbers for people, at most so many, and counts the others that vary. The numbers of
// the checks between cells come first, then others in the order of a report. A number that is the same in
// all runs is left out, unless a check has it.
func (m *Matrix) Shown(most int) (shown []*Number, more int) {
	for _, checked := range []bool{true, false} {
		for i := range m.Numbers {
			n := &m.Numbers[i]
			has := slices.ContainsFunc(m.Compare, func(c Comparison) bool {
				return c.Metric == n.What && c.Of == n.Of
			})
			switch {
			case has != checked || !has && !n.Varies():
			case len(shown) < most:
				shown = append(shown, n)
			default:
				more++
			}
		}
	}
	return shown, more
}

// WriteCSV writes all numbers, with a row for each number of each cell. Times are in seconds, sizes in bytes,
// rates in bit/s and shares from 0 to 1, unless the unit is another one.
func (m *Matrix) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	row := append(m.axes(), "section", "of", "number", "unit", "runs", "median", "low", "high", "p25", "p75",
		"min",
		"max", "cv")
	_ = out.Write(row) // Error returns it
	for _, n := range m.Numbers {
		for i, s := range n.Cells {
			row = row[:0]
			for _, v := range m.Cells[i].Values {
				row = append(row, v.Value)
			}
			row = append(row, n.Section, n.Of, n.What, n.Unit, strconv.Itoa(s.Runs))
			for _, v := range []*float64{&s.Median, s.Low, s.High, &s.P25, &s.P75, &s.Least, &s.Most,
				s.Variation} {
				cell := ""
				if v != nil && s.Runs > 0 {
					cell = strconv.FormatFloat(*v, 'f', -1, 64)
				}
				row = append(row, cell)
			}
			_ = out.Write(row)
		}
	}
	out.Flush()
	return out.Error()
}

// axes returns the names of the axes.
func (m *Matrix) axes() (names []string) {
	for _, v := range m.Cells[0].Values {
		names = append(names, v.Name)
	}
	return names
}

//go:embed matrix.html
var matrixText string

var matrixPage = template.Must(template.Must(index.Clone()).New("matrix").Parse(matrixText))

// plotsShown and sweepsShown bound the plots of a page, and tablesOpen the tables that show without a click.
const (
	plotsShown  = 48
	sweepsShown = 12
	tablesOpen  = 4
)

type plot struct {
	*Number
	Plot    template.HTML
	Columns []string
	Rows    [][]string
	Open    bool
}

// WriteHTML writes a page with the numbers of all cells.
func (m *Matrix) WriteHTML(w io.Writer) error {
	data := struct {
		*Matrix
		Index, CSV string
		Axes       []int           // that differ
		Drawn      []template.HTML // sweeps
		MoreSweeps int
		Plots      []plot
		Same, More int
		SweepCSV   string
	}{Matrix: m, CSV: CSVFile, SweepCSV: SweepFile, Axes: m.differing(),
		MoreSweeps: max(0, len(m.Sweeps)-sweepsShown),
		Index:      strings.Repeat("../", strings.Count(m.Name, "/")+1) + IndexFile}
	for i := range m.Sweeps[:len(m.Sweeps)-data.MoreSweeps] {
		drawn, err := m.Sweeps[i].HTML()
		if err != nil {
			return err
		}
		data.Drawn = append(data.Drawn, drawn)
	}
	var shown []*Number
	shown, data.More = m.Shown(plotsShown)
	data.Same = len(m.Numbers) - len(shown) - data.More
	for i, n := range shown {
		var rows []reporting.Spread
		for k, s := range n.Cells {
			rows = append(rows, reporting.Spread{Name: m.Label(k), Whole: m.Cells[k].Name, Values: s.values,
				P25: s.P25, Median: s.Median, P75: s.P75})
		}
		drawn, err := reporting.DrawSpreads(n.Caption(), rows, n.Text)
		if err != nil {
			return err
		}
		data.Plots = append(data.Plots, plot{n, drawn, Columns, m.Rows(n), i < tablesOpen})
	}
	if err := matrixPage.Execute(w, data); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
