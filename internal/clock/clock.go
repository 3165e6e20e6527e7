// Package clock provides the time of a testbed. The switch, the transports, the collectives and the
// timeline share one Clock. Files and programs state virtual times. Only Clock contains the
// dilation.
package clock

import "time"

// Time is a moment of a testbed's virtual time, in nanoseconds since its epoch.
type Time int64

// Dilation is the factor by which a testbed's time runs slower than real time; 0 means 1. It serves
// callers that convert durations and rates and need no time of day.
type Dilation uint64

// factor is the dilation, at least 1.
func (d Dilation) factor() uint64 { return max(uint64(d), 1) }

// Wait returns the real duration of a virtual duration.
func (d Dilation) Wait(virtual time.Duration) time.Duration {
	return virtual * time.Duration(d.factor())
}

// Passed returns the virtual duration of a real duration.
func (d Dilation) Passed(real time.Duration) time.Duration {
	return real / time.Duration(d.factor())
}

// Real converts a rate per second of virtual time to the rate per second of real time. It returns 0
// only for 0.
func (d Dilation) Real(rate uint64) uint64 {
	if rate == 0 {
		return 0
	}
	return max(rate/d.factor(), 1)
}

// Virtual converts a rate per second of real time to the rate per second of virtual time.
func (d Dilation) Virtual(rate float64) float64 { return rate * float64(d.factor()) }

// Never is later than every other Time.
const Never Time = 1<<63 - 1

// Add returns the time d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the duration from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Clock derives a testbed's virtual time from the host's monotonic clock. It is safe for concurrent
// use.
type Clock struct {
	epoch    time.Time // with the host's monotonic reading
	dilation Dilation
}

// New returns a clock whose epoch is now. Virtual time runs slower than real time by the factor
// dilation; 0 means 1.
func New(dilation uint64) *Clock { return At(time.Now(), dilation) }

// At is New with the given epoch.
func At(epoch time.Time, dilation uint64) *Clock {
	return &Clock{epoch: epoch, dilation: Dilation(max(dilation, 1))}
}

// Dilation returns the factor by which virtual time runs slower than real time.
func (c *Clock) Dilation() uint64 { return uint64(c.dilation) }

// Epoch returns the real time of virtual time 0.
func (c *Clock) Epoch() time.Time { return c.epoch }

// Now returns the current virtual time.
func (c *Clock) Now() Time { return Time(c.dilation.Passed(time.Since(c.epoch))) }

// Of converts a real time to the virtual time.
func (c *Clock) Of(real time.Time) Time { return Time(c.dilation.Passed(real.Sub(c.epoch))) }

// Real returns the real time at which the virtual time is t.
func (c *Clock) Real(t Time) time.Time { return c.epoch.Add(c.Wait(time.Duration(t))) }

// Wait returns the real duration of a virtual duration.
func (c *Clock) Wait(d time.Duration) time.Duration { return c.dilation.Wait(d) }
