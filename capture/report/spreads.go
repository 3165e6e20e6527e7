package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"railbed/internal/plural"
)

// Spread is the values of a number in several runs.
type Spread struct {
	Name string
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
	Name, Title       string
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
	spreadRows  = 26
)

// DrawSpreads returns a chart of spreads as an SVG element for a page with Style. text formats a value.
func DrawSpreads(label string, all []Spread, text func(float64) string) (template.HTML, error) {
	s := spreads{Width: spreadWide, Label: label}
	s.frame = frame{4, 4 + spreadRows*float64(len(all)), nil}
	s.Height = s.Foot + axisHeight
	var values []float64
	for _, one := range all {
		values = append(values, one.Values...)
	}
	if len(values) == 0 {
		return "", nil
	}
	x := axis{from: slices.Min(values), to: slices.Max(values), left: spreadNames + 12}
	x.size = spreadWide - x.left - 16
	switch {
	case x.from >= 0 && x.from < x.to*0.7: // distances from 0 are shares
		x.from = 0
	case x.from == x.to:
		x.from, x.to = x.from-1, x.to+1
	}
	s.Ticks = x.ticks(text)
	for i, one := range all {
		row := spreadRow{Y: s.Top + spreadRows*(float64(i)+0.5), Name: fit(one.Name, 12, spreadNames),
			Names: spreadNames, Start: x.left, Empty: len(one.Values) == 0, Title: one.Name + ": no value"}
		if !row.Empty {
			row.From, row.To = x.place(one.Values[0]), x.place(one.Values[len(one.Values)-1])
			row.Box, row.At = x.place(one.P25), x.place(one.Median)
			row.BoxWidth = x.place(one.P75) - row.Box
			row.Title = plural.Text("%s: median %s of %d runs, %s to %s", one.Name, text(one.Median),
				len(one.Values), text(one.Values[0]), text(one.Values[len(one.Values)-1]))
			for _, v := range one.Values {
				row.Points = append(row.Points, x.place(v))
			}
		}
		s.Rows = append(s.Rows, row)
	}
	var drawn strings.Builder
	if err := page.ExecuteTemplate(&drawn, "spreads", s); err != nil {
		return "", fmt.Errorf("draw %s: %w", label, err)
	}
	return template.HTML(drawn.String()), nil
}
