package strictyaml

import (
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Field is a struct field that files can set.
type Field struct {
	Key   string
	Index []int // for reflect.Value.FieldByIndex
	// Enum are the values of the tag jsonschema. Some may be names of enumerations: see Words.
	Enum []string
	// Tag has the other tags. The caller gives them their meaning.
	Tag reflect.StructTag

	// required is true for fields without omitempty in their yaml tag.
	required bool
	// anyScalar is the tag scalar:"any": text that looks like a number needs no quotes.
	anyScalar bool
	// alone is the tag alone:"true": the value of the field may be written in place of the mapping.
	alone bool
	// min and max come from the tag jsonschema, too.
	min, max *int
	// empty describes the effect of an empty mapping, "" if a mapping must have keys.
	empty string
	// why explains the reason for an unexpected bound and what to do instead.
	why string
}

// fieldsKnown caches the results of Fields, because files can have a hundred thousand values of a
// type.
var fieldsKnown sync.Map

// Fields returns a struct's fields in order, including those of inlined structs. The caller does not change
// the slice.
func Fields(t reflect.Type) []Field {
	if known, found := fieldsKnown.Load(t); found {
		return known.([]Field)
	}
	fields := readFields(t)
	fieldsKnown.Store(t, fields)
	return fields
}

// FieldOf returns the field of a struct with a key, which the struct must have.
func FieldOf(t reflect.Type, key string) *Field {
	fields := Fields(t)
	return &fields[slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })]
}

func readFields(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case key == "-":
		case strings.Contains(options, "inline"):
			for _, inner := range Fields(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				fields = append(fields, inner)
			}
		default:
			made := Field{Key: key, Index: f.Index, Tag: f.Tag,
				required:  !strings.Contains(options, "omitempty"),
				anyScalar: f.Tag.Get("scalar") == "any", alone: f.Tag.Get("alone") == "true",
				empty: f.Tag.Get("empty"), why: f.Tag.Get("why")}
			made.constrain(f.Tag.Get("jsonschema"))
			fields = append(fields, made)
		}
	}
	return fields
}

func (f *Field) constrain(tag string) {
	for option := range strings.SplitSeq(tag, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "enum":
			f.Enum = append(f.Enum, value)
		case "minimum":
			f.min = number(value)
		case "maximum":
			f.max = number(value)
		}
	}
}

// Words returns the values of the field, each once. A name of an enumeration stands for the words of the
// enumeration.
func (f *Field) Words(enums map[string][]string) []string {
	if !slices.ContainsFunc(f.Enum, func(value string) bool { return enums[value] != nil }) {
		return f.Enum
	}
	var words []string
	for _, value := range f.Enum {
		more := []string{value}
		if named := enums[value]; named != nil {
			more = named
		}
		for _, word := range more {
			if !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	return words
}

// number parses a bound of a struct tag. An invalid bound is a mistake in the source.
func number(text string) *int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic("strictyaml: bound " + text + " in a struct tag is not a number")
	}
	return &value
}

// Keys returns the keys of fields.
func Keys(fields []Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}

func keyList(fields []Field) string { return "keys such as " + strings.Join(Keys(fields), ", ") }

// aloneOf returns the field of a struct whose value may be written in place of the mapping, or nil.
func aloneOf(t reflect.Type) *Field {
	if t.Kind() != reflect.Struct {
		return nil
	}
	fields := Fields(t)
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.alone }); i >= 0 {
		return &fields[i]
	}
	return nil
}

// isOrdered reports whether a type is a slice of entries, which are structs of a Key and a Value.
func isOrdered(t reflect.Type) bool {
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.Struct || t.Elem().NumField() != 2 {
		return false
	}
	key, value := t.Elem().Field(0), t.Elem().Field(1)
	return key.Name == "Key" && key.Type.Kind() == reflect.String && key.Tag.Get("yaml") == "" &&
		value.Name == "Value"
}

// isScalar reports whether a type, perhaps a struct in Go, is one value in a file.
func isScalar(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// exampleOf describes the values that a field accepts. A scalar describes its own, as in "a rate such as
// 1gbit".
func exampleOf(t reflect.Type) string {
	if s, is := reflect.New(t).Interface().(interface{ Form() string }); is {
		return s.Form()
	}
	switch t.Kind() {
	case reflect.Float64:
		return "a number such as 0.5"
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	}
	return "text"
}

// isSwitch reports whether a type is a group of settings that is a mapping, true for all defaults,
// or false to switch it off. Such types have a field Off.
func isSwitch(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	_, found := t.FieldByName("Off")
	return found
}

// isOff reports whether such settings are switched off.
func isOff(v reflect.Value) bool { return isSwitch(v.Type()) && v.FieldByName("Off").Bool() }

// zeros is the type of a field Zero, which records the keys that are zero or empty on purpose. Without the
// field, such a key cannot be told from a key that the file omits.
type zeros interface {
	Mark(key string)
	Marked(key string) bool
}

// zerosOf returns the field Zero of a struct, or nil without such a field.
func zerosOf(v reflect.Value) zeros {
	if !v.CanAddr() { // to read only
		v = addressable(v)
	}
	if field := v.FieldByName("Zero"); field.IsValid() {
		z, _ := field.Addr().Interface().(zeros)
		return z
	}
	return nil
}

// addressable returns a copy of a value in a variable.
func addressable(v reflect.Value) reflect.Value {
	variable := reflect.New(v.Type()).Elem()
	variable.Set(v)
	return variable
}
