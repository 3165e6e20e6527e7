package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
)

// maxCompare bounds the comparisons, each of which may have a pair for each cell.
const maxCompare = 100

// Compare is a check between cells of a matrix, or between two parts of the report of each run. It judges the
// ratio of the medians of their runs.
type Compare struct {
	// Metric is the name of a number of the report, as `railbed report` lists it, such as busbw.
	Metric string `yaml:"metric" json:"metric"`
	// Of is the workload, link, check or other part of the report that has the number. It is needed if
	// several have it. Default: the only part that has it.
	Of string `yaml:"of,omitempty" json:"of,omitempty"`
	// Cells are the values of the cells to judge. An axis that is left out stands for all its values.
	// Default: all cells.
	Cells map[string]string `yaml:"cells,omitempty" json:"cells,omitempty" scalar:"any"`
	// Beside are the values in which the other cell differs from the cell to judge. Default: the cells have
	// the claim's treatment, and the other cells its baseline.
	Beside map[string]string `yaml:"beside,omitempty" json:"beside,omitempty" scalar:"any"`
	// BesideOf is the part of the report that has the other number. Without beside, both numbers are of the
	// same run. Default: the same part.
	BesideOf string `yaml:"beside-of,omitempty" json:"beside-of,omitempty"`
	// Ratio bounds the cell's median as a share of the other cell's median, such as ">= 200%" or
	// ">= 200%, <= 600%".
	Ratio string `yaml:"ratio" json:"ratio" unit:"share"`
	// Baseline bounds the other cell's median, such as ">= 10mbit". If this does not hold, the comparison is
	// INCONCLUSIVE, so that a broken baseline proves nothing. Default: not judged.
	Baseline string `yaml:"baseline,omitempty" json:"baseline,omitempty"`

	// Pairs are the cells to judge, each with the other cell.
	Pairs [][2]*Cell `yaml:"-" json:"-"`
	// Where is the position of the comparison.
	Where Position `yaml:"-" json:"-"`
}

// String describes the comparison without its cells.
func (c *Compare) String() string {
	return strings.TrimSpace(c.Of + " " + c.Metric)
}

// readCompare reads the key compare.
func (f *file) readCompare(key, node *yaml.Node) {
	if f.Repeat == 0 {
		f.Fail(key, compareKey, "compare without a matrix", "add a matrix, whose cells it compares")
		return
	}
	if list := resolved(node); list.Kind == yaml.SequenceNode && len(list.Content) > maxCompare {
		f.Fail(node, compareKey, fmt.Sprintf("compare has %d entries", len(list.Content)),
			fmt.Sprintf("want at most %d; an entry without cells judges all cells", maxCompare))
		return
	}
	holder := struct {
		Compare []Compare `yaml:"compare,omitempty"`
	}{}
	c := f.decodeKey(compareKey, node, &holder, &holder.Compare)
	for i := range holder.Compare {
		f.comparison(c, fmt.Sprintf("%s[%d]", compareKey, i), &holder.Compare[i])
	}
	f.Problems = append(f.Problems, c.Problems...)
	f.Compare = holder.Compare
}

// comparison checks a comparison and finds its cells.
func (f *file) comparison(c *checker, at string, one *Compare) {
	one.Where = f.Source.Pos(at)
	if one.Ratio != "" {
		if _, err := ParseBounds(one.Ratio, BesideBound); err != nil {
			c.Report(at+".ratio", fmt.Sprintf("%s.ratio %q is no comparison", at, printable.Clip(one.Ratio)),
				`want one or two of >=, >, <=, < or == and a percentage, as in ">= 110%, <= 400%"`)
		}
	}
	if one.Baseline != "" && !anyBound(one.Baseline) {
		c.Report(at+".baseline",
			fmt.Sprintf("%s.baseline %q is no comparison", at, printable.Clip(one.Baseline)),
			`want >=, >, <=, < or == and a value in the unit of the number, as in ">= 10mbit"`)
	}
	if f.Claim != nil {
		one.takeRoles(f.Claim)
	}
	if f.Source.Has(at+".beside") && len(one.Beside) == 0 {
		c.Report(at+".beside", "beside names no axis", "write the values of another cell, as in {loss: 0}")
	}
	known := true
	for key, values := range map[string]map[string]string{"cells": one.Cells, "beside": one.Beside} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			path := strictyaml.EntryPath(strictyaml.FieldPath(at, key), name)
			known = f.cellValue(c, path, name, values[name]) && known
		}
	}
	switch {
	case !known:
		return
	case len(one.Beside) == 0 && one.BesideOf == "":
		if !f.Source.Has(at + ".beside") {
			c.Report(at, at+" compares with nothing",
				"add beside with the values of another cell, as in {loss: 0}, or beside-of")
		}
		return
	case one.BesideOf != "" && one.BesideOf == one.Of && len(one.Beside) == 0:
		c.Report(at+".beside-of", "a number beside itself", "name another part of the report, or add beside")
		return
	}
	for i := range f.Cells {
		cell := &f.Cells[i]
		if !cell.has(one.Cells) {
			continue
		}
		other := f.changed(cell, one.Beside)
		if other >= 0 && (other != i || one.BesideOf != "" && one.BesideOf != one.Of) {
			one.Pairs = append(one.Pairs, [2]*Cell{cell, &f.Cells[other]})
		}
	}
	if len(one.Pairs) == 0 {
		c.Report(at, "the matrix has no two cells to compare",
			"write cells that are in the matrix, and beside with the value of an axis in which they differ")
	}
}

// cellValue reports a name that is no axis, and a value that no cell has.
func (f *file) cellValue(c *checker, path, name, value string) (ok bool) {
	switch {
	case find(f.axes, name) == nil:
		_, hint := nearest.Suggest(name, namesOf(f.axes))
		c.ReportKey(path, fmt.Sprintf("%q is no axis", printable.Clip(name)), hint)
	case !slices.ContainsFunc(f.Cells, func(c Cell) bool { return c.has(map[string]string{name: value}) }):
		c.Report(path, fmt.Sprintf("no cell has %s=%s", name, printable.Clip(value)),
			"write a value of the axis")
	default:
		return true
	}
	return false
}

// changed returns the index of the cell that differs from a cell by having other values, or -1.
func (f *File) changed(cell *Cell, values map[string]string) int {
	want := map[string]string{}
	for _, v := range cell.Values {
		want[v.Name] = v.Value
	}
	maps.Copy(want, values)
	return slices.IndexFunc(f.Cells, func(c Cell) bool { return c.has(want) })
}

// anyBound reports whether a text is a comparison with a value of any unit.
func anyBound(text string) bool {
	return slices.ContainsFunc([]BoundKind{CountBound, NumberBound, ShareBound, BytesBound, DurationBound,
		RateBound}, func(kind BoundKind) bool {
		_, err := ParseBound(text, kind)
		return err == nil
	})
}
