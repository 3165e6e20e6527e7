package spec

import "strings"

// Source knows where in the file every value of a Testbed stood.
//
// Values are named by paths: a field by its key in the file, an entry of a
// mapping with free keys by its quoted key, an element by its index, as in
//
//	fabric.links["leaf1--spine2"].a-to-b.rate
//	steps[2].workload.name
//
// so fmt's %q and %d make them. A nil *Source is that of a testbed built in Go:
// its problems carry the path and no position.
type Source struct {
	File string

	values map[string]mark
}

// mark is where a value stands and where its key does. An element of a list and
// the whole file have no key; both places are then the value's.
type mark struct {
	key, value place
	// collection says that the value is a mapping or a list, whose own first
	// token is rarely what a message is about.
	collection bool
}

type place struct{ line, column int }

// Pos is where the value of the path stands: a scalar's own place, and for a
// mapping or a list the place of its key. For a path that the file does not
// have, such as that of a defaulted field, it is the nearest enclosing value.
func (s *Source) Pos(path string) Position {
	found := s.nearest(path)
	if found.collection {
		return s.position(found.key)
	}
	return s.position(found.value)
}

// KeyPos is where the key of the path's value stands; for an element of a list,
// which has no key, and for a path that the file does not have, it is Pos.
func (s *Source) KeyPos(path string) Position {
	if s != nil {
		if found, ok := s.values[path]; ok {
			return s.position(found.key)
		}
	}
	return s.Pos(path)
}

// Has reports whether the file itself has a value for the path, as opposed to
// a default.
func (s *Source) Has(path string) bool {
	if s == nil {
		return false
	}
	_, ok := s.values[path]
	return ok
}

// Problem is a problem with the value of the path, at its position.
func (s *Source) Problem(path, what, want string) Problem {
	return problemAt(s.Pos(path), path, what, want)
}

// KeyProblem is a problem with the key of the path's value, such as the name of
// an override that matches nothing.
func (s *Source) KeyProblem(path, what, want string) Problem {
	return problemAt(s.KeyPos(path), path, what, want)
}

func problemAt(at Position, path, what, want string) Problem {
	return Problem{File: at.File, Line: at.Line, Column: at.Column, Path: path, What: what, Want: want}
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
		path = parent(path)
	}
}

// parent is the path of the value that holds this one, "" for the whole file.
func parent(path string) string {
	if strings.HasSuffix(path, `"]`) {
		// A quoted key may itself hold brackets and dots.
		if start := strings.LastIndex(path, `["`); start >= 0 {
			return path[:start]
		}
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
