package cli

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/reporting/sweep"
	"railbed/scenarios/runner/suite"
)

// numbersShown bounds the numbers of a matrix that a suite prints. The page and the CSV file have more.
const numbersShown = 4

// printMatrix prints the numbers of a matrix of results and the checks between its cells. dir is the
// directory of the results.
func (a *app) printMatrix(m *suite.Matrix, of *suite.Results, dir string) {
	shared, names := m.Shared(), m.Unnamed()
	if shared != "" || names != "" {
		fmt.Fprintln(a.stdout)
	}
	if shared != "" {
		a.show("%s: all cells have %s", m.Name, shared)
	}
	if names != "" {
		a.show("%s: cells have the values of %s", m.Name, names)
	}
	if len(m.Sweeps) > 0 {
		fmt.Fprintln(a.stdout)
		a.printSweep(&m.Sweeps[0], m.Name+": ")
	}
	shown, more := m.Shown(numbersShown)
	for _, n := range shown {
		fmt.Fprintln(a.stdout)
		a.show("%s: %s", m.Name, n.Caption())
		var header []any
		for _, c := range suite.Columns {
			header = append(header, c)
		}
		table := a.newTable(header...)
		for _, row := range m.Rows(n) {
			var cells []any
			for _, cell := range row {
				cells = append(cells, cell)
			}
			table.AppendRow(cells)
		}
		table.Render()
	}
	fmt.Fprintln(a.stdout)
	for i := range m.Cells {
		if c := &m.Cells[i]; c.NotCounted != "" {
			a.show("%s: %s count; others: %s", c.Name, plural.Count(c.Runs, "runs"), c.NotCounted)
		}
	}
	a.printComparisons(m)
	if m.Left > 0 {
		a.show("%s between cells that are not in this suite", plural.Count(m.Left, "more checks"))
	}
	files := []string{suite.MatrixFile, suite.CSVFile}
	if len(m.Sweeps) > 0 {
		files = append(files, suite.SweepFile)
	}
	var words []string
	for _, file := range files {
		if at := path.Join(m.Name, file); of.Has(at) {
			words = append(words, filepath.Join(dir, filepath.FromSlash(at)))
		}
	}
	if len(words) > 0 && more > 0 {
		words = append(words, plural.Text("with %d more numbers that differ between runs", more))
	}
	if len(words) > 0 {
		a.show("numbers: %s", strings.Join(words, ", "))
	}
}

// printComparisons prints the claim of a matrix, its checks between cells, and the control.
func (a *app) printComparisons(m *suite.Matrix) {
	if m.Claim != nil {
		for _, line := range m.Claim.Lines() {
			a.show("%s", line)
		}
	}
	for i := range m.Compare {
		c := &m.Compare[i]
		text := fmt.Sprintf("%-12s %s: %s", c.Verdict, c.Title(), c.Reason)
		if c.Verdict != verdict.Pass {
			text = fmt.Sprintf("%-12s %s: %s: %s", c.Verdict, c.Where, c.Title(), c.Reason)
		}
		a.show("%s", text)
	}
	if m.Control != nil {
		a.show("%-12s control: %s", m.Control.Verdict, m.Control.Reason)
	}
}

// printSweep prints a number by size. The text before it names what it belongs to.
func (a *app) printSweep(s *sweep.Sweep, of string) {
	a.show("%s%s", of, s.Title())
	var header []any
	columns := []table.ColumnConfig{{Number: 1}}
	for i, name := range s.Header() {
		header = append(header, name)
		if i > 0 {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight,
				AlignHeader: text.AlignRight})
		}
	}
	rows := a.newTable(header...)
	rows.Style().Format.Header = text.FormatDefault // lines have the names of the user's values
	rows.SetColumnConfigs(columns)
	for _, row := range s.Table() {
		var cells []any
		for _, cell := range row {
			cells = append(cells, cell)
		}
		rows.AppendRow(cells)
	}
	rows.Render()
	for _, note := range s.Notes() {
		a.show("%s", note)
	}
}
