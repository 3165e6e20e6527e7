package spec

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"railbed/internal/units"
)

// field is a struct field that files can set.
type field struct {
	key   string
	index []int
	// required is true for fields without omitempty in their yaml tag.
	required bool
	// anyScalar is the tag scalar:"any": text that looks like a number needs no quotes.
	anyScalar bool
	// enum, min and max come from the jsonschema tag, which the decoder and the published schema
	// share.
	enum     []string
	min, max *int
	// empty describes the effect of an empty mapping, "" if a mapping must have keys.
	empty string
	// why explains the reason for an unexpected bound and what to do instead.
	why string
	// unit is the quantity of a number or of a bound, limited that a check can be limited in time, and names
	// the kind of a Name.
	unit, limited, names string
}

// fieldsKnown caches the results of fieldsOf, because files can have a hundred thousand values of a
// type.
var fieldsKnown sync.Map

// fieldsOf returns a struct's fields in order, including those of inlined structs.
func fieldsOf(t reflect.Type) []field {
	if known, found := fieldsKnown.Load(t); found {
		return known.([]field)
	}
	fields := readFields(t)
	fieldsKnown.Store(t, fields)
	return fields
}

func readFields(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case key == "-":
		case strings.Contains(options, "inline"):
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				fields = append(fields, inner)
			}
		default:
			made := field{key: key, index: f.Index, required: !strings.Contains(options, "omitempty"),
				anyScalar: f.Tag.Get("scalar") == "any", empty: f.Tag.Get("empty"),
				why: f.Tag.Get("why"), unit: f.Tag.Get("unit"), limited: f.Tag.Get("limited"),
				names: f.Tag.Get("names")}
			made.constrain(f.Tag.Get("jsonschema"))
			fields = append(fields, made)
		}
	}
	return fields
}

func (f *field) constrain(tag string) {
	for option := range strings.SplitSeq(tag, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "enum":
			f.enum = append(f.enum, valuesOf(value, f.enum)...)
		case "minimum":
			f.min = number(value)
		case "maximum":
			f.max = number(value)
		}
	}
}

// valuesOf returns the values that a value of a tag adds to others. KINDS and FORMULAS stand for all that
// follow from the kinds of package schedule.
func valuesOf(value string, others []string) []string {
	all := []string{value}
	switch value {
	case "KINDS":
		all = WorkloadKinds()
	case "FORMULAS":
		all = formulas()
	}
	return slices.DeleteFunc(all, func(v string) bool { return slices.Contains(others, v) })
}

// number parses a bound of a struct tag. An invalid bound is a mistake in the source.
func number(text string) *int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic("spec: bound " + text + " in a struct tag is not a number")
	}
	return &value
}

// enumOf returns the values of a key of T that has an enumeration.
func enumOf[T any](key string) []string {
	fields := fieldsOf(reflect.TypeFor[T]())
	return fields[slices.IndexFunc(fields, func(f field) bool { return f.key == key })].enum
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}

func keyList(fields []field) string { return "keys such as " + strings.Join(keysOf(fields), ", ") }

// joined returns the path of a field. keyed returns that of an entry with a free key.
func joined(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func keyed(path, key string) string { return path + "[" + strconv.Quote(key) + "]" }

// isOrdered reports whether a type is an instance of Ordered.
func isOrdered(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.PkgPath() == reflect.TypeFor[Testbed]().PkgPath() &&
		strings.HasPrefix(t.Name(), "Ordered[")
}

// exampleOf describes the values that a field of a unit accepts.
func exampleOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[units.Rate]():
		return "a rate such as 1gbit"
	case reflect.TypeFor[units.Bytes]():
		return "a size such as 40KB"
	case reflect.TypeFor[units.Duration]():
		return "a duration such as 10us"
	case reflect.TypeFor[units.Ratio]():
		return "a share such as 0.1%"
	case reflect.TypeFor[units.Factor]():
		return "a number such as 0.5"
	case reflect.TypeFor[units.Offset]():
		return "a time such as 10s or -10s"
	case reflect.TypeFor[units.Drift]():
		return "a drift such as 100ppm or -100ppm"
	}
	switch t.Kind() {
	case reflect.Float64:
		return "a number such as 0.5"
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	}
	return "text"
}

// isUnit reports whether a type is a quantity that is a struct in Go and one value in a file.
func isUnit(t reflect.Type) bool {
	return t == reflect.TypeFor[units.Ratio]() || t == reflect.TypeFor[units.Factor]()
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

// named is a setting that may be written as a name alone instead of a mapping.
type named interface{ name() *string }

func isNamed(v reflect.Value) bool {
	if !v.CanAddr() {
		return false
	}
	_, is := v.Addr().Interface().(named)
	return is
}
