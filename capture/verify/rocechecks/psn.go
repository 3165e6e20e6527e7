package rocechecks

import (
	"fmt"

	"railbed/capture/layers"
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// psns checks that each queue pair numbers its requests consecutively, modulo 2^24. It also checks
// that retransmissions equal the original requests. Both rules are from IBTA, 9.7.3.1 and 9.7.5.1.1.
// A retransmission has the opcode and the length of the original, and a repeated READ asks for no
// more than the rest. The check counts the requests that were retransmitted, and the requests that
// arrived.
//
// It judges requests of connections where they leave the sender's NIC. It applies to flows of which
// two requests were seen. Taps that are not at NICs may miss packets that were lost before them:
// gaps in PSNs there are INCONCLUSIVE. So are gaps at a NIC before whose tap the node's kernel lost packets,
// if there are no more gaps than lost packets.
type psns struct {
	follower[psnFlow]
	bound              *spec.Bound // on again
	sent, bytes        uint64
	again, againBytes  uint64
	forgotten          uint64 // of these, requests that are no longer remembered
	came               uint64
	gaps, left, filled uint64                   // gaps, PSNs in them, and those of the PSNs that left later
	gapsAt             map[*evidence.Tap]uint64 // gaps by tap
	changed            uint64                   // retransmissions that differ
	found              evidence.Tally
}

// psnFlow counts one flow.
type psnFlow struct{ sent, again uint64 }

// newPSN makes the check. The bound is on the number of retransmitted requests; it may be nil.
func newPSN(again *spec.Bound) *psns {
	return &psns{follower: newFollower[psnFlow](atRequester), bound: again,
		gapsAt: map[*evidence.Tap]uint64{}}
}

// Begin implements Check.
func (k *psns) Begin(c *evidence.Capture) { k.capture = c }

// Packet implements Check.
func (k *psns) Packet(p *evidence.Packet) {
	if r := p.RoCE; r != nil && p.Tap.NIC && p.Direction == evidence.In && p.Drop == "" &&
		r.BTH.Opcode.Request() &&
		r.ICRC() != layers.ICRCWrong && !r.BTH.Opcode.Has(infiniband.HasDETH) {
		k.came++
	}
	f, place := k.walkRequests(p)
	if f == nil {
		return
	}
	k.sent++
	k.bytes += uint64(p.RoCE.Payload)
	f.own.sent++
	switch place {
	case placeGap:
		k.gaps++
		k.gapsAt[p.Tap]++
		psn := p.RoCE.BTH.PSN
		k.left += uint64(f.leftOut)
		k.found.Exemplify("%s: PSN %d left at %s where PSN %d was due", f.name, psn,
			evidence.ClockTime(p.Time), psn.Add(-f.leftOut))
	case placeFilled:
		k.filled += uint64(f.filled)
	case placeAgain:
		k.repeat(f, p)
	}
}

// repeat adds a request whose PSN was sent before.
func (k *psns) repeat(f *flow[psnFlow], p *evidence.Packet) {
	r := p.RoCE
	k.again++
	k.againBytes += uint64(r.Payload)
	f.own.again++
	o, before := r.BTH.Opcode, f.at(r.BTH.PSN)
	switch {
	case before == nil:
		k.forgotten++
	case before.opcode == o && o.Operation() == infiniband.ReadRequest &&
		(!before.head || r.RETH.Length <= before.length):
	case before.opcode == o && before.payload == int32(r.Payload) && before.length == r.RETH.Length:
	default:
		k.changed++
		k.found.Exemplify("%s: PSN %d was %v with %d bytes and is %v with %d at %s", f.name, r.BTH.PSN,
			before.opcode, before.payload, o, r.Payload, evidence.ClockTime(p.Time))
	}
}

// Result implements Check.
func (k *psns) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERulePSN)}
	unclear := k.doubts()
	single := 0
	for _, f := range k.ordered {
		if f.own.sent < 2 {
			single++
		}
		if f.own.again > 0 {
			r.Details = append(r.Details, plural.Text("%s: %d requests left, %d of them again", f.name,
				f.own.sent, f.own.again))
		}
	}
	gaps := evidence.Tally{}
	gaps.Count(k.gaps, "times PSNs were left out between requests")
	k.found.Count(k.changed, "requests were sent again with other contents")
	f := evidence.Finding{Wrong: k.found.Lines, Unclear: unclear}
	if k.foreign() {
		if unseen := k.left - k.filled; unseen > 0 {
			f.Unclear = append(f.Unclear, plural.Text("%d PSNs were not seen: not captured, or left out",
				unseen))
		}
	} else {
		k.addUnlessLost(&f, k.gapsAt, gaps.Lines...)
	}
	f.Hold("requests sent again", k.bound, float64(k.again), fmt.Sprint(k.again))
	if k.foreign() && k.bound != nil && k.bound.Upper() && k.capture.Railbed &&
		len(k.capture.Ports(func(t *evidence.Tap) bool { return t.NIC })) == 0 {
		f.Unclear = append(f.Unclear, "no NIC was recorded: a packet that was lost before these taps and "+
			"sent again looks as if it was sent once")
	}
	f.Rests = true // requires that PSNs are consecutive
	if len(f.Wrong) > 0 {
		f.Wrong = append(f.Wrong, k.found.Examples...)
	} else if len(f.Absent) > 0 {
		f.Absent = append(f.Absent, k.found.Examples...)
	} else if !k.foreign() {
		f.Unclear = append(f.Unclear, k.found.Examples...)
	}
	if single == len(k.ordered) {
		f.Unclear = append(f.Unclear, notApplicable("no queue pair sent two requests: %d sent one", single))
	}
	r.Measured = map[string]float64{
		"flows": float64(len(k.ordered)), "sent": float64(k.sent), "bytes": float64(k.bytes),
		"again": float64(k.again), "again-bytes": float64(k.againBytes),
		"left-out": float64(k.left), "left-out-times": float64(k.gaps), "left-later": float64(k.filled),
		"came": float64(k.came), "not-applicable": float64(single),
	}
	came := ""
	if !k.foreign() {
		came = fmt.Sprintf("; %d came", k.came)
	}
	r.Summary = plural.Text("%d requests of %d queue pairs left, %d of them again (%d bytes)%s; %d PSNs "+
		"were left out", k.sent, len(k.ordered), k.again, k.againBytes, came, k.left)
	if k.gaps > 0 {
		r.Summary += plural.Text(" in %d gaps, and %d of them left later", k.gaps, k.filled)
	}
	k.capture.Conclude(&r, k.need(), f)
	return r
}
