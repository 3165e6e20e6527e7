package engine

import (
	"math/bits"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/rate"
)

// lane is the schedule of one sequence space, by the rules of Pacer. It begins when its first
// packet is sent rather than when that packet could have been sent: the NIC's pacer may have
// preferred other sequence spaces.
type lane struct {
	next  int64 // in ticks
	busy  bool  // packets are waiting: the schedule continues
	fresh bool  // and none of them was sent yet
}

// begin starts the schedule if nothing was waiting before.
func (l *lane) begin(now clock.Time) {
	if !l.busy {
		l.busy, l.fresh, l.next = true, true, max(l.next, int64(now)*ticks)
	}
}

// charge advances the schedule by a packet that is sent now, and returns when it was due.
func (l *lane) charge(now clock.Time, bytes int, perSecond uint64) (due clock.Time) {
	if l.fresh {
		l.fresh, l.next = false, int64(now)*ticks
	}
	due = moment(l.next)
	l.next = max(l.next, int64(now.Add(-behind))*ticks) + cost(bytes, perSecond)
	return due
}

// allowed reports whether the controller allows the next packet now. It keeps the controller's
// answer in grants.
func (o *outbound) allowed(now clock.Time) bool {
	if o.control == nil {
		return true
	}
	o.grants = o.control.Allowed(now)
	a := &o.grants
	if a.Window > 0 && o.flight.count > 0 && o.under+o.nextBytes()-wire.RDDataLen > a.Window {
		o.lane.busy = false
		return false // until an acknowledgement arrives
	}
	at := a.From
	if a.Rate > 0 {
		o.lane.begin(now)
		at = max(at, moment(o.lane.next))
	}
	if at <= now.Add(o.engine.config.Ahead) {
		return true
	}
	if at != clock.Never {
		o.engine.paceAt(at)
	}
	return false
}

// asks reports whether a packet of so many bytes must request an acknowledgement because of the
// controller's window. It must if the window has no room for another packet, or if a quarter of the
// window was sent since the last request. So the window opens bit by bit, and the next packets are
// sent before the last ones have arrived.
func (o *outbound) asks(bytes int) bool {
	if o.control == nil {
		return false
	}
	window := o.grants.Window
	o.unasked += bytes
	if window == 0 || o.under+2*bytes <= window && o.unasked < window/4 {
		return false
	}
	o.unasked = 0
	return true
}

// tell reports an acknowledgement to the controller.
func (o *outbound) tell(now clock.Time) {
	if o.control != nil {
		o.told.InFlight = o.under
		o.control.Acked(now, o.told)
	}
}

// tellLost reports a packet that is no longer in flight to the controller.
func (o *outbound) tellLost(k *outPacket, trimmed bool, now clock.Time) {
	if o.control != nil {
		o.control.Lost(now, rate.Loss{Bytes: int(k.size), Trimmed: trimmed, InFlight: o.under})
	}
}

// paceAt makes the engine look again for a packet that may be sent at a time later than now and Ahead. It
// does so when others may be sent with it: later by the slack, or while packets of half of Ahead still wait
// in the driver.
func (e *Engine) paceAt(at clock.Time) {
	at = at.Add(e.config.Slack - e.config.Ahead/2)
	if e.paced == 0 || at < e.paced {
		e.paced = at
	}
}

// pace reports whether the pacer allows a packet that its controller allows. If so, it counts the
// packet's lateness, and returns when the packet is to leave.
func (e *Engine) pace(now clock.Time, o *outbound) (departs clock.Time, ok bool) {
	p, bytes, due, paced := e.config.Pacer, o.nextBytes()+e.config.Overhead, clock.Time(0), false
	if p != nil {
		if !e.pacing {
			e.pacing = true
			p.begin(now)
		}
		at, ok := p.take(now, now.Add(e.config.Ahead), bytes)
		if !ok {
			e.paceAt(at)
			return 0, false
		}
		due, paced = at, true
	}
	if r := o.grants.Rate; r > 0 {
		due, paced = max(due, o.lane.charge(max(now, due), bytes, r)), true
	}
	due = max(due, min(o.grants.From, now.Add(e.config.Ahead)))
	if paced {
		e.counters.Pace.count(max(0, now.Sub(due)))
	}
	return due, true
}

// Pace counts paced packets by their lateness, relative to the time at which their schedule allowed
// them. No packet is sent before that time.
type Pace struct {
	Packets uint64        `json:"packets"`
	Most    time.Duration `json:"most_ns"`
	// Late counts packets by the binary logarithm of their lateness: Late[0] less than 1 us,
	// Late[i] 2^(i-1) to 2^i us. The last bucket has all packets above.
	Late [paceBuckets]uint64 `json:"-"`
}

const paceBuckets = 20

func (p *Pace) count(late time.Duration) {
	p.Packets++
	p.Most = max(p.Most, late)
	p.Late[min(bits.Len64(uint64(late/time.Microsecond)), paceBuckets-1)]++
}

// Add adds the counts of another engine.
func (p *Pace) Add(o *Pace) {
	p.Packets += o.Packets
	p.Most = max(p.Most, o.Most)
	for i := range p.Late {
		p.Late[i] += o.Late[i]
	}
}

// Quantile returns a lateness that the given number of thousandths of the packets do not exceed: a
// power of two in microseconds, or the maximum.
func (p *Pace) Quantile(thousandths uint64) time.Duration {
	left := (p.Packets*thousandths + 999) / 1000
	for i, n := range p.Late {
		if left <= n {
			return min(time.Microsecond<<i, p.Most)
		}
		left -= n
	}
	return p.Most
}
