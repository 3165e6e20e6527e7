package plan

import (
	"math/big"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

const (
	// longestHeader is what the longest frame has beyond its MTU: Ethernet's
	// header with an 802.1Q tag, in which our own endpoints may send a priority.
	longestHeader = 18
	// controlFrame is a MAC control frame, padded to the shortest frame, without
	// the check sequence (IEEE 802.3, clauses 3.2.7 and 31.4.1).
	controlFrame = 60
	// normalCut and exponentialCut are where jitter ends, in multiples of it; see
	// spec.Direction.
	normalCut, exponentialCut = 3, 8
)

// Hop is both directions of a link as a port sees them: In is what its peer sends
// to it, Out what it sends.
type Hop struct {
	MTU     int
	In, Out Direction
	// ToNode says that the peer is a node and no switch.
	ToNode bool
	// injected is, at a port to another switch, what gentle flow control lets
	// wait of the switch's own nodes.
	injected units.Bytes
}

// frame is the longest frame.
func (h Hop) frame() units.Bytes { return units.Bytes(h.MTU + longestHeader) }

// reaction is what can arrive after a port has decided to slow or stop its peer:
// the bytes that the peer sends until the message has arrived and its last
// frame has left, and those that are on the way. IEEE 802.1Q-2022, annex N,
// "Buffer requirements for priority-based flow control" (802.1Qbb's annex O),
// adds up the same worst case, and Zhu et al. (Congestion Control for Large-Scale
// RDMA Deployments, SIGCOMM 2015, section 4) compute it for a real switch:
//
//	reaction = Rin * (Din + Dout + (frame + control) / Rout) + frame
//
// where Rin and Din are rate and longest delay towards the port, Rout and Dout
// those from it. The message waits for one longest frame that has just begun to
// leave by the port, takes its own time and the delay; what the peer sent Din
// before still arrives; and the peer has just begun a longest frame when the
// message arrives. The annex's times of the PHY, of the interface and of the
// peer's reaction are 0: emulated ports act when the frame has arrived.
func (h Hop) reaction() units.Bytes {
	control := h.Out.Rate.SerialisationTime(h.frame() + controlFrame + 2*h.Out.Overhead)
	return inTime(h.In.Rate, latest(h.In)+latest(h.Out)+control) + h.frame()
}

// Feedback is how long the reaction takes, until the last byte of it has arrived:
// Gentle Flow Control's tau.
func (h Hop) Feedback() time.Duration { return h.In.Rate.SerialisationTime(h.reaction()) }

// latest is the longest time between the end of a frame's sending and its
// arrival.
func latest(d Direction) time.Duration {
	jitter := time.Duration(d.Jitter)
	switch d.JitterKind {
	case spec.Exponential:
		jitter *= exponentialCut
	case spec.Normal:
		jitter = min(normalCut*jitter, time.Duration(d.Delay))
	}
	return time.Duration(d.Delay) + jitter
}

// inTime is the bytes that a rate sends in a time, rounded up.
func inTime(rate units.Rate, t time.Duration) units.Bytes {
	bits := new(big.Int).Mul(new(big.Int).SetUint64(uint64(rate)), big.NewInt(int64(t)))
	per := big.NewInt(8 * int64(time.Second))
	bits.Add(bits, new(big.Int).Sub(per, big.NewInt(1)))
	return units.Bytes(bits.Div(bits, per).Uint64())
}

// portPFC is PFC at one port.
func portPFC(h Hop, settings *spec.PFC) *PortPFC {
	p := PortPFC{Given: PFCGiven{XOff: settings.XOff != nil, XOn: settings.XOn != nil,
		Headroom: settings.Headroom != nil}}
	if p.Given.XOff {
		p.XOff = *settings.XOff
	}
	if p.Given.XOn {
		p.XOn = *settings.XOn
	}
	if p.Given.Headroom {
		p.Headroom = *settings.Headroom
	}
	p = h.PFC(p)
	return &p
}

// PFC is what a port keeps for such a link: what is given, and the rest as
//
//	headroom = reaction + frame
//	xon      = reaction
//	xoff     = xon + 2 * frame
//
// The headroom has one frame more than the reaction, because the frame that
// exceeds xoff was accepted as a whole. From xon on the queue still holds what
// the peer needs to have sent again, so that the port behind never idles. Two
// frames between the thresholds keep pauses from following each other at once
// (Zhu et al., section 4).
func (h Hop) PFC(p PortPFC) PortPFC {
	if !p.Given.XOn {
		p.XOn = h.reaction()
		if p.Given.XOff {
			p.XOn = min(p.XOn, p.XOff)
		}
	}
	if !p.Given.XOff {
		p.XOff = p.XOn + 2*h.frame()
	}
	if !p.Given.Headroom {
		p.Headroom = h.reaction() + h.frame()
	}
	return p
}

// Worse is a link on which as many bytes come after a pause was decided as on either
// of two: what holds for it holds while a link changes from one to the other.
func (h Hop) Worse(other Hop) Hop {
	out := h.Out.Rate
	if out == 0 || other.Out.Rate != 0 && other.Out.Rate < out { // 0 takes no time
		out = other.Out.Rate
	}
	return Hop{MTU: max(h.MTU, other.MTU), In: worse(h.In, other.In, max(h.In.Rate, other.In.Rate)),
		Out: worse(h.Out, other.Out, out)}
}

// worse is a direction of a rate with the longer delay and overhead of two.
func worse(a, b Direction, rate units.Rate) Direction {
	return Direction{Rate: rate, Delay: units.Duration(max(latest(a), latest(b))),
		Overhead: max(a.Overhead, b.Overhead)}
}

// Alike reports whether two links need the same for PFC and GFC.
func (h Hop) Alike(other Hop) bool {
	alike := func(a, b Direction) bool {
		return a.Rate == b.Rate && latest(a) == latest(b) && a.Overhead == b.Overhead
	}
	return h.MTU == other.MTU && alike(h.In, other.In) && alike(h.Out, other.Out)
}

// During is PFC at a port while its link changes from one that was at worst h, with
// the thresholds in force then, to another one: the new link's, with headroom for
// what comes of both. That is at most as much as on the worse of both; and at most
// what the old link's headroom was for, and what is sent from now on, at the new
// rate, until a pause has its effect that the old delays hold up, and a frame that
// keeps the way out busy for a time. Settled is how long that takes for the last pause
// that is held up.
func (h Hop) During(to Hop, force PortPFC, busy time.Duration) (at PortPFC, settled time.Duration) {
	at = to.PFC(force)
	both, sent := h.changing(to, busy)
	if !at.Given.Headroom {
		worst := both.PFC(force)
		sum := max(force.XOff, at.XOff) + force.Headroom + sent.reaction()
		at.Headroom = min(worst.XOff+worst.Headroom, sum) - at.XOff
	}
	return at, sent.Feedback() + max(h.Feedback(), to.Feedback())
}

// changing are the links that stand for one that changes from one that was at worst h
// to another: both has the worse of each, and on sent, what is sent from now on at the
// new rates takes as long as the old delays, and a frame that keeps the way out busy
// for a time, can hold it up.
func (h Hop) changing(to Hop, busy time.Duration) (both, sent Hop) {
	both = h.Worse(to)
	sent = both
	sent.In.Rate, sent.Out.Rate = to.In.Rate, to.Out.Rate
	sent.Out.Delay += units.Duration(busy)
	return both, sent
}

// given are the thresholds that the file has, by its words.
func (p *PortPFC) given() map[string]units.Bytes {
	given := map[string]units.Bytes{}
	for _, one := range []struct {
		word  string
		given bool
		value units.Bytes
	}{{"xoff", p.Given.XOff, p.XOff}, {"xon", p.Given.XOn, p.XOn},
		{"headroom", p.Given.Headroom, p.Headroom}} {
		if one.given {
			given[one.word] = one.value
		}
	}
	return given
}
