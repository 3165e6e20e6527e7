package capture

import "time"

// clockTolerance is far above the rounding errors of two readings.
const clockTolerance = 10 * time.Microsecond

// clocks is one reading of both clocks, in nanoseconds: the monotonic clock before and after the
// real-time clock.
type clocks struct{ before, real, after int64 }

// clockWatch detects when the real-time clock is set. NTP slews both clocks alike, so only a step
// changes their difference. The true difference lies between real-after and real-before, however
// long the thread was delayed between the readings. So a late thread does not count as a step.
type clockWatch struct {
	read      func() clocks
	low, high int64 // bounds of real minus monotonic time since the last step
	begun     bool
	stepped   bool
	// by is the sum of all steps.
	by time.Duration
}

// readClocks reads the clocks and reports whether the real-time clock was set since the last call.
func (w *clockWatch) readClocks() (now clocks, stepped bool) {
	now = w.read()
	low, high := now.real-now.after, now.real-now.before
	switch {
	case !w.begun:
		w.begun, w.low, w.high = true, low, high
	case low > w.high+int64(clockTolerance) || high < w.low-int64(clockTolerance):
		w.by += time.Duration((low+high)/2 - (w.low+w.high)/2)
		w.low, w.high, w.stepped = low, high, true
		return now, true
	default:
		w.low, w.high = max(w.low, low), min(w.high, high)
		if w.low > w.high { // within the tolerance
			w.low, w.high = w.high, w.low
		}
	}
	return now, false
}
