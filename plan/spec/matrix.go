package spec

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
)

// Bounds of a matrix.
const (
	// MaxCells bounds the cells of a matrix. A workflow of GitHub Actions has the same bound.
	MaxCells = 256
	// MaxRepeat bounds the repetitions of a cell.
	MaxRepeat = 100
	maxAxes   = 8
	// maxLabel bounds the text of a value of an axis, which is a part of the cell's name.
	maxLabel = 40
)

// Keys of matrix that are no axes.
const (
	includeKey = "include"
	excludeKey = "exclude"
	repeatKey  = "repeat"
)

// Setting is the name and the value of an axis or a variable.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Cell is a combination of values of a matrix's axes. A file without a matrix has one cell, without values.
type Cell struct {
	// Values has a value for each axis, in the order of the file.
	Values []Setting
	// more are the other values of the cell's entries of include.
	more []variable
	axes map[string]*yaml.Node
}

// String returns the cell's name, such as "transport=tcp, loss=0.1%".
func (c Cell) String() string {
	words := make([]string, len(c.Values))
	for i, v := range c.Values {
		words[i] = v.Name + "=" + v.Value
	}
	return strings.Join(words, ", ")
}

// has reports whether a cell has the given values.
func (c Cell) has(values map[string]string) bool {
	return !slices.ContainsFunc(c.Values, func(v Setting) bool {
		want, given := values[v.Name]
		return given && want != v.Value
	})
}

// Matrix is the key matrix of a file, for the schema. All other keys are axes: lists of values.
type Matrix struct {
	// Include adds values to cells. An entry applies to each cell that has the entry's values of axes.
	// Its other values are variables of these cells. If no cell has the values, the entry is a new
	// cell. Default none.
	Include []map[string]any `yaml:"include,omitempty" json:"include,omitempty"`
	// Exclude removes each cell that has the values of an entry. Default none.
	Exclude []map[string]any `yaml:"exclude,omitempty" json:"exclude,omitempty"`
	// Repeat is the number of runs of each cell. Each has another seed. Default 1.
	Repeat int `yaml:"repeat,omitempty" json:"repeat,omitempty" jsonschema:"minimum=1,maximum=100" unit:"runs"`
}

// RepetitionSeed returns the seed of a repetition, counted from 1, of a file with a seed. The first has the
// file's seed. The others have 32 bits, so that no reader of JSON rounds them.
func RepetitionSeed(seed uint64, repetition int) uint64 {
	if repetition <= 1 {
		return seed
	}
	return uint64(rand.New(rand.NewPCG(seed, uint64(repetition))).Uint32()) | 1<<32
}

// readMatrix reads the key matrix.
func (f *file) readMatrix(key, node *yaml.Node) {
	var include, exclude *yaml.Node
	f.repeat = 1
	want := "write a mapping of axes to lists of values, as in {loss: [0, 1%]}"
	childPath := func(key string) string { return strictyaml.FieldPath(matrixKey, key) }
	f.Mapping(node, matrixKey, want, childPath, func(name string, keyNode, value *yaml.Node) {
		switch name {
		case includeKey:
			include = value
		case excludeKey:
			exclude = value
		case repeatKey:
			f.readRepeat(value)
		default:
			f.readAxis(name, keyNode, value)
		}
	})
	switch {
	case len(f.Problems) > 0:
		return
	case len(f.axes) == 0 && (!f.Source.Has(strictyaml.FieldPath(matrixKey, repeatKey)) || include != nil ||
		exclude != nil):
		f.Fail(key, matrixKey, "matrix without an axis", "add an axis, as in loss: [0, 1%], or only repeat")
		return
	case len(f.axes) > maxAxes:
		f.Fail(key, matrixKey, fmt.Sprintf("matrix with %d axes", len(f.axes)),
			fmt.Sprintf("want at most %d", maxAxes))
		return
	}
	f.multiply(key)
	f.list(exclude, excludeKey, f.exclude)
	original := len(f.Cells)
	f.list(include, includeKey, func(path string, entry *yaml.Node) { f.include(path, entry, original) })
	switch {
	case len(f.Problems) > 0:
	case len(f.Cells) == 0:
		f.Fail(key, matrixKey, "matrix without a cell", "exclude fewer cells")
	case len(f.Cells) > MaxCells:
		f.tooMany(key, len(f.Cells))
	}
}

