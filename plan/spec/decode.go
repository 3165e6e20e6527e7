package spec

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/nearest"

	"go.yaml.in/yaml/v4"
)

const (
	// maxExpanded bounds the number of values that aliases expand to. Without it a few lines of
	// nested aliases become a billion values.
	maxExpanded = 100_000
	// maxKey bounds the length of a key, because the path of every value below contains it.
	maxKey = 256
)

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

// decodeTree decodes a tree in which variables are replaced. It skips the given top-level keys.
func decodeTree(source *Source, root *yaml.Node, skipped []string) (*Testbed, error) {
	testbed := &Testbed{Source: source}
	d := newDecoder(source)
	d.skipped = skipped
	d.source.values[""] = markOf(root, root)
	d.decode(root, reflect.ValueOf(testbed).Elem(), target{})
	problems := d.problems
	if !d.full() { // otherwise the values are incomplete
		problems = append(problems, testbed.check(d.wrong)...)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	testbed.SetDefaults()
	return testbed, nil
}

// decoder decodes a tree into Go values and records the position of each value.
type decoder struct {
	source   *Source
	problems Problems
	// wrong holds the paths that were reported, so that later checks of the same values do not
	// report consequences.
	wrong map[string]bool
	// open holds the anchors whose content is being decoded. aliases counts those that an alias
	// opened, and expanded counts all values that were decoded in this way.
	open              map[*yaml.Node]bool
	aliases, expanded int
	// skipped are the top-level keys that belong to the File.
	skipped []string
}

func newDecoder(source *Source) *decoder {
	return &decoder{source: source, wrong: map[string]bool{}, open: map[*yaml.Node]bool{}}
}

// target is the name of the value being decoded and the form that it accepts.
type target struct {
	path string
	// anyScalar lets a text be written as a number or a boolean.
	anyScalar bool
	// empty describes the effect of an empty mapping, "" if a mapping must have keys.
	empty string
}

func markOf(key, value *yaml.Node) mark {
	return mark{key: place{key.Line, key.Column}, value: place{value.Line, value.Column},
		collection: value.Kind != yaml.ScalarNode}
}

func (d *decoder) fail(node *yaml.Node, path, what, want string) {
	d.wrong[path] = true
	if !d.full() {
		d.problems = append(d.problems,
			d.source.problemAt(d.source.position(place{node.Line, node.Column}), path, what, want))
	}
}

// full reports whether enough problems were found to stop decoding.
func (d *decoder) full() bool { return len(d.problems) >= keptProblems }

// decode decodes one value.
func (d *decoder) decode(node *yaml.Node, into reflect.Value, t target) {
	if d.full() {
		return
	}
	if node.Kind == yaml.AliasNode {
		d.decodeAlias(node, into, t)
		return
	}
	if d.aliases > 0 {
		d.expanded++
	}
	if node.Anchor != "" {
		d.open[node] = true
		defer delete(d.open, node)
	}
	if node.Style&yaml.TaggedStyle != 0 {
		d.fail(node, t.path, fmt.Sprintf("tag %q", clipped(node.Tag)),
			"remove it; a value's type follows from its key")
		return
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	_, scalar := into.Addr().Interface().(encoding.TextUnmarshaler)
	switch {
	case scalar:
		d.decodeScalar(node, into, t)
	case isOrdered(into.Type()):
		d.decodeOrdered(node, into, t)
	case isSwitch(into.Type()) && node.Kind == yaml.ScalarNode:
		d.decodeSwitch(node, into, t)
	case isNamed(into) && node.Kind == yaml.ScalarNode:
		d.decodeScalar(node, reflect.ValueOf(into.Addr().Interface().(named).name()).Elem(), t)
	case into.Kind() == reflect.Struct:
		d.decodeStruct(node, into, t)
	case into.Kind() == reflect.Map:
		d.decodeMap(node, into, t)
	case into.Kind() == reflect.Slice:
		d.decodeSlice(node, into, t)
	default:
		d.decodeScalar(node, into, t)
	}
}

func (d *decoder) decodeAlias(node *yaml.Node, into reflect.Value, t target) {
	if d.open[node.Alias] {
		d.fail(node, t.path, fmt.Sprintf("alias *%s is inside its own anchor", node.Value),
			"an alias cannot contain itself")
		return
	}
	if d.expanded > maxExpanded {
		d.fail(node, t.path, fmt.Sprintf("aliases stand for more than %d values", maxExpanded),
			"write fewer aliases of aliases")
		return
	}
	d.aliases++
	d.decode(node.Alias, into, t)
	d.aliases--
}

// described describes a node for messages.
func described(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Tag == "!!null":
		return "empty"
	case node.Tag == "!!int" || node.Tag == "!!float":
		return "the number " + node.Value
	case node.Tag == "!!bool":
		return node.Value
	default:
		return "the text " + strconv.Quote(clipped(node.Value))
	}
}

// clipped shortens long values in messages.
func clipped(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}

// called returns the name of a path in messages. The empty path is the whole file.
func called(path string) string { return cmp.Or(path, "the file") }

// pairs reads a mapping and calls value for each usable key. It skips a key that is repeated.
func (d *decoder) pairs(node *yaml.Node, path, want string, childPath func(key string) string,
	value func(key string, keyNode, node *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		d.fail(node, path, called(path)+" is "+described(node), want)
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content) && !d.full(); i += 2 {
		keyNode, valueNode := node.Content[i], node.Content[i+1]
		key := keyNode.Value
		switch {
		case keyNode.Kind != yaml.ScalarNode || keyNode.Tag == "!!null" ||
			keyNode.Style&yaml.TaggedStyle != 0:
			d.fail(keyNode, path, "a key that is not plain text in "+called(path), `write "key: value"`)
			continue
		case keyNode.Tag == "!!merge":
			d.fail(keyNode, path, "merge key << in "+called(path),
				`merge keys are not read; write the settings, or use "default" and globs`)
			continue
		case len(key) > maxKey:
			d.fail(keyNode, path, fmt.Sprintf("a key of %d bytes in %s", len(key), called(path)),
				fmt.Sprintf("keys have at most %d bytes", maxKey))
			continue
		}
		if first := seen[key]; first != nil {
			d.fail(keyNode, path, fmt.Sprintf("key %q appears twice in %s", key, called(path)),
				fmt.Sprintf("remove one; the first is at line %d, column %d", first.Line, first.Column))
			continue
		}
		seen[key] = keyNode
		resolved := valueNode
		if valueNode.Kind == yaml.AliasNode && valueNode.Alias.Kind == yaml.ScalarNode {
			resolved = valueNode.Alias
		}
		d.source.values[childPath(key)] = markOf(keyNode, resolved)
		value(key, keyNode, valueNode)
	}
}

func (d *decoder) decodeStruct(node *yaml.Node, into reflect.Value, t target) {
	fields := fieldsOf(into.Type())
	want := "write a mapping with " + keyList(fields)
	if isNamed(into) {
		want = "write a name, or a mapping with " + keyList(fields)
	}
	if t.empty != "" {
		want += ", or {} for " + t.empty
	}
	childPath := func(key string) string { return joined(t.path, key) }
	var meant []string
	d.pairs(node, t.path, want, childPath, func(key string, keyNode, value *yaml.Node) {
		path := childPath(key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		if t.path == "" && slices.Contains(d.skipped, key) {
			return
		}
		if i < 0 {
			delete(d.source.values, path)
			keys := keysOf(fields)
			if into.Type() == reflect.TypeFor[Testbed]() {
				keys = append(keys, fileKeys...)
			}
			near, hint := suggest(key, keys)
			if near != "" {
				meant = append(meant, childPath(near))
			}
			d.fail(keyNode, path, fmt.Sprintf("unknown key %q in %s", key, called(t.path)), hint)
			return
		}
		f := into.FieldByIndex(fields[i].index)
		d.decode(value, f, target{path: path, anyScalar: fields[i].anyScalar,
			empty: fields[i].empty})
		if bit := zeroOf[key]; bit != 0 && isZero(f) && !d.wrong[path] {
			if zero := into.FieldByName("Zero"); zero.IsValid() {
				zero.SetUint(zero.Uint() | uint64(bit))
			}
		}
	})
	for _, path := range meant {
		// A missing key is reported only once if a misspelt key was meant as this key.
		d.wrong[path] = d.wrong[path] || !d.source.Has(path)
	}
}

// decodeSwitch decodes true or false in place of a mapping.
func (d *decoder) decodeSwitch(node *yaml.Node, into reflect.Value, t target) {
	var on bool
	if node.Tag != "!!bool" {
		d.fail(node, t.path, called(t.path)+" is "+described(node),
			"write true, false or a mapping with "+keyList(fieldsOf(into.Type())))
		return
	}
	d.decodeScalar(node, reflect.ValueOf(&on).Elem(), t)
	into.FieldByName("Off").SetBool(!on)
}

func isZero(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		return v.Len() == 0
	case reflect.Struct:
		boxed := v
		if v.CanAddr() { // a pointer in an interface needs no allocation
			boxed = v.Addr()
		}
		if z, ok := boxed.Interface().(interface{ IsZero() bool }); ok {
			return z.IsZero()
		}
	}
	return v.IsZero()
}

func (d *decoder) decodeOrdered(node *yaml.Node, into reflect.Value, t target) {
	childPath := func(key string) string { return keyed(t.path, key) }
	d.pairs(node, t.path, "write a mapping of names to values", childPath,
		func(key string, _, value *yaml.Node) {
			entry := reflect.New(into.Type().Elem()).Elem()
			entry.FieldByName("Key").SetString(key)
			d.decode(value, entry.FieldByName("Value"), target{path: childPath(key)})
			into.Set(reflect.Append(into, entry))
		})
}

func (d *decoder) decodeMap(node *yaml.Node, into reflect.Value, t target) {
	into.Set(reflect.MakeMap(into.Type()))
	childPath := func(key string) string { return keyed(t.path, key) }
	d.pairs(node, t.path, "write a mapping of names to values", childPath,
		func(key string, _, value *yaml.Node) {
			element := reflect.New(into.Type().Elem()).Elem()
			d.decode(value, element, target{path: childPath(key), anyScalar: true})
			into.SetMapIndex(reflect.ValueOf(key), element)
		})
}

func (d *decoder) decodeSlice(node *yaml.Node, into reflect.Value, t target) {
	if node.Kind != yaml.SequenceNode {
		d.fail(node, t.path, called(t.path)+" is "+described(node),
			"write a list, as in [a, b] or lines that start with -")
		return
	}
	for i, element := range node.Content {
		if d.full() {
			return
		}
		path := fmt.Sprintf("%s[%d]", t.path, i)
		d.source.values[path] = markOf(element, element)
		value := reflect.New(into.Type().Elem()).Elem()
		d.decode(element, value, target{path: path, anyScalar: t.anyScalar})
		into.Set(reflect.Append(into, value))
	}
}

// Numbers are written in decimal digits. YAML's other notations (0x1f, 017, 1_000, 1e3) are easily
// misread.
var (
	wholeNumber   = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	decimalNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)
)

