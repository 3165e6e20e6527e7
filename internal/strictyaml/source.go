package strictyaml

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Source records the position in a file of every value that was decoded from it.
//
// Paths name the values. A path names a field by its key in the file. It names an entry of a
// mapping with free keys by the quoted key, and an element of a list by its index:
//
//	fabric.links["leaf1--spine2"].a-to-b.rate
//	steps[2].workload.name
//
// FieldPath and EntryPath make such paths, and fmt's %d formats indices. A value built in Go has a nil
// *Source: its problems carry the path and no position.
type Source struct {
	File string

	values map[string]mark
	text   []byte // of the file
	cell   string
	// replaced are the positions of values that differ from the text of the file.
	replaced map[place]bool
}

// NewSource returns the Source of a file with a text, without positions. If the file has a matrix, cell is
// the name of the cell that is decoded. Problems carry the name.
func NewSource(file string, text []byte, cell string) *Source {
	return &Source{File: file, values: map[string]mark{}, text: text, cell: cell, replaced: map[place]bool{}}
}

// Cell returns the name of the cell of a matrix, or "" for a file without a matrix.
func (s *Source) Cell() string {
	if s == nil {
		return ""
	}
	return s.cell
}

// mark holds the positions of a value and of its key. An element of a list and the whole file have
// no key, so both positions are the value's.
type mark struct {
	key, value place
	// collection reports whether the value is a mapping or a list. A message is rarely about the
	// first token of such a value.
	collection bool
}

type place struct{ line, column int }

func placeOf(node *yaml.Node) place { return place{node.Line, node.Column} }

func markOf(key, value *yaml.Node) mark {
	return mark{key: placeOf(key), value: placeOf(value), collection: value.Kind != yaml.ScalarNode}
}

// Pos returns the position of the path's value or, if the value is a mapping or a list, of its key. If the
// file does not have the path, as for a defaulted field, Pos returns the position of the nearest enclosing
// value.
func (s *Source) Pos(path string) Position {
	found := s.nearest(path)
	if found.collection {
		return s.position(found.key)
	}
	return s.position(found.value)
}

// KeyPos returns the position of the key of the path's value. It returns Pos for an element of a list, which
// has no key, and for a path that the file does not have.
func (s *Source) KeyPos(path string) Position {
	if s != nil {
		if found, ok := s.values[path]; ok {
			return s.position(found.key)
		}
	}
	return s.Pos(path)
}

// Has reports whether the file itself has a value for the path, as opposed to a default.
func (s *Source) Has(path string) bool {
	if s == nil {
		return false
	}
	_, ok := s.values[path]
	return ok
}

// Problem returns a problem with the value of the path, at its position.
func (s *Source) Problem(path, what, want string) Problem {
	return s.ProblemAt(s.Pos(path), path, what, want)
}

// KeyProblem returns a problem with the key of the path's value, such as the name of an override
// that matches nothing.
func (s *Source) KeyProblem(path, what, want string) Problem {
	return s.ProblemAt(s.KeyPos(path), path, what, want)
}

// ProblemAt returns a problem with the value of the path, at a position within the value.
func (s *Source) ProblemAt(at Position, path, what, want string) Problem {
	return Problem{File: at.File, Line: at.Line, Column: at.Column, Path: path, Cell: s.Cell(), What: what,
		Want: want}
}

func (s *Source) position(at place) Position {
	if s == nil {
		return Position{}
	}
	return Position{File: s.File, Line: at.line, Column: at.column}
}

func (s *Source) nearest(path string) mark {
	if s == nil {
		return mark{}
	}
	for {
		if found, ok := s.values[path]; ok || path == "" {
			return found
		}
		path = ParentPath(path)
	}
}

// FieldPath returns the path of a field of the path's value, by the field's key.
func FieldPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// EntryPath returns the path of an entry of the path's value, which is a mapping with free keys.
func EntryPath(path, key string) string { return path + "[" + strconv.Quote(key) + "]" }

// ParentPath returns the path of the value that contains the path's value. It returns "" for the whole
// file.
func ParentPath(path string) string {
	if strings.HasSuffix(path, `"]`) {
		// A quoted key may itself contain brackets and dots.
		if start := strings.LastIndex(path, `["`); start >= 0 {
			return path[:start]
		}
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
