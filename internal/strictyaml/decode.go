// Package strictyaml reads YAML that people write into Go structs. It reports all mistakes of a text at once,
// each with its position and the correct form. It also writes such structs as YAML.
//
// A Format reads a text and parses it into a tree. A Decoder decodes the tree into a struct and records the
// positions of the values in a Source. A Checker checks the values: first by the tags of their fields, then
// by the conditions that the caller reports. An Encoder writes a struct.
//
// Reading is stricter than YAML. Unknown, repeated and merge keys, tags and empty values are problems, as are
// numbers in other notations than decimal. A text that looks like a number or a boolean needs quotes. Aliases
// are expanded within a bound.
//
// These tags of a field have a meaning here:
//
//   - yaml:"KEY", yaml:"KEY,omitempty" for a key that may be missing, yaml:",inline", yaml:"-".
//   - jsonschema:"minimum=0,maximum=9" and jsonschema:"enum=A,enum=B" bound the value.
//   - why:"; REASON" follows the bounds in messages.
//   - scalar:"any" accepts texts without quotes, whatever they look like.
//   - empty:"EFFECT" describes the effect of an empty mapping in messages.
//   - alone:"true" lets the value of the field be written in place of the whole mapping.
//
// Types have these forms in a file:
//
//   - A type with UnmarshalText is a scalar. A method Form describes its values in messages.
//   - A struct with a field Off is a mapping, true for a mapping without keys, or false to set Off.
//   - A slice of structs with the fields Key and Value, without tags, is a mapping in the order of the file.
//   - A struct may have a field Zero with the methods Mark and Marked, which records the keys with a zero.
package strictyaml

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

	"go.yaml.in/yaml/v4"

	"railbed/internal/nearest"
	"railbed/internal/printable"
)

const (
	// maxExpanded bounds the number of values that aliases expand to. Without it a few lines of
	// nested aliases become a billion values.
	maxExpanded = 100_000
	// maxKey bounds the length of a key, because the path of every value below contains it.
	maxKey = 256
)

// Decoder decodes a tree into Go values and records the position of each value.
type Decoder struct {
	Source   *Source
	Problems Problems
	// Wrong holds the paths that were reported, so that later checks of the same values do not
	// report consequences.
	Wrong map[string]bool
	// Skipped are the top-level keys that the caller reads itself.
	Skipped []string

	format Format
	// open holds the anchors whose content is being decoded. aliases counts those that an alias
	// opened, and expanded counts all values that were decoded in this way.
	open              map[*yaml.Node]bool
	aliases, expanded int
}

// Decoder returns a Decoder that records positions in the source.
func (f Format) Decoder(source *Source) *Decoder {
	return &Decoder{Source: source, Wrong: map[string]bool{}, format: f, open: map[*yaml.Node]bool{}}
}

// Decode decodes the tree of a value into the variable to which into points, and adds its problems to
// Problems. The value has a path in the file, "" for the whole file.
func (d *Decoder) Decode(root *yaml.Node, path string, into any) {
	if !d.Source.Has(path) {
		d.Mark(path, root, root)
	}
	d.decode(root, reflect.ValueOf(into).Elem(), target{path: path})
}

// Mark records the position of a path's value and of its key. A value without a key is its own key. Decode
// and Mapping record all values that they read.
func (d *Decoder) Mark(path string, key, value *yaml.Node) {
	d.Source.values[path] = markOf(key, value)
}

// Replaced records that the caller has changed the text of a value.
func (d *Decoder) Replaced(node *yaml.Node) { d.Source.replaced[placeOf(node)] = true }

// Fail reports a problem with the value of a path, at the position of a node.
func (d *Decoder) Fail(node *yaml.Node, path, what, want string) {
	d.Wrong[path] = true
	if !d.Full() {
		d.Problems = append(d.Problems,
			d.Source.ProblemAt(d.Source.position(placeOf(node)), path, what, want))
	}
}

// FailAt reports a problem at a byte of a scalar, counted from 0.
func (d *Decoder) FailAt(node *yaml.Node, offset int, what, want string) {
	d.Problems = append(d.Problems, d.Source.ProblemAt(d.Source.at(node, offset), "", what, want))
}

