package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/plural"
	"railbed/internal/units"
)

// Stack is the result of a third-party program, in that program's own terms.
type Stack struct {
	Name    string `json:"name"`           // the step's name
	Kind    string `json:"kind"`           // openmpi, redis and so on
	Version string `json:"version"`        // the version that the program states
	Test    string `json:"test,omitempty"` // the measurement
	Ranks   int    `json:"ranks"`          // number of ranks or nodes
	// Columns are the column heads of the table that the program prints.
	Columns []string   `json:"columns,omitempty"`
	Rows    []StackRow `json:"rows,omitempty"`
	// Metric names the figure of each row. Unit is the unit of these figures.
	Metric string `json:"metric,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Less   bool   `json:"less_is_better,omitempty"` // whether lower figures are better
	// Beside is the name of the other run, to which Part of each row compares this run.
	Beside string `json:"beside,omitempty"`
	// Figures are the columns that the program's users look at. Costs compares these figures.
	Figures []string    `json:"figures,omitempty"`
	Costs   []StackCost `json:"costs,omitempty"`
	// Slow is the rank with the longest round trips to all others. It is absent if no rank stands
	// out.
	Slow *FarRank `json:"slow,omitempty"`
	// Held is the rank whose processes were kept from running. It is absent if no rank stands out.
	Held *HeldRank `json:"held,omitempty"`
}

// HeldRank is a rank that was stopped, or got less CPU time than others, as the kernels account for
// its processes.
type HeldRank struct {
	Rank int    `json:"rank"` // its number
	Node string `json:"node"` // its node
	// Got is the share of its runnable time in which the rank had a processor. Others is the least
	// such share of another node. Both are 0 if the rank was hardly ever runnable.
	Got    float64 `json:"got,omitempty"`
	Others float64 `json:"others,omitempty"`
	// Stopped is the number of samples, of Looks, in which a signal had stopped the rank.
	Stopped int `json:"stopped,omitempty"`
	Looks   int `json:"looks"` // how often the rank's program was looked at
}

// String returns the rank and how it was held up, for people.
func (h HeldRank) String() string {
	if h.Stopped > 0 {
		return plural.Text("rank %d (%s) was held up: it was stopped in %d of %d samples", h.Rank, h.Node,
			h.Stopped, h.Looks)
	}
	return fmt.Sprintf("rank %d (%s) was held up: it ran for %.0f%% of the time in which it was runnable, "+
		"others for at least %.0f%%", h.Rank, h.Node, 100*h.Got, 100*h.Others)
}

// FarRank is a rank whose round trips take longer than the others', according to the kernels' TCP
// connections. Times are in seconds.
type FarRank struct {
	Rank int    `json:"rank"` // its number
	Node string `json:"node"` // its node
	// Trip is the least round trip to or from the rank. Others is the median over pairs without it.
	Trip   float64 `json:"trip"`
	Others float64 `json:"others"`
}

// String names the rank and its round trips.
func (s FarRank) String() string {
	return fmt.Sprintf("rank %d (%s) is slow to reach: its shortest round trip takes %s, the others' %s",
		s.Rank,
		s.Node, units.Seconds(s.Trip), units.Seconds(s.Others))
}

// StackCost is a figure in the other run and in this run.
type StackCost struct {
	// Of is the row's key or, if Before and After are medians of several rows, the number of rows.
	Of     string  `json:"of"`
	Figure string  `json:"figure"` // a column of the table
	Before float64 `json:"before"` // in the run beside
	After  float64 `json:"after"`  // in this run
}

// costRows is the maximum number of rows for which each row has its own costs. With more rows, the
// costs compare the medians of the rows.
const costRows = 4

// StackRow is a row of the program's table.
type StackRow struct {
	Cells []string `json:"cells"` // one for each column
	// Key identifies the measurement, and is the same in another run of the stack.
	Key string `json:"key"`
	// Value is the row's figure.
	Value float64 `json:"value"`
	// Part is this run's speed divided by the other run's speed; 0 is not known.
	Part float64 `json:"part,omitempty"`
}

// Compare sets Part of each row, where 0.5 means half as fast as the other run. It sets Costs to
// the figures of both runs.
func (s *Stack) Compare(with *Stack) {
	s.Costs = s.costs(with)
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

func (s *Stack) costs(with *Stack) (costs []StackCost) {
	for _, figure := range s.Figures {
		column := slices.Index(s.Columns, figure)
		var all []StackCost
		for _, row := range s.Rows {
			other := slices.IndexFunc(with.Rows, func(other StackRow) bool { return other.Key == row.Key })
			if column < 0 || other < 0 || column >= min(len(row.Cells), len(with.Rows[other].Cells)) {
				continue
			}
			before, errBefore := strconv.ParseFloat(with.Rows[other].Cells[column], 64)
			after, errAfter := strconv.ParseFloat(row.Cells[column], 64)
			// The sum of the figures is finite unless a figure is nan or inf, which JSON does not
			// have.
			if sum := before + after; errBefore == nil && errAfter == nil && !math.IsNaN(sum) &&
				!math.IsInf(sum, 0) {
				all = append(all, StackCost{Of: row.Key, Figure: figure, Before: before, After: after})
			}
		}
		if len(all) > costRows {
			median := func(of func(StackCost) float64) float64 {
				var values []float64
				for _, cost := range all {
					values = append(values, of(cost))
				}
				slices.Sort(values)
				return values[len(values)/2]
			}
			all = []StackCost{{
				Of: fmt.Sprintf("median of %d", len(all)), Figure: figure,
				Before: median(func(c StackCost) float64 { return c.Before }),
				After:  median(func(c StackCost) float64 { return c.After }),
			}}
		}
		costs = append(costs, all...)
	}
	slices.SortStableFunc(costs, func(a, b StackCost) int { return cmp.Compare(s.row(a.Of), s.row(b.Of)) })
	return costs
}

// row returns the index of a row.
func (s *Stack) row(key string) int {
	return slices.IndexFunc(s.Rows, func(r StackRow) bool { return r.Key == key })
}

// CostHead returns the column heads of the table of costs.
func (s Stack) CostHead() []string {
	return []string{s.Name + " beside " + s.Beside, "figure", s.Beside, s.Name, "times"}
}

// Cells returns the cells of a cost.
func (c StackCost) Cells() []string {
	times := "-"
	if c.Before != 0 {
		times = fmt.Sprintf("%.2f", c.After/c.Before)
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	return []string{c.Of, c.Figure, number(c.Before), number(c.After), times}
}

// Title returns the line above the table.
func (s Stack) Title() string {
	words := []string{s.Name + ":", s.Kind, s.Version}
	if s.Test != "" {
		words = append(words, s.Test)
	}
	return strings.Join(append(words, "of", plural.Count(s.Ranks, "ranks")), " ")
}

// Head returns the column heads, with one more column if there is a run to compare with.
func (s Stack) Head() []string {
	if s.Beside == "" {
		return s.Columns
	}
	return append(s.Columns[:len(s.Columns):len(s.Columns)], "speed of "+s.Beside+"'s")
}

// Cells returns the cells of a row.
func (s Stack) Cells(row StackRow) []string {
	switch {
	case s.Beside == "":
		return row.Cells
	case row.Part == 0:
		return append(row.Cells[:len(row.Cells):len(row.Cells)], "-")
	}
	return append(row.Cells[:len(row.Cells):len(row.Cells)], fmt.Sprintf("%.0f%%", row.Part*100))
}
