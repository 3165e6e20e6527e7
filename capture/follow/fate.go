package follow

import (
	"slices"
	"strings"
	"time"
)

// fate returns where a packet that did not arrive ended.
func (w *why) fate(packet int) (at cause, record int) {
	p := &w.r.Packets[packet]
	sights := w.r.Sights(packet)
	last := sights[len(sights)-1]
	at = cause{part: Recover, tap: last.Tap}
	for _, s := range sights {
		if s.Verdict == "drop" || s.Verdict == "trim" {
			what := map[string]string{"drop": "dropped packets", "trim": "trimmed packets"}[s.Verdict]
			return s.cause(what), s.Number
		}
	}
	for _, s := range sights {
		if what := changes[s.Verdict]; what != "" && s.Event {
			return s.cause(what + " packets"), s.Number
		}
	}
	if p.changed > 0 {
		return w.corrupted(sights, p.changed)
	}
	switch {
	case last.Time > w.r.End-int64(time.Millisecond)*w.r.Dilation:
		at.part, at.what = Unseen, "the recording ends while packets are under way"
	case w.gap(&last):
		at.part, at.what = Unseen, "packets were not seen again, and the capture lost some at the next tap"
	case p.Trimmed:
		at.what = "packets arrived trimmed"
	case last.Out && w.heldAtEnd(last.Tap):
		at.part, at.what = Pause, "packets had not left the port when the recording ended"
	case !last.Out && w.r.soft[w.r.Taps[last.Tap].Node]: // it records what it drops
		at.part, at.what = Queue, "packets had not left the switch when the recording ended"
	case p.unsound && !w.r.Taps[last.Tap].NIC && !last.Out:
		at.what = "packets came with a wrong IP header, and were not seen again: routers refuse them"
	case last.Out:
		at.what = "packets were sent and not seen again: lost on the link, or by a switch without records"
	case w.astray(p, &last):
		if i := len(sights) - 2; i >= 0 {
			at.tap = sights[i].Tap
		}
		at.what = "the port sent packets to " + w.r.Taps[last.Tap].Name() +
			", which they are not addressed to"
		for _, s := range sights {
			if s.Verdict == "misroute" && s.Reason != "" {
				at.what += ": " + s.Reason
			}
		}
	default:
		at.what = "packets arrived and were not seen again: lost in this node or switch, which recorded no " +
			"drop"
	}
	return at, last.Number
}

// changes names the faults at ports of the kernel that make other packets of packets.
var changes = map[string]string{"corrupt": "corrupted", "truncate": "truncated"}

// cause is the cause of a recovery that a record of a switch or NIC shows.
func (s *Sight) cause(what string) cause {
	if s.Reason != "" {
		what += ": " + s.Reason
	}
	return cause{part: Recover, tap: s.Tap, what: what, fault: strings.HasPrefix(s.Reason, "fault ")}
}

// drop returns the record of the drop among the records of a packet, or nil.
func drop(sights []Sight) *Sight {
	for i := range sights {
		if sights[i].Verdict == "drop" {
			return &sights[i]
		}
	}
	return nil
}

// astray reports whether a packet came to a NIC of a node that it is not addressed to.
func (w *why) astray(p *Packet, last *Sight) bool {
	tap := &w.r.Taps[last.Tap]
	if p.Flow < 0 || !tap.NIC || last.Out {
		return false
	}
	to := w.r.Flows[p.Flow].To
	return to != "" && to != tap.Node
}

// corrupted returns where the bytes of a packet changed: its receiver discards it by its checksum.
func (w *why) corrupted(sights []Sight, changed int32) (at cause, record int) {
	i := slices.IndexFunc(sights, func(s Sight) bool { return s.Number == w.r.sights[changed].Number })
	from, to := sights[i-1], sights[i]
	at = cause{part: Recover, tap: from.Tap, what: "bytes of packets changed on the link to " +
		w.r.Taps[to.Tap].Name() + ", and their receiver discarded them"}
	if !from.Out {
		at.tap, at.what = to.Tap, "bytes of packets changed in the node or switch, and their receiver "+
			"discarded them"
	}
	return at, to.Number
}

// heldAtEnd reports whether flow control stopped a port at the end of the recording.
func (w *why) heldAtEnd(tap int) bool {
	for priority := range int8(8) {
		if w.r.pausedFor(line{tap, priority}, w.r.End-int64(time.Millisecond)*w.r.Dilation, w.r.End) > 0 {
			return true
		}
	}
	return false
}

// gap reports whether the capture lost packets at a tap that would have seen a packet next.
func (w *why) gap(last *Sight) bool {
	if len(w.r.Missing) > 0 {
		return true
	}
	if last.Out {
		far := w.r.lanes[last.Tap].far
		return far >= 0 && w.r.Taps[far].lacks(last.Time)
	}
	return slices.ContainsFunc(w.r.Taps, func(t Tap) bool {
		return t.Node == w.r.Taps[last.Tap].Node && t.lacks(last.Time)
	})
}

// lacks reports whether the recording may lack a packet that came to the tap at a time.
func (t *Tap) lacks(at int64) bool { return t.Lost > 0 || !t.recorded(at) }
