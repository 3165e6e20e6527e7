package plan

import (
	"math/big"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

const (
	// longestHeader is the length of the longest frame beyond its MTU: the Ethernet header with an
	// 802.1Q tag, in which Railbed's own endpoints may send a priority.
	longestHeader = 18
	// controlFrame is the length of a MAC control frame, padded to the shortest frame, without the
	// check sequence (IEEE 802.3, clauses 3.2.7 and 31.4.1).
	controlFrame = 60
	// normalCut and exponentialCut are the multiples of the jitter at which its distributions are
	// cut; see spec.Direction.
	normalCut, exponentialCut = 3, 8
)

// Hop is both directions of a link as seen by a port: In is the direction in which its peer sends,
// Out the direction in which the port sends.
type Hop struct {
	MTU     int
	In, Out Direction
	// ToNode reports whether the peer is a node and not a switch.
	ToNode bool
	// injected is, at a port to another switch, the number of bytes from the switch's own nodes
	// that gentle flow control lets wait.
	injected units.Bytes
}

// frame returns the length of the longest frame.
func (h Hop) frame() units.Bytes { return units.Bytes(h.MTU + longestHeader) }

// reaction returns the number of bytes that can arrive after a port has decided to slow or stop its
// peer. These are the bytes that the peer sends until the message has arrived and its last frame
// has left, and the bytes on the way. IEEE 802.1Q-2022, annex N, "Buffer requirements for
// priority-based flow control" (802.1Qbb's annex O), adds up the same worst case. Zhu et al.
// (Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, section 4) compute it for a
// real switch:
//
//	reaction = Rin * (Din + Dout + (frame + control) / Rout) + frame
//
// Rin and Din are the rate and the longest delay towards the port, Rout and Dout those from it. The
// message waits for one longest frame that has just begun to leave by the port, and takes its own
// time and the delay. Bytes that the peer sent within the time Din before still arrive. The peer
// has just begun a longest frame when the message arrives. The annex's times of the PHY, of the
// interface and of the peer's reaction are 0, because emulated ports act when the frame has
// arrived.
func (h Hop) reaction() units.Bytes {
	control := h.Out.Rate.SerialisationTime(h.frame() + controlFrame + 2*h.Out.Overhead)
	return inTime(h.In.Rate, latest(h.In)+latest(h.Out)+control) + h.frame()
}

// Feedback returns the time until the last byte of the reaction has arrived: the tau of Gentle Flow
// Control.
func (h Hop) Feedback() time.Duration { return h.In.Rate.SerialisationTime(h.reaction()) }

// latest returns the longest time between the end of a frame's transmission and its arrival.
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

// inTime returns the number of bytes that a rate sends in a time, rounded up.
func inTime(rate units.Rate, t time.Duration) units.Bytes {
	bits := new(big.Int).Mul(new(big.Int).SetUint64(uint64(rate)), big.NewInt(int64(t)))
	per := big.NewInt(8 * int64(time.Second))
	bits.Add(bits, new(big.Int).Sub(per, big.NewInt(1)))
	return units.Bytes(bits.Div(bits, per).Uint64())
}

// portPFC returns the thresholds of PFC at one port at which ECN marks queues up to a length, or 0.
func portPFC(h Hop, settings *spec.PFC, marks units.Bytes) *PortPFC {
	p := PortPFC{Marks: marks, Given: PFCGiven{XOff: settings.XOff != nil, XOn: settings.XOn != nil,
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

// PFC returns the thresholds of a port with such a link. Given values stay, and the others are
//
//	headroom = reaction + frame
//	xon      = reaction
//	xoff     = xon + 2 * frame, or marks + frame if that is more
//
// In the second case xon is 2 frames below xoff. marks is a length above which ECN marks every packet.
// A sender alone then fills a queue with marked packets before the port pauses it, as Zhu et al. demand
// (section 4, "ECN before PFC").
//
// The headroom is one frame more than the reaction, because the frame that exceeds xoff was
// accepted as a whole. At xon the queue still holds as many bytes as leave until packets of the
// peer arrive again, so the port behind never idles. Two frames between the thresholds prevent
// pauses that follow each other at once (Zhu et al., section 4).
func (h Hop) PFC(p PortPFC) PortPFC {
	if !p.Given.XOn {
		p.XOn = h.reaction()
		if p.Given.XOff {
			p.XOn = min(p.XOn, p.XOff)
		}
	}
	if !p.Given.XOff {
		p.XOff = p.XOn + 2*h.frame()
		if marked := p.Marks + h.frame(); p.Marks > 0 && marked > p.XOff {
			p.XOff = marked
			if !p.Given.XOn {
				p.XOn = marked - 2*h.frame()
			}
		}
	}
	if !p.Given.Headroom {
		p.Headroom = h.reaction() + h.frame()
	}
	return p
}

// Worse returns a link on which at least as many bytes arrive after the decision to pause as on
// either of two links. Thresholds for it are valid while a link changes from one to the other.
func (h Hop) Worse(other Hop) Hop {
	out := h.Out.Rate
	if out == 0 || other.Out.Rate != 0 && other.Out.Rate < out { // a rate of 0 takes no time
		out = other.Out.Rate
	}
	return Hop{MTU: max(h.MTU, other.MTU), In: worse(h.In, other.In, max(h.In.Rate, other.In.Rate)),
		Out: worse(h.Out, other.Out, out)}
}

// worse returns a direction with the given rate, and with the longer delay and the larger overhead
// of two directions.
func worse(a, b Direction, rate units.Rate) Direction {
	return Direction{Rate: rate, Delay: units.Duration(max(latest(a), latest(b))),
		Overhead: max(a.Overhead, b.Overhead)}
}

// Alike reports whether two links need the same thresholds for PFC and GFC.
func (h Hop) Alike(other Hop) bool {
	alike := func(a, b Direction) bool {
		return a.Rate == b.Rate && latest(a) == latest(b) && a.Overhead == b.Overhead
	}
	return h.MTU == other.MTU && alike(h.In, other.In) && alike(h.Out, other.Out)
}

// During returns the thresholds of PFC at a port while its link changes. Before the change the link
// was at worst h, with the thresholds force. After it the link is to. The result has the new link's
// thresholds, with headroom for the bytes that arrive over both.
//
// The headroom has two upper bounds and is the smaller. One is the headroom of the worse of both
// links. The other is the old link's headroom plus the bytes that are sent at the new rate from now
// on until a pause takes effect. The old delays, and a frame that keeps the egress busy for a time,
// can hold that pause up. settled is the time until the last pause that is held up takes effect.
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

// changing returns two links that together stand for a link that changes. The old link was at worst
// h, and the new link is to. both has the worse values of each. sent is the link for bytes that are
// sent at the new rates from now on. The old delays can hold them up, and so can a frame that keeps
// the egress busy for a time.
func (h Hop) changing(to Hop, busy time.Duration) (both, sent Hop) {
	both = h.Worse(to)
	sent = both
	sent.In.Rate, sent.Out.Rate = to.In.Rate, to.Out.Rate
	sent.Out.Delay += units.Duration(busy)
	return both, sent
}

// given returns the thresholds that the file gives, by their keys in files.
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
