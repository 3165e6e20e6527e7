package verify

import (
	"fmt"

	"railbed/internal/infiniband"
	"railbed/plan/spec"
)

// RoCEAcks holds the rules of a responder's answers (IBTA, 9.7.5):
//
//   - it acknowledges only what came: every PSN up to that of an acknowledgement, and
//     before that of a NAK, came whole to its NIC;
//   - a NAK of a sequence error is sent only when something behind its PSN came;
//   - its message sequence number counts messages: of any two answers the numbers
//     differ by no less than the messages that the later one acknowledges and the
//     earlier one did not, and by no more than those that came;
//   - what asked for an acknowledgement gets one, perhaps with others in one answer
//     (coalesced), as long as nothing before it was missing when it came; and so does
//     what comes again though it is acknowledged, of which one time or another may have
//     been dropped within the NIC.
//
// It looks at reliable connections where requests come to their receiver's NIC and
// answers leave it, and applies to those of which it is known what answers what: by
// the messages that made them, or by an answer whose PSN only one flow awaits. It is
// no matter whether the responder throws away what came behind a gap, or when it
// answers. The selective NAK of our own endpoint has the PSN of a packet in place of its
// number, which must have come before its turn; what stands in an answer with another
// syndrome that is reserved is not judged. At taps that are no NICs packets may have gone
// another way, have overtaken each other or be lost, so that what breaks a rule there is
// INCONCLUSIVE.
type RoCEAcks struct {
	roceFlows[ackFlow]
	linger                       int64
	requests, answers, naks, rnr uint64
	acked, coalesced             uint64 // requests that were, and those by an answer of another's PSN
	early, needless, miscounted  uint64 // answers that break a rule
	misnamed                     uint64 // selective NAKs that do
	unanswered, waiting          uint64
	reserved                     uint64 // answers
	found                        findings
}

// ackFlow is what is known of a responder.
type ackFlow struct {
	missing infiniband.PSN // the first that has not come
	// done are the messages that came, ended those that were acknowledged.
	done, ended uint32
	// The message sequence number less that of messages is within these, by all answers
	// so far.
	bounded    bool
	base       uint32 // low is 0 behind it
	low, high  int
	refused    infiniband.PSN // of the last NAK
	hasRefused bool
	// uncounted is behind messages that were forgotten before they were counted. Until all
	// of them are acknowledged no number is judged.
	uncounted    infiniband.PSN
	hasUncounted bool
	// repeated is acknowledged, and came again so often, asking, since the last answer.
	repeated   infiniband.PSN
	repeats    int
	repeatedAt int64
}

// maxIgnored is how many times an acknowledged request may come again without an answer.
const maxIgnored = 2

// NewRoCEAcks makes the check.
func NewRoCEAcks() *RoCEAcks {
	k := &RoCEAcks{roceFlows: newRoCEFlows[ackFlow](atResponder)}
	k.reliable = true
	return k
}

// Begin implements Check.
func (k *RoCEAcks) Begin(c *Capture) {
	k.begin(c)
	k.linger = lingers(c)
}

// Packet implements Check.
func (k *RoCEAcks) Packet(p *Packet) {
	f, place := k.walk(p)
	switch place {
	case roceNone:
		return
	case roceAnswer:
		k.judge(f, p)
		return
	case roceFirst:
		f.own = ackFlow{missing: f.base}
	}
	k.requests++
	k.note(f, p, place)
	k.advance(f)
}

// note notes of a request whether something before it is missing, so that its responder may
// throw it away, and whether it is acknowledged already.
func (k *RoCEAcks) note(f *roceFlow[ackFlow], p *Packet, place rocePlace) {
	own, b := &f.own, &p.RoCE.BTH
	s, early := f.at(b.PSN), b.PSN.From(own.missing) > 0
	switch {
	case s != nil && place != roceAgain:
		s.early = early
	case s != nil && !early:
		s.early, s.asks, s.time = false, b.AckReq || s.asks && !s.early, p.Time
	case s == nil && place == roceAgain && b.AckReq && b.PSN.From(f.una) < 0:
		if own.repeats == 0 {
			own.repeated = b.PSN
		}
		if own.repeated == b.PSN {
			own.repeats, own.repeatedAt = own.repeats+1, p.Time
		}
	}
}

