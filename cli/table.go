package cli

import (
	"fmt"
	"reflect"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"railbed/internal/printable"
)

// widestColumn is the width at which the cells of a table wrap, in characters.
const widestColumn = 60

// newTable returns a table on stdout without lines, so that awk and grep can also read it. The
// caller appends rows and renders it.
func (a *app) newTable(header ...any) printableTable {
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	rows := table.NewWriter()
	rows.SetOutputMirror(a.stdout)
	rows.SetStyle(style)
	rows.SuppressTrailingSpaces()
	var columns []table.ColumnConfig
	for i := range header {
		columns = append(columns, table.ColumnConfig{Number: i + 1, WidthMax: widestColumn,
			WidthMaxEnforcer: text.WrapSoft})
	}
	rows.SetColumnConfigs(columns)
	rows.AppendHeader(table.Row(header))
	return printableTable{rows}
}

// printableTable is a table in which each row is one line, whatever text it contains.
type printableTable struct{ table.Writer }

// AppendRow implements table.Writer.
func (t printableTable) AppendRow(row table.Row, configs ...table.RowConfig) {
	cells := make(table.Row, len(row))
	for i, cell := range row {
		if value := reflect.ValueOf(cell); value.Kind() == reflect.String {
			cell = printable.Line(fmt.Sprint(cell))
		}
		cells[i] = cell
	}
	t.Writer.AppendRow(cells, configs...)
}
