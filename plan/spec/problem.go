package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/printable"
)

// Position is a place in a file. Line and Column count from 1, the column in
// characters; a Line of 0 says that the place is not known.
type Position struct {
	File         string
	Line, Column int
}

// String prints file:line:column, the form that editors jump to.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one thing that is wrong with a file. It prints as
//
//	file:line:column: what is wrong; what would be right
//
// or with the path in place of the position for a testbed that came from no
// file.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path names the value, as in fabric.links["leaf1--spine2"].rate.
	Path string `json:"path,omitempty"`
	// What is wrong, as in `unknown key "rat"`.
	What string `json:"what"`
	// Want is what would be right, as in `did you mean "rate"?`.
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
	text.WriteString(p.What)
	if p.Want != "" {
		text.WriteString("; " + p.Want)
	}
	return printable.Line(text.String())
}

// Problems is everything that is wrong with a file, one problem to a line of
// its text. It is an error; use Err to turn a list that may be empty into one.
type Problems []Problem

// maxProblems bounds what is printed about one file, because nobody reads more,
// and keptProblems what is kept, so that a hostile file does not make a list
// longer than itself.
const (
	maxProblems  = 100
	keptProblems = 10 * maxProblems
)

// Err sorts the problems by their place in the file, drops repeated ones and
// returns them, or nil where there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column))
	})
	// A value that aliases repeat is wrong under several paths, but once.
	seen := map[Problem]bool{}
	return slices.DeleteFunc(sorted, func(p Problem) bool {
		if p.Line != 0 {
			p.What = strings.ReplaceAll(strings.ReplaceAll(p.What, cmp.Or(p.Path, "\n"), ""),
				cmp.Or(parent(p.Path), "\n"), "")
			p.Path = ""
		}
		twice := seen[p]
		seen[p] = true
		return twice
	})
}

// Error implements error: one line for each problem, at most maxProblems.
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
