package plan

import (
	"cmp"
	"math"
	"time"

	"railbed/fabric/units"
	"railbed/testbed/spec"
)

const (
	// leastRate is where halving a rate ends by default: the step in which
	// commodity switches limit rates, from which Qian et al. take their number of
	// stages.
	leastRate = units.Rate(8e3)
	// periodBytes are between two messages of time-based flow control by
	// default. InfiniBand sends credits at least once in 65,536 symbol times,
	// each of which carries a byte.
	periodBytes = units.Bytes(65535)
)

// portGFC is Gentle Flow Control at one port, where the file leaves something
// out. With C for the rate towards the port and tau for the time from a decision
// until its effect has arrived, Qian et al. (SIGCOMM 2019) prove that the buffer
// never exceeds Bm where
//
//	buffer-based:  B1 <= Bm - 2 * C * tau
//	time-based:    B0 <= Bm - (sqrt(tau/T) + 1)^2 * C * T
//
// Ports to other switches begin to slow down only where those to nodes have
// ended: B1 there is not below the largest Bm of the switch's ports to nodes, in
// whole reactions. In transit and just injected, packets wait in one queue, so
// that both accounts are as long as their rates; with equal thresholds both are
// halved together, and where every switch waits for the next one, in a ring, all
// rates sink to the least. So a ring holds half a line for each of two flows.
//
// T is the period. B1 (B0) is by default the reaction C * tau, as PFC's XOn, so
// that a full rate is kept where packets pass at the full rate, and Bm the least
// that the theorem allows; its recursion wants T >= tau, so that a shorter T
// counts as tau there. The proofs are of a fluid; frames arrive as a whole, so
// that Limit is a longest frame above BM, and two where the rate follows a
// length that itself has steps of a frame. Stage k of the buffer-based form halves
// the rate for the k-th time, at
//
//	Bk = Bm - (Bm - B1) / 2^(k-1)
//
// which leaves each stage half the room of the one before, as much as half the
// rate fills in tau.
func portGFC(h Hop, settings *spec.GFC) *PortGFC {
	room, frames := 2*h.reaction(), units.Bytes(1)
	g := &PortGFC{Least: min(leastRate, h.In.Rate)}
	if settings.Kind == spec.GFCTime {
		g.Period = cmp.Or(settings.Period, units.Duration(h.In.Rate.SerialisationTime(periodBytes)))
		room, frames = timeRoom(h, time.Duration(g.Period)), 2
	}
	switch {
	case settings.B1 != nil:
		g.B1 = *settings.B1
	case settings.BM != nil:
		g.B1 = max(*settings.BM, room) - room
	default:
		g.B1 = h.reaction()
		g.B1 *= max(1, (h.injected+g.B1-1)/g.B1)
	}
	g.BM = g.B1 + room
	if settings.BM != nil {
		g.BM = *settings.BM
	}
	g.Limit = g.BM + frames*h.frame()
	if settings.Kind == spec.GFCBuffer && g.BM > g.B1 {
		g.Stages = stages(h.In.Rate, g.B1, g.BM, settings.Stages)
	}
	return g
}

// timeRoom is (sqrt(tau/T)+1)^2 * C * T in bytes, rounded up.
func timeRoom(h Hop, period time.Duration) units.Bytes {
	period = max(period, h.Feedback())
	root := math.Sqrt(float64(h.Feedback())/float64(period)) + 1
	return units.Bytes(math.Ceil(root * root * float64(h.In.Rate) / 8 * period.Seconds()))
}

// stages are the thresholds from b1 towards bm at which the rate is halved,
// count times or until it is below leastRate, and only as long as they differ.
func stages(rate units.Rate, b1, bm units.Bytes, count int) []units.Bytes {
	var at []units.Bytes
	for k := 0; ; k++ {
		left := (bm - b1) >> k
		if left == 0 || count > 0 && k == count || count == 0 && k > 0 && rate>>k < leastRate {
			return at
		}
		at = append(at, bm-left)
	}
}