// Full reports whether enough problems were found to stop decoding. Then values are incomplete.
func (d *Decoder) Full() bool { return len(d.Problems) >= keptProblems }

// target is the name of the value being decoded and the form that it accepts.
type target struct {
	path string
	// anyScalar lets a text be written as a number or a boolean.
	anyScalar bool
	// empty describes the effect of an empty mapping, "" if a mapping must have keys.
	empty string
}

// decode decodes one value.
func (d *Decoder) decode(node *yaml.Node, into reflect.Value, t target) {
	if d.Full() {
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
		d.Fail(node, t.path, fmt.Sprintf("tag %q", printable.Clip(node.Tag)),
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
	case aloneOf(into.Type()) != nil && node.Kind == yaml.ScalarNode:
		d.decodeScalar(node, into.FieldByIndex(aloneOf(into.Type()).Index), t)
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

func (d *Decoder) decodeAlias(node *yaml.Node, into reflect.Value, t target) {
	if d.open[node.Alias] {
		d.Fail(node, t.path, fmt.Sprintf("alias *%s is inside its own anchor", node.Value),
			"an alias cannot contain itself")
		return
	}
	if d.expanded > maxExpanded {
		d.Fail(node, t.path, fmt.Sprintf("aliases stand for more than %d values", maxExpanded),
			"write fewer aliases of aliases")
		return
	}
	d.aliases++
	d.decode(node.Alias, into, t)
	d.aliases--
}

// Described describes a node for messages, as in "the number 7".
func Described(node *yaml.Node) string {
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
		return "the text " + strconv.Quote(printable.Clip(node.Value))
	}
}

// Called returns the name of a path in messages. The empty path is the whole file.
func Called(path string) string { return cmp.Or(path, "the file") }

// Mapping reads the mapping of a path and calls value for each usable key. It skips a key that is repeated.
// want is the correct form, for a value that is no mapping. childPath returns the path of a key's value.
func (d *Decoder) Mapping(node *yaml.Node, path, want string, childPath func(key string) string,
	value func(key string, keyNode, node *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		d.Fail(node, path, Called(path)+" is "+Described(node), want)
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content) && !d.Full(); i += 2 {
		keyNode, valueNode := node.Content[i], node.Content[i+1]
		key := keyNode.Value
		switch {
		case keyNode.Kind != yaml.ScalarNode || keyNode.Tag == "!!null" ||
			keyNode.Style&yaml.TaggedStyle != 0:
			d.Fail(keyNode, path, "a key that is not plain text in "+Called(path), `write "key: value"`)
			continue
		case keyNode.Tag == "!!merge":
			d.Fail(keyNode, path, "merge key << in "+Called(path),
				"merge keys are not read; "+d.format.InsteadOfMerge)
			continue
		case len(key) > maxKey:
			d.Fail(keyNode, path, fmt.Sprintf("a key of %d bytes in %s", len(key), Called(path)),
				fmt.Sprintf("keys have at most %d bytes", maxKey))
			continue
		}
		if first := seen[key]; first != nil {
			d.Fail(keyNode, path, fmt.Sprintf("key %q appears twice in %s", key, Called(path)),
				fmt.Sprintf("remove one; the first is at line %d, column %d", first.Line, first.Column))
			continue
		}
		seen[key] = keyNode
		resolved := valueNode
		if valueNode.Kind == yaml.AliasNode && valueNode.Alias.Kind == yaml.ScalarNode {
			resolved = valueNode.Alias
		}
		d.Mark(childPath(key), keyNode, resolved)
		value(key, keyNode, valueNode)
	}
}

func (d *Decoder) decodeStruct(node *yaml.Node, into reflect.Value, t target) {
	fields := Fields(into.Type())
	want := "write a mapping with " + keyList(fields)
	if aloneOf(into.Type()) != nil {
		want = "write a name, or a mapping with " + keyList(fields)
	}
	if t.empty != "" {
		want += ", or {} for " + t.empty
	}
	childPath := func(key string) string { return FieldPath(t.path, key) }
	var meant []string
	zeros := zerosOf(into)
	d.Mapping(node, t.path, want, childPath, func(key string, keyNode, value *yaml.Node) {
		path := childPath(key)
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })
		if t.path == "" && slices.Contains(d.Skipped, key) {
			return
		}
		if i < 0 {
			delete(d.Source.values, path)
			keys := Keys(fields)
			if t.path == "" {
				keys = append(keys, d.Skipped...)
			}
			near, hint := nearest.Suggest(key, keys)
			if near != "" {
				meant = append(meant, childPath(near))
			}
			d.Fail(keyNode, path, fmt.Sprintf("unknown key %q in %s", key, Called(t.path)), hint)
			return
		}
		f := into.FieldByIndex(fields[i].Index)
		d.decode(value, f, target{path: path, anyScalar: fields[i].anyScalar,
			empty: fields[i].empty})
		if zeros != nil && IsZero(f) && !d.Wrong[path] {
			zeros.Mark(key)
		}
	})
	for _, path := range meant {
		// A missing key is reported only once if a misspelt key was meant as this key.
		d.Wrong[path] = d.Wrong[path] || !d.Source.Has(path)
	}
}

