package report

import (
	"reflect"
	"strings"
	"time"
)

// printable is a copy of the report without control characters other than line
// breaks and tabs: texts may come from any program, XML 1.0 cannot carry them
// even escaped (section 2.2, production Char), and a terminal obeys them.
func (r *Report) printable() *Report {
	copied := reflect.New(reflect.TypeFor[Report]())
	copyPrintable(copied.Elem(), reflect.ValueOf(*r))
	return copied.Interface().(*Report)
}

func copyPrintable(to, from reflect.Value) {
	switch {
	case from.Type() == reflect.TypeFor[time.Time]():
		to.Set(from)
	case from.Kind() == reflect.String:
		to.SetString(printableText(from.String()))
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			copyPrintable(to.Field(i), from.Field(i))
		}
	case from.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyPrintable(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(from.Type().Elem()))
		copyPrintable(to.Elem(), from.Elem())
	default:
		to.Set(from)
	}
}

// printableText drops the control characters of ASCII and ISO 8859-1 and what
// is not a character of XML.
func printableText(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r >= 0x20 && r <= 0x7e, r >= 0xa0 && r <= 0xd7ff, r >= 0xe000 && r <= 0xfffd, r >= 0x10000 && r <= 0x10ffff:
			return r
		}
		return -1
	}, text)
}
