package follow

import "strings"

// recovery is a time in which the sender of a message did not get on with it, because it sent bytes again.
type recovery struct {
	span
	again span // the bytes that it sent again, in the positions of the stream
}

// recoveries returns the times of a message in which its sender sent bytes again. Each is from a packet with
// new bytes to the last repeat before more new bytes. The last is from the first copy of the critical packet
// to the copy that arrived.
func (r *Recording) recoveries(m *Message) (all []recovery) {
	critical := &r.Packets[m.Critical]
	var fresh int64 // when new bytes were sent last
	var one recovery
	for _, p := range m.Packets {
		q, at := &r.Packets[p], r.Sent(int(p))
		switch {
		case q.Again && one.to == 0:
			one = recovery{span{fresh, at}, q.bytes}
		case q.Again:
			one.to = at
			one.again = span{min(one.again.from, q.bytes.from), max(one.again.to, q.bytes.to)}
		case one.to > 0:
			all, one = append(all, one), recovery{}
			fallthrough
		default:
			fresh = at
		}
		if q.bytes.from < critical.bytes.to && critical.bytes.from < q.bytes.to { // the first copy
			return append(all, recovery{span{at, r.Sent(m.Critical)}, critical.bytes})
		}
	}
	return all
}

// recovered finds why a message's sender sent bytes again, for the longest of these times. That is a copy
// that was lost, an acknowledgement that was lost, or packets that overtook each other.
func (w *why) recovered(m *Message, hops []Hop) (at cause, record int, effect string) {
	var longest recovery
	if m.round == 0 {
		for _, one := range w.r.recoveries(m) {
			if one.to-one.from > longest.to-longest.from {
				longest = one
			}
		}
	}
	lost := -1
	for _, p := range m.Packets {
		q := &w.r.Packets[p]
		missing := int(w.r.awaited(p))
		if missing == m.Critical || w.r.Packets[missing].Arrived > 0 {
			continue
		}
		if m.round > 0 || q.bytes.from < longest.again.to && longest.again.from < q.bytes.to &&
			w.r.Sent(int(p)) < longest.to &&
			(lost < 0 || w.r.Packets[missing].bytes.from < w.r.Packets[lost].bytes.from) {
			lost = missing
		}
	}
	if lost >= 0 {
		return w.endOf(lost)
	}
	if at, record, effect, found := w.unanswered(m, longest.span); found {
		return at, record, effect
	}
	if at, record := w.heldUp(m, &longest); record > 0 {
		return at, record, "packets were sent again that had arrived"
	}
	if at, effect, found := w.disordered(m, hops); found {
		return at, w.r.First(m.Critical), effect
	}
	if at := w.metAt(w.ends(m), longest.span, longest.to-longest.from); at.what != "" {
		return at, w.r.First(m.Critical), "packets were sent again that had arrived"
	}
	return cause{part: Recover, tap: -1, node: w.sender(m), what: "sent bytes again that were not lost"},
		w.r.First(int(m.Packets[0])), ""
}

// heldUp finds the first packet of a message with bytes that were sent again because a fault had held the
// packet back. Without one the record is 0.
func (w *why) heldUp(m *Message, of *recovery) (at cause, record int) {
	for _, p := range m.Packets {
		q := &w.r.Packets[p]
		if q.bytes.from >= of.again.to || of.again.from >= q.bytes.to || w.r.Sent(int(p)) >= of.to {
			continue
		}
		for _, s := range w.r.Sights(int(p)) {
			if _, held := w.r.heldBack[s.Number]; held {
				return w.heldBack(&s)
			}
		}
	}
	return at, 0
}

// heldBack returns the cause of a packet that a fault held back after it had left a port.
func (w *why) heldBack(s *Sight) (at cause, record int) {
	return cause{part: Fault, tap: s.Tap, what: "delayed packets: " + s.Reason, injected: true, by: s.Reason},
		w.r.heldBack[s.Number].record
}

// unanswered finds the first acknowledgement that was dropped in a time, on its way from the receiver of a
// message to the sender.
func (w *why) unanswered(m *Message, during span) (at cause, record int, effect string, found bool) {
	f := &w.r.Flows[m.Flow]
	for _, p := range w.unheard {
		back := &w.r.Flows[w.r.Packets[p].Flow]
		if sent := w.r.Sent(p); sent < during.from || sent > during.to || back.Protocol != f.Protocol ||
			!w.r.answersTo(w.r.Packets[p].Flow, m.Flow) ||
			f.Protocol == "tcp" && (back.Src != f.Dst || back.Dst != f.Src) {
			continue
		}
		at, record, effect = w.endOf(p)
		at.what = strings.Replace(at.what, " packets", " acknowledgements", 1)
		return at, record, effect, true
	}
	return at, 0, "", false
}

// lostAnswers returns the acknowledgements of which a record shows that they did not arrive whole: a switch
// or NIC dropped them, or a fault or link changed them.
func (r *Recording) lostAnswers() (packets []int) {
	for i := range r.Packets {
		if p := &r.Packets[i]; p.answers && p.Arrived == 0 &&
			(p.Dropped != "" || p.changed > 0 || firstChange(r.Sights(i)) != nil) {
			packets = append(packets, i)
		}
	}
	return packets
}
