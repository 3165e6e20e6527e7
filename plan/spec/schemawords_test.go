package spec

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"railbed/internal/strictyaml"
)

// unitOf names the units of the values that have a form of their own.
var unitOf = map[string]string{
	"rate": "bit, kbit, mbit, gbit or tbit per second", "size": "B, KB, MB, GB, KiB, MiB or GiB",
	"time-span": "ns, us, ms, s, m or h", "offset": "ns, us, ms, s, m or h", "drift": "ppm or ppb",
	"share": "%, or a fraction such as 1/1000", "factor": noUnit,
}

// noUnit is the tag of a number that counts nothing, such as a seed.
const noUnit = "none"

// wordsOf are the words of a key that the schema carries besides its description.
type wordsOf struct {
	owner string // the Go type that declares the field
	unit  string
	field string // the Go name
}

// addWords gives each property the words that people read: the key in place of the field's name, the unit,
// the default, and an example of testdata.
func addWords(t *testing.T, s *jsonschema.Schema) {
	examples := readExamples(t, s)
	types := map[string]reflect.Type{}
	for _, part := range []any{Testbed{}, Compare{}, Matrix{}} {
		structsOf(reflect.TypeOf(part), types)
	}
	for name, definition := range s.Definitions {
		declared := declaredBy(types[name])
		for p := definition.Properties.Oldest(); p != nil; p = p.Next() {
			words := declared[p.Key]
			p.Value.Description = reworded(p.Value.Description, words.field, p.Key)
			extras := map[string]any{}
			if words.unit == "" {
				words.unit = unitOf[formOf(p.Value)]
			}
			if words.unit != "" {
				extras["x-unit"] = words.unit
			}
			if text, literal := defaultOf(p.Value); text != "" {
				if p.Value.Default = literal; fmt.Sprint(literal) != text {
					extras["x-default"] = text
				}
			}
			if example, found := examples[ownerOf(words, name)+"."+p.Key]; found {
				p.Value.Examples = []any{example}
			}
			p.Value.Extras = extras
		}
	}
}

func ownerOf(words wordsOf, definition string) string {
	if words.owner == "" {
		return definition
	}
	return words.owner
}

// structsOf collects the struct types of a file.
func structsOf(typ reflect.Type, found map[string]reflect.Type) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		structsOf(typ.Elem(), found)
	case reflect.Struct:
		if _, unit := unitForms[typ]; unit || found[typ.Name()] != nil {
			return
		}
		found[typ.Name()] = typ
		for i := range typ.NumField() {
			if f := typ.Field(i); f.Tag.Get("yaml") != "-" {
				structsOf(f.Type, found)
			}
		}
	}
}

// declaredBy returns the words of the fields of a struct, by their keys.
func declaredBy(typ reflect.Type) map[string]wordsOf {
	declared := map[string]wordsOf{}
	if typ == nil {
		return declared
	}
	for _, f := range strictyaml.Fields(typ) {
		owner, field := typ, reflect.StructField{}
		for i, at := range f.Index {
			if field = owner.Field(at); i < len(f.Index)-1 {
				owner = field.Type
			}
		}
		declared[f.Key] = wordsOf{owner.Name(), field.Tag.Get("unit"), field.Name}
	}
	return declared
}

// reworded writes the key in place of the name of the Go field, with which a comment begins.
func reworded(text, field, key string) string {
	words := strings.SplitN(text, " ", 2)
	if len(words) == 2 && (words[0] == field || strings.EqualFold(words[0], key)) {
		return key + " " + words[1]
	}
	return text
}

// formOf returns the format of a value, or of the alternative that is no variable.
func formOf(p *jsonschema.Schema) string {
	if p.Format != "" || len(p.AnyOf) == 0 {
		return p.Format
	}
	return formOf(p.AnyOf[0])
}

var (
	// A sentence or the end of a sentence, in a comment of a field.
	defaultSentence = regexp.MustCompile(`\bDefault:? (.+?)\.(?:\s|$)`)
	defaultMarked   = regexp.MustCompile(`(\S+) \(default\)`)
	// text that stands for a value, and not for itself
	defaultWord = regexp.MustCompile(`^(none|all|any|off|never)$`)
)

// defaultOf finds the default in the description of a property: "Default X." or "X (default)". The literal
// is set if the words are a value of the file.
func defaultOf(p *jsonschema.Schema) (words string, literal any) {
	text := strings.Join(strings.Fields(p.Description), " ")
	if found := defaultSentence.FindStringSubmatch(text); found != nil {
		words = found[1]
	} else if found := defaultMarked.FindStringSubmatch(text); found != nil {
		words = found[1]
	} else {
		return "", nil
	}
	first, _, _ := strings.Cut(words, ", ")
	if strings.HasPrefix(words, "[") {
		first = words
	}
	var value any
	if yaml.Load([]byte(first), &value) != nil || !fits(p, value, first) {
		return words, nil
	}
	return words, value
}

