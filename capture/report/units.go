package report

import (
	"cmp"
	"fmt"
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
// is at least 1. Without such numbers it is the unit of the report's fields.
func (q quantity) of(values ...float64) unit {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v == 0 })
	if len(values) == 0 {
		return q[slices.IndexFunc(q, func(u unit) bool { return u.scale == 1 })]
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

// rounded formats a number in the unit, with the unit.
func (u unit) rounded(v float64) string { return fmt.Sprintf("%.0f %s", v/u.scale, u.name) }

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

// inUnit formats a number of the page's template.
func inUnit(u unit, v any) (string, error) {
	switch v := v.(type) {
	case float64:
		return u.text(v), nil
	case uint64:
		return u.text(float64(v)), nil
	}
	return "", fmt.Errorf("format %v: %T has no unit", v, v)
}

// linkUnits are the units of the table of links.
type linkUnits struct{ Rate, Time unit }

func unitsOfLinks(links []LinkRate) linkUnits {
	var bits, busy []float64
	for _, l := range links {
		bits, busy = append(bits, float64(l.Asked), float64(l.Peak)), append(busy, l.Busy)
	}
	return linkUnits{rates.of(bits...), durations.of(busy...)}
}

func unitOfMessages(all []Messages) unit {
	var times []float64
	for i := range all {
		times = append(times, all[i].Times.P50, all[i].Times.P99)
	}
	return durations.of(times...)
}

func unitOfTimes(all []Distribution) unit {
	var times []float64
	for _, d := range all {
		times = append(times, d.At(0.5), d.At(0.99))
	}
	return durations.of(times...)
}
