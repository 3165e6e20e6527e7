package rate

import (
	"cmp"
	"time"

	"railbed/internal/clock"
)

// NSCC is the network signal congestion control of the Ultra Ethernet transport, after its
// simulator (ultraethernet/uet-htsim, htsim/sim/uec.cpp, commit 40ccb05): a window that follows
// queueing delay and congestion marks. It has four cases:
//
//	           delay below target                   delay above
//	no mark    grow by how far below                grow by the same for all
//	marks      nothing: the queue is just building  shrink by how far above, once a round trip
//
// A trimmed or lost packet shrinks the window by the packet's bytes. When delays are far above
// target, the window becomes the bytes received in the last round trip (quick adapt).
//
// It differs from the simulator in three respects. If no base round trip is set, it is the shortest
// measured. An acknowledgement covers several packets, and counts as marked when half of them are.
// And after a quick adapt, acknowledgements are ignored for one round trip, instead of for the
// bytes that were in flight.
type NSCC struct {
	Line
	o NSCCOptions

	base, target     time.Duration // base round trip, without queues; and target of the queueing delay on top
	bdp, most        float64       // bytes
	alpha, fair      float64       // of both increases
	eta, fast        float64
	window           float64 // bytes
	average          time.Duration
	increase         float64 // bytes x bytes, since the last adjustment
	received         int     // bytes since the last adjustment
	adjusted, shrunk clock.Time
	quick            int  // consecutive bytes received without delay
	rushing          bool // they were a window
	achieved         int  // bytes of this period of quick adapt
	ends, ignore     clock.Time
	adapt            bool // packets were lost in this period
	known            bool // any round trip was measured or set
}

// NSCCOptions are the options of NSCC. Rate is required.
type NSCCOptions struct {
	// Rate is the rate of the slowest link, at most the NIC's, in bit/s.
	Rate uint64
	// Packet is the payload of a full packet. Default 4,096.
	Packet int
	// RoundTrip is the base round trip: of a full packet and its acknowledgement without queues. A
	// shorter measurement replaces it. Default: the shortest measured, and 12 us until then. If all
	// senders begin at once, none ever measures it, and their windows stay too large.
	RoundTrip time.Duration
	// LeastTarget is the minimum of the target delay. A host whose processes wait longer than the
	// target for a core sees congestion where there is none. Default 0.
	LeastTarget time.Duration
	// Trimming is set if switches cut payloads off instead of dropping packets. The target delay is
	// then shorter.
	Trimming bool
}

// Constants of NSCC as coded in the simulator.
const (
	nsccRefRate   = 100e9 // bit/s
	nsccRefTrip   = 12 * time.Microsecond
	nsccGamma     = 0.8
	nsccSmooth    = 0.0125
	nsccQuickSeen = time.Microsecond // a shorter delay counts as none
	nsccMost      = 1.5              // BDP
	nsccAdjust    = 8                // packets, or a round trip
	nsccAdaptAt   = 4                // targets of delay
)

// NewNSCC makes a controller whose window is at its maximum.
func NewNSCC(o NSCCOptions) *NSCC {
	if o.Packet == 0 {
		o.Packet = 4096
	}
	n := &NSCC{o: o, known: o.RoundTrip > 0}
	n.trip(cmp.Or(o.RoundTrip, nsccRefTrip))
	n.window = n.most
	return n
}

// trip sets base and all values that follow from it.
func (n *NSCC) trip(base time.Duration) {
	n.base = max(base, time.Microsecond)
	n.target = n.base
	if n.o.Trimming {
		n.target = n.base * 3 / 4
	}
	n.target = max(n.target, n.o.LeastTarget)
	packet := float64(n.o.Packet)
	n.bdp = max(float64(n.o.Rate)/8*n.base.Seconds(), packet)
	n.most = max(nsccMost*n.bdp, packet)
	a := n.bdp / (nsccRefRate / 8 * nsccRefTrip.Seconds())
	b := float64(n.target) / float64(nsccRefTrip)
	n.alpha = 4 * packet * a * b / float64(n.target)
	n.fair, n.eta, n.fast = 5*packet*a, 0.15*packet*a, 0.25*a
	n.bound()
}

func (n *NSCC) bound() { n.window = min(max(n.window, float64(n.o.Packet)), n.most) }

// Allowed implements Controller.
func (n *NSCC) Allowed(clock.Time) Allowance { return Allowance{Window: int(n.window)} }

// Window is the present window in bytes.
func (n *NSCC) Window() int { return int(n.window) }

// Acked implements Controller.
func (n *NSCC) Acked(now clock.Time, a Ack) {
	if a.Trip > 0 && (!n.known || a.Trip < n.base) {
		first := !n.known
		n.known = true
		n.trip(a.Trip)
		if first {
			n.window = n.most
		}
	}
	if a.Bytes == 0 {
		return
	}
	n.achieved += a.Bytes
	delay := n.average
	if a.Trip > 0 {
		delay = max(a.Trip-n.base, 0)
		n.average += time.Duration(nsccSmooth * float64(delay-n.average) * float64(max(a.Packets, 1)))
	}
	if now < n.ignore || n.quickAdapt(now, delay > nsccAdaptAt*n.target) {
		return
	}
	marked := a.Marked > 0 && 2*a.Marked >= a.Echoed
	switch {
	case !marked && delay < n.target:
		n.proportional(a.Bytes, delay)
	case !marked:
		n.rushing, n.quick = false, 0
		n.increase += n.fair * float64(a.Bytes)
	case delay >= n.target:
		n.shrink(now)
	}
	n.received += a.Bytes
	if n.received >= nsccAdjust*n.o.Packet || now.Sub(n.adjusted) >= n.base {
		n.window += n.increase/n.window + n.eta
		n.increase, n.received, n.adjusted = 0, 0, now
	}
	n.bound()
}

// proportional grows the window by how far the delay is below target. It grows the window fast once
// a whole window arrived without delay.
func (n *NSCC) proportional(bytes int, delay time.Duration) {
	if delay < nsccQuickSeen {
		if n.quick += bytes; n.rushing || n.quick > int(n.window) {
			n.rushing = true
			n.window += float64(bytes) * n.fast
			return
		}
	} else {
		n.quick, n.rushing = 0, false
	}
	n.increase += n.alpha * float64(bytes) * float64(n.target-delay)
}

// shrink makes the window smaller by how far the mean delay is above target, once a round trip.
func (n *NSCC) shrink(now clock.Time) {
	n.quick, n.rushing = 0, false
	if n.average <= n.target || now.Sub(n.shrunk) < n.base {
		return
	}
	n.window *= max(1-nsccGamma*float64(n.average-n.target)/float64(n.average), 0.5)
	n.shrunk = now
}

// quickAdapt sets the window to the bytes received lately, at the end of a period with losses or
// with delays far too long. It reports whether it did.
func (n *NSCC) quickAdapt(now clock.Time, long bool) bool {
	if now < n.ends {
		n.adapt = n.adapt || long
		return false
	}
	adapts := n.ends != 0 && (n.adapt || long) && float64(n.achieved) < n.most
	if adapts {
		n.window = float64(n.achieved)
		n.increase, n.received = 0, 0
		n.ignore = now.Add(n.base + n.target)
		n.bound()
	}
	n.achieved, n.adapt = 0, false
	n.ends = now.Add(n.base + n.target)
	return adapts
}

// Lost implements Controller.
func (n *NSCC) Lost(now clock.Time, l Loss) {
	n.adapt = true
	if now < n.ignore {
		return
	}
	n.window -= float64(l.Bytes)
	n.bound()
}
