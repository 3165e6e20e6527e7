// Package keys describes the keys of testbed files for people: type, unit, default, description, example and
// fields of each key. It reads them from the JSON Schema of package spec.
package keys

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"railbed/plan/spec"
)

// Key is a key of a file. Root is the file itself.
type Key struct {
	// Path leads from the root to the key, as in fabric.links.loss. The names of entries and the
	// positions in lists are left out.
	Path string `json:"path"`
	// Type is the type of the value, such as duration, or list of text.
	Type string `json:"type"`
	// Values are the words that the value can be.
	Values []string `json:"values,omitempty"`
	// Range is the range of a number, such as "1 to 64".
	Range string `json:"range,omitempty"`
	// Unit is the unit of a number, or the quantity that a bound compares.
	Unit     string `json:"unit,omitempty"`
	Required bool   `json:"required,omitempty"`
	// Choice is set if the key is one of several that exclude each other.
	Choice bool `json:"choice,omitempty"`
	// Default is a value as in a file, or words. Literal is set if it is a value.
	Default     string `json:"default,omitempty"`
	Literal     bool   `json:"-"`
	Description string `json:"description"`
	// Since is the release that brought the key, such as 1.0.0.
	Since string `json:"since"`
	// Group is the name of the group of keys that the value has, or "".
	Group string `json:"-"`
	// Also are other paths to the same key, if Find chose among several.
	Also []string `json:"also,omitempty"`

	name   string
	parent *Key
	// entries and list are set if the value maps names to values, or is a list.
	entries, list bool
	example       *yaml.Node
}

// Alternatives returns the names of the keys of which exactly one is set, with the key's own, if Choice is
// set.
func (k *Key) Alternatives() (found []string) {
	if !k.Choice || k.parent == nil {
		return nil
	}
	for _, f := range k.parent.Fields() {
		if f.Choice {
			found = append(found, f.name)
		}
	}
	return found
}

// definitions are the groups of keys of the schema, by name.
var definitions = sync.OnceValue(func() map[string]*yaml.Node {
	var document yaml.Node
	if err := yaml.Load(spec.Schema(), &document); err != nil {
		panic(fmt.Sprintf("keys: the schema is no YAML: %v", err)) // it is compiled in
	}
	found := map[string]*yaml.Node{}
	for name, definition := range pairs(at(document.Content[0], "$defs")) {
		found[name] = definition
	}
	return found
})

// Root returns the file itself.
func Root() *Key {
	return &Key{Type: "mapping", Group: "Testbed", Description: Group("Testbed")}
}

// Group describes a group of keys, such as Link, or returns "". The name of the type, with which its comment
// begins, is left out.
func Group(name string) string {
	words := text(definitions()[name], "description")
	if rest := withoutSubject(name, words); rest != words {
		return strings.ToUpper(rest[:1]) + rest[1:]
	}
	return words
}

// withoutSubject cuts the name, with which a comment begins, and its verb off.
func withoutSubject(name, words string) string {
	for _, lead := range []string{name + " is ", name + " are ", name + " "} {
		if rest, is := strings.CutPrefix(words, lead); is {
			return rest
		}
	}
	return words
}

// Fields returns the keys of the value, of an element of it, or of an entry of it.
func (k *Key) Fields() []*Key {
	definition := definitions()[k.Group]
	if definition == nil {
		return nil
	}
	var required, chosen []string
	for _, name := range list(definition, "required") {
		required = append(required, name.Value)
	}
	for _, choice := range list(definition, "oneOf") {
		for _, name := range list(choice, "required") {
			chosen = append(chosen, name.Value)
		}
	}
	var fields []*Key
	for name, property := range pairs(at(definition, "properties")) {
		f := &Key{name: name, parent: k, Path: strings.TrimPrefix(k.Path+"."+name, "."),
			Unit: text(property, "x-unit"), Required: slices.Contains(required, name),
			Choice: slices.Contains(chosen, name), Default: defaultOf(property),
			Description: text(property, "description"), Since: since[k.Group+"."+name]}
		f.Literal = f.Default != "" && text(property, "x-default") == ""
		if f.Unit == "none" {
			f.Unit = ""
		}
		if examples := list(property, "examples"); len(examples) > 0 {
			f.example = examples[0]
		}
		f.describe(property, "")
		if f.Type == "text" && f.Unit != "" {
			f.Type = "bound"
		}
		fields = append(fields, f)
	}
	return fields
}

func defaultOf(property *yaml.Node) string {
	if words := text(property, "x-default"); words != "" {
		return words
	}
	literal := at(property, "default")
	if literal == nil {
		return ""
	}
	plain(literal)
	line, err := yaml.Dump(literal, yaml.WithLineWidth(-1))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(line))
}

