package msccl

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/input"
)

// file is a text with its path.
type file struct {
	path  string
	bytes []byte
}

// at returns an error with the position of a byte.
func (f *file) at(offset int, format string, args ...any) error {
	line, column := input.Position(f.bytes, offset)
	return fmt.Errorf("%s:%d:%d: %w", f.path, line, column, fmt.Errorf(format, args...))
}

// element is an element of a kind in levels.
type element struct {
	name       string
	start, end int // bytes of its start tag
	attrs      []xml.Attr
	children   []*element
}

// levels are the elements of a file, each nested in the first kind of the one before. Nothing is in a copy.
var levels = [][]string{{"algo"}, {"gpu"}, {"tb", "copy"}, {"step"}}

// maxAttrs is the maximum number of attributes of an element. A step needs ten.
const maxAttrs = 32

// reader reads a file and collects its errors.
type reader struct {
	file
	problems []error
}

// maxProblems is the number of errors after which a reader stops.
const maxProblems = 20

func (r *reader) problem(offset int, format string, args ...any) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, r.at(offset, format, args...))
	}
}

// parse reads the elements.
func (r *reader) parse() (*element, error) {
	d := xml.NewDecoder(bytes.NewReader(r.bytes))
	var open []*element
	var algo *element
	for steps := 0; ; {
		start := int(d.InputOffset())
		token, err := d.Token()
		if errors.Is(err, io.EOF) && algo != nil {
			return algo, nil
		}
		if errors.Is(err, io.EOF) {
			return nil, r.at(len(r.bytes), "the file has no element algo")
		}
		if err != nil {
			if syntax := (*xml.SyntaxError)(nil); errors.As(err, &syntax) {
				err = errors.New(syntax.Msg)
			}
			return nil, r.at(int(d.InputOffset()), "read XML: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, start: start, end: int(d.InputOffset()), attrs: token.Attr}
			switch {
			case len(open) == len(levels), !slices.Contains(levels[len(open)], e.name),
				len(open) > 0 && open[len(open)-1].name == "copy":
				return nil, r.at(start, "element %.20q %s", e.name, within(open))
			case len(open) == 0 && algo != nil:
				return nil, r.at(start, "a second element algo: want one")
			}
			if err := r.attributes(e); err != nil {
				return nil, err
			}
			if steps++; steps > maxSteps {
				return nil, r.at(start, "more than %d elements", maxSteps)
			}
			if len(open) == 0 {
				algo = e
			} else {
				parent := open[len(open)-1]
				parent.children = append(parent.children, e)
			}
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if text := bytes.TrimSpace(token); len(text) > 0 {
				blank := len(token) - len(bytes.TrimLeft(token, " \t\n"))
				return nil, r.at(start+blank, "text %.20q: want only elements", text)
			}
		}
	}
}

// within describes the elements that are allowed at a position, for errors.
func within(open []*element) string {
	if len(open) == 0 {
		return "at the top: want algo"
	}
	parent := open[len(open)-1].name
	if len(open) == len(levels) || parent == "copy" {
		return "in " + parent + ": want no element there"
	}
	return fmt.Sprintf("in %s: want %s", parent, strings.Join(levels[len(open)], " or "))
}

// attributes checks that no attribute occurs twice.
func (r *reader) attributes(e *element) error {
	if len(e.attrs) > maxAttrs {
		return r.at(e.start, "%d attributes, limit %d", len(e.attrs), maxAttrs)
	}
	for i, a := range e.attrs {
		if slices.ContainsFunc(e.attrs[:i], func(b xml.Attr) bool { return a.Name == b.Name }) {
			return r.at(e.start, "%s has attribute %.20q twice", e.name, a.Name.Local)
		}
	}
	return nil
}

// where returns the offset of an attribute's name, or of its element if the attribute is missing.
func (r *reader) where(e *element, name string) int {
	tag := r.bytes[e.start:e.end]
	quote := byte(0)
	for i := range tag {
		switch c := tag[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) && bytes.HasPrefix(tag[i+1:], []byte(name)):
			if rest := bytes.TrimLeft(tag[i+1+len(name):], " \t\r\n"); bytes.HasPrefix(rest, []byte("=")) {
				return e.start + i + 1
			}
		}
	}
	return e.start
}

// fields reads an element's attributes. bad is set if one of them was wrong.
type fields struct {
	*reader
	*element
	bad bool
}

func (r *reader) in(e *element) *fields { return &fields{reader: r, element: e} }

// wrong reports an invalid attribute.
func (f *fields) wrong(name, format string, args ...any) {
	f.bad = true
	f.problem(f.where(f.element, name), "%s of %s: %w", name, f.name, fmt.Errorf(format, args...))
}

// find returns an optional attribute.
func (e *element) find(name string) (value string, is bool) {
	i := slices.IndexFunc(e.attrs, func(a xml.Attr) bool { return a.Name.Local == name })
	if i < 0 {
		return "", false
	}
	return e.attrs[i].Value, true
}

// text returns a required attribute.
func (f *fields) text(name string) string {
	value, is := f.find(name)
	if !is {
		f.bad = true
		f.problem(f.start, "%s has no attribute %s", f.name, name)
	}
	return value
}

// number returns an attribute as a number from least to most. The number is undefined if the
// element is bad.
func (f *fields) number(name string, least, most int) int {
	value, is := f.find(name)
	if !is {
		f.text(name)
		return least
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		f.wrong(name, "%.20q: want %d to %d", value, least, most)
	}
	return n
}

// word returns an attribute that must be one of several words.
func (f *fields) word(name string, words ...string) string {
	value := f.text(name)
	if _, is := f.find(name); is && !slices.Contains(words, value) {
		f.wrong(name, "%.20q: want %s", value, strings.Join(words, ", "))
	}
	return value
}
