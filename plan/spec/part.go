package spec

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ParsePart parses a part of a testbed, such as a Link, as it is written in files. It skips the
// checks that need the whole file.
func ParsePart[T any](name, text string) (T, error) {
	var part T
	root, err := ParseTree(name, []byte(text))
	if err != nil {
		return part, err
	}
	d := newDecoder(&Source{File: name, values: map[string]mark{}})
	d.decode(root, reflect.ValueOf(&part).Elem(), target{})
	return part, d.problems.Err()
}

// FormatPart formats a part of a testbed on one line, in the form that ParsePart reads.
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
