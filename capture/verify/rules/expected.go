package rules

import (
	"fmt"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// expected finds the groups of a rule of which the capture should have packets. These are the flows, pairs
// and messages whose packets leave a node for another, and the flows that steps send. A group of which no
// packet came to the rule's ports is then judged with a count of 0.
//
// A packet is expected at a port if "where" would select it there: at the port behind the NIC that it leaves,
// and at the NIC of its destination.
type expected struct {
	rule *rule
	// keyer makes the keys of packets that leave. What it counts is not about the rule's packets.
	keyer keyer
	// found adds the group of a key, or returns false if there are too many.
	found func(key) bool
	has   func(key) bool
	// tried counts packets of flows that "where" did not select.
	tried map[int]int
	shown display.Packet
	// leaving are groups whose packets left so late in the time of the rule that they may arrive after it.
	leaving map[key]bool
	silent  int    // groups that a step sends, perhaps outside of the rule's time
	example string // one of them
}

// triesMost is the number of packets of a flow that are tried. Packets of a flow differ, as data and
// acknowledgements do.
const triesMost = 256

// expects makes a rule judge groups of which no packet came. A bound that 0 keeps needs no such groups.
func expects[S any](k *rule, t *table[S], b *spec.Bound) {
	switch k.spec.Per {
	case spec.PerFlow, spec.PerPair, spec.PerMessage, spec.PerPort:
	default:
		return
	}
	if b == nil || b.Holds(0) {
		return
	}
	own, err := newKeyer(k.spec)
	if err != nil {
		return // as New has found before
	}
	own.roles = k.roles
	k.expected = &expected{rule: k, keyer: own, found: t.expect, tried: map[int]int{},
		leaving: map[key]bool{}, has: func(of key) bool { return t.states[of] != nil }}
}

// expect adds a key of which no packet came so far.
func (t *table[S]) expect(of key) bool {
	if t.states[of] == nil {
		if len(t.keys) >= keysMost {
			return false
		}
		t.states[of] = new(S)
		t.keys = append(t.keys, of)
	}
	return true
}

// packet looks at a packet of any port.
func (e *expected) packet(p *evidence.Packet) {
	k := e.rule
	if k.spec.Per == spec.PerPort || p.Direction == evidence.In {
		return
	}
	if _, leaves := k.capture.Departure(p, k.keyer.nodes); !leaves || e.tried[p.Flow.Index] >= triesMost {
		return
	}
	if k.roles != nil && !k.roles.Of(p).Relevant {
		return
	}
	of, has := e.keyer.of(p)
	if !has || e.has(of) {
		return
	}
	arriving := *p.Display().Raw
	arriving.Has |= pcapng.HasFlags
	arriving.Flags = arriving.Flags&^pcapng.DirectionMask | pcapng.Inbound
	arriving.Comments = nil
	taps := k.capture.Receivers(k.keyer.nodes[p.Flow.Dst.Addr()])
	if port, _ := k.capture.Interface(p.Tap.Node, p.Tap.Port); port != nil {
		if behind := k.capture.TapNamed(port.Peer); behind != nil {
			taps = append(taps, behind)
		}
	}
	if e.selects(&arriving, p.Number, taps) {
		if k.times.EndOf(p.Time)-p.Time < k.capture.Linger() {
			if len(e.leaving) < keysMost {
				e.leaving[of] = true
			}
			return
		}
		if k.keyer.flows[of.flow] == nil && len(k.keyer.flows) < keysMost {
			k.keyer.flows[of.flow] = p.Flow
		}
		e.found(of)
	} else {
		e.tried[p.Flow.Index]++
	}
}

// selects reports whether the rule selects a packet at one of some taps.
func (e *expected) selects(raw *pcapng.Packet, number int, taps []*evidence.Tap) bool {
	for _, tap := range taps {
		if !e.rule.at(tap) {
			continue
		}
		e.shown.Set(raw, tap.Described(), number, e.rule.capture.First)
		if e.rule.where == nil {
			return true
		}
		if match, unseen := e.rule.where.Judge(&e.shown); match && unseen == 0 {
			return true
		}
	}
	return false
}

// finish adds the groups that are known without packets: the ports of the rule, and what steps sent.
func (e *expected) finish() {
	k := e.rule
	if k.spec.Per == spec.PerPort {
		for _, tap := range k.capture.Taps {
			if k.at(tap) {
				e.found(key{tap: tap.Index + 1})
			}
		}
		return
	}
	if k.roles != nil {
		return
	}
	sends := k.times.Sends(k.capture.Sends)
	for i := range sends {
		send := &sends[i]
		of, has := k.keyer.ofSend(send)
		if !has || e.has(of) {
			continue
		}
		for _, tap := range k.capture.Receivers(evidence.Owner{Node: send.To}) {
			if raw := send.Frame(tap); raw != nil && e.selects(raw, 0, []*evidence.Tap{tap}) {
				e.send(of, send)
			}
		}
	}
}

// send adds the group of a flow of a step. A step that was active in the time of the rule may have sent
// nothing then.
func (e *expected) send(of key, s *evidence.Send) {
	if e.rule.times == nil {
		e.found(of)
		return
	}
	if e.silent++; e.example == "" {
		e.example = fmt.Sprintf("%v of %s", s.Pair, s.Step)
	}
}

// undated returns reasons why groups of which no packet came in the time of the rule are not judged.
func (e *expected) undated() (lines []string) {
	if e.silent > 0 {
		lines = append(lines, plural.Text("%d groups, such as %s, had no packets in this time, and it is "+
			"not known whether steps send then", e.silent, e.example))
	}
	late := 0
	for of := range e.leaving {
		if !e.has(of) {
			late++
		}
	}
	if late > 0 {
		lines = append(lines, plural.Text("the packets of %d groups left right before the end of the time, "+
			"and may arrive after it", late))
	}
	return lines
}

// ofSend returns the key of a flow that a step sent and of which no packet was recorded.
func (k *keyer) ofSend(s *evidence.Send) (of key, has bool) {
	switch k.per {
	case spec.PerPair:
		of.pair = [2]string{s.From, s.To}
		return of, true
	case spec.PerFlow:
		for _, f := range k.flows {
			if f.Src == s.Src && f.Dst == s.Dst {
				return of, false // its packets were seen
			}
		}
		number := -1 - len(k.sends)
		k.sends = append(k.sends, s)
		of.flow = number
		return of, true
	}
	return of, false
}

// unknown returns a reason why groups may be unknown of which nothing came: the capture lacks NICs, and no
// step tells what their nodes send.
func (e *expected) unknown() []string {
	k := e.rule
	switch {
	case k.spec.Per == spec.PerPort:
		return nil
	case k.roles != nil:
		return k.capture.UnknownSenders(k.roles.Need(k.capture).Ports, k.times)
	case len(k.times.Sends(k.capture.Sends)) > 0:
		return nil
	}
	return k.capture.UnknownSenders(k.capture.NICs(), k.times)
}
