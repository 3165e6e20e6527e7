package plan

import (
	"math"
	"slices"
	"strconv"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
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

// givenGFC is what the file says of Gentle Flow Control at a port.
func givenGFC(settings *spec.GFC) (g PortGFC) {
	g.Given = GFCGiven{B1: settings.B1 != nil, BM: settings.BM != nil}
	if settings.Kind == spec.GFCTime {
		g.Period, g.Given.Period = settings.Period, settings.Period != 0
	} else {
		g.Given.Stages = settings.Stages
	}
	if g.Given.B1 {
		g.B1 = *settings.B1
	}
	if g.Given.BM {
		g.BM = *settings.BM
	}
	return g
}

// Ports are the thresholds of all ports of a switch, by the links at them: what is
// given, and the rest as these need it.
func (g *GFC) Ports(given []PortGFC, links []Hop) []PortGFC {
	made := make([]PortGFC, len(links))
	var injected units.Bytes
	for i, h := range links {
		if h.ToNode {
			made[i] = h.gfc(g.Kind, given[i])
			injected = max(injected, made[i].BM)
		}
	}
	for i, h := range links {
		if !h.ToNode {
			h.injected = injected
			made[i] = h.gfc(g.Kind, given[i])
		}
	}
	return made
}

// gfc is Gentle Flow Control at one port: what is given, and the rest. With C for the rate towards
// the port and tau for the time from a decision until its effect has arrived, Qian et al. (SIGCOMM
// 2019) prove that the buffer never exceeds Bm where
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
func (h Hop) gfc(kind string, given PortGFC) PortGFC {
	room, frames := 2*h.reaction(), units.Bytes(1)
	g := PortGFC{B1: given.B1, BM: given.BM, Period: given.Period, Given: given.Given,
		Least: min(leastRate, h.In.Rate)}
	if kind == spec.GFCTime {
		if !g.Given.Period {
			g.Period = units.Duration(h.In.Rate.SerialisationTime(periodBytes))
		}
		room, frames = timeRoom(h, time.Duration(g.Period)), 2
	}
	switch {
	case g.Given.B1:
	case g.Given.BM:
		g.B1 = max(g.BM, room+1) - room // at 0 who sends nothing would be slowed
	default:
		g.B1 = h.reaction()
		g.B1 *= max(1, (h.injected+g.B1-1)/g.B1)
	}
	if !g.Given.BM {
		g.BM = g.B1 + room
	}
	g.Limit = g.BM + frames*h.frame()
	if kind == spec.GFCBuffer && g.BM > g.B1 {
		g.Stages = stages(h.In.Rate, g.B1, g.BM, g.Given.Stages)
	}
	return g
}

// Moment is a port at which a link changes: what of a priority waits there and can be
// kept, and for how long a frame keeps the way out busy.
type Moment struct {
	Waits, Room units.Bytes
	Busy        time.Duration
}

// DuringGFC is GFC at a port while its link changes from one that was at worst h to
// another one, which needs own; force is what is in force then. What comes until the
// sender obeys is no more than what was under way on the old link and what is sent
// from now on, at the new rate, until a message has its effect that the old delays and
// a frame hold up, and the time to the next report. It comes on top: the sender sees a
// length that is longer by it and sends less, and with the rest of what waits the
// theorems hold. Settled is how long that takes.
//
// The new thresholds hold at once, but for those that become lower between switches: at
// lengths of before, all links of a ring would be at their least rates, at which hardly
// anything leaves it. They begin above what is own, where that slows nobody down, if
// there is room, and are to sink once it is settled. Nodes come to their least rate at
// once, and the ring drains.
func (h Hop) DuringGFC(to Hop, own, force PortGFC, now Moment) (at PortGFC, above units.Bytes,
	settled time.Duration) {
	both, sent := h.changing(to, now.Busy)
	period := time.Duration(own.Period)
	late := h.reaction() + sent.reaction() + inTime(both.In.Rate, period)
	if most := now.Waits + late; !to.ToNode && most > own.B1 && force.BM > own.BM {
		above = min(most-own.B1, force.BM-own.BM, max(now.Room, own.Limit+late)-own.Limit-late)
	}
	at = own.Above(above)
	at.Limit = max(at.Limit, now.Waits+own.Limit-own.BM) + late
	return at, above, sent.Feedback() + max(h.Feedback(), to.Feedback()) + 2*period
}

// Above are thresholds that begin some bytes later. The theorems say nothing of where
// they begin.
func (g PortGFC) Above(bytes units.Bytes) PortGFC {
	g.B1, g.BM, g.Limit = g.B1+bytes, g.BM+bytes, g.Limit+bytes
	g.Stages = slices.Clone(g.Stages)
	for i := range g.Stages {
		g.Stages[i] += bytes
	}
	return g
}

// timeRoom is (sqrt(tau/T)+1)^2 * C * T in bytes, rounded up.
func timeRoom(h Hop, period time.Duration) units.Bytes {
	period = max(period, h.Feedback(), 1)
	root := math.Sqrt(float64(h.Feedback())/float64(period)) + 1
	return units.Bytes(math.Ceil(root * root * float64(h.In.Rate) / 8 * period.Seconds()))
}

// given is what the file has of it.
func (g PortGFC) given() PortGFC {
	given := PortGFC{Given: g.Given}
	if g.Given.B1 {
		given.B1 = g.B1
	}
	if g.Given.BM {
		given.BM = g.BM
	}
	if g.Given.Period {
		given.Period = g.Period
	}
	return given
}

// settings are what the file has of it, by its words.
func (g PortGFC) settings() map[string]string {
	settings := map[string]string{}
	if g.Given.B1 {
		settings["b1"] = g.B1.String()
	}
	if g.Given.BM {
		settings["bm"] = g.BM.String()
	}
	if g.Given.Period {
		settings["period"] = g.Period.String()
	}
	if g.Given.Stages > 0 {
		settings["stages"] = strconv.Itoa(g.Given.Stages)
	}
	return settings
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
