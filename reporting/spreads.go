package reporting

import (
	"cmp"
	"html/template"
	"slices"

	"railbed/internal/plural"
	"railbed/internal/svg"
)

// Spread is the values of a number in several runs.
type Spread struct {
	// Name is the label of the row. It is divided into lines at its commas. Whole is the whole name, for the
	// row's tooltip, and Name if it is empty.
	Name, Whole string
	// Values are in ascending order. A row without values has no plot.
	Values           []float64
	P25, Median, P75 float64
}

// spreads is a chart with a row for each spread, in units of its view box. A row has a line from the least
// to the greatest value, a box from P25 to P75, a mark at the median, and a point for each value.
type spreads struct {
	frame
	Width, Height float64
	Label         string
	Rows          []spreadRow
}

type spreadRow struct {
	Y                 float64
	Lines             []textLine
	Title             string
	Names, Start      float64 // where the name ends and the plot begins
	Empty             bool
	From, To          float64
	Box, BoxWidth, At float64
	Points            []float64
}

// Sizes of the chart.
const (
	spreadWide  = 1000
	spreadNames = 300 // width for the names, at the left
	spreadRows  = 26  // height of a row with one line
	spreadLines = 14  // height of each further line
)

// DrawSpreads returns a chart of spreads as an SVG element for a page with Style. text formats a value.
func DrawSpreads(label string, all []Spread, text func(float64) string) (template.HTML, error) {
	s := spreads{Width: spreadWide, Label: label}
	var values []float64
	for _, one := range all {
		values = append(values, one.Values...)
	}
	if len(values) == 0 {
		return "", nil
	}
	x := svg.Axis{From: slices.Min(values), To: slices.Max(values), Left: spreadNames + 12}
	x.Size = spreadWide - x.Left - 16
	switch {
	case x.From >= 0 && x.From < x.To*0.7: // distances from 0 are shares
		x.From = 0
	case x.From == x.To:
		x.From, x.To = x.From-1, x.To+1
	}
	s.frame = frame{4, 4, x.Ticks(func(v float64) string { return short(text(v)) })}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	wrapped := wrapAll(names, 12, spreadNames)
	for i, one := range all {
		lines := wrapped[i]
		height := float64(spreadRows + spreadLines*(len(lines)-1))
		whole := cmp.Or(one.Whole, one.Name)
		row := spreadRow{Y: s.Foot + height/2, Empty: len(one.Values) == 0, Title: whole + ": no value",
			Names: spreadNames, Start: x.Left}
		for k, line := range lines {
			y := spreadLines * (float64(k) - float64(len(lines)-1)/2)
			row.Lines = append(row.Lines, textLine{y, line})
		}
		s.Foot += height
		if !row.Empty {
			row.From, row.To = x.Place(one.Values[0]), x.Place(one.Values[len(one.Values)-1])
			row.Box, row.At = x.Place(one.P25), x.Place(one.Median)
			row.BoxWidth = x.Place(one.P75) - row.Box
			row.Title = plural.Text("%s: median %s of %d runs, %s to %s", whole, text(one.Median),
				len(one.Values), text(one.Values[0]), text(one.Values[len(one.Values)-1]))
			for _, v := range one.Values {
				row.Points = append(row.Points, x.Place(v))
			}
		}
		s.Rows = append(s.Rows, row)
	}
	s.Height = s.Foot + axisHeight
	return drawn("spreads", label, s)
}