// forms are the names of the values that have a form of their own.
var forms = map[string]string{"rate": "rate", "size": "size", "time-span": "duration", "share": "share",
	"factor": "positive number", "offset": "duration with a sign", "drift": "drift"}

// describe sets type, values, range and group from a schema of the value. The prefix is "list of " within
// lists.
func (k *Key) describe(schema *yaml.Node, prefix string) {
	if form := forms[text(schema, "format")]; form != "" {
		k.Type = prefix + form
		return
	}
	if group, is := strings.CutPrefix(text(schema, "$ref"), "#/$defs/"); is {
		k.Type, k.Group = prefix+"mapping", group
		return
	}
	if values := list(schema, "enum"); len(values) > 0 {
		k.Type = prefix + "word"
		for _, value := range values {
			if !slices.Contains(k.Values, value.Value) {
				k.Values = append(k.Values, value.Value)
			}
		}
		return
	}
	if choices := list(schema, "anyOf"); len(choices) > 0 {
		k.describeChoices(choices, prefix)
		return
	}
	switch kind := text(schema, "type"); kind {
	case "array":
		k.list = true
		k.describe(at(schema, "items"), prefix+"list of ")
	case "object":
		k.entries = true
		k.describe(at(schema, "additionalProperties"), prefix+"mapping of names to ")
	case "string":
		k.Type = prefix + "text"
		if strings.HasPrefix(text(schema, "pattern"), "^(>=") {
			k.Type = prefix + "bound"
		}
	case "":
		k.Type = prefix + "value"
	default:
		k.Type, k.Range = prefix+kind, rangeOf(schema)
	}
}

// describeChoices describes alternatives, except for a variable, which each value can be.
func (k *Key) describeChoices(choices []*yaml.Node, prefix string) {
	choices = slices.DeleteFunc(slices.Clone(choices), func(c *yaml.Node) bool {
		return text(c, "$ref") == "#/$defs/Variable"
	})
	k.describe(choices[0], prefix)
	for _, choice := range choices[1:] {
		other := &Key{}
		other.describe(choice, "")
		switch only := text(choice, "const"); {
		case only != "":
			k.Type += " or " + only
		case other.Type == "boolean" && k.Group != "":
			k.Type += ", true or false"
		default:
			k.Type += " or " + other.Type
		}
	}
}

func rangeOf(schema *yaml.Node) string {
	low, high := text(schema, "minimum"), text(schema, "maximum")
	switch {
	case low != "" && high != "":
		return low + " to " + high
	case low != "":
		return "at least " + low
	case high != "":
		return "at most " + high
	}
	return ""
}

// pairs iterates over a mapping.
func pairs(node *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; node != nil && i < len(node.Content); i += 2 {
			if !yield(node.Content[i].Value, node.Content[i+1]) {
				return
			}
		}
	}
}

func at(node *yaml.Node, key string) *yaml.Node {
	for name, value := range pairs(node) {
		if name == key {
			return value
		}
	}
	return nil
}

func text(node *yaml.Node, key string) string {
	if value := at(node, key); value != nil {
		return value.Value
	}
	return ""
}

func list(node *yaml.Node, key string) []*yaml.Node {
	if value := at(node, key); value != nil {
		return value.Content
	}
	return nil
}

// Paragraphs returns the description, and that of the value's keys, as paragraphs and elements of lists,
// which begin with "- ". The sentence with the default is left out.
func (k *Key) Paragraphs() []string {
	var found []string
	words := k.Description
	if k.Path != "" && k.Group != "" {
		words += "\n\n" + k.groupWords()
	}
	for part := range strings.SplitSeq(words, "\n\n") {
		for i, item := range strings.Split("\n"+part, "\n  - ") {
			item = strings.Join(strings.Fields(item), " ")
			if i > 0 {
				item = "- " + item
			}
			for _, lead := range []string{"Default ", "Default: "} {
				item = strings.TrimSpace(strings.Replace(item, lead+k.Default+".", "", 1))
			}
			if item != "" {
				found = append(found, strings.ReplaceAll(item, "  ", " "))
			}
		}
	}
	return found
}

// groupWords describes the value's keys, without the first sentence of the group. That sentence repeats the
// key's own description in other words.
func (k *Key) groupWords() string {
	words := Group(k.Group)
	if end := sentenceEnd.FindStringIndex(words); end != nil && k.Description != "" {
		return words[end[1]:]
	}
	return words
}

// sentenceEnd is the end of a sentence with the space that follows, in comments with wrapped lines.
var sentenceEnd = regexp.MustCompile(`\.(\s+|$)`)

// Summary returns the first sentence of the description, without the key at its beginning.
func (k *Key) Summary() string {
	paragraphs := k.Paragraphs()
	if len(paragraphs) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(paragraphs[0], ". ")
	return strings.TrimSuffix(withoutSubject(k.name, first), ".")
}
