package reporting

import (
	"reflect"
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/internal/printable"
)

// severalLines are the fields of a report whose text may have several lines: errors that list
// several problems, and the output of programs. Other texts are one line each.
var severalLines = []string{"Error", "Reason"}

// printableCopy returns a copy of the report that is safe to print. The report's texts may come from
// any program. A terminal executes control characters, and XML 1.0 cannot carry them even escaped
// (section 2.2, production Char).
func printableCopy(r *report.Report) *report.Report {
	copied := reflect.New(reflect.TypeFor[report.Report]())
	copyPrintable(copied.Elem(), reflect.ValueOf(*r))
	return copied.Interface().(*report.Report)
}

func copyPrintable(to, from reflect.Value) {
	switch {
	case from.Type() == reflect.TypeFor[time.Time]():
		to.Set(from)
	case from.Kind() == reflect.String:
		to.SetString(printable.Line(from.String()))
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			if name := from.Type().Field(i).Name; from.Field(i).Kind() == reflect.String &&
				slices.Contains(severalLines, name) {
				to.Field(i).SetString(printable.Text(from.Field(i).String()))
				continue
			}
			copyPrintable(to.Field(i), from.Field(i))
		}
	case from.Kind() == reflect.Array:
		for i := range from.Len() {
			copyPrintable(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Map && !from.IsNil():
		to.Set(reflect.MakeMap(from.Type()))
		for entries := from.MapRange(); entries.Next(); {
			key, value := reflect.New(from.Type().Key()).Elem(), reflect.New(from.Type().Elem()).Elem()
			copyPrintable(key, entries.Key())
			copyPrintable(value, entries.Value())
			to.SetMapIndex(key, value)
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
