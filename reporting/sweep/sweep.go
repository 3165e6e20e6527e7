// Package sweep shows a number by size, with a line for each transport or other variant. It writes text, CSV,
// JSON, and plots for pages. railbed collective and the matrices of railbed test use it.
package sweep

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan/perf"
	"railbed/reporting"
)

// Sweep is a number by size.
type Sweep struct {
	// Of is the name of the workload. Number is the name of the number, such as busbw.
	Of     string `json:"of"`
	Number string `json:"number"`
	// Unit is the unit of the values, such as bit/s or s.
	Unit string `json:"unit,omitempty"`
	// Lines are the names of the lines, such as tcp and rd.
	Lines []string `json:"lines"`
	// Rows are in ascending order of sizes.
	Rows []Row `json:"rows"`
	// Averages has the average busbw of each line over all its rows, out of place and in place, as nccl-tests
	// prints it. Only busbw of railbed collective has averages.
	Averages []float64 `json:"averages,omitempty"`
}

// Row has the values of a size.
type Row struct {
	Size uint64 `json:"size_bytes"`
	// Cells has a cell for each line.
	Cells []Cell `json:"cells"`
}

// Cell is a size of a line. A cell without runs was not measured.
type Cell struct {
	// Value is the median of the runs that count. It is absent if there are none.
	Value *float64 `json:"value,omitempty"`
	// Runs is the number of runs that count.
	Runs int `json:"runs"`
	// NotCounted describes the runs that do not count, such as "2 overloaded".
	NotCounted string `json:"not_counted,omitempty"`
}

// Add sets the cell of a line at a size.
func (s *Sweep) Add(line string, size uint64, c Cell) {
	at := slices.Index(s.Lines, line)
	if at < 0 {
		at = len(s.Lines)
		s.Lines = append(s.Lines, line)
		for i := range s.Rows {
			s.Rows[i].Cells = append(s.Rows[i].Cells, Cell{})
		}
	}
	i, known := slices.BinarySearchFunc(s.Rows, size, func(r Row, size uint64) int {
		return int(min(max(int64(r.Size)-int64(size), -1), 1))
	})
	if !known {
		s.Rows = slices.Insert(s.Rows, i, Row{size, make([]Cell, len(s.Lines))})
	}
	s.Rows[i].Cells[at] = c
}

// Varies reports whether the sweep has different values.
func (s *Sweep) Varies() bool {
	var first *float64
	for _, row := range s.Rows {
		for _, c := range row.Cells {
			if c.Value != nil && first != nil && *c.Value != *first {
				return true
			}
			if first == nil {
				first = c.Value
			}
		}
	}
	return false
}

// unit returns the unit in which people read the values. All values of a sweep have one unit.
func (s *Sweep) unit() units.Unit {
	most, values := 0.0, []float64{}
	for _, row := range s.Rows {
		for _, c := range row.Cells {
			if c.Value != nil {
				most, values = max(most, *c.Value), append(values, *c.Value)
			}
		}
	}
	switch s.Unit {
	case reporting.BitRate:
		return perf.UnitFor(most)
	case reporting.Seconds:
		return units.Times.Of(values...)
	case reporting.Share:
		return units.Unit{Name: "%", Size: 0.01}
	}
	return units.Unit{Name: s.Unit, Size: 1}
}

// Title names the sweep: "ar: busbw by size, in Mbit/s".
func (s *Sweep) Title() string {
	title := fmt.Sprintf("%s: %s by size", s.Of, s.Number)
	if unit := s.unit(); unit.Name != "" {
		title += ", in " + unit.Name
	}
	return title
}

// Header returns the heads of the columns: size, and the lines.
func (s *Sweep) Header() []string { return append([]string{"size"}, s.Lines...) }

// missing stands for a value of which no run counts, and mark stands behind a value without some of its runs.
const (
	missing = "-"
	mark    = "*"
)

// Table returns the rows for people, below Header. A cell of which some runs do not count is marked with *.
func (s *Sweep) Table() (rows [][]string) {
	unit := s.unit()
	for _, row := range s.Rows {
		cells := []string{units.Bytes(row.Size).String()}
		for _, c := range row.Cells {
			text := missing
			if c.Value != nil {
				text = unit.Text(*c.Value)
			}
			if c.NotCounted != "" {
				text += mark
			}
			cells = append(cells, text)
		}
		rows = append(rows, cells)
	}
	return rows
}

// Notes has the averages, and describes the marked cells.
func (s *Sweep) Notes() (notes []string) {
	if len(s.Averages) > 0 {
		unit, parts := s.unit(), []string{}
		for i, average := range s.Averages {
			parts = append(parts, fmt.Sprintf("%s %s %s", s.Lines[i], unit.Text(average), unit.Name))
		}
		notes = append(notes, "average busbw of all sizes, out of place and in place: "+
			strings.Join(parts, ", "))
	}
	for _, row := range s.Rows {
		for i, c := range row.Cells {
			if c.NotCounted != "" {
				notes = append(notes, fmt.Sprintf("%s %s at %s: %s; others do not count: %s", mark,
					s.Lines[i], units.Bytes(row.Size), plural.Count(c.Runs, "runs"), c.NotCounted))
			}
		}
	}
	return notes
}

// WriteCSV writes sweeps with a row for each size and a column for each line. Rates are in bit/s, times in
// seconds and shares from 0 to 1. Averages have a row without a size.
func WriteCSV(w io.Writer, sweeps []Sweep) error {
	var lines []string
	for _, s := range sweeps {
		for _, line := range s.Lines {
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	out := csv.NewWriter(w)
	_ = out.Write(slices.Concat([]string{"of", "number", "unit", "size_bytes"}, lines,
		[]string{"not_counted"})) // Error returns it
	for _, s := range sweeps {
		for _, row := range s.Rows {
			cells := []string{s.Of, s.Number, s.Unit, strconv.FormatUint(row.Size, 10)}
			var left []string
			for _, line := range lines {
				cell, at := "", slices.Index(s.Lines, line)
				if at >= 0 && row.Cells[at].Value != nil {
					cell = number(*row.Cells[at].Value)
				}
				if at >= 0 && row.Cells[at].NotCounted != "" {
					left = append(left, line+": "+row.Cells[at].NotCounted)
				}
				cells = append(cells, cell)
			}
			_ = out.Write(append(cells, strings.Join(left, "; ")))
		}
		if len(s.Averages) > 0 {
			cells := []string{s.Of, "average " + s.Number, s.Unit, ""}
			for _, line := range lines {
				cell := ""
				if at := slices.Index(s.Lines, line); at >= 0 {
					cell = number(s.Averages[at])
				}
				cells = append(cells, cell)
			}
			_ = out.Write(append(cells, ""))
		}
	}
	out.Flush()
	return out.Error()
}

// number formats a value without an exponent.
func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// WriteJSON writes sweeps as a JSON document, in the units of WriteCSV.
func WriteJSON(w io.Writer, sweeps []Sweep) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Sweeps []Sweep `json:"sweeps"`
	}{sweeps})
}