func (f *file) tooMany(key *yaml.Node, cells int) {
	f.Fail(key, matrixKey, fmt.Sprintf("matrix of %d cells", cells),
		fmt.Sprintf("want at most %d; remove values, or use several files", MaxCells))
}

func (f *file) readRepeat(value *yaml.Node) {
	path := strictyaml.FieldPath(matrixKey, repeatKey)
	f.Decoder.Decode(value, path, &f.repeat)
	if !f.Wrong[path] && (f.repeat < 1 || f.repeat > MaxRepeat) {
		f.Fail(value, path, fmt.Sprintf("repeat is %d", f.repeat), fmt.Sprintf("want 1 to %d", MaxRepeat))
	}
}

func (f *file) readAxis(name string, key, value *yaml.Node) {
	path := strictyaml.FieldPath(matrixKey, name)
	if !f.named(path, name, key) {
		return
	}
	if v := find(f.variables, name); v != nil {
		f.Fail(key, path, fmt.Sprintf("%q is an axis and a variable", name),
			fmt.Sprintf("rename one; the variable is at line %d, column %d", v.key.Line, v.key.Column))
		return
	}
	value = resolved(value)
	if value.Kind != yaml.SequenceNode {
		f.Fail(value, path, strictyaml.Called(path)+" is "+strictyaml.Described(value),
			"write a list of values, as in [0, 1%]")
		return
	}
	if len(value.Content) == 0 {
		f.Fail(key, path, fmt.Sprintf("axis %q has no values", name),
			"write at least one value, or remove it")
	}
	seen := map[string]*yaml.Node{}
	for i, one := range value.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if f.Full() || !f.hasLabel(at, one) {
			continue
		}
		text := resolved(one).Value
		if first := seen[text]; first != nil {
			f.Fail(one, at, fmt.Sprintf("value %s appears twice in axis %q", text, name),
				fmt.Sprintf("remove one; the first is at line %d, column %d", first.Line, first.Column))
		}
		seen[text] = one
	}
	f.axes = append(f.axes, variable{name, key, value})
}

// hasLabel checks the value of an axis, which is a part of its cells' names.
func (f *file) hasLabel(path string, node *yaml.Node) bool {
	if !f.hasValue(path, node) {
		return false
	}
	node = resolved(node)
	switch {
	case node.Kind != yaml.ScalarNode:
		f.Fail(node, path, strictyaml.Called(path)+" is "+strictyaml.Described(node),
			"write a short text or number, and give its cells the mapping or list under include")
	case len(node.Value) > maxLabel || node.Value == "" ||
		strings.ContainsFunc(node.Value, func(r rune) bool { return r < ' ' || r == ',' }):
		f.Fail(node, path, fmt.Sprintf("%q cannot name a cell", printable.Clip(node.Value)),
			fmt.Sprintf("write 1 to %d characters on one line without a comma, and others under include",
				maxLabel))
	default:
		return true
	}
	return false
}

// multiply makes all combinations of the axes' values. The last axis changes fastest.
func (f *file) multiply(key *yaml.Node) {
	total := 1
	for _, a := range f.axes {
		total *= len(a.value.Content) // at most maxFile, so that eight do not overflow before the check
		if total > 16*MaxCells {
			f.tooMany(key, total)
			return
		}
	}
	f.Cells = []Cell{{axes: map[string]*yaml.Node{}}}
	for _, a := range f.axes {
		var longer []Cell
		for _, c := range f.Cells {
			for _, value := range a.value.Content {
				longer = append(longer, c.with(a.name, resolved(value)))
			}
		}
		f.Cells = longer
	}
}

