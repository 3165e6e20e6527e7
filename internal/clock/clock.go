// Package clock is the time of a testbed. One Clock is handed to whatever
// keeps time in it: the switch, the transports, the collectives, the timeline.
// Files and programs state virtual times; nobody but Clock knows the dilation.
package clock

import "time"

// Time is a moment of a testbed's virtual time, in nanoseconds since its epoch.
type Time int64

// Dilation is how many times slower than real time a testbed's time runs; 0 is
// 1. It is for who has durations and rates and needs no time of day.
type Dilation uint64

// factor is the dilation, at least 1.
func (d Dilation) factor() uint64 { return max(uint64(d), 1) }

// Wait is how long a virtual duration takes.
func (d Dilation) Wait(virtual time.Duration) time.Duration {
	return virtual * time.Duration(d.factor())
}

// Passed is the virtual duration that passes in a real one.
func (d Dilation) Passed(real time.Duration) time.Duration {
	return real / time.Duration(d.factor())
}

// Real is the real rate, per second of real time, at which something happens
// that happens at a virtual one. It is 0 only for 0.
func (d Dilation) Real(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	return max(rate/d.factor(), 1)
}

// Virtual is a real rate, per second of virtual time.
func (d Dilation) Virtual(rate float64) float64 { return rate * float64(d.factor()) }

// Never is later than every moment.
const Never Time = 1<<63 - 1

// Add is the moment d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub is the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Clock reads a testbed's virtual time off the host's monotonic clock. It is
// safe for concurrent use.
type Clock struct {
	epoch    time.Time // with the host's monotonic reading
	dilation Dilation
}

// New returns a clock whose epoch is now. Virtual time runs dilation times
// slower than real time; 0 is 1.
func New(dilation uint64) *Clock { return At(time.Now(), dilation) }

// At is New with a given epoch.
func At(epoch time.Time, dilation uint64) *Clock {
	return &Clock{epoch: epoch, dilation: Dilation(max(dilation, 1))}
}

// Dilation is how many times slower than real time the virtual time runs.
func (c *Clock) Dilation() uint64 { return uint64(c.dilation) }

// Epoch is the real time of virtual time 0.
func (c *Clock) Epoch() time.Time { return c.epoch }

// Now is the virtual time.
func (c *Clock) Now() Time { return Time(c.dilation.Passed(time.Since(c.epoch))) }

// Of is the virtual time of a real one.
func (c *Clock) Of(real time.Time) Time { return Time(c.dilation.Passed(real.Sub(c.epoch))) }

// Real is the real time at which the virtual one is t.
func (c *Clock) Real(t Time) time.Time { return c.epoch.Add(c.Wait(time.Duration(t))) }

// Wait is how long a virtual duration takes.
func (c *Clock) Wait(d time.Duration) time.Duration { return c.dilation.Wait(d) }
