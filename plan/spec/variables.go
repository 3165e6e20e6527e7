package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
)

// Keys of a file that describe several testbeds. A Testbed does not have them.
const (
	variablesKey = "variables"
	matrixKey    = "matrix"
	claimKey     = "claim"
	compareKey   = "compare"
	controlKey   = "control"
)

var fileKeys = []string{variablesKey, matrixKey, claimKey, compareKey, controlKey}

// variableName is the form of the names of variables and axes.
var variableName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,31}$`)

const variableForm = "1 to 32 characters of a-z, A-Z, 0-9, _ and -, the first a letter"

// variable is a variable or an axis, or a value of an entry of include.
type variable struct {
	name       string
	key, value *yaml.Node
}

func find(all []variable, name string) *variable {
	if i := slices.IndexFunc(all, func(v variable) bool { return v.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func namesOf(all []variable) (names []string) {
	for _, v := range all {
		names = append(names, v.name)
	}
	return names
}

// reference is a part of a text: the name of a variable, or else text that stays.
type reference struct {
	name, text string
	at         int // its first byte
}

// references splits a text at each ${name}. It replaces $${ by the text ${. The error has the position in the
// text.
func references(text string) (parts []reference, err *TextError) {
	start, kept := 0, ""
	for {
		at := strings.Index(text[start:], "${")
		if at < 0 {
			return append(parts, reference{text: kept + text[start:], at: start}), nil
		}
		at += start
		if at > start && text[at-1] == '$' {
			kept += text[start:at-1] + "${"
			start = at + 2
			continue
		}
		length := strings.IndexByte(text[at:], '}')
		literal := fmt.Sprintf("write $${ for the text ${, or ${name} for a variable, where a name has %s",
			variableForm)
		if length < 0 {
			return nil, &TextError{At: at, What: "${ without }", Want: literal}
		}
		name := text[at+2 : at+length]
		if !variableName.MatchString(name) {
			return nil, &TextError{At: at,
				What: fmt.Sprintf("%q is no name of a variable", printable.Clip(name)),
				Want: literal}
		}
		if kept += text[start:at]; kept != "" {
			parts = append(parts, reference{text: kept, at: start})
		}
		parts = append(parts, reference{name: name, at: at})
		start, kept = at+length+1, ""
	}
}

// visit calls scalar for each value below a node, and key for each key of a mapping. It skips aliases, whose
// nodes it visits at their anchors.
func visit(node *yaml.Node, key, scalar func(*yaml.Node)) {
	switch node.Kind {
	case yaml.ScalarNode:
		scalar(node)
	case yaml.SequenceNode:
		for _, element := range node.Content {
			visit(element, key, scalar)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			key(node.Content[i])
			visit(node.Content[i+1], key, scalar)
		}
	}
}

// sections calls the function for the value of each top-level key.
func sections(root *yaml.Node, do func(key string, keyNode, value *yaml.Node)) {
	if root.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		do(root.Content[i].Value, root.Content[i], root.Content[i+1])
	}
}

// replace replaces each ${name} below a node. A value that is only ${name} becomes the variable's value, of
// whatever type. Otherwise the texts are joined, and the result is read as if it had no quotes. The decoder
// reads a mapping or a list through an alias, which bounds how many values many uses of it become. missing is
// called for names without a value.
func replace(d *strictyaml.Decoder, node *yaml.Node, values map[string]*yaml.Node,
	missing func(*yaml.Node, reference)) {
	visit(node, func(*yaml.Node) {}, func(n *yaml.Node) {
		if !strings.Contains(n.Value, "${") {
			return
		}
		parts, err := references(n.Value)
		if err != nil { // Parse has reported it
			return
		}
		d.Replaced(n)
		whole := slices.IndexFunc(parts, func(p reference) bool { return p.text != "" }) < 0 &&
			len(parts) == 2
		var text strings.Builder
		for _, part := range parts {
			if part.name == "" {
				text.WriteString(part.text)
				continue
			}
			value := values[part.name]
			switch {
			case value == nil:
				missing(n, part)
				return
			case whole && value.Kind != yaml.ScalarNode:
				n.Kind, n.Alias, n.Tag, n.Value = yaml.AliasNode, value, "", part.name
				return
			case whole:
				n.Tag, n.Value, n.Style = value.Tag, value.Value, value.Style
				return
			}
			text.WriteString(value.Value)
		}
		n.Tag, n.Value, n.Style = "!!str", text.String(), 0
	})
}

// readVariables reads the key variables.
func (f *file) readVariables(node *yaml.Node) {
	f.Mapping(node, variablesKey, "write a mapping of names to values, as in {loss: 0.1%}",
		f.keyed(variablesKey),
		func(key string, keyNode, value *yaml.Node) {
			path := strictyaml.EntryPath(variablesKey, key)
			if f.named(path, key, keyNode) && f.hasValue(path, value) {
				f.variables = append(f.variables, variable{key, keyNode, resolved(value)})
			}
		})
}

func (f *file) keyed(path string) func(string) string {
	return func(key string) string { return strictyaml.EntryPath(path, key) }
}

// named checks the form of a name.
func (f *file) named(path, key string, node *yaml.Node) bool {
	if !variableName.MatchString(key) {
		f.Fail(node, path, fmt.Sprintf("invalid name %q of a variable", printable.Clip(key)),
			"want "+variableForm)
		return false
	}
	return true
}

// hasValue checks the value of a variable. It may have any type.
func (f *file) hasValue(path string, value *yaml.Node) (ok bool) {
	ok = true
	fail := func(node *yaml.Node, what, want string) {
		if ok {
			f.Fail(node, path, what, want)
		}
		ok = false
	}
	if resolved(value).Tag == "!!null" {
		fail(value, strictyaml.Called(path)+" is empty", "write a value")
	}
	visit(value, func(*yaml.Node) {}, func(node *yaml.Node) {
		switch {
		case node.Style&yaml.TaggedStyle != 0:
			fail(node, fmt.Sprintf("tag %q", printable.Clip(node.Tag)),
				"remove it; a value's type follows from its use")
		case strings.Contains(node.Value, "${"):
			fail(node, fmt.Sprintf("%s refers to a variable", strictyaml.Called(path)),
				"write the value; variables cannot refer to variables")
		}
	})
	return ok
}

// resolved returns the node that an alias stands for.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// readReferences finds the uses of variables, and reports unknown and unused names.
func (f *file) readReferences(root *yaml.Node) {
	known := slices.Concat(namesOf(f.variables), namesOf(f.axes), f.extra)
	key := func(node *yaml.Node) {
		if strings.Contains(node.Value, "${") && node.Kind == yaml.ScalarNode {
			f.Fail(node, node.Value, "${ in the key "+fmt.Sprintf("%q", printable.Clip(node.Value)),
				"write the key; variables stand for values only")
		}
	}
	sections(root, func(name string, keyNode, value *yaml.Node) {
		key(keyNode)
		if name == variablesKey || name == matrixKey {
			return
		}
		visit(value, key, func(node *yaml.Node) {
			if !strings.Contains(node.Value, "${") || f.Full() {
				return
			}
			parts, err := references(node.Value)
			if err != nil {
				f.FailAt(node, err.At, err.What, "want "+err.Want)
			}
			for _, part := range parts {
				switch {
				case part.name == "":
				case !slices.Contains(known, part.name):
					_, hint := nearest.Suggest(part.name, known)
					f.FailAt(node, part.at, fmt.Sprintf("variable %q does not exist", part.name),
						hint+fmt.Sprintf("; the text ${%s} is written as $${%s}", part.name, part.name))
				case slices.Contains(fileKeys, name) && find(f.variables, part.name) == nil:
					f.FailAt(node, part.at, fmt.Sprintf("%q differs between cells, and %s is for all of them",
						part.name, name), "write a value, or a variable that all cells share")
				}
				f.used[part.name] = true
			}
		})
	})
	for _, v := range f.variables {
		if !f.used[v.name] {
			f.Fail(v.key, strictyaml.EntryPath(variablesKey, v.name),
				fmt.Sprintf("variable %q is not used", v.name),
				fmt.Sprintf("write \"${%s}\" as a value, or remove the variable", v.name))
		}
	}
	for _, a := range f.axes {
		if !f.used[a.name] {
			f.Fail(a.key, strictyaml.EntryPath(matrixKey, a.name),
				fmt.Sprintf("axis %q changes nothing", a.name),
				fmt.Sprintf("write \"${%s}\" as a value, or remove the axis", a.name))
		}
	}
}
