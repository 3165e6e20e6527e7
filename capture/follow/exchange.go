package follow

import (
	"net/netip"

	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
)

// roundKey names a sum, and exchangeKey what a rank contributes to it.
type roundKey struct {
	job, epoch, slot uint16
	round            uint32
}

type exchangeKey struct {
	roundKey
	worker netip.AddrPort
}

// Positions of the packets of an exchange: contributions, and sums.
const (
	contribution = iota
	theSum
	exchanged
)

// exchange adds a rank's contribution to a sum, or the sum, to its message. It reports false for other
// packets, and for a sum without a contribution.
func (f *Follower) exchange(p *evidence.Packet, packet int32) bool {
	a := p.Aggregation
	key := exchangeKey{roundKey{a.Job(), a.Epoch(), a.Slot(), a.Round()}, p.Flow.Src}
	part := int64(contribution)
	switch a.Kind() {
	case wire.AggregationUpdate:
	case wire.AggregationResult:
		key.worker, part = p.Flow.Dst, theSum
	default:
		return false
	}
	q := &f.r.Packets[packet]
	message, known := f.exchanges[key]
	if !known {
		if part == theSum {
			return false
		}
		message = f.newMessage(q.Flow, uint64(key.round))
		f.exchanges[key] = message
		m := &f.r.Messages[message]
		m.Bytes, m.bytes.to = int64(p.Payload), exchanged
		if f.rounds[key.roundKey] == 0 {
			f.rounds[key.roundKey] = len(f.rounds) + 1
		}
		m.round = f.rounds[key.roundKey]
	}
	f.join(message, packet, span{part, part + 1})
	q.Position, q.Bytes = int64(a.Offset()), int64(p.Payload)
	return true
}

// contributed returns the packet of an exchange that brought the contribution to the switch, -1 if none did.
func (r *Recording) contributed(m *Message) (packet int) {
	packet = -1
	for _, p := range m.Packets {
		q := &r.Packets[p]
		if q.bytes.from == contribution && q.Arrived > 0 &&
			(packet < 0 || q.Arrived < r.Packets[packet].Arrived) {
			packet = int(p)
		}
	}
	return packet
}

// accountExchange fills in the times of a contribution to a sum. The contribution comes to the switch, the
// switch gathers the others' and sends the sum, and the sum comes.
func (r *Recording) accountExchange(m *Message) {
	up := r.contributed(m)
	sum := r.Sent(m.Critical)
	for _, p := range m.Packets {
		if r.Packets[p].bytes.from == theSum {
			sum = min(sum, r.Sent(int(p)))
		}
	}
	m.Account[Recover] = r.Sent(up) - m.Start + r.Sent(m.Critical) - sum
	if gathered := sum - r.Packets[up].Arrived; gathered >= 0 {
		m.Account[Gather] = gathered
	} else {
		m.Account[Unseen] = gathered // the clocks of the taps differ
	}
	for _, hop := range r.way(m) {
		m.Account.Add(&hop.Account)
	}
}

// gathered finds what a switch waited for before it sent a sum: the contribution that came last, or the loss
// because of which it came last.
func (w *why) gathered(m *Message) (at cause, record int, effect string) {
	var last *Message
	came := -1
	for _, i := range w.r.rounds[m.round] {
		of := &w.r.Messages[i]
		if up := w.r.contributed(of); up >= 0 && (came < 0 ||
			w.r.Packets[up].Arrived > w.r.Packets[came].Arrived) {
			last, came = of, up
		}
	}
	if again := w.r.Sent(came) - last.Start; again > m.Account[Gather]/2 {
		return w.recovered(last, w.r.way(last))
	}
	return cause{part: Gather, tap: -1, node: w.sender(last), what: "its contributions to sums came last"},
		w.r.First(came), ""
}
