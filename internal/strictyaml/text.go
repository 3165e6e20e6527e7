package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"railbed/internal/input"
)

// maxDepth bounds nesting.
const maxDepth = 64

// Format describes files of one kind to their readers, for the limits and the messages.
type Format struct {
	// Noun is the word for the contents of a file, such as "testbed".
	Noun string
	// Empty is the advice for an empty file, such as "write name: and fabric:".
	Empty string
	// InsteadOfMerge is the advice for a merge key, such as "write the settings".
	InsteadOfMerge string
	// MaxBytes bounds the size of a file.
	MaxBytes int64
	// Depth is the depth of the deepest value that a file needs.
	Depth int
}

// ReadFile reads a regular file. Its errors are Problems.
func (f Format) ReadFile(path string) ([]byte, error) {
	text, err := input.ReadRegular(path, f.MaxBytes)
	var large *input.LargeError
	switch {
	case errors.As(err, &large):
		return nil, f.tooLarge(path, fmt.Sprintf("has %d bytes", large.Size))
	case errors.Is(err, input.ErrNotRegular):
		return nil, fileProblem(path, err.Error(), "name a regular file, or - for standard input")
	case err != nil:
		return nil, fileProblem(path, err.Error(), "name a file that you can read, or - for standard input")
	}
	return text, nil
}

// ReadFrom reads at most MaxBytes+1 bytes. Parse refuses a text that has the extra byte. Errors are
// Problems, and call the text by the given name.
func (f Format) ReadFrom(name string, r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, f.MaxBytes+1))
	if err != nil {
		return nil, fileProblem(name, "cannot be read: "+input.Reason(err),
			"try again, or name another file")
	}
	return text, nil
}

// fileProblem returns a problem with a file as a whole, with the position of its start.
func fileProblem(file, what, want string) error {
	return Problems{{File: file, Line: 1, Column: 1, What: "the file " + what, Want: want}}
}

func (f Format) tooLarge(file, what string) error {
	return fileProblem(file, what, fmt.Sprintf("a %s has at most %d bytes", f.Noun, f.MaxBytes))
}

// Parse parses the text into the tree of its only document. It checks the text first, because the
// parser reports some errors without a position. Errors are Problems, and call the text by the given name.
func (f Format) Parse(name string, text []byte) (*yaml.Node, error) {
	if int64(len(text)) > f.MaxBytes {
		return nil, f.tooLarge(name, fmt.Sprintf("has more than %d bytes", f.MaxBytes))
	}
	if problem, bad := unreadable(name, text); bad {
		return nil, Problems{problem}
	}
	documents, err := parseDocuments(text)
	mended := text
	for range maxLenient {
		more, ok := lenient(mended, err)
		if !ok {
			break
		}
		mended = more
		documents, err = parseDocuments(mended)
	}
	switch {
	case err != nil:
		problem := f.syntaxProblem(name, mended, err)
		problem.Line, problem.Column = within(text, problem.Line, problem.Column)
		return nil, Problems{problem}
	case len(documents) == 0 || isEmpty(documents[0]):
		return nil, fileProblem(name, "is empty", f.Empty)
	}
	for _, second := range documents[1:] {
		if !isEmpty(second) {
			return nil, Problems{{File: name, Line: second.Line, Column: second.Column,
				What: "a second document starts here",
				Want: fmt.Sprintf("one file is one %s; remove the --- or split the file", f.Noun)}}
		}
	}
	root := documents[0].Content[0]
	moveInside(root, text, bytes.Count(text, []byte("\n"))+1)
	return root, nil
}

// moveInside moves the positions of nodes into the text. An empty value at the end of a text, as of "? a",
// has a position after the last line.
func moveInside(node *yaml.Node, text []byte, lines int) {
	if node.Line > lines {
		node.Line, node.Column = within(text, node.Line, node.Column)
	}
	for _, inner := range node.Content {
		moveInside(inner, text, lines)
	}
}

// maxDocuments bounds the documents that are parsed: the file's own and empty documents behind it.
const maxDocuments = 4

// parseDocuments parses the first documents of a text.
func parseDocuments(text []byte) (documents []*yaml.Node, err error) {
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(false),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth), loaderlimits.AliasNone())))
	if err != nil {
		return nil, err
	}
	for range maxDocuments {
		var document yaml.Node
		if err := loader.Load(&document); err == io.EOF {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		documents = append(documents, &document)
	}
	return documents, nil
}

// Parts of the parser's errors about texts that PyYAML, on which other tools rely, accepts.
const (
	gluedComment = "found a comment without preceding whitespace"
	otherVersion = "found incompatible YAML document"
)

// maxLenient bounds the places of a file where lenient changes the text, each of which costs a parse.
const maxLenient = 8

// lenient changes a text where the parser refuses what PyYAML accepts without doubt about its meaning. The
// positions of all values stay the same.
//
//   - A comment directly after a bracket, a comma or a quote gets a space in front.
//   - The directive %YAML 1.2, or of another minor version, becomes %YAML 1.1.
func lenient(text []byte, err error) (changed []byte, ok bool) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return nil, false
	}
	at := offsetOf(text, load.Mark.Line, load.Mark.Column)
	switch {
	case strings.Contains(load.Message, gluedComment) && at < len(text) && text[at] == '#':
		return slices.Insert(bytes.Clone(text), at, ' '), true
	case strings.Contains(load.Message, otherVersion):
		directive := anyVersion.FindSubmatchIndex(text[at:])
		if directive == nil {
			return nil, false
		}
		changed = bytes.Clone(text)
		changed[at+directive[2]] = '1'
		return changed, true
	}
	return nil, false
}