// fits reports whether the property accepts a value.
func fits(p *jsonschema.Schema, value any, text string) bool {
	if slices.ContainsFunc(p.AnyOf, func(p *jsonschema.Schema) bool { return fits(p, value, text) }) {
		return true
	}
	switch v := value.(type) {
	case bool:
		return p.Type == "boolean"
	case int:
		return p.Type == "integer" || p.Type == "number" && p.Format == "" ||
			slices.Contains(p.Enum, any(text))
	case float64:
		return p.Type == "number"
	case []any:
		return p.Type == "array"
	case string:
		switch {
		case p.Enum != nil:
			return slices.Contains(p.Enum, any(v))
		case p.Pattern != "":
			return regexp.MustCompile(p.Pattern).MatchString(v)
		}
		return p.Type == "string" && (text != v || !strings.Contains(v, " ") && !defaultWord.MatchString(v))
	}
	return false
}

// readExamples returns a value for each key, by the type that declares it. It is the first value of the
// files of testdata that is not empty, in the order of the files' names.
func readExamples(t *testing.T, s *jsonschema.Schema) map[string]any {
	t.Helper()
	types := map[string]reflect.Type{}
	for _, part := range []any{Testbed{}, Compare{}, Matrix{}} {
		structsOf(reflect.TypeOf(part), types)
	}
	found := map[string]any{}
	var walk func(p *jsonschema.Schema, value any)
	walk = func(p *jsonschema.Schema, value any) {
		for _, choice := range p.AnyOf {
			walk(choice, value)
		}
		name, isRef := strings.CutPrefix(p.Ref, "#/$defs/")
		if isRef && s.Definitions[name].Properties == nil { // a variable
			return
		}
		switch value := value.(type) {
		case []any:
			for _, element := range value {
				if p.Items != nil {
					walk(p.Items, element)
				}
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				inner := value[key]
				if isRef {
					property := s.Definitions[name].Properties.Value(key)
					if property == nil { // a name, or an axis of a matrix
						continue
					}
					at := ownerOf(declaredBy(types[name])[key], name) + "." + key
					if _, there := found[at]; !there && !uninformative(inner) {
						found[at] = inner
					}
					walk(property, inner)
				} else if p.AdditionalProperties != nil {
					walk(p.AdditionalProperties, inner)
				}
			}
		}
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of examples, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := yaml.Load(text, &value); err != nil {
			t.Fatal(err)
		}
		walk(&jsonschema.Schema{Ref: "#/$defs/Testbed"}, textKeys(value))
	}
	return found
}

// uninformative reports whether a value explains nothing about its key.
func uninformative(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == "" || strings.Contains(v, "${")
	}
	return value == nil
}

// Each key has what `railbed explain` and the reference say about it.
func TestSchemaHasTheWordsOfEachKey(t *testing.T) {
	s, count := makeSchema(t), 0
	for name, definition := range s.Definitions {
		chosen := map[string]bool{}
		for _, choice := range definition.OneOf {
			chosen[choice.Required[0]] = true
		}
		for p := definition.Properties.Oldest(); p != nil; p = p.Next() {
			count++
			optional := !slices.Contains(definition.Required, p.Key) && !chosen[p.Key]
			for _, lack := range lacks(p.Value, optional) {
				t.Errorf("%s.%s has no %s", name, p.Key, lack)
			}
		}
	}
	if count < 500 {
		t.Errorf("%d keys; there are more", count)
	}
}

// Defaults and examples are valid values of their keys.
func TestSchemaAcceptsItsDefaultsAndExamples(t *testing.T) {
	document, err := validator.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := validator.NewCompiler()
	if err := c.AddResource("railbed.schema.json", document); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for name, definition := range document.(map[string]any)["$defs"].(map[string]any) {
		properties, _ := definition.(map[string]any)["properties"].(map[string]any)
		for key, property := range properties {
			s, err := c.Compile("railbed.schema.json#/$defs/" + name + "/properties/" + key)
			if err != nil {
				t.Fatal(err)
			}
			values, _ := property.(map[string]any)["examples"].([]any)
			if value, there := property.(map[string]any)["default"]; there {
				values = append(slices.Clone(values), value)
			}
			for _, value := range values {
				checked++
				if err := s.Validate(value); err != nil {
					t.Errorf("%s.%s: %v: %v", name, key, value, err)
				}
			}
		}
	}
	if checked < 700 {
		t.Errorf("%d values; there are more", checked)
	}
}

// lacks lists what a property does not say. Only an optional key has a default.
func lacks(p *jsonschema.Schema, optional bool) (found []string) {
	if len(p.Description) < 10 || !strings.HasSuffix(strings.TrimSpace(p.Description), ".") {
		found = append(found, "description of whole sentences")
	}
	if isNumber(p) && p.Extras["x-unit"] == nil {
		found = append(found, fmt.Sprintf("unit: write unit:%q for a number that counts nothing", noUnit))
	}
	if optional && p.Default == nil && p.Extras["x-default"] == nil {
		found = append(found, `default: write "Default X." into its comment`)
	}
	if len(p.Examples) == 0 {
		found = append(found, "example in testdata/*.yaml")
	}
	return found
}

// isNumber reports whether a value, or an element of it, is a number or a bound of numbers.
func isNumber(p *jsonschema.Schema) bool {
	text := func(p *jsonschema.Schema) bool { return p.Type == "string" && p.Format == "" && p.Enum == nil }
	if slices.ContainsFunc(p.AnyOf, text) { // any scalar
		return false
	}
	return p.Type == "integer" || p.Type == "number" || p.Format != "" ||
		p.Items != nil && isNumber(p.Items) || slices.ContainsFunc(p.AnyOf, isNumber)
}
