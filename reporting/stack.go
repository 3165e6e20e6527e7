package reporting

import (
	"github.com/jedib0t/go-pretty/v6/table"

	"railbed/capture/report"
)

// stacks prints each table as the program's users know it.
func (t *textWriter) stacks(stacks []report.Stack) {
	for _, s := range stacks {
		t.printf("%s\n", s.Title())
		if len(s.Columns) == 0 {
			t.printf("\n")
			continue
		}
		t.table(stackRows(s))
		if len(s.Costs) == 0 {
			continue
		}
		rows := newRows(cells(s.CostHead())...)
		rightAligned(rows, 3, 4, 5)
		for _, cost := range s.Costs {
			rows.AppendRow(table.Row(cells(cost.Cells())))
		}
		t.table(rows)
	}
}

// stackRows returns the table of the program, without lines if it prints none.
func stackRows(s report.Stack) table.Writer {
	rows := newRows(cells(s.Head())...)
	var numbers []int
	for i := 1; i < len(s.Head()); i++ {
		numbers = append(numbers, i+1)
	}
	rightAligned(rows, numbers...)
	for _, row := range s.Rows {
		rows.AppendRow(table.Row(cells(s.Cells(row))))
	}
	return rows
}

func cells(words []string) []any {
	row := make([]any, len(words))
	for i, word := range words {
		row[i] = word
	}
	return row
}
