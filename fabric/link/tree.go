package link

import (
	"railbed/internal/kernel"
)

// SameTree reports whether an interface has exactly the shaping's queueing disciplines, whatever
// their settings. Apply then changes them in place.
func (s Shaping) SameTree(qdiscs []kernel.Qdisc) bool {
	count := 0
	has := func(handle, parent kernel.QdiscHandle, kind string) bool {
		count++
		got := find(qdiscs, handle)
		return got != nil && got.Parent == parent && got.Kind == kind
	}
	same := true
	switch {
	case s.NeedsNetem():
		same = has(netemHandle, kernel.Root, "netem")
		if s.Rate > 0 {
			same = has(innerHandle, netemClass, "tbf") && same
		}
	case s.Rate > 0:
		same = has(plainHandle, kernel.Root, "tbf")
	}
	return same && count == len(qdiscs)
}
