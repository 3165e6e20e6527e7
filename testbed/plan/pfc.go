package plan

import (
	"math/big"
	"time"

	"railbed/fabric/units"
	"railbed/testbed/spec"
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

// hop is both directions of a link as a port sees them: in is what its peer
// sends to it.
type hop struct {
	mtu     int
	in, out Direction
	// injected is, at a port to another switch, what gentle flow control lets
	// wait of the switch's own nodes.
	injected units.Bytes
}

// frame is the longest frame.
func (h hop) frame() units.Bytes { return units.Bytes(h.mtu + longestHeader) }

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
func (h hop) reaction() units.Bytes {
	control := h.out.Rate.SerialisationTime(h.frame() + controlFrame + 2*h.out.Overhead)
	return inTime(h.in.Rate, latest(h.in)+latest(h.out)+control) + h.frame()
}

// feedback is how long the reaction takes: Gentle Flow Control's tau.
func (h hop) feedback() time.Duration { return h.in.Rate.SerialisationTime(h.reaction()) }

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

// portPFC is PFC at one port, where the file leaves something out:
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
func portPFC(h hop, settings *spec.PFC) *PortPFC {
	p := &PortPFC{XOn: h.reaction(), Headroom: h.reaction() + h.frame()}
	switch {
	case settings.XOn != nil:
		p.XOn = *settings.XOn
	case settings.XOff != nil:
		p.XOn = min(p.XOn, *settings.XOff)
	}
	p.XOff = p.XOn + 2*h.frame()
	if settings.XOff != nil {
		p.XOff = *settings.XOff
	}
	if settings.Headroom != nil {
		p.Headroom = *settings.Headroom
	}
	return p
}
