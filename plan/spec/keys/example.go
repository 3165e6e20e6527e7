package keys

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Example returns a part of a valid file with the key, in YAML, from the root of the file on.
func (k *Key) Example() string {
	if k.example == nil {
		return ""
	}
	node := k.sorted(k.example)
	shape(node, width)
	if k.entries {
		node.Style = 0
	}
	for up := k; up.parent != nil; up = up.parent {
		node = mapping(up.name, node)
		switch parent := up.parent; {
		case parent.list:
			node = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{node}}
		case parent.entries:
			node = mapping(parent.entry(), node)
		}
	}
	return dump(node)
}

// Value returns the example's value alone, on one line.
func (k *Key) Value() string {
	if k.example == nil {
		return ""
	}
	node := k.sorted(k.example)
	if len(node.Content) > 0 {
		node.Style = yaml.FlowStyle
	}
	return strings.TrimSpace(dump(node))
}

func dump(node *yaml.Node) string {
	out, err := yaml.Dump(node, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		panic(fmt.Sprintf("keys: write an example: %v", err)) // it was read from the schema
	}
	return string(out)
}

// width is the length up to which mappings and lists of an example are on one line.
const width = 60

// shape writes short mappings and lists on one line. It returns the length of that line.
func shape(node *yaml.Node, most int) int {
	if len(node.Content) == 0 {
		return len(node.Value) + 2
	}
	length := 2
	for _, inner := range node.Content {
		length += shape(inner, most) + 2
	}
	if length <= most {
		node.Style = yaml.FlowStyle
	}
	return length
}

func mapping(key string, value *yaml.Node) *yaml.Node {
	name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{name, value}}
}

// entry returns a name that an example gives to an entry.
func (k *Key) entry() string {
	name := "default"
	for key := range pairs(k.example) {
		if name = key; key != "default" {
			return key
		}
	}
	return name
}

// plain removes the quotes of JSON, where YAML needs none.
func plain(node *yaml.Node) {
	node.Style = 0
	for _, inner := range node.Content {
		plain(inner)
	}
}

// sorted returns a copy of an example with the keys in the order of the schema.
func (k *Key) sorted(node *yaml.Node) *yaml.Node {
	made := *node
	made.Style = 0
	if k.Type == "bound" { // as everybody writes it
		made.Style = yaml.DoubleQuotedStyle
	}
	switch {
	case node.Kind == yaml.SequenceNode:
		made.Content = nil
		for _, element := range node.Content {
			made.Content = append(made.Content, k.sorted(element))
		}
	case node.Kind == yaml.MappingNode && k.entries:
		inner := *k
		inner.entries = false
		made.Content = nil
		for name, value := range pairs(node) {
			made.Content = append(made.Content, mapping(name, inner.sorted(value)).Content...)
		}
	case node.Kind == yaml.MappingNode:
		made.Content = nil
		fields := k.Fields()
		rest := map[string]bool{}
		for name := range pairs(node) {
			rest[name] = true
		}
		for _, f := range fields {
			if value := at(node, f.name); value != nil {
				made.Content = append(made.Content, mapping(f.name, f.sorted(value)).Content...)
				delete(rest, f.name)
			}
		}
		for name, value := range pairs(node) { // axes of a matrix
			if rest[name] {
				made.Content = append(made.Content, mapping(name, value).Content...)
			}
		}
	}
	made.Content = slices.Clip(made.Content)
	return &made
}
