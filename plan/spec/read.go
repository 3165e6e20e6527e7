package spec

import (
	"io"

	"go.yaml.in/yaml/v4"

	"railbed/internal/input"
	"railbed/internal/strictyaml"
)

// maxFile bounds a file in bytes. A file that lists 4,096 nodes one by one needs a quarter of
// it. Parsing a file of this size takes under a second and some 100 MiB.
const maxFile = 1 << 20

// format describes testbed files. The deepest value of a testbed is at depth 8.
var format = strictyaml.Format{Noun: "testbed", MaxBytes: maxFile, Depth: 8,
	Empty:          "write name: and fabric:, as `railbed generate` does",
	InsteadOfMerge: `write the settings, or use "default" and globs`}

// Position is a position in a file. Line and Column count from 1, and the column counts characters.
// A Line of 0 means that the position is unknown.
type Position = strictyaml.Position

// Problem is one error in a file. It prints as
//
//	file:line:column: what is wrong; what would be right
//
// A testbed that came from no file has the path in place of the position. The fields are File, Line, Column,
// Path, Cell, What and Want.
type Problem = strictyaml.Problem

// Problems is a list of Problem: all errors of a file. Its text has one line per problem. It implements
// error. Use Err to turn a list that may be empty into an error.
type Problems = strictyaml.Problems

// Source records the position in the file of every value of a Testbed. A path such as
// fabric.links["leaf1--spine2"].a-to-b.rate names a value. Pos and KeyPos return the positions of a value and
// of its key. A testbed built in Go has a nil *Source.
type Source = strictyaml.Source

// LargeError reports a file with more bytes than the limit.
type LargeError = input.LargeError

// Decode decodes the text of a file. Errors call the file by the given name. Decode reports at
// once, as Problems, every problem that it can find from the file alone. The plan compiler finds
// problems that need the finished fabric, such as an override that matches no link. Decode fills in
// defaults by SetDefaults.
//
// Decode replaces variables by their values. A file with a matrix of several cells is a problem.
func Decode(file string, text []byte) (*Testbed, error) {
	f, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	return f.DecodeOnly()
}

// decodeTree decodes a tree in which variables are replaced. It skips the keys that belong to the File.
func decodeTree(d *strictyaml.Decoder, root *yaml.Node) (*Testbed, error) {
	testbed := &Testbed{Source: d.Source}
	d.Skipped = fileKeys
	d.Decode(root, "", testbed)
	problems := d.Problems
	if !d.Full() { // otherwise the values are incomplete
		problems = append(problems, testbed.check(d.Wrong)...)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	testbed.SetDefaults()
	return testbed, nil
}

// Load reads and decodes a file. Its errors are Problems.
func Load(path string) (*Testbed, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return Decode(path, text)
}

// Read decodes the text of a reader. Errors call it by the given name.
func Read(name string, r io.Reader) (*Testbed, error) {
	text, err := ReadTextFrom(name, r)
	if err != nil {
		return nil, err
	}
	return Decode(name, text)
}

// ReadText reads a file of at most 1 MiB, as ReadRegular does. Its errors are Problems.
func ReadText(path string) ([]byte, error) { return format.ReadFile(path) }

// ReadTextFrom reads at most 1 MiB and one byte. Decoding refuses a text that has the extra byte.
// Errors call the text by the given name.
func ReadTextFrom(name string, r io.Reader) ([]byte, error) { return format.ReadFrom(name, r) }

// ReadRegular reads a regular file of at most the given number of bytes. A device or a FIFO is an
// error, so neither can block the read or fill memory. The errors do not name the file.
func ReadRegular(path string, most int64) ([]byte, error) { return input.ReadRegular(path, most) }

// ParseTree parses the text into the tree of its only document. It checks the text first, because
// the parser reports some errors without a position.
func ParseTree(file string, text []byte) (*yaml.Node, error) { return format.Parse(file, text) }

// decodePart decodes a text that is a part of a file, at a path.
func decodePart(name string, text []byte, path string, into any) (*strictyaml.Decoder, error) {
	root, err := ParseTree(name, text)
	if err != nil {
		return nil, err
	}
	d := format.Decoder(strictyaml.NewSource(name, text, ""))
	d.Decode(root, path, into)
	return d, nil
}
