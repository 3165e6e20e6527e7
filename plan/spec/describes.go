package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
)

// fabricKey is the key that every testbed file has.
const fabricKey = "fabric"

// mentionsFabric matches texts that may be testbed files with errors of syntax.
var mentionsFabric = regexp.MustCompile(`(?mi)^(?:[{?]\s*|\s*["'])?["']?fabrics?["']?\s*:`)

// Describes reports whether a text is a testbed file, perhaps with a mistake. Such a text is a mapping with
// the key fabric, or with a key that looks like a misspelt fabric. A text that cannot be parsed is a testbed
// file if it appears to have the key. Otherwise reason says why the text is no testbed file.
func Describes(text []byte) (is bool, reason string) {
	root, err := ParseTree("file", text)
	var problems Problems
	switch {
	case errors.As(err, &problems) && mentionsFabric.Match(text):
		return true, ""
	case errors.As(err, &problems):
		p := problems[0]
		if p.Line == 0 {
			return false, p.What
		}
		return false, fmt.Sprintf("line %d: %s", p.Line, p.What)
	case err != nil:
		return false, err.Error()
	case root.Kind != yaml.MappingNode:
		return false, "it is no mapping, so that it has no key " + fabricKey
	}
	near, others := "", false
	sections(root, func(key string, _, _ *yaml.Node) {
		switch {
		case strings.EqualFold(strings.TrimSpace(key), fabricKey):
			is = true
		case nearest.Word(key, []string{fabricKey}) != "":
			near = key
		case slices.Contains(testbedKeys, key):
			others = true
		}
	})
	if near != "" {
		return is || others, fmt.Sprintf("it has the key %s and no key %s", near, fabricKey)
	}
	return is, "it has no key " + fabricKey
}

// testbedKeys are keys beside which a key like fabric is a misspelt fabric.
var testbedKeys = []string{"name", "description", "nodes", "requires", "steps", "checks", variablesKey,
	matrixKey}
