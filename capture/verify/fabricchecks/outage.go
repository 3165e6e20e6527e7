package fabricchecks

import (
	"fmt"
	"time"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// outage judges the longest time in which a flow of datagrams sent and no datagram of it arrived.
// An outage begins when the first missing datagram left, or at the start of the flow. It ends at
// the next arrival, or at the last departure if none arrived any more.
//
// A datagram of several fragments has arrived when all of them have. Datagrams to groups, to switches and to
// addresses that the plan does not have are left out: they are for no node. Datagrams whose TTL ends on
// the way, such as traceroute's, are left out, too.
//
// With a stream of datagrams at a fixed rate this measures how long routers take to route around a
// failure. RFC 6413 derives the same from lost packets, with a resolution of the time between two
// packets.
type outage struct {
	selector
	longest *spec.Bound
	travel  *journeys
	flows   []*flowOutage // by number, from 1
	numbers map[evidence.FlowAddr]int
	// fragmented are the datagrams of which fragments left and not all have arrived.
	fragmented map[evidence.DatagramKey]*fragmented
	expired    uint64 // datagrams with a TTL that ends on the way
}

// fragmented is a datagram that left in fragments: the number of its flow, its length if the last fragment
// has left, and the parts that arrived.
type fragmented struct {
	number, length int
	came           parts
}

// fragmentedMost bounds the datagrams that are followed.
const fragmentedMost = 1 << 14

// flowOutage is the state of one flow. Times are in nanoseconds.
type flowOutage struct {
	flow           evidence.FlowAddr
	waits          bool  // for an arrival
	since, left    int64 // the first departure since the last arrival, and the last one
	longest, began int64 // the longest outage, and its first departure
	sent, arrived  uint64
}

var _ = evidence.Register(evidence.Kind{Key: "outage", Example: `{from: h0, longest: "<= 1s"}`,
	Conditions: conditions.Conditions{Examine: outageConditions}, Make: evidence.Of(NewOutage)})

func outageConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	l.Named(path, p)
	l.Datagrams(path)
}

// NewOutage makes the check.
func NewOutage(k *spec.OutageCheck) evidence.Check {
	return &outage{
		selector: selector{selection: selection{From: k.From, To: k.To}},
		longest:  evidence.Bound(k.Longest, spec.DurationBound),
		numbers:  map[evidence.FlowAddr]int{}, fragmented: map[evidence.DatagramKey]*fragmented{},
	}
}

// Begin implements Check.
func (k *outage) Begin(c *evidence.Capture) {
	k.selector.Begin(c)
	k.travel = newJourneys(c, true, nil)
}

// protocolUDP is IANA's number of UDP. Other protocols retransmit or answer.
const protocolUDP = 17

// Packet implements Check.
func (k *outage) Packet(p *evidence.Packet) {
	if p.Flow == nil || p.Flow.Proto != protocolUDP || !p.Tap.NIC || p.Drop != "" || !k.flow(p.Flow) {
		return
	}
	switch p.Direction {
	case evidence.Out:
		if k.leaves(p) {
			k.left(p)
		} else if k.capture.Expires(p, evidence.Pair{From: p.Tap.Node,
			To: k.nodes[p.Flow.Dst.Addr()].Node}) {
			k.expired++
		}
	case evidence.In:
		if !k.destination(p) {
			return
		}
		j, known := k.travel.arrive(p)
		if of := k.fragmentedBy(p); of != nil {
			if known, j.stream = k.complete(p, of), of.number; !known {
				return
			}
		}
		if known {
			k.flows[j.stream-1].came(p.Time)
		}
	}
}

// left adds a datagram, or a fragment of one, that leaves.
func (k *outage) left(p *evidence.Packet) {
	number := 0
	if !p.Fragment {
		number = k.numberOf(evidence.FlowAddr{Src: p.Flow.Src, Dst: p.Flow.Dst})
	} else if at, known := p.Piece(); known {
		of := k.fragmented[at.Key]
		if at.From == 0 {
			if len(k.fragmented) >= fragmentedMost {
				clear(k.fragmented)
			}
			of = &fragmented{number: k.numberOf(at.Flow(p))}
			k.fragmented[at.Key] = of
		}
		if of == nil {
			return // its first fragment was not seen
		}
		if number = of.number; at.Last {
			of.length = at.To
		}
		if at.From > 0 { // not another datagram
			k.travel.start(p, journey{stream: number})
			return
		}
	}
	if number == 0 {
		return
	}
	f := k.flows[number-1]
	if f.sent++; !f.waits {
		f.waits, f.since = true, p.Time
	}
	f.left = p.Time
	if k.travel.start(p, journey{stream: number}) && !p.Fragment {
		f.arrived++
		f.waits = false
	}
}

// numberOf returns the number of a flow.
func (k *outage) numberOf(of evidence.FlowAddr) int {
	number := k.numbers[of]
	if number == 0 {
		k.flows = append(k.flows, &flowOutage{flow: of})
		number = len(k.flows)
		k.numbers[of] = number
	}
	return number
}

