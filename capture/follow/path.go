package follow

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"railbed/capture/report"
)

// overtaken are the packets of a link that later packets overtook.
type overtaken struct{ packets, of int }

// Bounds from which a link changes the order of packets.
const (
	fewestOvertaken = 10
	rarestOvertaken = 1000 // at least one in so many packets
)

// disorder returns the packets that were overtaken on the link from a port, if there were enough of them.
func (w *why) disorder(port int) (o overtaken, found bool) {
	far := w.r.lanes[port].far
	if far < 0 {
		return o, false
	}
	if o, found = w.disorders[port]; !found {
		type crossing struct{ left, came int64 }
		var all []crossing
		for _, p := range w.passed(port) {
			for _, s := range w.r.Sights(p.packet) {
				if s.Tap == far && !s.Out && !s.Event && s.Verdict != "drop" && s.Time >= p.at {
					all = append(all, crossing{p.due, s.Due})
				}
			}
		}
		slices.SortFunc(all, func(a, b crossing) int { return cmp.Compare(a.left, b.left) })
		earliest := int64(math.MaxInt64) // of the packets that left later
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].came > earliest {
				o.packets++
			}
			earliest = min(earliest, all[i].came)
		}
		o.of = len(all)
		w.disorders[port] = o
	}
	return o, o.packets >= fewestOvertaken && o.packets*rarestOvertaken >= o.of
}

// disordered returns the cause of a message that was sent again without need, because packets overtook each
// other on its way. Without such a link it returns false.
func (w *why) disordered(m *Message, hops []Hop) (at cause, found bool) {
	if w.r.needless(m) == 0 {
		return at, false
	}
	for i := range hops {
		if !hops[i].Link {
			continue
		}
		port := hops[i].From.Tap
		if o, found := w.disorder(port); found {
			return cause{part: Recover, tap: port,
				what: fmt.Sprintf("packets overtook each other on the link to %s "+
					"(%d of %d were overtaken), and packets were sent again that had arrived",
					w.r.Taps[w.r.lanes[port].far].Name(), o.packets, o.of)}, true
		}
	}
	return at, false
}

// beside compares the rate of a port's link with those at ports like it: ports of the same switch, or NICs,
// whose links have the same kind of far end. If most of these links have at least twice the rate, it
// returns both rates. Otherwise it returns "".
func (w *why) beside(port int) string {
	tap, own := &w.r.Taps[port], &w.r.lanes[port]
	if !own.known || own.rate == 0 || own.far < 0 {
		return ""
	}
	var rates []int64
	for i := range w.r.Taps {
		t, l := &w.r.Taps[i], &w.r.lanes[i]
		if i != port && t.NIC == tap.NIC && (t.NIC || t.Node == tap.Node) && l.known && l.far >= 0 &&
			w.r.Taps[l.far].NIC == w.r.Taps[own.far].NIC {
			rates = append(rates, l.rate)
		}
	}
	slices.Sort(rates)
	if len(rates) == 0 || rates[len(rates)/2] < 2*own.rate {
		return ""
	}
	return fmt.Sprintf("; its link has %s, and most links beside it have %s", report.Bits(float64(own.rate)),
		report.Bits(float64(rates[len(rates)/2])))
}
