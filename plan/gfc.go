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
	// leastRate is the rate at which halving ends by default: the step in which commodity switches
	// limit rates, from which Qian et al. take their number of stages.
	leastRate = units.Rate(8e3)
	// periodBytes is the default distance between two messages of time-based flow control.
	// InfiniBand sends credits at least once in 65,536 symbol times, each of which carries a byte.
	periodBytes = units.Bytes(65535)
)

// givenGFC returns the Gentle Flow Control settings that the file gives for a port.
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

// Ports returns the thresholds of all ports of a switch, by the links at them. Given values stay,
// and the others follow from the links.
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

// gfc computes the thresholds of Gentle Flow Control at one port. Given values stay. C is the rate
// towards the port, and tau the time from a decision until its effect has arrived. Qian et al.
// (SIGCOMM 2019) prove that the buffer never exceeds Bm if
//
//	buffer-based:  B1 <= Bm - 2 * C * tau
//	time-based:    B0 <= Bm - (sqrt(tau/T) + 1)^2 * C * T
//
// Ports to other switches begin to slow down only at lengths at which ports to nodes have ended. B1
// there is not below the largest Bm of the switch's ports to nodes, in whole reactions. Packets in
// transit and packets just injected wait in one queue, so both lengths are in proportion to their
// rates. With equal thresholds both rates are halved together. If every switch of a ring waits for
// the next one, all rates then sink to the minimum. With these thresholds a ring keeps half a line
// rate for each of two flows.
//
// T is the period. B1 (B0) is by default the reaction C * tau, as PFC's XOn, so packets keep the
// full rate if they pass at the full rate. Bm is by default the minimum that the theorem allows.
// The recursion of the theorem needs T >= tau, so a shorter T counts as tau there. The proofs
// assume a fluid, but frames arrive as a whole. Limit is therefore a longest frame above BM, and
// two if the rate follows a length that itself has steps of a frame. Stage k of the buffer-based
// form halves the rate for the k-th time, at
//
//	Bk = Bm - (Bm - B1) / 2^(k-1)
//
// which leaves each stage half the room of the stage before, as much as half the rate fills in tau.
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
		g.B1 = max(g.BM, room+1) - room // at 0 an idle sender would be slowed
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

// Moment is the state of a port when its link changes. Waits is the number of bytes of a priority
// that wait there, and Room the number that can be kept. Busy is the time for which a frame keeps
// the egress busy.
type Moment struct {
	Waits, Room units.Bytes
	Busy        time.Duration
}

// DuringGFC returns the thresholds of GFC at a port while its link changes. Before the change the
// link was at worst h, with the thresholds force. After it the link is to, which needs the
// thresholds own.
//
// Until the sender reacts, a bounded number of bytes can arrive. Some were on the way on the old
// link. Others are sent at the new rate from now on, until a message takes effect, which the old
// delays and a frame can hold up. The time to the next report adds to it. These bytes come on top:
// the sender sees a length that is longer by them and sends less. The theorems hold for the rest of
// the waiting bytes. settled is the time that this takes.
//
// The new thresholds apply at once, except those between switches that become lower. With lower
// thresholds at once, the lengths from before would keep all links of a ring at their minimum
// rates, and the ring would hardly drain. If there is room, these thresholds therefore start above
// own, at lengths that slow no sender. above is the difference, which is to be removed once the
// port has settled. Ports to nodes go to their minimum rate at once, and the ring drains.
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

// Above returns thresholds that start the given number of bytes later. The theorems do not restrict
// where they start.
func (g PortGFC) Above(bytes units.Bytes) PortGFC {
	g.B1, g.BM, g.Limit = g.B1+bytes, g.BM+bytes, g.Limit+bytes
	g.Stages = slices.Clone(g.Stages)
	for i := range g.Stages {
		g.Stages[i] += bytes
	}
	return g
}

// timeRoom returns (sqrt(tau/T)+1)^2 * C * T in bytes, rounded up.
func timeRoom(h Hop, period time.Duration) units.Bytes {
	period = max(period, h.Feedback(), 1)
	root := math.Sqrt(float64(h.Feedback())/float64(period)) + 1
	return units.Bytes(math.Ceil(root * root * float64(h.In.Rate) / 8 * period.Seconds()))
}

// given returns only the values that the file gives.
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

// settings returns the values that the file gives, by their keys in files.
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

// stages returns the thresholds from b1 towards bm at which the rate is halved. There are count of
// them or, if count is 0, as many as take the rate below leastRate. Equal thresholds end the list.
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
