package units

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Number formats large and whole numbers without a fraction, and others with four significant
// digits.
func Number(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 1e4 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// Micros formats microseconds in a few characters.
func Micros(us float64) string { return Seconds(us / 1e6) }

// BitRate formats a rate with four significant digits and its unit.
func BitRate(bitsPerSecond float64) string {
	for _, unit := range Rates {
		if bitsPerSecond >= unit.Size {
			return strconv.FormatFloat(bitsPerSecond/unit.Size, 'g', 4, 64) + " " + unit.Name
		}
	}
	return strconv.FormatFloat(bitsPerSecond, 'g', 4, 64) + " bit/s"
}

func Percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 1, 64) + "%" }

// Seconds formats a duration in a few characters.
func Seconds(s float64) string { return Took(time.Duration(s * float64(time.Second))) }

// Took formats a measured duration with three significant digits. It leaves out fractions of a
// microsecond, and from a minute on fractions of a second, because they are noise.
func Took(d time.Duration) string {
	unit := time.Duration(1)
	switch magnitude := d.Abs(); {
	case magnitude >= time.Minute:
		unit = time.Second
	case magnitude >= time.Microsecond:
		for unit = time.Microsecond; unit*1000 <= magnitude; {
			unit *= 10
		}
	}
	return strings.Replace(d.Round(unit).String(), "µs", "us", 1)
}
