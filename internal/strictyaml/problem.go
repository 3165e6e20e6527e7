package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/printable"
)

// Position is a position in a file. Line and Column count from 1, and the column counts characters.
// A Line of 0 means that the position is unknown.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column, a form that editors recognise.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one error in a file. It prints as
//
//	file:line:column: what is wrong; what would be right
//
// A value that came from no file has the path in place of the position.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path names the value, as in fabric.links["leaf1--spine2"].rate.
	Path string `json:"path,omitempty"`
	// Cell names the cell of a matrix that has the problem, as in "transport=rd, loss=1%". It is empty if all
	// cells have the problem, or if the file has no matrix.
	Cell string `json:"cell,omitempty"`
	// What describes the error, as in `unknown key "rat"`.
	What string `json:"what"`
	// Want describes the correct form, as in `did you mean "rate"?`.
	Want string `json:"want,omitempty"`
}

// Error implements error.
func (p Problem) Error() string {
	var text strings.Builder
	where := Position{p.File, p.Line, p.Column}.String()
	if p.Line == 0 && p.Path != "" {
		where = strings.TrimPrefix(where+": "+p.Path, ": ")
	}
	if where != "" {
		text.WriteString(where + ": ")
	}
	if p.Cell != "" {
		text.WriteString("cell " + p.Cell + ": ")
	}
	text.WriteString(p.What)
	if p.Want != "" {
		text.WriteString("; " + p.Want)
	}
	return printable.Line(text.String())
}

// Problems holds all errors of a file. Its text has one line per problem. It implements error. Use
// Err to turn a list that may be empty into an error.
type Problems []Problem

// maxProblems bounds the problems that are printed about one file, because no user reads more.
// keptProblems bounds those that are kept, so that a hostile file does not make a list longer than
// itself.
const (
	maxProblems  = 100
	keptProblems = 10 * maxProblems
)

// Err sorts the problems by their position in the file and drops repeated problems. It returns nil
// if there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	// A wrong value that aliases repeat has several paths but is reported once.
	seen := map[Problem]bool{}
	return slices.DeleteFunc(sorted, func(p Problem) bool {
		if p.Line != 0 {
			p.What = strings.ReplaceAll(strings.ReplaceAll(p.What, cmp.Or(p.Path, "\n"), ""),
				cmp.Or(ParentPath(p.Path), "\n"), "")
			p.Path = ""
		}
		twice := seen[p]
		seen[p] = true
		return twice
	})
}

// Error implements error. It returns one line per problem, at most maxProblems.
func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps))
	for i, p := range ps {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("and %d problems more", len(ps)-i))
			break
		}
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}
