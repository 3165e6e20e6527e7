package spec

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Marshal encodes the testbed as a file for people. Keys are in the order of the types, settings
// that equal their defaults are left out, and short mappings are on one line. Decoding the file
// gives a testbed that is equal except for its Source.
func Marshal(t *Testbed) ([]byte, error) {
	e := encoder{defaults: defaultValues()}
	root := e.value(reflect.ValueOf(t).Elem())
	text, err := yaml.Dump(root, yaml.WithIndent(2), yaml.WithCompactSeqIndent(false), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("write testbed %s: %w", t.Name, err)
	}
	return text, nil
}

// defaultValues returns, for each struct whose fields have defaults, a value with all of them.
func defaultValues() map[reflect.Type]reflect.Value {
	t := Testbed{Steps: []Step{{Capture: &Capture{}}, {Workload: &Workload{}}, {Exec: &Exec{}},
		{Training: &Training{}}, {Messages: &Messages{}}}, Fabric: Fabric{Routing: &Routing{}}}
	t.SetDefaults()
	values := map[reflect.Type]reflect.Value{}
	for _, v := range []any{Testbed{Seed: t.Seed, Dilation: t.Dilation}, t.Addressing, *t.Steps[0].Capture,
		*t.Steps[1].Workload, *t.Steps[2].Exec, *t.Steps[3].Training, *t.Steps[4].Messages,
		*t.Fabric.Routing} {
		values[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	return values
}

type encoder struct {
	defaults map[reflect.Type]reflect.Value
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

// textNode makes a node of text and quotes characters that Decode accepts only when they are
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

func (e *encoder) value(v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if text, ok := v.Interface().(encoding.TextMarshaler); ok {
		written, err := text.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("spec: %s does not print: %v", v.Type(), err)) // units print every value
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

func (e *encoder) structure(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	var zeros Zeros
	if field := v.FieldByName("Zero"); field.IsValid() {
		zeros = field.Interface().(Zeros)
	}
	defaults, hasDefaults := e.defaults[v.Type()]
	if w, is := v.Interface().(Workload); is {
		own := defaults.Interface().(Workload)
		ofKind := Step{Workload: &Workload{Kind: w.Kind, SGD: w.SGD}}
		ofKind.setDefaults()
		own.Algorithm, own.Type, own.Op, own.Iterations = ofKind.Workload.Algorithm, ofKind.Workload.Type,
			ofKind.Workload.Op, ofKind.Workload.Iterations
		defaults = reflect.ValueOf(own)
	}
	if m, is := v.Interface().(Model); is {
		defaults, hasDefaults = reflect.ValueOf(m.defaults()), true
	}
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		onPurpose := zeros&zeroOf[f.key] != 0
		switch {
		case f.required || onPurpose:
		case value.IsZero():
			continue
		case hasDefaults && reflect.DeepEqual(value.Interface(), defaults.FieldByIndex(f.index).Interface()):
			continue
		}
		written := e.value(value)
		if len(written.Content) == 0 && written.Kind == yaml.MappingNode && value.Kind() == reflect.Struct &&
			!f.required {
			continue // a struct with only defaults
		}
		node.Content = append(node.Content, scalarNode("!!str", f.key), written)
	}
	if v.Type() != reflect.TypeFor[Testbed]() && v.Type() != reflect.TypeFor[Fabric]() {
		inline(node)
	}
	if isNamed(v) && len(node.Content) == 2 {
		if name := *v.Addr().Interface().(named).name(); node.Content[1].Value == name {
			return textNode(name)
		}
	}
	if isSwitch(v.Type()) && len(node.Content) == 0 {
		return scalarNode("", "true")
	}
	return node
}

func (e *encoder) ordered(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	numbers := v.Type() == reflect.TypeFor[Ordered[int]]()
	for i := range v.Len() {
		entry := v.Index(i)
		key := textNode(entry.Field(0).String())
		if numbers {
			key = plainNode(key.Value) // a DSCP or a priority
		}
		node.Content = append(node.Content, key, e.value(entry.Field(1)))
	}
	if numbers {
		inline(node)
	}
	return node
}

func (e *encoder) mapping(v reflect.Value) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys() // sorted, because Go's maps have no order
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		node.Content = append(node.Content, textNode(key.String()), e.value(v.MapIndex(key)))
	}
	inline(node)
	return node
}

func (e *encoder) list(v reflect.Value) *yaml.Node {
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
			element.Style = 0 // each step or check on its own line, "- sleep: 1s"
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