// advance moves on over what has come, and counts the messages that it ends. A READ
// counts when its request has come (C9-148).
func (k *RoCEAcks) advance(f *roceFlow[ackFlow]) {
	own := &f.own
	if own.missing.From(f.base) < 0 {
		own.missing, own.uncounted, own.hasUncounted = f.base, f.base, true
	}
	for s := f.at(own.missing); s != nil && s.seen; s = f.at(own.missing) {
		if read := s.opcode.Operation() == infiniband.ReadRequest; read && s.head || !read && s.ends {
			own.done++
		}
		own.missing = own.missing.Add(1)
	}
}

// judge holds an answer against what came before it left.
func (k *RoCEAcks) judge(f *roceFlow[ackFlow], p *Packet) {
	r := p.RoCE
	k.answers++
	f.own.repeats = 0
	k.advance(f) // a READ's PSNs may be known only now
	if f.vague {
		f.acknowledge(acknowledged(r))
		return
	}
	upTo, syndrome := acknowledged(r), r.AETH.Syndrome
	hasAETH := r.BTH.Opcode.Has(infiniband.HasAETH)
	refuses := hasAETH && syndrome.Kind() != infiniband.Ack
	if refuses {
		k.naks++
		f.own.refused, f.own.hasRefused = r.BTH.PSN, true
	}
	if refuses && syndrome.Kind() == infiniband.RNRNak {
		k.rnr++
	}
	if upTo.From(f.own.missing) > 0 {
		k.early++
		k.found.exemplify("%s: %v of PSN %d left at %s, and %d has not come", f.name, nameOf(r), r.BTH.PSN,
			clockTime(p.Time), f.own.missing)
		return
	}
	if syndrome == infiniband.NakSequence && refuses && r.BTH.PSN == f.next {
		k.needless++
		k.found.exemplify("%s: %v of PSN %d left at %s, and nothing behind it has come", f.name, nameOf(r),
			r.BTH.PSN, clockTime(p.Time))
	}
	if !refuses && r.BTH.PSN.From(f.una) >= 0 {
		f.own.hasRefused = false
	}
	gone := f.acknowledge(upTo)
	for i, s := range gone {
		k.acked++
		if i < len(gone)-1 && !refuses {
			k.coalesced++
		}
		if s.ends {
			f.own.ended++
		}
	}
	switch {
	case !hasAETH:
	case syndrome == infiniband.NakSelective:
		k.selective(f, p)
	case syndrome.Reserved():
		k.reserved++ // who knows what stands in its number
	default:
		k.count(f, p)
	}
}

// count holds the message sequence number against the messages.
func (k *RoCEAcks) count(f *roceFlow[ackFlow], p *Packet) {
	own, msn := &f.own, p.RoCE.AETH.MSN
	if own.hasUncounted {
		if acknowledged(p.RoCE).From(own.uncounted) < 0 {
			return
		}
		own.hasUncounted, own.bounded = false, false
	}
	if !own.bounded {
		own.bounded, own.base, own.low, own.high = true, msn-own.done, 0, int(own.done-own.ended)
		return
	}
	// By this answer the number was ahead of the messages by low to high.
	low := infiniband.PSN((msn - own.done - own.base) & uint32(infiniband.MaxPSN)).From(0)
	high := infiniband.PSN((msn - own.ended - own.base) & uint32(infiniband.MaxPSN)).From(0)
	if low > own.high || high < own.low {
		k.miscounted++
		k.found.exemplify("%s: %v of PSN %d at %s has MSN %d; by those before and %d messages that came "+
			"since it is %d to %d", f.name, nameOf(p.RoCE), p.RoCE.BTH.PSN,
			clockTime(p.Time), msn, own.done, (own.base+uint32(own.low)+own.ended)&uint32(infiniband.MaxPSN),
			(own.base+uint32(own.high)+own.done)&uint32(infiniband.MaxPSN))
		return
	}
	own.low, own.high = max(own.low, low), min(own.high, high)
}