// anyVersion is a directive with a minor version other than 1.
var anyVersion = regexp.MustCompile(`^%YAML[ \t]+1\.([02-9])[ \t]*(?:#.*)?\r?\n`)

// offsetOf returns the offset of a position, at most the length of the text.
func offsetOf(text []byte, line, column int) (offset int) {
	for ; line > 1; line-- {
		next := bytes.IndexByte(text[offset:], '\n')
		if next < 0 {
			return len(text)
		}
		offset += next + 1
	}
	for ; column > 1 && offset < len(text); column-- {
		_, size := utf8.DecodeRune(text[offset:])
		offset += size
	}
	return offset
}

func isEmpty(document *yaml.Node) bool {
	return len(document.Content) == 0 || document.Content[0].Tag == "!!null"
}

// unreadable finds the first byte that is not text. It refuses what YAML forbids. It also refuses
// line breaks that YAML knows and editors do not, because YAML and editors would then count lines
// differently.
func unreadable(file string, text []byte) (Problem, bool) {
	line, column := 1, 1
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		what, want := "", "remove it"
		switch {
		case r == utf8.RuneError && size == 1:
			what, want = fmt.Sprintf("byte 0x%02x is not UTF-8", text[i]), "save the file as UTF-8"
		case r == '\r' && !bytes.HasPrefix(text[i+1:], []byte("\n")):
			what, want = "a carriage return without a line feed", "end lines with a line feed"
		case r == '\uFEFF' && i > 0, !isText(r):
			what = fmt.Sprintf("character %U is not text", r)
		}
		if what != "" {
			return Problem{File: file, Line: line, Column: column, What: what, Want: want}, true
		}
		i += size
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
	}
	return Problem{}, false
}

// isText reports whether YAML 1.2 allows a rune (production 1, c-printable). It excludes NEL, the
// two Unicode separators, and characters outside Unicode.
func isText(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', r >= 0x20 && r <= 0x7e:
		return true
	case r == 0x2028, r == 0x2029:
		return false
	}
	return r >= 0xa0 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000
}

// syntaxProblem rewords the parser's error. The position may be after the end of the text.
func (f Format) syntaxProblem(file string, text []byte, err error) Problem {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return Problem{File: file, Line: 1, Column: 1, Want: "write YAML",
			What: "the file cannot be parsed: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	mark := load.Mark
	problem := Problem{File: file, Line: max(1, mark.Line), Column: max(1, mark.Column), What: load.Message,
		Want: `write YAML: "key: value", indented with spaces`}
	opened := fmt.Sprintf("close what line %d, column %d opened", load.ContextMark.Line,
		load.ContextMark.Column)
	switch at := charAt(text, mark.Line, mark.Column); {
	case strings.Contains(load.Message, gluedComment):
		problem.What, problem.Want = "a comment without a space before its #", "write a space before #"
	case strings.Contains(load.Message, otherVersion):
		problem.What = "a directive of another version of YAML"
		problem.Want = "write %YAML 1.2, or remove the line"
	case strings.Contains(load.Message, "exceeded max depth"):
		problem.What, problem.Want = "too many levels of nesting",
			fmt.Sprintf("want at most %d; a %s needs %d", maxDepth, f.Noun, f.Depth)
	case at == '\t':
		problem.What, problem.Want = "a tab in the indentation", "indent with spaces"
	case at == '@' || at == '`' || at == '%':
		problem.What, problem.Want = fmt.Sprintf("text cannot start with %q", at), "put the text in quotes"
	case strings.Contains(load.Message, "did not find expected alphabetic or numeric character"):
		problem.Line, problem.Column = load.ContextMark.Line, load.ContextMark.Column
		problem.What, problem.Want = "an alias or anchor without a name", "quote text that starts with * or &"
	case at == '{' && charAt(text, mark.Line, mark.Column-1) == '$':
		problem.Column--
		problem.What, problem.Want = "${ without quotes inside { } or [ ]", `write "${name}" in quotes`
	case strings.Contains(load.Message, "expected node content"):
		problem.What, problem.Want = "a value is missing here",
			"write a value, close what is open, or quote text that starts with a YAML indicator"
	case strings.Contains(load.Message, "unknown anchor"):
		problem.Want = "define the anchor with & before it is used, or quote text that starts with *"
	case strings.Contains(load.Message, "mapping values are not allowed"):
		problem.What, problem.Want = `a second ": " in one value`,
			`quote text that holds ": ", or start the key on its own line`
	case strings.Contains(load.Message, "did not find expected ','"):
		problem.Want = "separate entries with commas and " + opened
	case strings.Contains(load.Message, "end of stream") && load.ContextMark.Line > 0:
		problem.What, problem.Want = "the file ends inside quotes", opened
	case strings.Contains(load.Message, "did not find expected key"),
		strings.Contains(load.Message, "expected '-' indicator"):
		problem.What, problem.Want = "an entry that does not line up with the ones before it",
			fmt.Sprintf("align it with line %d, column %d, or quote the value",
				load.ContextMark.Line, load.ContextMark.Column)
	}
	return problem
}

// within moves a position after the end of the text, or of a line, to the end. The parser reports
// missing tokens after the end of the text, and a mended line is longer than the line of the text.
func within(text []byte, line, column int) (int, int) {
	if last := bytes.Count(text, []byte("\n")) + 1; line > last {
		line, column = last, math.MaxInt
	}
	whole, _, _ := bytes.Cut(text[offsetOf(text, line, 1):], []byte("\n"))
	return line, min(column, utf8.RuneCount(whole)+1)
}

// charAt returns the character at a position, or 0 if there is none.
func charAt(text []byte, line, column int) rune {
	at := offsetOf(text, line, column)
	if at == len(text) || column < 1 {
		return 0
	}
	r, _ := utf8.DecodeRune(text[at:])
	return r
}