// fragmentedBy returns the datagram of an arriving fragment, if its sender fragmented it. A datagram that a
// router fragmented is a journey of its own.
func (k *outage) fragmentedBy(p *evidence.Packet) *fragmented {
	if !p.Fragment {
		return nil
	}
	at, _ := p.Piece()
	return k.fragmented[at.Key]
}

// complete adds a fragment to its datagram, and reports whether the datagram has arrived.
func (k *outage) complete(p *evidence.Packet, of *fragmented) bool {
	at, _ := p.Piece()
	of.came.add(at.From, at.To)
	if of.length == 0 || !of.came.cover(0, of.length) {
		return false
	}
	delete(k.fragmented, at.Key)
	return true
}

// came ends the wait for an arrival.
func (f *flowOutage) came(at int64) {
	f.arrived++
	f.until(at)
	f.waits = false
}

// until extends the current outage to a moment up to which nothing arrived.
func (f *flowOutage) until(at int64) {
	if f.waits && at-f.since > f.longest {
		f.longest, f.began = at-f.since, f.since
	}
}

// Result implements Check.
func (k *outage) Result() evidence.Result {
	k.travel.finish(k.capture.End)
	r := evidence.Result{Name: k.titled("outage"), Measured: map[string]float64{}}
	var found evidence.Finding
	worst := new(flowOutage)
	var sent, arrived uint64
	flows := 0
	var silent []string // flows without any arrival: their outages have no end
	for _, f := range k.flows {
		flows++
		sent, arrived = sent+f.sent, arrived+f.arrived
		f.until(f.left)
		if f.longest > worst.longest || worst.sent == 0 {
			worst = f
		}
		if f.arrived == 0 {
			silent = append(silent, plural.Text("%s > %s: none of %d datagrams arrived, and so no outage "+
				"has an end", f.flow.Src, f.flow.Dst, f.sent))
		}
	}
	seen := map[nodePair]bool{}
	for _, f := range k.flows {
		seen[nodePair{From: k.nodes[f.flow.Src.Addr()].Node, To: k.nodes[f.flow.Dst.Addr()].Node}] = true
	}
	for _, of := range k.planned() {
		if !seen[of.Pair] {
			seen[of.Pair] = true
			silent = append(silent, fmt.Sprintf("%v: no datagram left, although %s sends", of.Pair, of.Step))
		}
	}
	if arrived == 0 {
		found.Unclear = append(found.Unclear,
			"no datagram was seen to leave one node and to arrive at another")
	} else {
		unseen := k.neverSeen()
		if k.longest == nil {
			found.Unclear = append(found.Unclear, unseen...)
		}
		k.judge(&r, &found, worst, append(silent, unseen...))
		r.Measured["flows"], r.Measured["lost"], r.Measured["again"] = float64(flows), float64(sent-arrived),
			float64(k.travel.strays)
		r.Summary = plural.Text("the longest outage of %d flows was %s; %d of %d datagrams did not arrive",
			flows, r.Summary, sent-arrived, sent)
		if k.travel.strays > 0 {
			r.Summary += fmt.Sprintf("; %d arrived that had not left, or had arrived before", k.travel.strays)
		}
	}
	if k.expired > 0 {
		r.Details = append(r.Details, plural.Text("%d datagrams are left out: their TTL ends on the way",
			k.expired))
	}
	if k.travel.short {
		found.Unclear = append(found.Unclear, "more packets at once than the check can remember")
	}
	k.capture.Conclude(&r, evidence.Need{Ports: k.nics(), Clocks: true, Durations: true}, found)
	return r
}

// judge compares the longest outage with the bound. hidden names what may have had a longer outage.
func (k *outage) judge(r *evidence.Result, found *evidence.Finding, worst *flowOutage, hidden []string) {
	virtual := clock.Dilation(k.capture.Dilation)
	took := virtual.Passed(time.Duration(worst.longest))
	r.Measured["longest"] = took.Seconds()
	r.Summary = fmt.Sprintf("%s, of %s > %s", took.Round(10*time.Microsecond), worst.flow.Src, worst.flow.Dst)
	if worst.longest > 0 {
		began := virtual.Passed(time.Duration(worst.began - k.capture.First))
		r.Measured["began"] = began.Seconds()
		r.Summary += fmt.Sprintf(", from %s of the recording on", began.Round(time.Millisecond))
	}
	if k.longest == nil {
		return
	}
	holds := k.longest.Holds(float64(took))
	if holds == k.longest.Upper() {
		found.Unclear = append(found.Unclear, hidden...) // they may change the verdict
	}
	if !holds && !k.longest.Upper() && len(hidden) > 0 {
		found.Unclear = append(found.Unclear,
			fmt.Sprintf("the longest outage took %s, want %s", took.Round(10*time.Microsecond), k.longest))
		return
	}
	found.HoldEither("the longest outage", k.longest, float64(took), took.Round(10*time.Microsecond).String())
}
