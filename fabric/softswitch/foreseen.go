package softswitch

import (
	"railbed/fabric/softswitch/medium"
	"railbed/fabric/softswitch/queue"
	"railbed/plan"
	"railbed/plan/spec"
)

// Foreseen lists the reasons for which a port can drop, mark and trim, each with the possible
// priorities. Each has a counter, which may still be zero.
type Foreseen struct{ Drops, Marks, Trims map[Reason]queue.Mask }

const allPriorities queue.Mask = 1<<queue.Priorities - 1

// Foresee returns the Foreseen of a port of a plan. Now is the current direction of its link on
// which the port sends. A tag can give a frame any priority, whatever mapping of DSCPs the switch
// has.
func Foresee(p *plan.Plan, at plan.End, now plan.Direction) Foreseen {
	can := Foreseen{Drops: map[Reason]queue.Mask{LinkDown: allPriorities}, Marks: map[Reason]queue.Mask{},
		Trims: map[Reason]queue.Mask{}}
	for _, why := range medium.LossReasons(now) {
		can.Drops[why] = allPriorities
	}
	if !now.Duplicate.IsZero() {
		can.Drops[Memory] = allPriorities
	}
	sw := p.Switch(at.Node)
	if sw == nil { // a node's emulated NIC, which only sorts valid frames
		can.Drops[NICOverrun], can.Drops[Malformed], can.Drops[TooBig] = allPriorities, 1, 1
		return can
	}
	if sw.Soft != nil {
		can.switched(sw.Soft, sw.Forwarding == spec.L2)
	}
	return can
}

// switched adds the reasons of a switch itself, besides those of its links.
func (f *Foreseen) switched(s *plan.SoftSwitch, bridge bool) {
	var lossless queue.Mask
	if s.PFC != nil {
		lossless |= queue.MaskOf(s.PFC.Priorities...)
	}
	if s.GFC != nil {
		lossless |= queue.MaskOf(s.GFC.Priorities...)
	}
	drop := func(at queue.Mask, reasons ...Reason) {
		for _, why := range reasons {
			if at != 0 {
				f.Drops[why] = at
			}
		}
	}
	drop(allPriorities, Buffer, Malformed, TooBig)
	drop(allPriorities&^lossless, Tail)
	drop(lossless, Headroom)
	if bridge {
		drop(allPriorities, Reserved, Hairpin, FloodLimit, Memory)
	} else {
		drop(allPriorities, NoRoute, TTLExceeded, NotForUs, Martian, Unsupported)
	}
	if s.Aggregation != nil {
		drop(allPriorities, Aggregation)
	}
	if e := s.ECN; e != nil {
		why := RED
		if e.Kind == spec.ECNSharp {
			why = ECNSharp
		}
		f.Marks[why] = queue.MaskOf(e.Priorities...)
	}
	if t := s.Trim; t != nil {
		trimmed := queue.MaskOf(t.Priorities...) &^ queue.MaskOf(t.Queue) &^ lossless
		f.Trims[Tail], f.Trims[Buffer] = trimmed, trimmed
		drop(trimmed, Express)
	}
}