// with returns the cell with a value of one more axis.
func (c Cell) with(axis string, value *yaml.Node) Cell {
	axes := maps.Clone(c.axes)
	axes[axis] = value
	return Cell{Values: append(slices.Clone(c.Values), Setting{axis, value.Value}), axes: axes}
}

// list reads the entries of include or exclude.
func (f *file) list(node *yaml.Node, key string, read func(path string, entry *yaml.Node)) {
	if node == nil || len(f.Problems) > 0 {
		return
	}
	path := strictyaml.FieldPath(matrixKey, key)
	node = resolved(node)
	if node.Kind != yaml.SequenceNode {
		f.Fail(node, path, strictyaml.Called(path)+" is "+strictyaml.Described(node),
			"write a list of mappings, as in [{loss: 0}]")
		return
	}
	for i, entry := range node.Content {
		if !f.Full() {
			read(fmt.Sprintf("%s[%d]", path, i), resolved(entry))
		}
	}
}

// entry reads an entry of include or exclude: the values of axes, and the others. It returns false if there
// was a problem.
func (f *file) entry(path string, node *yaml.Node) (axes map[string]string, more []variable, ok bool) {
	before := len(f.Problems)
	axes = map[string]string{}
	f.Mapping(node, path, "write a mapping of axes to values, as in {loss: 0}", f.keyed(path),
		func(key string, keyNode, value *yaml.Node) {
			at := strictyaml.EntryPath(path, key)
			if find(f.axes, key) == nil {
				if f.named(at, key, keyNode) && f.hasValue(at, value) {
					more = append(more, variable{key, keyNode, resolved(value)})
				}
			} else if f.hasLabel(at, value) {
				axes[key] = resolved(value).Value
			}
		})
	return axes, more, len(f.Problems) == before
}

func (f *file) exclude(path string, node *yaml.Node) {
	axes, more, ok := f.entry(path, node)
	if !ok {
		return
	}
	for _, v := range more {
		_, hint := nearest.Suggest(v.name, namesOf(f.axes))
		f.Fail(v.key, strictyaml.EntryPath(path, v.name), fmt.Sprintf("%q is no axis", v.name), hint)
		return
	}
	before := len(f.Cells)
	f.Cells = slices.DeleteFunc(f.Cells, func(c Cell) bool { return c.has(axes) })
	if len(f.Cells) == before {
		f.Fail(node, path, "no cell to exclude has these values",
			"write values of the axes, or remove the entry")
	}
}

// include applies an entry to the original cells, which are the first ones.
func (f *file) include(path string, node *yaml.Node, original int) {
	axes, more, ok := f.entry(path, node)
	if !ok {
		return
	}
	for _, v := range more {
		f.extra = append(f.extra, v.name)
	}
	matches := false
	for i := range f.Cells[:original] {
		if c := &f.Cells[i]; c.has(axes) {
			c.more, matches = append(c.more, more...), true
		}
	}
	if matches {
		if len(more) == 0 {
			f.Fail(node, path, "the matrix has these cells already",
				"add the value of a variable, or remove the entry")
		}
		for name := range axes {
			f.used[name] = true // the axis chooses cells
		}
		return
	}
	added := Cell{axes: map[string]*yaml.Node{}}
	values := map[string]*yaml.Node{}
	sections(node, func(key string, _, value *yaml.Node) { values[key] = resolved(value) })
	for _, a := range f.axes {
		if values[a.name] == nil {
			f.Fail(node, path, "no cell has these values, and a new cell lacks axis "+a.name,
				fmt.Sprintf("add %s: VALUE, or write values of the axes", a.name))
			return
		}
		added = added.with(a.name, values[a.name])
	}
	if slices.ContainsFunc(f.Cells, func(c Cell) bool { return c.has(axes) }) {
		f.Fail(node, path, "another entry adds this cell", "write one entry")
		return
	}
	added.more = more
	f.Cells = append(f.Cells, added)
}
