package strictyaml

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Within returns the position of a byte of a text value, counted from 0. The value may be quoted, and
// may have several lines. In a value that differs from the text of the file (Decoder.Replaced), Within
// returns the position of the value.
func (s *Source) Within(path string, offset int) Position {
	at := s.Pos(path)
	if s == nil || at.Line == 0 || s.text == nil {
		return at
	}
	found := s.nearest(path)
	if s.replaced[found.value] {
		return at
	}
	lines := bytes.Split(s.text, []byte("\n"))
	line, column := rawPosition(lines, found.value, offset)
	line = min(line, len(lines))
	column = min(column, utf8.RuneCount(lines[line-1])+1)
	return s.position(place{line, column})
}

// at returns the position of a byte of a scalar, counted from 0.
func (s *Source) at(node *yaml.Node, offset int) Position {
	line, column := rawPosition(bytes.Split(s.text, []byte("\n")), placeOf(node), offset)
	return s.position(place{line, column})
}

// rawPosition finds the place of a byte of a scalar that begins at a place of a file. It reads the
// notations of YAML 1.2: plain and quoted text, in which a line break with the spaces around it is one
// space, and literal and folded blocks.
func rawPosition(lines [][]byte, begin place, offset int) (line, column int) {
	if begin.line > len(lines) {
		return begin.line, begin.column
	}
	rest := []rune(strings.TrimRight(string(lines[begin.line-1]), "\r"))
	line, column = begin.line, begin.column
	if column-1 >= len(rest) {
		return line, column
	}
	quote := rest[column-1]
	switch quote {
	case '|', '>':
		return blockPosition(lines, begin, offset)
	case '"', '\'':
		column++
	default:
		quote = 0
	}
	for ; offset > 0; column++ {
		for column-1 >= len(rest) || len(strings.TrimSpace(string(rest[column-1:]))) == 0 {
			if line >= len(lines) {
				return line, column
			}
			offset-- // the line break is a space
			line++
			rest = []rune(strings.TrimRight(string(lines[line-1]), "\r"))
			column = indent(rest) + 1
			if offset <= 0 {
				return line, column
			}
		}
		c := rest[column-1]
		if column < len(rest) && (quote == '\'' && c == '\'' || quote == '"' && c == '\\') {
			column++ // an escape of two characters
			c = rest[column-1]
		}
		offset -= utf8.RuneLen(c)
	}
	return line, column
}

// blockPosition finds the place of a byte of a block.
func blockPosition(lines [][]byte, begin place, offset int) (line, column int) {
	spaces := -1
	for line = begin.line + 1; line <= len(lines); line++ {
		rest := []rune(string(lines[line-1]))
		if spaces < 0 {
			spaces = indent(rest)
		}
		content := string(rest[min(spaces, len(rest)):])
		if offset <= len(content) {
			return line, spaces + utf8.RuneCountInString(content[:offset]) + 1
		}
		offset -= len(content) + 1
	}
	return begin.line, begin.column
}

func indent(line []rune) (spaces int) {
	for spaces < len(line) && line[spaces] == ' ' {
		spaces++
	}
	return spaces
}
