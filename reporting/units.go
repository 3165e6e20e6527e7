package reporting

import (
	"fmt"

	"railbed/capture/report"
	"railbed/internal/units"
)

// inUnit formats a number of the page's template.
func inUnit(u units.Unit, v any) (string, error) {
	switch v := v.(type) {
	case float64:
		return u.Text(v), nil
	case uint64:
		return u.Text(float64(v)), nil
	}
	return "", fmt.Errorf("format %v: %T has no unit", v, v)
}

// tableUnits are the units of a table with rates and times.
type tableUnits struct{ Rate, Time units.Unit }

func unitsOfLinks(links []report.LinkRate) tableUnits {
	var bits, busy []float64
	for _, l := range links {
		bits, busy = append(bits, float64(l.Asked), float64(l.Peak)), append(busy, l.Busy)
	}
	return tableUnits{units.Rates.Of(bits...), units.Times.Of(busy...)}
}

func unitOfTimes(all []report.Distribution) units.Unit {
	var times []float64
	for _, d := range all {
		times = append(times, d.At(0.5), d.At(0.99))
	}
	return units.Times.Of(times...)
}