func (d *decoder) decodeScalar(node *yaml.Node, into reflect.Value, t target) {
	fail := func(want string) { d.fail(node, t.path, called(t.path)+" is "+described(node), want) }
	if node.Kind != yaml.ScalarNode {
		fail("write " + wanted(into))
		return
	}
	if node.Tag == "!!null" {
		fail("write " + wanted(into) + ", or remove the key")
		return
	}
	if text, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := text.UnmarshalText([]byte(node.Value)); err != nil {
			d.unitProblem(node, t.path, err)
		}
		return
	}
	plain := node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|
		yaml.LiteralStyle|yaml.FoldedStyle) == 0
	switch into.Kind() {
	case reflect.String:
		if plain && node.Tag != "!!str" && !t.anyScalar {
			fail(fmt.Sprintf("write text; %q in quotes is text", node.Value))
			return
		}
		into.SetString(node.Value)
	case reflect.Bool:
		if !plain || node.Value != "true" && node.Value != "false" {
			fail("write true or false")
			return
		}
		into.SetBool(node.Value == "true")
	case reflect.Int, reflect.Uint64, reflect.Float64:
		if !plain {
			fail("write " + wanted(into) + " without quotes")
		} else if !setNumber(into, node.Value) {
			fail("write " + wanted(into))
		}
	default:
		panic(fmt.Sprintf("spec: field %s has type %s, which the decoder does not know", t.path, into.Type()))
	}
}

