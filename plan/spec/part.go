package spec

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ParsePart reads a part of a testbed, such as a Link, in the words of files.
// What the decoding of a whole file checks besides is not checked.
func ParsePart[T any](name, text string) (T, error) {
	var part T
	root, err := ParseTree(name, []byte(text))
	if err != nil {
		return part, err
	}
	d := &decoder{source: &Source{File: name, values: map[string]mark{}}, wrong: map[string]bool{},
		open: map[*yaml.Node]bool{}}
	d.decode(root, reflect.ValueOf(&part).Elem(), target{})
	return part, d.problems.Err()
}

// FormatPart writes a part of a testbed on one line, as ParsePart reads it.
func FormatPart[T any](part T) (string, error) {
	e := encoder{defaults: defaultValues()}
	root := e.value(reflect.ValueOf(part))
	root.Style = yaml.FlowStyle
	text, err := yaml.Dump(root, yaml.WithLineWidth(-1))
	if err != nil {
		return "", fmt.Errorf("write a part of a testbed: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
