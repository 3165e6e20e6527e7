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

// File is a file with its variables, its matrix, the comparisons between the matrix's cells, and its claim.
// Each cell is a Testbed.
type File struct {
	// Name is the name of the file in errors.
	Name string
	// Cells are the cells of the matrix, or one cell.
	Cells []Cell
	// Repeat is the number of runs of each cell. It is 0 for a file without a matrix.
	Repeat int
	// Claim is the claim that the comparisons prove, or nil.
	Claim *Claim
	// Compare are the comparisons between cells, by the medians of their runs.
	Compare []Compare
	// Controls are values of variables. With each of them a run must not pass.
	Controls []Control

	text []byte
	// root is the tree of a file without variables and matrix.
	root      *yaml.Node
	axes      []variable
	variables []variable
	set       map[string]*yaml.Node
	// matrix has the position of the key matrix.
	matrix *Source
}

// file reads a File.
type file struct {
	*strictyaml.Decoder
	*File
	repeat int
	// extra are the names of variables under include. used are the names that values use.
	extra []string
	used  map[string]bool
}

// Parse reads the variables, the matrix and the comparisons of a file. Errors are Problems. They call the
// file by the given name.
func Parse(name string, text []byte) (*File, error) {
	root, err := ParseTree(name, text)
	if err != nil {
		return nil, err
	}
	source := strictyaml.NewSource(name, text, "")
	f := &file{Decoder: format.Decoder(source), used: map[string]bool{},
		File: &File{Name: name, text: text, Cells: []Cell{{}}, matrix: source}}
	keys, values := map[string]*yaml.Node{}, map[string]*yaml.Node{}
	sections(root, func(key string, keyNode, value *yaml.Node) {
		if slices.Contains(fileKeys, key) && keys[key] == nil {
			keys[key], values[key] = keyNode, value
			f.Mark(key, keyNode, value)
		}
	})
	if len(keys) == 0 {
		f.root = root
		return f.File, nil
	}
	if keys[variablesKey] != nil {
		f.readVariables(values[variablesKey])
	}
	if keys[matrixKey] != nil {
		f.readMatrix(keys[matrixKey], values[matrixKey])
		f.Repeat = f.repeat
	}
	if len(f.Problems) == 0 {
		f.readReferences(root)
	}
	for _, read := range []struct {
		key string
		do  func(key, value *yaml.Node)
	}{{claimKey, f.readClaim}, {compareKey, f.readCompare}, {controlKey, f.readControls}} {
		if keys[read.key] != nil && len(f.Problems) == 0 {
			read.do(keys[read.key], values[read.key])
		}
	}
	if f.Claim != nil && !f.compared() && len(f.Problems) == 0 {
		f.Fail(keys[claimKey], claimKey, "claim without a comparison of its treatment and its baseline",
			`add compare, as in compare: [{metric: busbw, of: ar, ratio: ">= 150%"}]`)
	}
	if err := f.Problems.Err(); err != nil {
		return nil, err
	}
	return f.File, nil
}

// LoadFile reads a file and parses it as Parse does.
func LoadFile(path string) (*File, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// Settable returns the names of the variables and axes.
func (f *File) Settable() []string { return slices.Concat(namesOf(f.variables), namesOf(f.axes)) }

// Set sets a variable, or leaves only the cells with a value of an axis.
func (f *File) Set(s Setting) error {
	switch {
	case find(f.variables, s.Name) != nil:
		if f.set == nil {
			f.set = map[string]*yaml.Node{}
		}
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s.Value}
		if s.Value == "true" || s.Value == "false" {
			node.Tag = "!!bool"
		}
		f.set[s.Name] = node
		return nil
	case find(f.axes, s.Name) == nil:
		if len(f.Settable()) == 0 {
			return fmt.Errorf("%s has no variable %q: want a file with variables or a matrix", f.Name, s.Name)
		}
		_, hint := nearest.Suggest(s.Name, f.Settable())
		return fmt.Errorf("%s has no variable %q; %s", f.Name, s.Name, hint)
	}
	var values []string
	left := slices.DeleteFunc(slices.Clone(f.Cells), func(c Cell) bool {
		at := slices.IndexFunc(c.Values, func(v Setting) bool { return v.Name == s.Name })
		if !slices.Contains(values, c.Values[at].Value) {
			values = append(values, c.Values[at].Value)
		}
		return c.Values[at].Value != s.Value
	})
	if len(left) == 0 {
		return fmt.Errorf("%s has no cell with %s=%s: want %s", f.Name, s.Name, printable.Clip(s.Value),
			nearest.OneOf(values))
	}
	f.Cells = left
	return nil
}

// Only returns the only cell. If there are several, its error is Problems and lists them.
func (f *File) Only() (*Cell, error) {
	if len(f.Cells) == 1 {
		return &f.Cells[0], nil
	}
	const most = 20
	var names []string
	for i, c := range f.Cells {
		if i == most {
			names = append(names, "...")
			break
		}
		names = append(names, c.String())
	}
	var first strings.Builder
	for _, v := range f.Cells[0].Values {
		fmt.Fprintf(&first, " --set %s=%s", v.Name, v.Value)
	}
	return nil, Problems{f.matrix.ProblemAt(f.matrix.Pos(matrixKey), matrixKey,
		fmt.Sprintf("matrix of %d cells, and one testbed is wanted", len(f.Cells)),
		fmt.Sprintf("choose a cell, as in%s, or run all of them with railbed test; the cells are %s", &first,
			strings.Join(names, "; ")))}
}

// DecodeOnly decodes the testbed of the only cell.
func (f *File) DecodeOnly() (*Testbed, error) {
	cell, err := f.Only()
	if err != nil {
		return nil, err
	}
	return f.Decode(cell)
}

// Decode decodes the testbed of a cell, as the function Decode does. Its problems name the cell.
func (f *File) Decode(cell *Cell) (*Testbed, error) {
	if f.root != nil {
		return decodeTree(format.Decoder(strictyaml.NewSource(f.Name, f.text, "")), f.root)
	}
	root, err := ParseTree(f.Name, f.text)
	if err != nil {
		return nil, err
	}
	d := format.Decoder(strictyaml.NewSource(f.Name, f.text, cell.String()))
	values := map[string]*yaml.Node{}
	for _, v := range slices.Concat(f.variables, cell.more) {
		values[v.name] = v.value
	}
	maps.Copy(values, f.set)
	maps.Copy(values, cell.axes)
	sections(root, func(key string, _, value *yaml.Node) {
		if slices.Contains(fileKeys, key) {
			return
		}
		replace(d, value, values, func(node *yaml.Node, r reference) {
			d.FailAt(node, r.at, fmt.Sprintf("variable %q has no value in this cell", r.name),
				fmt.Sprintf("add %s: VALUE to variables, for the cells that include does not name", r.name))
		})
	})
	if err := d.Problems.Err(); err != nil {
		return nil, err
	}
	return decodeTree(d, root)
}

// MergeProblems joins the problems of cells. It names the cells of a problem, unless all of them have it.
func MergeProblems(cells int, all []Problems) Problems {
	var merged Problems
	times := map[Problem]int{}
	for _, of := range all {
		for _, p := range of {
			key := p
			key.Cell = ""
			if times[key]++; times[key] == 1 {
				merged = append(merged, p)
			}
		}
	}
	for i, p := range merged {
		key := p
		key.Cell = ""
		switch n := times[key]; {
		case n >= cells:
			merged[i].Cell = ""
		case n > 1:
			merged[i].Cell = fmt.Sprintf("%s and %d more", p.Cell, n-1)
		}
	}
	return merged
}
