package verify

import (
	"fmt"

	"railbed/capture/layers"
	"railbed/internal/infiniband"
	"railbed/plan/spec"
)

// RoCEPSN checks that each queue pair numbers its requests consecutively, modulo 2^24. It also checks
// that retransmissions equal the original requests. Both rules are from IBTA, 9.7.3.1 and 9.7.5.1.1.
// A retransmission has the opcode and the length of the original, and a repeated READ asks for no
// more than the rest. The check counts the requests that were retransmitted, and the requests that
// arrived.
//
// It judges requests of connections where they leave the sender's NIC. It applies to flows of which
// two requests were seen. Taps that are not at NICs may miss packets that were lost before them:
// gaps in PSNs there are INCONCLUSIVE.
type RoCEPSN struct {
	roceFlows[psnFlow]
	bound               *spec.Bound // on again
	sent, bytes         uint64
	again, againBytes   uint64
	forgotten           uint64 // of these, requests that are no longer remembered
	came                uint64
	gaps, left, changed uint64 // gaps, PSNs in them, and retransmissions that differ
	found               findings
}

// psnFlow counts one flow.
type psnFlow struct{ sent, again uint64 }

// NewRoCEPSN makes the check. The bound is on the number of retransmitted requests; it may be nil.
func NewRoCEPSN(again *spec.Bound) *RoCEPSN {
	return &RoCEPSN{roceFlows: newRoCEFlows[psnFlow](atRequester), bound: again}
}

// Begin implements Check.
func (k *RoCEPSN) Begin(c *Capture) { k.capture = c }

// Packet implements Check.
func (k *RoCEPSN) Packet(p *Packet) {
	if r := p.RoCE; r != nil && p.Tap.NIC && p.Direction == In && p.Drop == "" && r.BTH.Opcode.Request() &&
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
	case roceGap:
		k.gaps++
		psn := p.RoCE.BTH.PSN
		k.left += uint64(f.leftOut)
		k.found.exemplify("%s: PSN %d left at %s where %d was to come", f.name, psn, clockTime(p.Time),
			psn.Add(-f.leftOut))
	case roceFilled:
		k.left--
	case roceAgain:
		k.repeat(f, p)
	}
}

// repeat adds a request whose PSN was sent before.
func (k *RoCEPSN) repeat(f *roceFlow[psnFlow], p *Packet) {
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
		k.found.exemplify("%s: PSN %d was %v with %d bytes and is %v with %d at %s", f.name, r.BTH.PSN,
			before.opcode, before.payload, o, r.Payload, clockTime(p.Time))
	}
}

// Result implements Check.
func (k *RoCEPSN) Result() Result {
	r := Result{Name: roceName(spec.RoCERulePSN)}
	unclear := k.doubts()
	single := 0
	for _, f := range k.ordered {
		if f.own.sent < 2 {
			single++
		}
		if f.own.again > 0 {
			r.Details = append(r.Details, fmt.Sprintf("%s: %d requests left, %d of them again", f.name,
				f.own.sent, f.own.again))
		}
	}
	gaps := findings{}
	gaps.count(k.gaps, "times requests left with PSNs left out")
	k.found.count(k.changed, "requests were sent again as something else")
	f := finding{wrong: k.found.lines, unclear: unclear}
	if k.foreign() {
		if k.left > 0 {
			f.unclear = append(f.unclear, fmt.Sprintf("%d PSNs were not seen: not captured, or left out",
				k.left))
		}
	} else {
		k.suspect(&f, gaps.lines...)
	}
	f.hold("requests sent again", k.bound, float64(k.again), fmt.Sprint(k.again))
	if k.foreign() && k.bound != nil && k.bound.Upper() && k.capture.Railbed &&
		len(k.capture.portsOf(func(t *Tap) bool { return t.NIC })) == 0 {
		f.unclear = append(f.unclear, "no NIC was recorded: what was lost before these taps and sent again "+
			"looks like sent once")
	}
	f.rests = true // requires that PSNs are consecutive
	if len(f.wrong) > 0 {
		f.wrong = append(f.wrong, k.found.examples...)
	} else if len(f.absent) > 0 {
		f.absent = append(f.absent, k.found.examples...)
	}
	if single == len(k.ordered) {
		f.unclear = append(f.unclear, notApplicable("no queue pair sent two requests: %d sent one", single))
	}
	r.Measured = map[string]float64{
		"flows": float64(len(k.ordered)), "sent": float64(k.sent), "bytes": float64(k.bytes),
		"again": float64(k.again), "again-bytes": float64(k.againBytes),
		"left-out": float64(k.left), "came": float64(k.came), "not-applicable": float64(single),
	}
	came := ""
	if !k.foreign() {
		came = fmt.Sprintf("; %d came", k.came)
	}
	r.Summary = fmt.Sprintf("%d requests of %d queue pairs left, %d of them again (%d bytes)%s; %d PSNs "+
		"were left out", k.sent, len(k.ordered), k.again, k.againBytes, came, k.left)
	k.capture.conclude(&r, k.need(), f)
	return r
}
