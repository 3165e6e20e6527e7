package rocechecks

import (
	"slices"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// cnp checks that receivers signal congestion (IBTA, A17.9.3). A packet of a connection may
// arrive at a NIC with Congestion Experienced. Then a congestion notification packet (CNP) for the
// sending queue pair leaves within the interval before or after the arrival. One CNP may thus
// answer all marks of an interval. No CNP leaves without a mark in the interval before it.
//
// The check applies to receivers that sent at least one CNP: the kernel's rdma_rxe ignores marks
// and sends no CNP. Marks at other receivers are counted, and the check is INCONCLUSIVE if there
// are only such receivers. It needs ECN-capable packets.
type cnp struct {
	follower[cnpFlow]
	interval                 int64 // ns of the testbed's clock
	speakers                 map[[16]byte]bool
	capable, marked, cnps    uint64
	unheard, baseless, heard uint64
	pending                  uint64 // marks at the end
	strange                  uint64 // CNPs for unknown flows
	overfull                 bool
	found                    evidence.Tally
}

// cnpFlow holds the CNPs that a receiver owes a sender.
type cnpFlow struct {
	marks   uint64 // all marks that arrived
	owed    []int64
	missed  []int64 // the first few without a CNP
	late    uint64
	cnpAt   int64
	markAt  int64
	spoke   bool
	hasMark bool
}

// maxOwed bounds the marks of a flow that wait for a CNP.
const maxOwed = 1 << 16

// defaultCNPInterval is the interval that network cards keep between two CNPs of a queue pair, in
// the model of DCQCN (Zhu et al., SIGCOMM 2015).
const defaultCNPInterval = 50 * time.Microsecond

// newCNP makes the check. The interval is in the testbed's time; 0 means defaultCNPInterval.
func newCNP(interval time.Duration) *cnp {
	if interval <= 0 {
		interval = defaultCNPInterval
	}
	k := &cnp{follower: newFollower[cnpFlow](atResponder), interval: int64(interval),
		speakers: map[[16]byte]bool{}}
	k.timed = true
	return k
}

// Begin implements Check.
func (k *cnp) Begin(c *evidence.Capture) {
	k.capture = c
	k.interval *= int64(c.Dilation)
}

// Packet implements Check.
func (k *cnp) Packet(p *evidence.Packet) {
	if p.RoCE != nil && p.RoCE.BTH.Opcode == infiniband.CNP {
		if k.sees(p) {
			k.notify(p)
		}
		return
	}
	f, place := k.walk(p)
	if place == placeNone || place == placeAnswer || p.ECN == wire.NotECT {
		return
	}
	k.capable++
	if p.ECN != wire.CE {
		return
	}
	k.marked++
	own := &f.own
	own.marks++
	own.hasMark, own.markAt = true, p.Time
	own.expire(p.Time - k.interval)
	if own.spoke && p.Time-own.cnpAt < k.interval {
		k.heard++
		return
	}
	if k.overfull = k.overfull || len(own.owed) >= maxOwed; !k.overfull {
		own.owed = append(own.owed, p.Time)
	}
}

// notify adds a CNP that leaves the receiver.
func (k *cnp) notify(p *evidence.Packet) {
	k.cnps++
	if len(k.speakers) < maxFlows {
		k.speakers[p.Addresses.Src] = true
	}
	f := k.answered(p)
	if f == nil {
		k.strange++
		return
	}
	own := &f.own
	own.expire(p.Time - k.interval)
	if !own.hasMark || p.Time-own.markAt > k.interval {
		k.baseless++
		k.found.Exemplify("%s: a CNP left at %s, and no packet with a mark came in the %v before", f.name,
			evidence.ClockTime(p.Time), k.shown())
	}
	k.heard += uint64(len(own.owed))
	own.owed = own.owed[:0]
	own.spoke, own.cnpAt = true, p.Time
}

// expire gives up marks from before a time.
func (own *cnpFlow) expire(before int64) {
	n := 0
	for n < len(own.owed) && own.owed[n] < before {
		n++
	}
	own.late += uint64(n)
	own.missed = append(own.missed, own.owed[:min(n, max(0, 2-len(own.missed)))]...)
	own.owed = own.owed[n:]
}

// shown returns the interval in the testbed's time.
func (k *cnp) shown() time.Duration {
	return time.Duration(k.interval / int64(max(k.capture.Dilation, 1)))
}

// Result implements Check.
func (k *cnp) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERuleCNP)}
	var dumb uint64
	silentAt := map[*evidence.Tap]uint64{} // flows that lack a CNP, by tap
	for _, f := range k.ordered {
		f.own.expire(k.capture.End - k.interval)
		if !k.speakers[f.key.addresses.Dst] {
			dumb += f.own.marks
			continue
		}
		k.pending += uint64(len(f.own.owed))
		k.unheard += f.own.late
		if f.own.late > 0 {
			silentAt[f.nic]++ // one CNP is for many packets
		}
		for _, at := range f.own.missed {
			k.found.Exemplify("%s: a packet with a mark came at %s, and no CNP left in %v", f.name,
				evidence.ClockTime(at), k.shown())
		}
	}
	unclear := k.doubts()
	if k.strange > 0 {
		unclear = append(unclear, plural.Text("of %d CNPs it is not known which queue pair they are for",
			k.strange))
	}
	if k.overfull {
		unclear = append(unclear, "more marks at once than the check can remember")
	}
	silent := evidence.Tally{}
	silent.Count(k.unheard, "packets with a mark had no CNP in time")
	k.found.Count(k.baseless, "CNPs had no packet with a mark before them")
	f := evidence.Finding{}
	if k.strange > 0 {
		unclear = slices.Concat(unclear, silent.Lines, k.found.Lines)
	} else {
		k.addAbsent(&f, k.found.Lines...)
		k.addUnlessLost(&f, silentAt, silent.Lines...)
	}
	if len(f.Absent) > 0 {
		f.Absent = append(f.Absent, k.found.Examples...)
	} else {
		unclear = append(unclear, k.found.Examples...)
	}
	switch {
	case k.capable == 0:
		unclear = append(unclear, notApplicable("no request of a connection was ECN-capable"))
	case k.marked == 0:
		unclear = append(unclear, notApplicable("none of %d ECN-capable packets carried a mark", k.capable))
	case dumb == k.marked:
		unclear = append(unclear, notApplicable(
			"%d packets with a mark came to receivers that sent no CNP at all, as rdma_rxe does", dumb))
	}
	r.Measured = map[string]float64{
		"ecn-capable": float64(k.capable), "marked": float64(k.marked), "cnps": float64(k.cnps),
		"heard": float64(k.heard), "unheard": float64(k.unheard),
		"waiting": float64(k.pending), "not-applicable": float64(dumb),
	}
	r.Summary = plural.Text("%d of %d ECN-capable packets came with a mark: %d had a CNP within %v, %d had "+
		"none, %d waited for a CNP at the end, %d came to receivers that send none; %d CNPs",
		k.marked, k.capable, k.heard, k.shown(), k.unheard, k.pending, dumb, k.cnps)
	k.capture.Conclude(&r, k.need(), evidence.Finding{Absent: f.Absent, Unclear: append(f.Unclear,
		unclear...)})
	return r
}
