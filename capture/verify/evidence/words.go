package evidence

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Percent formats a share.
func Percent(v float64) string { return fmt.Sprintf("%.3g%%", v*100) }

// ClockTime formats a timestamp of the capture, in nanoseconds since 1970, as a time of day.
func ClockTime(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000000000") }

// enumerateMost is the largest number of names that a list writes out.
const enumerateMost = 6

// enumerate joins names. Of a long list it writes only the first ones and the number of the others.
func enumerate(names []string) string {
	if more := len(names) - enumerateMost; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:enumerateMost], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Union returns the names of both lists, each once.
func Union(a, b []string) []string {
	all := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
