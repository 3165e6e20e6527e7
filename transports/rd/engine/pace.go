package engine

import (
	"math/bits"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/rate"
)

// lane is the schedule of one sequence space, by the rules of Pacer. It begins
// with the first packet that goes, not when that could have gone: the NIC's
// pacer may have let others go before.
type lane struct {
	next  int64 // in ticks
	busy  bool  // there is something to send: the schedule goes on
	fresh bool  // and nothing of it was sent yet
}

// begin starts the schedule where there was nothing to send.
func (l *lane) begin(now clock.Time) {
	if !l.busy {
		l.busy, l.fresh, l.next = true, true, max(l.next, int64(now)*ticks)
	}
}

// charge moves the schedule on by a packet that goes, and says when it should have.
func (l *lane) charge(now clock.Time, bytes int, perSecond uint64) (due clock.Time) {
	if l.fresh {
		l.fresh, l.next = false, int64(now)*ticks
	}
	due = clock.Time(l.next / ticks)
	l.next = max(l.next, int64(now.Add(-behind))*ticks) + cost(bytes, perSecond)
	return due
}

// allowed says that the controller lets the next packet go, and keeps what else it
// says of that one.
func (o *outbound) allowed(now clock.Time) bool {
	if o.control == nil {
		return true
	}
	o.grants = o.control.Allowed(now)
	a := &o.grants
	if a.Window > 0 && o.flight.count > 0 && o.under+o.nextBytes()-wire.RDDataLen > a.Window {
		o.lane.busy = false
		return false // until an acknowledgement
	}
	at := a.From
	if a.Rate > 0 {
		o.lane.begin(now)
		at = max(at, moment(o.lane.next))
	}
	if at <= now {
		return true
	}
	if at != clock.Never {
		o.engine.paceAt(at)
	}
	return false
}

// asks says that a packet of so many bytes is to ask for an acknowledgement because
// of the controller's window: it has no room for another behind it, or a quarter of
// it has gone since one was asked for. So the window opens piece by piece, and the
// next packets are on their way before the last have come.
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

// tell tells the controller of an acknowledgement.
func (o *outbound) tell(now clock.Time) {
	if o.control != nil {
		o.told.InFlight = o.under
		o.control.Acked(now, o.told)
	}
}

// tellLost tells the controller of a packet that is not in flight any more.
func (o *outbound) tellLost(k *outPacket, trimmed bool, now clock.Time) {
	if o.control != nil {
		o.control.Lost(now, rate.Loss{Bytes: int(k.size), Trimmed: trimmed, InFlight: o.under})
	}
}

// paceAt makes the engine look again when a packet may go, and the slack later
// when others may go with it.
func (e *Engine) paceAt(at clock.Time) {
	at = at.Add(e.config.Slack)
	if e.paced == 0 || at < e.paced {
		e.paced = at
	}
}

// pace is whether the pacer lets a packet of a sequence space go that its
// controller allows, and counts how late it goes.
func (e *Engine) pace(now clock.Time, o *outbound) bool {
	p, bytes, due, paced := e.config.Pacer, o.nextBytes()+e.config.Overhead, clock.Time(0), false
	if p != nil {
		if !e.pacing {
			e.pacing = true
			p.begin(now)
		}
		at, ok := p.take(now, bytes)
		if !ok {
			e.paceAt(at)
			return false
		}
		due, paced = at, true
	}
	if r := o.grants.Rate; r > 0 {
		due, paced = max(due, o.lane.charge(now, bytes, r)), true
	}
	if paced {
		e.counters.Pace.count(now.Sub(due))
	}
	return true
}

// Pace is how late packets went that a rate held back: behind the moment at which
// its schedule let them go. None goes before.
type Pace struct {
	Packets uint64        `json:"packets"`
	Most    time.Duration `json:"most_ns"`
	// Late counts packets by the binary logarithm of their lateness: Late[0] less
	// than 1 us, Late[i] 2^(i-1) to 2^i us, the last one all above.
	Late [paceBuckets]uint64 `json:"-"`
}

const paceBuckets = 20

func (p *Pace) count(late time.Duration) {
	p.Packets++
	p.Most = max(p.Most, late)
	p.Late[min(bits.Len64(uint64(late/time.Microsecond)), paceBuckets-1)]++
}

// Add adds what another engine counted.
func (p *Pace) Add(o *Pace) {
	p.Packets += o.Packets
	p.Most = max(p.Most, o.Most)
	for i := range p.Late {
		p.Late[i] += o.Late[i]
	}
}

// Quantile is a lateness that so many thousandths of the packets do not exceed:
// a power of two of microseconds, or the most that there was.
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
