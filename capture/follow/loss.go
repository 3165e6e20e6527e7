package follow

import (
	"slices"
	"strings"
	"time"

	"railbed/internal/feed"
)

// endOf returns where a packet that did not arrive ended, and what its end led to.
func (w *why) endOf(packet int) (at cause, record int, effect string) {
	p := &w.r.Packets[packet]
	sights := w.r.Sights(packet)
	for i := range sights {
		s := &sights[i]
		if s.Verdict == "drop" || s.Verdict == "trim" {
			what := map[string]string{"drop": "dropped packets", "trim": "trimmed packets"}[s.Verdict]
			if change := firstChange(sights[:i]); change != nil && !s.injects() {
				return w.recorded(change, changes[change.Verdict]+" packets"), change.Number,
					what + ": " + s.Reason + " at " + w.r.Taps[s.Tap].Name()
			}
			if down := w.downAt(p, s); down.what != "" {
				return down, s.Number, what + ": " + s.Reason + " at " + w.r.Taps[s.Tap].Name()
			}
			return w.recorded(s, what), s.Number, ""
		}
	}
	if s := firstChange(sights); s != nil {
		return w.recorded(s, changes[s.Verdict]+" packets"), s.Number, ""
	}
	last := &sights[len(sights)-1]
	if at, record = w.end(p, sights); p.changed == 0 && at.part == Recover {
		if down := w.downAt(p, last); down.what != "" {
			return down, record, "packets were not seen again after " + w.r.Taps[last.Tap].Name()
		}
	}
	return at, record, ""
}

// end returns where a packet ended without a record of its end.
func (w *why) end(p *Packet, sights []Sight) (at cause, record int) {
	if p.changed > 0 {
		return w.corrupted(sights, p.changed)
	}
	last := sights[len(sights)-1]
	at = cause{part: Recover, tap: last.Tap}
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

// changes names the faults that make other packets of packets.
var changes = map[string]string{"corrupt": "corrupted", "truncate": "truncated", "rewrite": "rewritten"}

// firstChange returns the first record of a fault that changed a packet, or nil.
func firstChange(sights []Sight) *Sight {
	for i := range sights {
		if s := &sights[i]; changes[s.Verdict] != "" && s.injects() {
			return s
		}
	}
	return nil
}

// byFault begins the reason of records of faults.
const byFault = "fault "

// fault returns the fault of which the record is, as "fault NAME", or "".
func (s *Sight) fault() string {
	if strings.HasPrefix(s.Reason, byFault) {
		return s.Reason
	}
	return ""
}

// ownLosses are the reasons of packets that a link lost because its settings say so.
var ownLosses = feed.LossReasons()

// injects reports whether the record is of something that the file asked for.
func (s *Sight) injects() bool {
	return s.fault() != "" || s.Verdict == "drop" && slices.Contains(ownLosses, s.Reason)
}

// recorded is the cause of a recovery that a record of a switch or NIC shows.
func (w *why) recorded(s *Sight, what string) cause {
	at := cause{part: Recover, tap: s.Tap, what: what, injected: s.injects(), by: s.fault()}
	if s.Reason != "" {
		at.what += ": " + s.Reason
	}
	if at.injected && at.by == "" {
		at.by = s.Reason + " of " + w.r.Taps[s.Tap].Link
	}
	return at
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
