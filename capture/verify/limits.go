package verify

import (
	"slices"
	"time"
)

// These limits define fidelity, for runs and for recordings alike. FIDELITY.md explains them. A run
// is degraded when it crosses a limit named Degraded, and overloaded when it crosses a limit named
// Overloaded. Otherwise it is faithful. All limits are shares.
const (
	// RateDegraded is the largest deviation of a busy link's rate from the configured rate. The
	// kernel's shapers are calibrated to 1 %, and reading counters adds up to 2 %.
	RateDegraded = 0.03
	// RateOverloaded is a deviation at or above which no measurement of the run is reliable.
	RateOverloaded = 0.10
	// LostDegraded is the share of all packets that captures may lose.
	LostDegraded = 0
	// LostOverloaded is a share of lost packets at or above which captures prove nothing.
	LostOverloaded = 0.01
	// PressureDegraded is the largest faithful share of time in which a task waited for a CPU. If
	// there are more ranks than CPUs, ranks wait for each other even where the links are exact.
	// Pressure alone therefore never means overloaded.
	PressureDegraded = 0.90
	// StealDegraded and StealOverloaded are limits of the share of CPU time that the hypervisor gave
	// to other guests.
	StealDegraded   = 0.05
	StealOverloaded = 0.25
	// LateOverloaded is the share of the frames that may be later than LateLimit. Beyond it, one frame in a
	// hundred arrived at a time that is the emulator's and not the fabric's, and retransmission timers ran on
	// that time.
	LateOverloaded = 0.01
)

// lateUnits and lateLeast are the limits of LateLimit.
const (
	lateUnits = 10
	lateLeast = 10 * time.Millisecond
)

// LateLimit returns the lateness of frames beyond which a run is overloaded: several times the smallest time
// of the links that carried something (plan.Direction.Smallest), and some milliseconds at least. Both are of
// the testbed's time. Links without a smallest time have no limit.
func LateLimit(smallest time.Duration) time.Duration { return max(lateUnits*smallest, lateLeast) }

const (
	// RateInterval is the least time over which the rate of a link is judged, in real time. A
	// switch that is late by less than that sends the delayed packets at once, and its lateness is
	// recorded. Over shorter times such a burst would look like a wrong rate.
	RateInterval = 200 * time.Millisecond
	// BusyLeast is the least number of busy intervals behind a rate.
	BusyLeast = 3
)

// Achieved returns the share of its configured rate that a link achieved. Its argument lists the
// shares of the intervals in which the link was busy. With fewer than BusyLeast intervals the share
// is not known.
//
// A queue can hold packets at both ends of an interval and have been empty within it, as between
// the steps of a collective. The link then looks slower than it is, so the best interval counts.
// The best interval can exceed the configured rate because its ends are not sharp. If a link is too
// fast, its median is too high as well. Achieved sorts the list.
func Achieved(busy []float32) (share float64, known bool) {
	if len(busy) < BusyLeast {
		return 0, false
	}
	slices.Sort(busy)
	best, median := busy[len(busy)-1], busy[len(busy)/2]
	return float64(max(median, min(best, 1))), true
}
