package report

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Stack is what somebody else's program measured, in its own words.
type Stack struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
	Test    string `json:"test,omitempty"`
	Ranks   int    `json:"ranks"`
	// Columns are the heads of the table that the program prints.
	Columns []string   `json:"columns,omitempty"`
	Rows    []StackRow `json:"rows,omitempty"`
	// Metric names the figure of each row, Unit is its unit, and Less says that less of
	// it is better.
	Metric string `json:"metric,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Less   bool   `json:"less_is_better,omitempty"`
	// Beside is the run that Part of the rows compares with.
	Beside string `json:"beside,omitempty"`
}

// StackRow is a row of such a table.
type StackRow struct {
	Cells []string `json:"cells"`
	// Key tells what was measured, and is the same in another run of the stack.
	Key string `json:"key"`
	// Value is the row's figure.
	Value float64 `json:"value"`
	// Part is what part of the other run's speed this one had; 0 is not known.
	Part float64 `json:"part,omitempty"`
}

// Compare fills in what part of the speed of another run each row had: 0.5 is half as
// fast.
func (s *Stack) Compare(with *Stack) {
	for i := range s.Rows {
		row := &s.Rows[i]
		for _, other := range with.Rows {
			switch {
			case other.Key != row.Key || other.Value == 0 || row.Value == 0:
			case s.Less:
				row.Part = other.Value / row.Value
			default:
				row.Part = row.Value / other.Value
			}
		}
	}
}

// Title is the line above the table.
func (s Stack) Title() string {
	words := []string{s.Name + ":", s.Kind, s.Version}
	if s.Test != "" {
		words = append(words, s.Test)
	}
	return strings.Join(append(words, "of", count(s.Ranks, "rank")), " ")
}

// Head is the columns, with one more where there is something to compare with.
func (s Stack) Head() []string {
	if s.Beside == "" {
		return s.Columns
	}
	return append(s.Columns[:len(s.Columns):len(s.Columns)], "speed of "+s.Beside+"'s")
}

// Cells are a row as it is shown.
func (s Stack) Cells(row StackRow) []string {
	switch {
	case s.Beside == "":
		return row.Cells
	case row.Part == 0:
		return append(row.Cells[:len(row.Cells):len(row.Cells)], "-")
	}
	return append(row.Cells[:len(row.Cells):len(row.Cells)], fmt.Sprintf("%.0f%%", row.Part*100))
}

// stacks prints each table as the program's users know it.
func (t *textWriter) stacks(stacks []Stack) {
	for _, s := range stacks {
		t.printf("%s\n", s.Title())
		if len(s.Columns) == 0 {
			t.printf("\n")
			continue
		}
		rows := newRows(cells(s.Head())...)
		var numbers []int
		for i := range s.Head()[1:] {
			numbers = append(numbers, i+2)
		}
		rightAligned(rows, numbers...)
		for _, row := range s.Rows {
			rows.AppendRow(table.Row(cells(s.Cells(row))))
		}
		t.table(rows)
	}
}

func cells(words []string) []any {
	row := make([]any, len(words))
	for i, word := range words {
		row[i] = word
	}
	return row
}
