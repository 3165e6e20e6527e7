package strictyaml

import (
	"fmt"
	"reflect"
	"slices"

	"railbed/internal/nearest"
	"railbed/internal/printable"
)

// Checker collects the problems of decoded values. It skips a problem with a value that is wrong already,
// because that would report a consequence.
type Checker struct {
	// Source has the positions, nil for a value built in Go.
	Source   *Source
	Problems Problems
	// Enums maps names in the tags of enumerations to the words that they stand for.
	Enums map[string][]string

	// wrong holds the paths that were reported. holders holds all paths that contain a reported
	// one.
	wrong, holders map[string]bool
}

// NewChecker returns a Checker for the values of a Source. wrong are the paths that were reported when the
// values were decoded, as in Decoder.Wrong.
func NewChecker(source *Source, wrong map[string]bool) *Checker {
	c := &Checker{Source: source, wrong: wrong, holders: map[string]bool{}}
	for path := range wrong {
		for ; path != "" && !c.holders[ParentPath(path)]; path = ParentPath(path) {
			c.holders[ParentPath(path)] = true
		}
	}
	return c
}

// Report adds a problem with the value of the path, unless the path or a value that contains it was
// reported before.
func (c *Checker) Report(path, what, want string) {
	if !c.Full() && !c.Known(path) {
		c.Problems = append(c.Problems, c.Source.Problem(path, what, want))
	}
}

// ReportKey is Report for a problem with the key of the path's value.
func (c *Checker) ReportKey(path, what, want string) {
	if !c.Full() && !c.Known(path) {
		c.Problems = append(c.Problems, c.Source.KeyProblem(path, what, want))
	}
}

// Full reports whether enough problems were found. More would only cost memory.
func (c *Checker) Full() bool { return len(c.Problems) >= keptProblems }

// Known reports whether the path or a value that contains it was reported when it was decoded.
func (c *Checker) Known(path string) bool {
	for ; path != ""; path = ParentPath(path) {
		if c.wrong[path] {
			return true
		}
	}
	return c.wrong[""]
}

// Broken reports whether a value inside the path was reported when it was decoded.
func (c *Checker) Broken(path string) bool { return c.holders[path] }

// Tags checks the value of the path, to which v points, by the tags of its fields: required keys,
// enumerations and bounds. A field that is zero and not in the file is unset.
func (c *Checker) Tags(path string, v any) { c.tags(reflect.ValueOf(v).Elem(), path) }

func (c *Checker) tags(v reflect.Value, path string) {
	switch {
	case c.Full():
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			c.tags(v.Elem(), path)
		}
	case isOrdered(v.Type()):
		for i := range v.Len() {
			entry := v.Index(i)
			c.tags(entry.Field(1), EntryPath(path, entry.Field(0).String()))
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			c.tags(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case isOff(v):
	case v.Kind() == reflect.Struct && !isScalar(v.Type()):
		for _, f := range Fields(v.Type()) {
			inner := FieldPath(path, f.Key)
			if c.field(f, v.FieldByIndex(f.Index), path, inner) {
				c.tags(v.FieldByIndex(f.Index), inner)
			}
		}
	}
}

// field checks one field and reports whether its inner fields are to be checked.
func (c *Checker) field(f Field, v reflect.Value, outer, path string) bool {
	given := c.Source.Has(path)
	unset := v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case unset && f.required && given && v.Kind() != reflect.Struct && f.min == nil:
		c.Report(path, path+" is empty", "write "+c.requiredWant(f, v.Type()))
	case unset && f.required && !given:
		c.Report(path, fmt.Sprintf("%s lacks the key %q", Called(outer), f.Key),
			"add "+f.Key+": "+c.requiredWant(f, v.Type()))
		return false
	case unset && !given, v.Kind() == reflect.Pointer: // a nil pointer could not be decoded
	case f.Enum != nil && !slices.Contains(f.Words(c.Enums), v.String()):
		words := f.Words(c.Enums)
		near, hint := nearest.Suggest(v.String(), words)
		if near != "" && len(words) <= 3 {
			hint = "want " + nearest.OneOf(words)
		}
		c.Report(path, fmt.Sprintf("%s %q does not exist", path, printable.Clip(v.String())), hint)
	case f.min != nil && outside(v, *f.min, f.max):
		c.Report(path, fmt.Sprintf("%s is %v", path, v.Interface()), "want "+bounds(f)+f.why)
	}
	return true
}

func (c *Checker) requiredWant(f Field, t reflect.Type) string {
	switch {
	case f.Enum != nil:
		return nearest.OneOf(f.Words(c.Enums))
	case t.Kind() == reflect.Slice:
		return "a list with at least one entry"
	case t.Kind() == reflect.Struct && !isScalar(t):
		return "a mapping with " + keyList(Fields(t))
	}
	return exampleOf(t)
}

func outside(v reflect.Value, least int, most *int) bool {
	switch v.Kind() {
	case reflect.Int:
		return v.Int() < int64(least) || most != nil && v.Int() > int64(*most)
	case reflect.Uint64:
		return v.Uint() < uint64(least) || most != nil && v.Uint() > uint64(*most)
	default:
		return v.Float() < float64(least) || most != nil && v.Float() > float64(*most)
	}
}

func bounds(f Field) string {
	switch {
	case f.max == nil:
		return fmt.Sprintf("at least %d", *f.min)
	case *f.min == *f.max:
		return fmt.Sprint(*f.min)
	}
	return fmt.Sprintf("%d to %d", *f.min, *f.max)
}
