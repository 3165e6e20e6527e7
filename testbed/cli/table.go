package cli

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// widestColumn is where the cells of a table wrap, in characters.
const widestColumn = 60

// newTable is a table on stdout without lines, so that awk and grep can read it
// too. The caller appends rows and renders it.
func (a *app) newTable(header ...any) table.Writer {
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	rows := table.NewWriter()
	rows.SetOutputMirror(a.stdout)
	rows.SetStyle(style)
	rows.SuppressTrailingSpaces()
	var columns []table.ColumnConfig
	for i := range header {
		columns = append(columns, table.ColumnConfig{Number: i + 1, WidthMax: widestColumn, WidthMaxEnforcer: text.WrapSoft})
	}
	rows.SetColumnConfigs(columns)
	rows.AppendHeader(table.Row(header))
	return rows
}
