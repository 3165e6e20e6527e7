package follow

import (
	"fmt"
	"math"

	"railbed/capture/verify/evidence"
)

// flight follows how many bytes the sender of a TCP connection keeps in flight. A congestion window grows
// from one round trip to the next until packets are lost or marked. A sender that repeatedly waits for
// acknowledgements with the same number of bytes in flight has a small send buffer, or a congestion window
// that does not grow.
type flight struct {
	acked  uint32 // The receiver has acknowledged the data up to this sequence number.
	begun  bool   // Acked is set.
	opened int64  // A pure acknowledgement moved acked at this time.
	peak   uint32 // This is the maximum of bytes in flight since the last wait.
	room   uint32 // This is the least free window of the receiver since then.

	most    uint32 // So many bytes were in flight at each of the waits.
	waits   int    // Each had about so many bytes in flight.
	slowed  bool   // Packets were marked or sent again.
	last    int32  // This packet was sent last.
	sent    int64  // It was sent at this time.
	one     *closure
	pending []closure // There were not enough waits yet.
}

// Waits are a cause if there are enough of them in a row. After a loss a congestion window grows slowly, so
// more of them are needed. Between the segments of a burst the sender did not wait.
const (
	enoughWaits     = 8
	enoughAfterLoss = 64
	burst           = resumes
)

// fewInFlight is the cause of a sender that waited for acknowledgements.
const fewInFlight = "TCP kept few bytes in flight"

// acknowledged takes an acknowledgement that the sender receives.
func (l *flight) acknowledged(p *evidence.Packet) {
	if p.ECE {
		l.slow()
	}
	if l.begun && int32(p.Ack-l.acked) <= 0 {
		return
	}
	l.begun, l.acked = true, p.Ack
	if l.opened = p.Time; p.Payload > 0 {
		l.opened = 0 // the receiver's program may have made the sender's program go on
	}
}

// slow takes a sign that congestion control has slowed the sender down.
func (l *flight) slow() { l.slowed, l.waits, l.one, l.pending = true, 0, nil, nil }

// newSegment takes a segment with new data, before window does.
func (f *Follower) newSegment(w *window, p *evidence.Packet, packet int32) {
	l := &w.flight
	q := &f.r.Packets[packet]
	flow := &f.r.Flows[q.Flow]
	switch waited := l.opened - f.r.Packets[l.last].Arrived; {
	case l.peak == 0 || p.Time-l.sent <= burst:
	case !w.known || l.opened <= l.sent || waited <= 0 || waited >= l.opened || flow.From == "" ||
		p.Time-l.opened > resumes+waited/4 || l.room < 2*l.peak:
		f.endFlight(l)
	default:
		switch {
		case l.peak >= l.most+w.large: // it grows
			l.waits, l.pending, l.one = 0, nil, nil
			fallthrough
		case l.waits == 0:
			l.most = l.peak
		}
		if l.peak+w.large < l.most {
			break
		}
		l.most = max(l.most, l.peak)
		l.waits++
		if l.one == nil {
			l.one = &closure{what: fewInFlight, from: flow.From, to: flow.To}
		}
		l.one.take(waited, l.most, q.Message, p.Number)
		if f.r.Packets[l.last].Message == q.Message {
			l.one.within += waited
		}
	}
	if p.Time-l.sent > burst {
		l.peak, l.room = 0, math.MaxUint32
	}
	end := p.Seq + uint32(p.Payload)
	if l.begun {
		l.peak = max(l.peak, end-l.acked)
		l.room = min(l.room, w.right-l.acked)
	}
	l.last, l.sent = packet, p.Time
}

// endFlight ends the waits of a write.
func (f *Follower) endFlight(l *flight) {
	if l.one == nil {
		return
	}
	l.pending = append(l.pending, *l.one)
	l.one = nil
	if l.waits >= enoughAfterLoss || l.waits >= enoughWaits && !l.slowed {
		for _, c := range l.pending {
			f.r.Messages[c.message].held += c.within
		}
		f.r.closed = append(f.r.closed, l.pending...)
		l.pending = nil
	}
}

// limits explains what the senders had in flight.
func (w *why) limits(senders []string) string {
	var most uint32
	for _, sender := range senders {
		most = max(most, w.flights[sender])
	}
	return fmt.Sprintf(" (at most %s) and waited for acknowledgements: its send buffer or its congestion "+
		"window is small", size(int64(most)))
}
