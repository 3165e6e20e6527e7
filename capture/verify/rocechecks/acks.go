package rocechecks

import (
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// acks checks the rules for a responder's answers (IBTA, 9.7.5):
//
//   - The responder acknowledges only requests that arrived. Every PSN up to the PSN of an
//     acknowledgement, and every PSN before that of a NAK, arrived whole at its NIC.
//   - It sends a NAK of a sequence error only when a request after the NAK's PSN arrived.
//   - Its message sequence number counts messages. Between two answers the number grows at least by
//     the messages that the later one acknowledges and the earlier one did not. It grows at most by
//     the messages that arrived.
//   - A request that asks for an acknowledgement gets one, perhaps in one answer with others
//     (coalesced), as long as nothing before it was missing when it arrived. A request that arrives
//     again after it was acknowledged gets one too, but one or two of these may have been dropped
//     within the NIC.
//
// It judges reliable connections, where requests arrive at their receiver's NIC and answers leave
// it. It applies to connections for which the pairing of requests and answers is known. The pairing
// comes from the messages that made the connection, or from an answer whose PSN only one flow
// awaits.
//
// The responder may discard requests that arrive after a gap, and may answer at any time. The
// selective NAK of our own endpoint carries a PSN in place of its message sequence number. The
// request of that PSN must have arrived before its turn. The content of an answer with another
// reserved syndrome is not judged.
//
// At taps that are not at NICs, packets may have taken another path, have overtaken each other or
// be lost. Violations there are INCONCLUSIVE. So are requests without an acknowledgement at a NIC before
// whose tap the node's kernel lost packets.
type acks struct {
	follower[ackFlow]
	linger                       int64
	requests, answers, naks, rnr uint64
	acked, coalesced             uint64 // acknowledged requests, and those by an answer to another PSN
	early, needless, miscounted  uint64 // answers that violate a rule
	misnamed                     uint64 // selective NAKs that do
	unanswered, waiting          uint64
	silentAt                     map[*evidence.Tap]uint64 // flows with unanswered requests, by tap
	reserved                     uint64                   // answers
	found                        evidence.Tally
}

// ackFlow is the state of a responder.
type ackFlow struct {
	missing infiniband.PSN // the first that has not arrived
	// done counts messages that arrived, and ended messages that were acknowledged.
	done, ended uint32
	// low and high bound the message sequence number less the number of messages, by all answers so
	// far.
	bounded    bool
	base       uint32 // base is subtracted, so that low begins at 0
	low, high  int
	refused    infiniband.PSN // of the last NAK
	hasRefused bool
	// uncounted is the PSN after the messages that were forgotten before they were counted. Until
	// all of them are acknowledged, no message sequence number is judged.
	uncounted    infiniband.PSN
	hasUncounted bool
	// repeated is an acknowledged PSN that arrived again, asking for an acknowledgement. repeats
	// counts the arrivals since the last answer.
	repeated   infiniband.PSN
	repeats    int
	repeatedAt int64
}

// maxIgnored is how many times an acknowledged request may arrive again without an answer.
const maxIgnored = 2

// newAcks makes the check.
func newAcks() *acks {
	k := &acks{follower: newFollower[ackFlow](atResponder), silentAt: map[*evidence.Tap]uint64{}}
	k.reliable, k.timed = true, true
	return k
}

// Begin implements Check.
func (k *acks) Begin(c *evidence.Capture) {
	k.capture = c
	k.linger = c.Linger()
}

// Packet implements Check.
func (k *acks) Packet(p *evidence.Packet) {
	f, place := k.walk(p)
	switch place {
	case placeNone:
		return
	case placeAnswer:
		k.judge(f, p)
		return
	case placeFirst:
		f.own = ackFlow{missing: f.base}
	}
	k.requests++
	k.note(f, p, place)
	k.advance(f)
}

// note records whether an earlier request is missing, so that the responder may discard this one.
// It also records whether the request is already acknowledged.
func (k *acks) note(f *flow[ackFlow], p *evidence.Packet, place place) {
	own, b := &f.own, &p.RoCE.BTH
	s, early := f.at(b.PSN), b.PSN.From(own.missing) > 0
	switch {
	case s != nil && place != placeAgain:
		s.early = early
	case s != nil && !early:
		s.early, s.asks, s.time = false, b.AckReq || s.asks && !s.early, p.Time
	case s == nil && place == placeAgain && b.AckReq && b.PSN.From(f.una) < 0:
		if own.repeats == 0 {
			own.repeated = b.PSN
		}
		if own.repeated == b.PSN {
			own.repeats, own.repeatedAt = own.repeats+1, p.Time
		}
	}
}

// advance moves missing past the PSNs that have arrived, and counts the messages that end there. A
// READ counts when its request has arrived (C9-148).
func (k *acks) advance(f *flow[ackFlow]) {
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

// judge compares an answer with the requests that arrived before the answer left.
func (k *acks) judge(f *flow[ackFlow], p *evidence.Packet) {
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
		k.found.Exemplify("%s: %v of PSN %d left at %s, and %d has not come", f.name, nameOf(r), r.BTH.PSN,
			evidence.ClockTime(p.Time), f.own.missing)
		return
	}
	if syndrome == infiniband.NakSequence && refuses && r.BTH.PSN == f.next {
		k.needless++
		k.found.Exemplify("%s: %v of PSN %d left at %s although no later request has come", f.name, nameOf(r),
			r.BTH.PSN, evidence.ClockTime(p.Time))
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
		k.reserved++ // the meaning of its number is unknown
	default:
		k.count(f, p)
	}
}

// count compares the message sequence number with the number of messages.
func (k *acks) count(f *flow[ackFlow], p *evidence.Packet) {
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
	// This answer bounds the difference of the number and the messages by low and high.
	low := infiniband.PSN((msn - own.done - own.base) & uint32(infiniband.MaxPSN)).From(0)
	high := infiniband.PSN((msn - own.ended - own.base) & uint32(infiniband.MaxPSN)).From(0)
	if low > own.high || high < own.low {
		k.miscounted++
		k.found.Exemplify("%s: %v of PSN %d at %s has MSN %d; after earlier answers and %d messages that "+
			"came since, want %d to %d", f.name, nameOf(p.RoCE), p.RoCE.BTH.PSN,
			evidence.ClockTime(p.Time), msn, own.done,
			(own.base+uint32(own.low)+own.ended)&uint32(infiniband.MaxPSN),
			(own.base+uint32(own.high)+own.done)&uint32(infiniband.MaxPSN))
		return
	}
	own.low, own.high = max(own.low, low), min(own.high, high)
}

// selective checks that the PSN named in a selective NAK arrived before its turn.
func (k *acks) selective(f *flow[ackFlow], p *evidence.Packet) {
	early := infiniband.PSN(p.RoCE.AETH.MSN)
	if s := f.at(early); early.From(p.RoCE.BTH.PSN) <= 0 || s == nil || !s.seen {
		k.misnamed++
		k.found.Exemplify(
			"%s: a selective NAK of PSN %d left at %s and reports PSN %d as early, but it had not arrived",
			f.name, p.RoCE.BTH.PSN, evidence.ClockTime(p.Time), early)
	}
}

// nameOf returns the name of an answer.
func nameOf(r *evidence.RoCE) string {
	if o := r.BTH.Opcode; o.Operation() == infiniband.Acknowledge {
		return r.AETH.Syndrome.String()
	}
	return r.BTH.Opcode.String()
}

// waits counts requests that asked for an acknowledgement and got none.
func (k *acks) waits(f *flow[ackFlow]) {
	end := k.end(f)
	if own := &f.own; own.repeats > maxIgnored && end-own.repeatedAt >= k.linger {
		k.unanswered++
		k.found.Exemplify("%s: PSN %d came again %d times, at last at %s, asked for an acknowledgement and "+
			"got none", f.name, own.repeated, own.repeats, evidence.ClockTime(own.repeatedAt))
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
			k.found.Exemplify("%s: PSN %d came at %s, asked for an acknowledgement and got none", f.name, psn,
				evidence.ClockTime(s.time))
		}
	}
}

