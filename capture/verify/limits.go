package verify

import (
	"slices"
	"time"
)

// The numbers that define fidelity, by which runs and recordings are judged
// alike; FIDELITY.md explains them. A run is faithful when it crosses no first
// limit, and overloaded when it crosses a second one. They are shares.
const (
	// RateDegraded is how far the rate of a busy link may be from the asked one.
	// The kernel's shapers are calibrated to 1 %, and reading counters adds up to
	// 2 %.
	RateDegraded = 0.03
	// RateOverloaded is the deviation with which nothing that a run measures can
	// be believed.
	RateOverloaded = 0.10
	// LostDegraded is of the packets that captures lost, of all.
	LostDegraded = 0
	// LostOverloaded is the share with which captures prove nothing.
	LostOverloaded = 0.01
	// PressureDegraded is of the time in which a task waited for a CPU. Ranks that
	// outnumber the CPUs wait for each other even where the links are exact, so
	// this alone never means overloaded.
	PressureDegraded = 0.90
	// StealDegraded and StealOverloaded are shares of CPU time that the hypervisor
	// gave to others.
	StealDegraded   = 0.05
	StealOverloaded = 0.25
)

const (
	// RateInterval is the least time over which the rate of a link is judged, in
	// real time. A switch that is late by less sends what it owes at once, which
	// its lateness tells; over shorter times that would look like a wrong rate.
	RateInterval = 200 * time.Millisecond
	// BusyLeast is how many busy intervals a rate must rest on.
	BusyLeast = 3
)

// Achieved is the share of its asked rate that a link achieved, from the shares of
// the intervals in which it was busy; not known where these are too few. A queue
// can hold something at both ends of an interval and have been empty within it, as
// between the steps of a collective: that makes a link look slower than it is, so
// the best interval counts. It can be above the asked rate by the blur of its ends
// alone; a link that is too fast is so in the median. Achieved sorts the list.
func Achieved(busy []float32) (share float64, known bool) {
	if len(busy) < BusyLeast {
		return 0, false
	}
	slices.Sort(busy)
	best, median := busy[len(busy)-1], busy[len(busy)/2]
	return float64(max(median, min(best, 1))), true
}
