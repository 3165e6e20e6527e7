package suite

import (
	"slices"
	"strings"
	"unicode/utf8"

	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/reporting/sweep"
)

// sizeAxis returns the index of the axis of sizes, or -1: the first axis whose values are all sizes.
func (m *Matrix) sizeAxis() int {
	return slices.IndexFunc(m.differing(), func(axis int) bool {
		return !slices.ContainsFunc(m.Cells, func(c Cell) bool {
			_, err := units.ParseBytes(c.Values[axis].Value)
			return err != nil
		})
	})
}

// differing returns the indexes of the axes in which cells differ.
func (m *Matrix) differing() (axes []int) {
	for i, v := range m.Cells[0].Values {
		if slices.ContainsFunc(m.Cells, func(c Cell) bool { return c.Values[i].Value != v.Value }) {
			axes = append(axes, i)
		}
	}
	return axes
}

// Shared returns the values that all cells have, such as "loss=0", or "".
func (m *Matrix) Shared() string {
	var values []spec.Setting
	axes := m.differing()
	for i, v := range m.Cells[0].Values {
		if len(axes) > 0 && !slices.Contains(axes, i) {
			values = append(values, v)
		}
	}
	return spec.Cell{Values: values}.String()
}

// widestPart bounds "axis=value" in labels. A value alone has at most 40 letters, so that it fits.
const widestPart = 40

// Label returns the values of a cell in which cells differ, with the names of their axes if there is room. A
// matrix of one cell has its name.
func (m *Matrix) Label(cell int) string {
	if axes := m.differing(); len(axes) > 0 {
		return m.label(cell, axes)
	}
	return m.Cells[cell].Name
}

func (m *Matrix) label(cell int, axes []int) string {
	var values []spec.Setting
	var texts []string
	for _, i := range axes {
		values = append(values, m.Cells[cell].Values[i])
		texts = append(texts, m.Cells[cell].Values[i].Value)
	}
	if len(m.unnamed(axes)) > 0 {
		return strings.Join(texts, ", ")
	}
	return spec.Cell{Values: values}.String()
}

// Unnamed returns the axes whose names labels leave out, such as "transport, loss", or "".
func (m *Matrix) Unnamed() string { return strings.Join(m.unnamed(m.differing()), ", ") }

func (m *Matrix) unnamed(axes []int) (names []string) {
	long := false
	for _, i := range axes {
		names = append(names, m.Cells[0].Values[i].Name)
		for _, c := range m.Cells {
			long = long || utf8.RuneCountInString(c.Values[i].Name+"="+c.Values[i].Value) > widestPart
		}
	}
	if !long {
		return nil
	}
	return names
}

// sweeps returns the numbers of workloads by size: numbers that the reports have for several sizes, or one
// axis of the matrix is of sizes. The values of the other axes are lines. Those with busbw come first.
func (m *Matrix) sweeps() (all []sweep.Sweep) {
	axes, at := m.differing(), m.sizeAxis()
	bySize := axes // the other axes, if the matrix has an axis of sizes
	if at >= 0 {
		bySize = slices.Delete(slices.Clone(axes), at, at+1)
	}
	for i := range m.Numbers {
		n := &m.Numbers[i]
		switch {
		case n.Better == reporting.Neither || !n.OfStep():
		case n.size > 0:
			s := sweepOf(&all, n, n.figure)
			for cell := range m.Cells {
				s.Add(m.line(cell, axes, n), n.size, m.sweepCell(cell, n))
			}
		case at >= 0:
			s := sweepOf(&all, n, n.What)
			for cell := range m.Cells {
				size, err := units.ParseBytes(m.Cells[cell].Values[axes[at]].Value)
				if err == nil { // sizeAxis parsed it
					s.Add(m.line(cell, bySize, n), uint64(size), m.sweepCell(cell, n))
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(s sweep.Sweep) bool { return len(s.Rows) < 2 || !s.Varies() })
	slices.SortStableFunc(all, func(a, b sweep.Sweep) int { return rank(&a) - rank(&b) })
	return all
}

// rank orders sweeps.
func rank(s *sweep.Sweep) int {
	if strings.HasPrefix(s.Number, "busbw") {
		return 0
	}
	return 1
}

// sweepOf returns the sweep of a number, which it adds if it is the first with this name.
func sweepOf(all *[]sweep.Sweep, n *Number, name string) *sweep.Sweep {
	at := slices.IndexFunc(*all, func(s sweep.Sweep) bool { return s.Of == n.Of && s.Number == name })
	if at < 0 {
		at = len(*all)
		*all = append(*all, sweep.Sweep{Of: n.Of, Number: name, Unit: n.Unit})
	}
	return &(*all)[at]
}

// line names the line of a cell: the value of the only axis, or names and values of several.
func (m *Matrix) line(cell int, axes []int, n *Number) string {
	switch len(axes) {
	case 0:
		return n.Of
	case 1:
		return m.Cells[cell].Values[axes[0]].Value
	}
	return m.label(cell, axes)
}

func (m *Matrix) sweepCell(cell int, n *Number) sweep.Cell {
	c := sweep.Cell{Runs: n.Cells[cell].Runs, NotCounted: m.Cells[cell].NotCounted}
	if c.Runs > 0 {
		c.Value = &n.Cells[cell].Median
	}
	return c
}