// decodeSwitch decodes true or false in place of a mapping.
func (d *Decoder) decodeSwitch(node *yaml.Node, into reflect.Value, t target) {
	var on bool
	if node.Tag != "!!bool" {
		d.Fail(node, t.path, Called(t.path)+" is "+Described(node),
			"write true, false or a mapping with "+keyList(Fields(into.Type())))
		return
	}
	d.decodeScalar(node, reflect.ValueOf(&on).Elem(), t)
	into.FieldByName("Off").SetBool(!on)
}

// IsZero reports whether a value is zero or an empty list.
func IsZero(v reflect.Value) bool {
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

func (d *Decoder) decodeOrdered(node *yaml.Node, into reflect.Value, t target) {
	childPath := func(key string) string { return EntryPath(t.path, key) }
	d.Mapping(node, t.path, "write a mapping of names to values", childPath,
		func(key string, _, value *yaml.Node) {
			entry := reflect.New(into.Type().Elem()).Elem()
			entry.FieldByName("Key").SetString(key)
			d.decode(value, entry.FieldByName("Value"), target{path: childPath(key)})
			into.Set(reflect.Append(into, entry))
		})
}

func (d *Decoder) decodeMap(node *yaml.Node, into reflect.Value, t target) {
	into.Set(reflect.MakeMap(into.Type()))
	childPath := func(key string) string { return EntryPath(t.path, key) }
	d.Mapping(node, t.path, "write a mapping of names to values", childPath,
		func(key string, _, value *yaml.Node) {
			element := reflect.New(into.Type().Elem()).Elem()
			d.decode(value, element, target{path: childPath(key), anyScalar: true})
			into.SetMapIndex(reflect.ValueOf(key), element)
		})
}

func (d *Decoder) decodeSlice(node *yaml.Node, into reflect.Value, t target) {
	if node.Kind != yaml.SequenceNode {
		d.Fail(node, t.path, Called(t.path)+" is "+Described(node),
			"write a list, as in [a, b] or lines that start with -")
		return
	}
	for i, element := range node.Content {
		if d.Full() {
			return
		}
		path := fmt.Sprintf("%s[%d]", t.path, i)
		d.Mark(path, element, element)
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

func (d *Decoder) decodeScalar(node *yaml.Node, into reflect.Value, t target) {
	fail := func(want string) { d.Fail(node, t.path, Called(t.path)+" is "+Described(node), want) }
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
		panic(fmt.Sprintf("strictyaml: field %s has type %s, which the decoder does not know", t.path,
			into.Type()))
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

// unitProblem splits an error of UnmarshalText, `rate "x": want ...`, at its colon.
func (d *Decoder) unitProblem(node *yaml.Node, path string, err error) {
	what, want, _ := strings.Cut(err.Error(), ": want ")
	if unwrapped := errors.Unwrap(err); unwrapped != nil {
		what, want, _ = strings.Cut(unwrapped.Error(), ": want ")
	}
	d.Fail(node, path, printable.Clip(what)+" cannot be read", "want "+want)
}
