// Package clock is the time of a testbed. One Clock is handed to whatever
// keeps time in it: the switch, the transports, the collectives, the timeline.
// Files and programs state virtual times; nobody but Clock knows the dilation.
package clock

import "time"

// Time is a moment of a testbed's virtual time, in nanoseconds since its epoch.
type Time int64

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
	dilation int64
}

// New returns a clock whose epoch is now. Virtual time runs dilation times
// slower than real time; 0 is 1.
func New(dilation uint64) *Clock { return At(time.Now(), dilation) }

// At is New with a given epoch.
func At(epoch time.Time, dilation uint64) *Clock {
	return &Clock{epoch: epoch, dilation: int64(max(dilation, 1))}
}

// Dilation is how many times slower than real time the virtual time runs.
func (c *Clock) Dilation() uint64 { return uint64(c.dilation) }

// Epoch is the real time of virtual time 0.
func (c *Clock) Epoch() time.Time { return c.epoch }

// Now is the virtual time.
func (c *Clock) Now() Time { return Time(int64(time.Since(c.epoch)) / c.dilation) }

// Of is the virtual time of a real one.
func (c *Clock) Of(real time.Time) Time { return Time(int64(real.Sub(c.epoch)) / c.dilation) }

// Real is the real time at which the virtual one is t.
func (c *Clock) Real(t Time) time.Time { return c.epoch.Add(c.Wait(time.Duration(t))) }

// Wait is how long a virtual duration takes.
func (c *Clock) Wait(d time.Duration) time.Duration { return d * time.Duration(c.dilation) }
