package engine

import (
	"sync/atomic"
	"time"

	"railbed/internal/clock"
)

// Pacer is a limiter by schedule: a packet may go when its moment has come, and
// moves the schedule on by what it takes at the rate. So nobody is ever more
// than the one packet ahead of it, at any rate. Who is behind, because the host
// did not run him, catches up as long as he has something to send; who has
// nothing saves nothing up.
//
// A Pacer is safe for concurrent use: engines of one NIC share it.
type Pacer struct {
	next    atomic.Int64 // when the schedule lets the next packet go, in ticks
	rate    atomic.Uint64
	engines atomic.Int32 // that have something to send
}

const (
	// behind is how much of the schedule is made up for at most.
	behind = 5 * time.Millisecond
	// ticks is how many parts of a nanosecond the schedule counts: a packet of 128
	// bytes takes 2.56 ns at 400 Gbit/s. A part is lost for each at most. The
	// schedule ends after four and a half years.
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

// begin says that an engine has something to send, where it had nothing.
func (p *Pacer) begin(now clock.Time) {
	if p.engines.Add(1) == 1 {
		p.notBefore(now)
	}
}

// end says that it has nothing more.
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

// take lets a packet of so many bytes on the wire go now, or says when. If it
// goes, at is when it should have: not before what is made up for.
func (p *Pacer) take(now clock.Time, bytes int) (at clock.Time, ok bool) {
	cost := cost(bytes, p.rate.Load())
	for {
		next := p.next.Load()
		if next > int64(now)*ticks {
			return moment(next), false
		}
		from := max(next, int64(now.Add(-behind))*ticks)
		if p.next.CompareAndSwap(next, from+cost) {
			return clock.Time(next / ticks), true
		}
	}
}

// cost is how long so many bytes take at a rate in bit/s, in ticks.
func cost(bytes int, rate uint64) int64 {
	return int64((uint64(bytes)*8*uint64(time.Second)*ticks + rate - 1) / rate)
}

// moment is the first at which a place in a schedule is over.
func moment(ticked int64) clock.Time { return clock.Time((ticked + ticks - 1) / ticks) }
