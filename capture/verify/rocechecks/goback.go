package rocechecks

import (
	"fmt"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// goBack checks that requesters repair losses by going back (go-back-N; IBTA, 9.7.5.1.1 and
// 9.9.2). A retransmission begins at or before the first PSN that is not acknowledged. From there
// on each request has the next PSN, up to the last PSN sent and beyond. Only PSNs that were
// acknowledged meanwhile may be left out. After a NAK of a sequence error the requester goes back
// to the NAK's PSN, or to an earlier one.
//
// It judges reliable connections, where requests leave the sender's NIC and answers arrive there.
// It applies to queue pairs that retransmitted or received such a NAK. Selective repeat, as in IRN
// or newer network cards, fails the check. At taps that are not at NICs, a packet may have been
// lost before the tap. Violations there are INCONCLUSIVE. So are violations at a NIC before whose tap
// the node's kernel lost packets, if there are no more violations than lost packets.
type goBack struct {
	follower[backFlow]
	linger            int64
	sent, again, naks uint64
	unseen            uint64                   // of again, requests that were not seen before
	wrongAt           map[*evidence.Tap]uint64 // violations by tap
	rounds, byNak     uint64                   // rounds of going back, and those that a NAK caused
	// beyond and leaps are the rounds that began after the missing PSN, and the rounds that left PSNs out.
	beyond, leaps    uint64
	ignored, waiting uint64 // NAKs, and those still open at the end
	found            evidence.Tally
}

// backFlow is the state of a requester.
type backFlow struct {
	cursor  infiniband.PSN // PSN after the request that was sent last
	back    bool           // the requester is retransmitting
	nak     infiniband.PSN // PSN of a NAK that the requester has not followed yet
	nakAt   int64
	pending bool
	judged  bool
}

// newGoBack makes the check.
func newGoBack() *goBack {
	k := &goBack{follower: newFollower[backFlow](atRequester), wrongAt: map[*evidence.Tap]uint64{}}
	k.reliable = true // unreliable connections do not retransmit
	k.timed = true
	return k
}

// Begin implements Check.
func (k *goBack) Begin(c *evidence.Capture) {
	k.capture = c
	k.linger = c.Linger()
}

// Packet implements Check.
func (k *goBack) Packet(p *evidence.Packet) {
	switch f, place := k.walk(p); place {
	case placeNone:
	case placeAnswer:
		k.answerAtRequester(f, p)
	case placeFirst:
		f.own = backFlow{cursor: f.next, judged: f.own.judged}
		k.sent++
	default:
		k.sent++
		k.step(f, p, place)
	}
}

// answerAtRequester adds an answer that arrives at a requester.
func (k *goBack) answerAtRequester(f *flow[backFlow], p *evidence.Packet) {
	r, own := p.RoCE, &f.own
	f.acknowledge(acknowledged(r))
	if own.pending && f.una.From(own.nak) > 0 {
		own.pending = false
	}
	if r.BTH.Opcode.Operation() != infiniband.Acknowledge || r.AETH.Syndrome != infiniband.NakSequence {
		return
	}
	k.naks++
	own.judged = true
	if psn := r.BTH.PSN; psn.From(f.una) >= 0 && psn.From(f.next) < 0 {
		own.pending, own.nak, own.nakAt = true, psn, p.Time
	}
}

// step adds a request that is not its flow's first.
func (k *goBack) step(f *flow[backFlow], p *evidence.Packet, place place) {
	own, psn := &f.own, p.RoCE.BTH.PSN
	if place == placeAgain || place == placeFilled {
		k.again++
		own.judged = true
	}
	if place == placeFilled {
		k.unseen++
	}
	switch ahead := psn.From(own.cursor); {
	case ahead < 0:
		k.rounds++
		if own.pending && psn.From(own.nak) <= 0 {
			k.byNak++
		}
		if psn.From(f.una) > 0 {
			k.beyond++
			k.wrongAt[p.Tap]++
			k.found.Exemplify("%s: it went back to PSN %d at %s although PSN %d is not acknowledged",
				f.name, psn,
				evidence.ClockTime(p.Time), f.una)
		}
	case ahead > 0 && own.back && psn.From(f.una) > 0:
		k.leaps++
		k.wrongAt[p.Tap]++
		k.found.Exemplify("%s: PSN %d left at %s behind %d, which was sent again, and %d is not acknowledged",
			f.name, psn, evidence.ClockTime(p.Time), own.cursor.Add(-1), f.una)
	}
	if own.pending && psn.From(own.nak) <= 0 {
		own.pending = false
	}
	own.cursor = f.behind(p.RoCE)
	own.back = own.cursor != f.next
}

// behind returns the PSN after the PSNs of a request.
func (f *flow[S]) behind(r *evidence.RoCE) infiniband.PSN {
	psn := r.BTH.PSN
	if r.BTH.Opcode.Operation() != infiniband.ReadRequest {
		return psn.Add(1)
	}
	if f.mtu > 0 {
		return psn.Add(readPSNs(r.RETH.Length, f.mtu))
	}
	s := f.at(psn)
	for s != nil && !s.ends {
		psn = psn.Add(1)
		if s = f.at(psn); s == nil {
			return f.next
		}
	}
	return psn.Add(1)
}

// Result implements Check.
func (k *goBack) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERuleGoBack)}
	unclear := k.doubts()
	judged := 0
	for _, f := range k.ordered {
		if f.own.judged {
			judged++
		}
		switch {
		case !f.own.pending:
		case k.end(f)-f.own.nakAt < k.linger:
			k.waiting++
		default:
			k.ignored++
			k.wrongAt[f.nic]++
			k.found.Exemplify("%s: the NAK of PSN %d that came at %s caused no retransmission",
				f.name, f.own.nak,
				evidence.ClockTime(f.own.nakAt))
		}
	}
	still := len(k.ordered) - judged
	k.found.Count(k.beyond, "times a sender went back to a PSN after the first missing one")
	k.found.Count(k.leaps, "times PSNs were left out of a retransmission")
	k.found.Count(k.ignored, "NAKs caused no retransmission")
	f := evidence.Finding{Unclear: unclear}
	k.addUnlessLost(&f, k.wrongAt, k.found.All()...)
	if judged == 0 {
		f.Unclear = append(f.Unclear, notApplicable("none of %d queue pairs sent anything again or got a NAK",
			len(k.ordered)))
	}
	r.Measured = map[string]float64{
		"flows": float64(judged), "sent": float64(k.sent), "again": float64(k.again), "naks": float64(k.naks),
		"rounds":        float64(k.rounds),
		"rounds-by-nak": float64(k.byNak), "waiting": float64(k.waiting), "not-applicable": float64(still),
	}
	unseen := ""
	if k.unseen > 0 {
		unseen = fmt.Sprintf(", %d of them not seen before", k.unseen)
	}
	r.Summary = plural.Text("%d of %d requests were sent again%s, in %d rounds, %d of them asked for by %d "+
		"NAKs; %d queue pairs lost nothing",
		k.again, k.sent, unseen, k.rounds, k.byNak, k.naks, still)
	k.capture.Conclude(&r, k.need(), f)
	return r
}