// setNumber parses a number and reports whether the field has room for it and its form is valid.
func setNumber(into reflect.Value, text string) bool {
	if into.Kind() == reflect.Float64 {
		value, err := strconv.ParseFloat(text, 64)
		into.SetFloat(value)
		return err == nil && decimalNumber.MatchString(text)
	}
	if !wholeNumber.MatchString(text) {
		return false
	}
	if into.Kind() == reflect.Uint64 {
		value, err := strconv.ParseUint(text, 10, 64)
		into.SetUint(value)
		return err == nil
	}
	value, err := strconv.ParseInt(text, 10, 32)
	into.SetInt(value)
	return err == nil
}

// wanted describes the values that a scalar field accepts.
func wanted(into reflect.Value) string {
	switch {
	case into.Kind() == reflect.String:
		return "text"
	case into.Kind() == reflect.Bool:
		return "true or false"
	case into.Kind() == reflect.Int && into.Type() == reflect.TypeFor[int]():
		return fmt.Sprintf("a whole number from 0 to %d in decimal digits", math.MaxInt32)
	case into.Type() == reflect.TypeFor[uint64]():
		return fmt.Sprintf("a whole number from 0 to %d in decimal digits", uint64(math.MaxUint64))
	case into.Kind() == reflect.Float64:
		return "a number in decimal digits"
	}
	return exampleOf(into.Type())
}

// unitProblem splits an error of package units, `rate "x": want ...`, at its colon.
func (d *decoder) unitProblem(node *yaml.Node, path string, err error) {
	what, want, _ := strings.Cut(err.Error(), ": want ")
	if unwrapped := errors.Unwrap(err); unwrapped != nil {
		what, want, _ = strings.Cut(unwrapped.Error(), ": want ")
	}
	d.fail(node, path, clipped(what)+" cannot be read", "want "+want)
}

// suggest finds the key that was probably meant. The hint names that key, or lists all keys if none is near.
func suggest(key string, keys []string) (near, hint string) {
	if near = nearest.Word(key, keys); near != "" {
		return near, fmt.Sprintf("did you mean %q?", near)
	}
	return "", "want " + oneOf(keys)
}

// oneOf lists the possible words. It cuts the list short if a file can make it long.
func oneOf(words []string) string {
	const most = 20
	if len(words) > most {
		words = append(slices.Clone(words[:most]), "...")
	}
	if len(words) <= 3 {
		return strings.Join(words, " or ")
	}
	return "one of " + strings.Join(words, ", ")
}