// Result implements Check.
func (k *acks) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERuleAcks)}
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
			before := k.unanswered
			if k.waits(f); k.unanswered > before {
				k.silentAt[f.nic]++ // one answer acknowledges many requests
			}
		}
	}
	k.found.Count(k.early, "answers acknowledged PSNs that had not come")
	k.found.Count(k.needless, "NAKs of a sequence error were sent although no later request had come")
	k.found.Count(k.misnamed, "NAKs were selective and named a PSN that had not come")
	k.found.Count(k.miscounted, "answers had a wrong message sequence number")
	silent := evidence.Tally{}
	silent.Count(k.unanswered, "requests asked for an acknowledgement and got none")
	f := evidence.Finding{Unclear: unclear}
	k.addAbsent(&f, k.found.Lines...)
	if k.addUnlessLost(&f, k.silentAt, silent.Lines...); len(f.Absent) > 0 {
		k.addAbsent(&f, k.found.Examples...)
	} else {
		r.Details = append(r.Details, k.found.Examples...)
	}
	if apart > 0 {
		f.Unclear = append(f.Unclear, notApplicable("for %d queue pairs it is not known which one answers",
			apart))
	}
	if vague > 0 {
		f.Unclear = append(f.Unclear, notApplicable(
			"for %d queue pairs, READs were missing before it was known how many PSNs they take", vague))
	}
	if k.answers == 0 {
		f.Unclear = append(f.Unclear, notApplicable(
			"no answer of a reliable connection was seen; %d requests were", k.requests))
	}
	if k.reserved > 0 {
		r.Details = append(r.Details, plural.Text("%d answers have a syndrome that IBTA reserves; the "+
			"message sequence number of such an answer is not judged", k.reserved))
	}
	r.Measured = map[string]float64{
		"flows": float64(judged), "requests": float64(k.requests), "answers": float64(k.answers),
		"naks": float64(k.naks - k.rnr), "rnr-naks": float64(k.rnr),
		"acknowledged": float64(k.acked), "coalesced": float64(k.coalesced), "waiting": float64(k.waiting),
		"not-applicable": float64(apart + vague),
	}
	r.Summary = plural.Text("%d answers of %d queue pairs acknowledged %d PSNs of requests, %d of these by "+
		"a coalesced ACK; %d NAKs, %d of them RNR NAKs",
		k.answers, judged, k.acked, k.coalesced, k.naks, k.rnr)
	k.capture.Conclude(&r, k.need(), f)
	return r
}
