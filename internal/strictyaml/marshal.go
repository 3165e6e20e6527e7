package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Encoder writes structs as YAML for people. Keys are in the order of the fields, and short mappings are on
// one line. The text omits keys that equal their defaults. Decoding the text gives an equal value.
type Encoder struct {
	// Defaults returns a struct of the type of v with all defaults, which may depend on v. It returns nil
	// if the type has no defaults.
	Defaults func(v any) any
	// Blocks are the types of structs that are never on one line.
	Blocks []reflect.Type
}

// Text writes the struct to which v points.
func (e *Encoder) Text(v any) ([]byte, error) {
	return yaml.Dump(e.value(reflect.ValueOf(v)), yaml.WithIndent(2), yaml.WithCompactSeqIndent(false),
		yaml.WithLineWidth(-1))
}

// Line writes the value to which v points on one line.
func (e *Encoder) Line(v any) (string, error) {
	root := e.value(reflect.ValueOf(v))
	root.Style = yaml.FlowStyle
	text, err := yaml.Dump(root, yaml.WithLineWidth(-1))
	return strings.TrimSpace(string(text)), err
}

// maxInline is the largest width of a mapping or list on one line, in columns.
const maxInline = 100

func scalarNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// plainNode makes a node of text without quotes, as for a number.
func plainNode(value string) *yaml.Node {
	if decimalNumber.MatchString(value) {
		return scalarNode("", value)
	}
	return textNode(value)
}

// textNode makes a node of text and quotes characters that Parse accepts only when they are
// escaped.
func textNode(value string) *yaml.Node {
	node := scalarNode("!!str", value)
	if strings.ContainsFunc(value, func(r rune) bool {
		return !isText(r) || r == '\r' || r == '\n' || r == '\uFEFF'
	}) {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

func (e *Encoder) value(v reflect.Value) *yaml.Node {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if text, ok := v.Interface().(encoding.TextMarshaler); ok {
		written, err := text.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("strictyaml: %s does not print: %v", v.Type(), err)) // units print every value
		}
		return plainNode(string(written))
	}
	switch {
	case isOrdered(v.Type()):
		return e.ordered(v)
	case isOff(v):
		return scalarNode("", "false")
	case v.Kind() == reflect.Struct:
		return e.structure(v)
	case v.Kind() == reflect.Map:
		return e.mapping(v)
	case v.Kind() == reflect.Slice:
		return e.list(v)
	case v.Kind() == reflect.String:
		return textNode(v.String())
	case v.Kind() == reflect.Float64:
		return scalarNode("", strconv.FormatFloat(v.Float(), 'f', -1, 64))
	default:
		return scalarNode("", fmt.Sprint(v.Interface()))
	}
}

func (e *Encoder) structure(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	zeros := zerosOf(v)
	var defaults reflect.Value
	if e.Defaults != nil {
		defaults = reflect.ValueOf(e.Defaults(v.Interface()))
	}
	for _, f := range Fields(v.Type()) {
		value := v.FieldByIndex(f.Index)
		onPurpose := zeros != nil && zeros.Marked(f.Key)
		switch {
		case f.required || onPurpose:
		case value.IsZero():
			continue
		case defaults.IsValid() &&
			reflect.DeepEqual(value.Interface(), defaults.FieldByIndex(f.Index).Interface()):
			continue
		}
		written := e.value(value)
		if len(written.Content) == 0 && written.Kind == yaml.MappingNode && value.Kind() == reflect.Struct &&
			!f.required {
			continue // a struct with only defaults
		}
		node.Content = append(node.Content, scalarNode("!!str", f.Key), written)
	}
	if !slices.Contains(e.Blocks, v.Type()) {
		inline(node)
	}
	if alone := aloneOf(v.Type()); alone != nil && len(node.Content) == 2 {
		if text := v.FieldByIndex(alone.Index).String(); node.Content[1].Value == text {
			return textNode(text)
		}
	}
	if isSwitch(v.Type()) && len(node.Content) == 0 {
		return scalarNode("", "true")
	}
	return node
}

func (e *Encoder) ordered(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	numbers := v.Type().Elem().Field(1).Type.Kind() == reflect.Int
	for i := range v.Len() {
		entry := v.Index(i)
		key := textNode(entry.Field(0).String())
		if numbers {
			key = plainNode(key.Value) // the key is often a number, too
		}
		node.Content = append(node.Content, key, e.value(entry.Field(1)))
	}
	if numbers {
		inline(node)
	}
	return node
}

func (e *Encoder) mapping(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys() // sorted, because Go's maps have no order
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		node.Content = append(node.Content, textNode(key.String()), e.value(v.MapIndex(key)))
	}
	inline(node)
	return node
}

func (e *Encoder) list(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	scalars := true
	for i := range v.Len() {
		element := e.value(v.Index(i))
		scalars = scalars && element.Kind == yaml.ScalarNode
		node.Content = append(node.Content, element)
	}
	if scalars {
		inline(node)
	} else {
		for _, element := range node.Content {
			element.Style = 0 // each on its own line, as in "- sleep: 1s"
		}
	}
	return node
}

// inline puts a short mapping or list on one line.
func inline(node *yaml.Node) {
	if width(node) <= maxInline {
		node.Style = yaml.FlowStyle
	}
}

// width estimates how many columns a node takes on one line.
func width(node *yaml.Node) int {
	total := len(node.Value) + 2
	for _, inner := range node.Content {
		total += width(inner)
	}
	return total
}
