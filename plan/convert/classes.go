package convert

import (
	"fmt"
	"strings"

	"railbed/plan/spec"
)

// class is a kind of note that is written once for all of its cases. Examples of notes are "a step
// is left out (sleep)" and "3 steps are left out (sleep, exec date and 1 more)".
type class struct{ one, many, want string }

// cases are the notes of a class.
type cases struct {
	class
	first    spec.Problem // the position of the first case
	count    int
	examples []string
}

// maxExamples bounds the examples of a class, and maxExample the length of one in bytes.
const maxExamples, maxExample = 2, 50

// gather adds a case of a class at a position.
func (n *notes) gather(c class, at spec.Problem, example string, args ...any) {
	found := n.classes[c]
	if found == nil {
		found = &cases{class: c, first: at}
		if n.classes == nil {
			n.classes = map[class]*cases{}
		}
		n.classes[c] = found
	}
	found.count++
	if example = fmt.Sprintf(example, args...); len(example) > maxExample {
		example = strings.ToValidUTF8(example[:maxExample], "") + "..."
	}
	if len(found.examples) < maxExamples && example != "" {
		found.examples = append(found.examples, example)
	}
}

// problem returns the note about all cases.
func (c *cases) problem() spec.Problem {
	what := c.one
	if c.count > 1 {
		what = fmt.Sprintf("%d %s", c.count, c.many)
	}
	if len(c.examples) > 0 {
		examples := strings.Join(c.examples, ", ")
		if more := c.count - len(c.examples); more > 0 {
			examples += fmt.Sprintf(" and %d more", more)
		}
		what += " (" + examples + ")"
	}
	p := c.first
	p.What, p.Want = what, c.want
	return p
}

// problem returns a problem without text at a position of the topology.
func (n *notes) problem(at place) spec.Problem {
	return spec.Problem{File: n.file, Line: at.line, Column: at.column}
}
