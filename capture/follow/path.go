package follow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan/topology"
)

// overtaken are the packets of a link or a flow that later packets overtook.
type overtaken struct {
	packets, of int
	held        int // of these packets, those that faults held back
	by          Sight
}

// Bounds from which a link or a flow's paths change the order of packets.
const (
	fewestOvertaken = 10
	rarestOvertaken = 1000 // at least one in so many packets
)

// counts reports whether there are enough of them.
func (o overtaken) counts() bool {
	return o.packets >= fewestOvertaken && o.packets*rarestOvertaken >= o.of
}

// class names packets that should stay in their order: those of one flow with one DSCP. Packets with another
// DSCP may pass them in queues with priorities.
type class struct {
	flow int
	dscp uint8
}

// crossing has the times at which a packet left and came.
type crossing struct {
	class
	left, came int64
	held       *Sight // where a fault held it back
}

// overtakenOf counts the packets that came after a packet of their class that had left later.
func overtakenOf(all []crossing) (o overtaken) {
	slices.SortStableFunc(all, func(a, b crossing) int { return cmp.Compare(a.left, b.left) })
	earliest := map[class]int64{} // of the packets that left later
	for i := len(all) - 1; i >= 0; i-- {
		c := &all[i]
		came, known := earliest[c.class]
		if known && c.came > came {
			o.packets++
			if c.held != nil {
				o.held, o.by = o.held+1, *c.held
			}
		}
		if !known || c.came < came {
			earliest[c.class] = c.came
		}
	}
	o.of = len(all)
	return o
}

// disorder returns the packets that were overtaken on the link from a port.
func (w *why) disorder(port int) overtaken {
	far := w.r.lanes[port].far
	if far < 0 {
		return overtaken{}
	}
	if o, known := w.disorders[port]; known {
		return o
	}
	var all []crossing
	for _, p := range w.passed(port) {
		q := &w.r.Packets[p.packet]
		if q.Flow < 0 {
			continue
		}
		var held *Sight
		for _, s := range w.r.Sights(p.packet) {
			if _, is := w.r.heldBack[s.Number]; is && s.Tap == port {
				held = &s
			}
			if s.Tap == far && !s.Out && !s.Event && s.Verdict != "drop" && s.Time >= p.at {
				all = append(all, crossing{class{q.Flow, q.dscp}, p.due, s.Due, held})
			}
		}
	}
	w.disorders[port] = overtakenOf(all)
	return w.disorders[port]
}

// forkOf returns the first switch at which the packets of a flow took several ports, and these ports, if
// packets overtook each other between the NICs. Otherwise it returns "".
func (w *why) forkOf(flow int) (node, ports string) {
	if f, known := w.forks[flow]; known {
		return f[0], f[1]
	}
	var all []crossing
	used := map[string][]string{} // ports by node
	for i := range w.r.Packets {
		p := &w.r.Packets[i]
		if p.Flow != flow || p.Arrived == 0 {
			continue
		}
		all = append(all, crossing{class{flow, p.dscp}, w.r.Sent(i), p.Arrived, nil})
		for _, s := range w.r.Sights(i) {
			tap := &w.r.Taps[s.Tap]
			if !s.Out || s.Event || tap.NIC || slices.Contains(used[tap.Node], tap.Port) {
				continue
			}
			if used[tap.Node] = append(used[tap.Node], tap.Port); len(used[tap.Node]) > 1 && node == "" {
				node = tap.Node
			}
		}
	}
	if !overtakenOf(all).counts() {
		node = ""
	}
	if node != "" {
		slices.SortFunc(used[node], topology.CompareNames)
		ports = strings.Join(used[node], ", ")
	}
	w.forks[flow] = [2]string{node, ports}
	return node, ports
}

// disordered returns the cause of a message whose packets overtook each other, on a link or on the several
// paths of its flow, and were sent again without need. For other messages it returns false.
func (w *why) disordered(m *Message, hops []Hop) (at cause, effect string, found bool) {
	const again = ", and packets were sent again that had arrived"
	if w.r.needless(m) == 0 {
		return at, "", false
	}
	for i := range hops {
		if !hops[i].Link {
			continue
		}
		port := hops[i].From.Tap
		if o := w.disorder(port); o.counts() {
			what := plural.Text("packets overtook each other on the link to %s (%d of %d were overtaken)",
				w.r.Taps[w.r.lanes[port].far].Name(), o.packets, o.of)
			if o.held*2 >= o.packets {
				at, _ = w.heldBack(&o.by)
				return at, what + again, true
			}
			return cause{part: Recover, tap: port, what: what + again}, "", true
		}
	}
	if w.r.Flows[m.Flow].Protocol == "rd" { // takes packets in any order
		return at, "", false
	}
	node, ports := w.forkOf(m.Flow)
	return cause{part: Recover, tap: -1, node: node,
		what: "packets of one flow left by several ports, " + ports + ", and overtook each other on their " +
			"paths" + again}, "", node != ""
}

// priorities reports the priority of a cause's packet at the port where it waited, if it was another one at
// another switch.
func (w *why) priorities(c *Cause) string {
	here := int8(-1)
	sights := w.r.Sights(w.r.PacketOf(c.Record))
	for _, s := range sights {
		if s.Number == c.Record {
			here = s.Queue
		}
	}
	for _, s := range sights {
		if tap := &w.r.Taps[s.Tap]; here >= 0 && s.Out && !tap.NIC && s.Queue >= 0 && s.Queue != here {
			return fmt.Sprintf("; they had priority %d there, and priority %d at %s", here, s.Queue,
				tap.Name())
		}
	}
	return ""
}

// held says that the link of a cause's only node is slower than the links of other nodes. A kernel keeps
// packets for a slow link in front of the tap of its NIC, so they seem not to have been sent. A soft switch's
// NIC keeps them behind the tap.
func (w *why) held(c *Cause) string {
	for _, tap := range w.r.tapped[c.Where[0]] {
		far := w.r.lanes[tap].far
		if len(c.Where) > 1 || far < 0 || w.r.soft[w.r.Taps[far].Node] {
			continue
		}
		if slower := w.beside(tap); slower != "" {
			c.Injected = true
			return slower
		}
	}
	return ""
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
	return fmt.Sprintf("; its link has %s, and most links beside it have %s",
		units.BitRate(float64(own.rate)),
		units.BitRate(float64(rates[len(rates)/2])))
}
