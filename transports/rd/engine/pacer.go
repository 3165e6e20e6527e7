package engine

import (
	"sync/atomic"
	"time"

	"railbed/internal/clock"
)

// Pacer limits a rate by a schedule. A packet may be sent when its time has come, and advances the
// schedule by its duration at the rate. So at any rate, sending is never ahead of the schedule by
// more than one packet. A sender that is late because the host did not run it catches up while it
// has packets to send. A sender without packets saves no time up.
//
// A Pacer is safe for concurrent use: engines of one NIC share it.
type Pacer struct {
	next    atomic.Int64 // the time of the next packet, in ticks
	rate    atomic.Uint64
	engines atomic.Int32 // engines with packets to send
}

const (
	// behind is the most lateness that a sender may catch up.
	behind = 5 * time.Millisecond
	// ticks is the number of ticks in a nanosecond: a packet of 128 bytes takes 2.56 ns at 400
	// Gbit/s. Rounding loses at most one tick a packet. The schedule overflows after four and a
	// half years.
	ticks = 64
)

// NewPacer makes a pacer for a rate in bit/s, which is above 0.
func NewPacer(rate uint64) *Pacer {
	p := &Pacer{}
	p.SetRate(rate)
	return p
}

// SetRate changes the rate from the next packet on.
func (p *Pacer) SetRate(rate uint64) { p.rate.Store(max(rate, 1)) }

// begin records that an engine has packets to send after it had none.
func (p *Pacer) begin(now clock.Time) {
	if p.engines.Add(1) == 1 {
		p.notBefore(now)
	}
}

// end records that an engine has no more packets to send.
func (p *Pacer) end() { p.engines.Add(-1) }

func (p *Pacer) notBefore(t clock.Time) {
	at := int64(t) * ticks
	for {
		next := p.next.Load()
		if next >= at || p.next.CompareAndSwap(next, at) {
			return
		}
	}
}

// take lets a packet of so many bytes on the wire be sent if its time comes until a time, which is now or
// later. Then at is its time. Otherwise ok is false, and at is the time at which it may be sent.
func (p *Pacer) take(now, until clock.Time, bytes int) (at clock.Time, ok bool) {
	cost := cost(bytes, p.rate.Load())
	for {
		next := p.next.Load()
		if next > int64(until)*ticks {
			return moment(next), false
		}
		from := max(next, int64(now.Add(-behind))*ticks)
		if p.next.CompareAndSwap(next, from+cost) {
			return moment(next), true
		}
	}
}

// cost is the duration of so many bytes at a rate in bit/s, in ticks.
func cost(bytes int, rate uint64) int64 {
	return int64((uint64(bytes)*8*uint64(time.Second)*ticks + rate - 1) / rate)
}

// moment is the time of a tick, rounded up.
func moment(ticked int64) clock.Time { return clock.Time((ticked + ticks - 1) / ticks) }
