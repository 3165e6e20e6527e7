package convert

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// variable matches a reference to the environment, which containerlab replaces before it reads a
// file.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?[-=]([^}]*))?\}`)

// unset stands for a variable without a default until its value is left out. No file has this word.
const unset = "RAILBED-VARIABLE-WITHOUT-DEFAULT-"

// withoutVariables replaces variables by their defaults. A testbed file has no variables, and its
// meaning does not depend on the environment of its reader.
func (r *reader) withoutVariables(source []byte) []byte {
	lines := strings.Split(string(source), "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, found := range variable.FindAllStringSubmatchIndex(line, -1) {
			if found[4] >= 0 {
				r.add(place{i + 1, found[0] + 1}, "", "variable %s has its default %q, not its value in the "+
					"environment", line[found[2]:found[3]], line[found[4]:found[5]])
			}
		}
		lines[i] = variable.ReplaceAllStringFunc(line, func(text string) string {
			found := variable.FindStringSubmatchIndex(text)
			if found[4] < 0 {
				return unset + text[found[2]:found[3]] + "-"
			}
			return text[found[4]:found[5]]
		})
	}
	return []byte(strings.Join(lines, "\n"))
}

var unsetVariable = regexp.MustCompile(unset + `([A-Za-z_][A-Za-z0-9_]*)-`)

// withoutUnset removes values with variables that have no default, with a note for each. It removes a link
// whose end is such a value. It reports whether the value itself is to be removed.
func (r *reader) withoutUnset(n *yaml.Node, called string) (remove bool) {
	switch n.Kind {
	case yaml.ScalarNode:
		found := unsetVariable.FindStringSubmatch(n.Value)
		if found != nil {
			r.add(placeOf(n), fmt.Sprintf("want ${%s:=VALUE}, or its value", found[1]),
				"left out: %s, because variable %s has no default", called, found[1])
		}
		return found != nil
	case yaml.MappingNode:
		kept := n.Content[:0]
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch gone := r.withoutUnset(key, "a key") || r.withoutUnset(value, key.Value); {
			case gone && key.Value == "endpoints":
				remove = true
			case !gone:
				kept = append(kept, key, value)
			}
		}
		n.Content = kept
	case yaml.SequenceNode:
		kept := n.Content[:0]
		for _, element := range n.Content {
			if !r.withoutUnset(element, "an element of "+called) {
				kept = append(kept, element)
			} else if called == "endpoints" {
				remove = true
			}
		}
		n.Content = kept
	}
	return remove
}
