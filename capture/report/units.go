package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// quantity has the units of a kind of numbers, largest first.
type quantity []unit

// unit is a unit of a table or column. scale is its size in the unit of the report's fields.
type unit struct {
	name  string
	scale float64
}

var (
	durations = quantity{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}
	rates     = quantity{{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1}}
)

// of returns the unit for the numbers of a table: the largest in which the median of the numbers other than 0
// is at least 1.
func (q quantity) of(values ...float64) unit {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v == 0 })
	if len(values) == 0 {
		return q[len(q)-1]
	}
	slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	for _, u := range q {
		if math.Abs(values[len(values)/2]) >= u.scale {
			return u
		}
	}
	return q[len(q)-1]
}

// head returns a column head with the unit below.
func (u unit) head(name string) string { return name + "\n(" + u.name + ")" }

// text formats a number in the unit.
func (u unit) text(v float64) string { return digits(v / u.scale) }

// figures is the number of significant digits in tables. Measurements of an emulation are no better.
const figures = 4

// digits formats a number with four significant digits, without an exponent. It keeps all digits of the
// integer part.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	// The exponent after rounding decides: 9.9996 is 10.00.
	_, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', figures-1, 64), "e")
	power, err := strconv.Atoi(exponent)
	if err != nil { // not a number, or infinite
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, figures-1-power), 64)
}
