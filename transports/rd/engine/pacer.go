package engine

import (
	"sync/atomic"
	"time"

	"railbed/fabric/clock"
)

// Pacer is a limiter by schedule: a packet may go when its moment has come, and
// moves the schedule on by what it takes at the rate. So nobody is ever more
// than the one packet ahead of it, at any rate. Who is behind, because the host
// did not run him, catches up as long as he has something to send; who has
// nothing saves nothing up.
//
// A Pacer is safe for concurrent use: engines of one NIC share it.
type Pacer struct {
	next    atomic.Int64 // when the schedule lets the next packet go
	rate    atomic.Uint64
	engines atomic.Int32 // that have something to send
}

// behind is how much of the schedule is made up for at most.
const behind = 5 * time.Millisecond

// NewPacer makes a pacer for a rate in bit/s, which is above 0.
func NewPacer(rate uint64) *Pacer {
	p := &Pacer{}
	p.SetRate(rate)
	return p
}

// SetRate changes the rate from the next packet on.
func (p *Pacer) SetRate(rate uint64) { p.rate.Store(max(rate, 1)) }

// begin says that an engine has something to send, where it had nothing.
func (p *Pacer) begin(now clock.Time) {
	if p.engines.Add(1) == 1 {
		p.notBefore(now)
	}
}

// end says that it has nothing more.
func (p *Pacer) end() { p.engines.Add(-1) }

func (p *Pacer) notBefore(t clock.Time) {
	for {
		next := p.next.Load()
		if next >= int64(t) || p.next.CompareAndSwap(next, int64(t)) {
			return
		}
	}
}

// take lets a packet of so many bytes on the wire go now, or says when.
func (p *Pacer) take(now clock.Time, bytes int) (at clock.Time, ok bool) {
	cost := int64(uint64(bytes) * 8 * uint64(time.Second) / p.rate.Load())
	for {
		next := p.next.Load()
		if next > int64(now) {
			return clock.Time(next), false
		}
		from := max(next, int64(now.Add(-behind)))
		if p.next.CompareAndSwap(next, from+cost) {
			return now, true
		}
	}
}