// selective judges what a NAK says came before its turn.
func (k *RoCEAcks) selective(f *roceFlow[ackFlow], p *Packet) {
	early := infiniband.PSN(p.RoCE.AETH.MSN)
	if s := f.at(early); early.From(p.RoCE.BTH.PSN) <= 0 || s == nil || !s.seen {
		k.misnamed++
		k.found.exemplify("%s: a selective NAK of PSN %d left at %s and says that PSN %d came early, which "+
			"did not", f.name, p.RoCE.BTH.PSN, clockTime(p.Time), early)
	}
}

// nameOf is what an answer is called.
func nameOf(r *RoCE) string {
	if o := r.BTH.Opcode; o.Operation() == infiniband.Acknowledge {
		return r.AETH.Syndrome.String()
	}
	return r.BTH.Opcode.String()
}

// waits counts what asked for an acknowledgement and got none.
func (k *RoCEAcks) waits(f *roceFlow[ackFlow]) {
	end := k.end(f)
	if own := &f.own; own.repeats > maxIgnored && end-own.repeatedAt >= k.linger {
		k.unanswered++
		k.found.exemplify("%s: PSN %d came again %d times, at last at %s, asked for an acknowledgement and "+
			"got none", f.name, own.repeated, own.repeats, clockTime(own.repeatedAt))
	}
	for i := range f.sent {
		s, psn := &f.sent[i], f.base.Add(i)
		switch {
		case psn.From(f.una) < 0 || psn.From(f.own.missing) >= 0 || !s.asks || s.early ||
			f.own.hasRefused && psn.From(f.own.refused) >= 0:
		case end-s.time < k.linger:
			k.waiting++
		default:
			k.unanswered++
			k.found.exemplify("%s: PSN %d came at %s, asked for an acknowledgement and got none", f.name, psn,
				clockTime(s.time))
		}
	}
}

// Result implements Check.
func (k *RoCEAcks) Result() Result {
	r := Result{Name: roceName(spec.RoCERuleAcks)}
	unclear := k.doubts()
	judged, apart, vague := 0, 0, 0
	for _, f := range k.ordered {
		switch {
		case !f.paired:
			apart++
		case f.vague:
			vague++
		default:
			judged++
			k.waits(f)
		}
	}
	k.found.count(k.early, "answers acknowledge what had not come")
	k.found.count(k.needless, "NAKs of a sequence error were sent with nothing behind them")
	k.found.count(k.misnamed, "selective NAKs name a PSN that had not come")
	k.found.count(k.miscounted, "message sequence numbers do not count the messages")
	k.found.count(k.unanswered, "requests asked for an acknowledgement and got none")
	f := finding{unclear: unclear}
	if k.suspect(&f, k.found.lines...); len(f.absent) > 0 {
		k.suspect(&f, k.found.examples...)
	} else {
		r.Details = append(r.Details, k.found.examples...)
	}
	if apart > 0 {
		f.unclear = append(f.unclear, notApplicable("of %d queue pairs it is not known what answers them",
			apart))
	}
	if vague > 0 {
		f.unclear = append(f.unclear, notApplicable(
			"of %d queue pairs READs were missing before it was known how many PSNs they take", vague))
	}
	if k.answers == 0 {
		f.unclear = append(f.unclear, notApplicable(
			"no answer of a reliable connection was seen; %d requests were", k.requests))
	}
	if k.reserved > 0 {
		r.Details = append(r.Details, fmt.Sprintf("%d answers have a syndrome that IBTA reserves; their "+
			"message sequence numbers are not judged", k.reserved))
	}
	r.Measured = map[string]float64{
		"flows": float64(judged), "requests": float64(k.requests), "answers": float64(k.answers),
		"naks": float64(k.naks - k.rnr), "rnr-naks": float64(k.rnr),
		"acknowledged": float64(k.acked), "coalesced": float64(k.coalesced), "waiting": float64(k.waiting),
		"not-applicable": float64(apart + vague),
	}
	r.Summary = fmt.Sprintf("%d answers of %d queue pairs acknowledge %d PSNs of requests, %d of them with "+
		"another's; %d NAKs, %d of them that the receiver was not ready",
		k.answers, judged, k.acked, k.coalesced, k.naks, k.rnr)
	k.capture.conclude(&r, k.need(), f)
	return r
}
