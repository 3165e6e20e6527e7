package units

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Scale has the units of a quantity, largest first.
type Scale []Unit

// Unit is the unit of a table or a column. Size is its size in the base unit, such as 1e6 for Mbit/s.
type Unit struct {
	Name string
	Size float64
}

// The scales of times in seconds, and of rates in bit/s.
var (
	Times = Scale{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}
	Rates = Scale{{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1}}
)

// Of returns the unit for the numbers of a table: the largest in which the median of the numbers other than 0
// is at least 1. Without such numbers it is the base unit.
func (s Scale) Of(values ...float64) Unit {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v == 0 })
	if len(values) == 0 {
		return s[slices.IndexFunc(s, func(u Unit) bool { return u.Size == 1 })]
	}
	slices.SortFunc(values, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	for _, u := range s {
		if math.Abs(values[len(values)/2]) >= u.Size {
			return u
		}
	}
	return s[len(s)-1]
}

// Head returns a column head with the unit below.
func (u Unit) Head(name string) string { return name + "\n(" + u.Name + ")" }

// Text formats a number in the unit, with four significant digits.
func (u Unit) Text(v float64) string { return Digits(v / u.Size) }

// Rounded formats a number in the unit, with the unit.
func (u Unit) Rounded(v float64) string { return fmt.Sprintf("%.0f %s", v/u.Size, u.Name) }

// significant is the number of significant digits in tables. Measurements of an emulation are no better.
const significant = 4

// Digits formats a number with four significant digits, without an exponent. It keeps all digits of the
// integer part.
func Digits(v float64) string {
	if v == 0 {
		return "0"
	}
	// The exponent after rounding decides: 9.9996 is 10.00.
	_, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', significant-1, 64), "e")
	power, err := strconv.Atoi(exponent)
	if err != nil { // not a number, or infinite
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', max(0, significant-1-power), 64)
}
