package fabric

import (
	"fmt"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// outage judges the longest time in which a flow of datagrams sent and no datagram of it arrived.
// An outage begins when the first missing datagram left, or at the start of the flow. It ends at
// the next arrival, or at the last departure if none arrived any more.
//
// With a stream of datagrams at a fixed rate this measures how long routers take to route around a
// failure. RFC 6413 derives the same from lost packets, with a resolution of the time between two
// packets.
type outage struct {
	selector
	longest *spec.Bound
	travel  *journeys
	flows   []flowOutage // by flow index
}

// flowOutage is the state of one flow. Times are in nanoseconds.
type flowOutage struct {
	flow           *evidence.Flow
	waits          bool  // for an arrival
	since, left    int64 // the first departure since the last arrival, and the last one
	longest, began int64 // the longest outage, and its first departure
	sent, arrived  uint64
}

// NewOutage makes the check.
func NewOutage(k *spec.OutageCheck) evidence.Check {
	return &outage{
		selector: selector{selection: selection{From: k.From, To: k.To}},
		longest:  evidence.Bound(k.Longest, spec.DurationBound),
	}
}

// Begin implements Check.
func (k *outage) Begin(c *evidence.Capture) {
	k.begin(c)
	k.travel = newJourneys(c, true, nil)
}

// protocolUDP is IANA's number of UDP. Other protocols retransmit or answer.
const protocolUDP = 17

// Packet implements Check.
func (k *outage) Packet(p *evidence.Packet) {
	if p.Flow == nil || p.Flow.Proto != protocolUDP || !p.Tap.NIC || p.Drop != "" || !k.flow(p.Flow) {
		return
	}
	for len(k.flows) <= p.Flow.Index {
		k.flows = append(k.flows, flowOutage{})
	}
	f := &k.flows[p.Flow.Index]
	f.flow = p.Flow
	switch p.Direction {
	case evidence.Out:
		if f.sent++; !f.waits {
			f.waits, f.since = true, p.Time
		}
		f.left = p.Time
		if k.travel.start(p, journey{}) {
			f.arrived++
			f.waits = false
		}
	case evidence.In:
		if !k.destination(p) {
			return
		}
		if _, known := k.travel.arrive(p); known {
			f.arrived++
			f.until(p.Time)
			f.waits = false
		}
	}
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
	var worst flowOutage
	var sent, arrived uint64
	flows := 0
	var silent []string // flows without any arrival: their outages have no end
	for _, f := range k.flows {
		if f.sent == 0 {
			continue // flow of another direction, or only partly captured
		}
		flows++
		sent, arrived = sent+f.sent, arrived+f.arrived
		f.until(f.left)
		if f.longest > worst.longest || worst.flow == nil {
			worst = f
		}
		if _, known := k.nodes[f.flow.Dst.Addr()]; f.arrived == 0 && (known || len(k.nodes) == 0) {
			silent = append(silent, plural.Text("%s > %s: none of %d datagrams arrived, and so no outage "+
				"has an end", f.flow.Src, f.flow.Dst, f.sent))
		}
	}
	if arrived == 0 {
		found.Unclear = append(found.Unclear,
			"no datagram was seen to leave one node and to arrive at another")
	} else {
		k.judge(&r, &found, worst, silent)
		r.Measured["flows"], r.Measured["lost"], r.Measured["again"] = float64(flows), float64(sent-arrived),
			float64(k.travel.strays)
		r.Summary = plural.Text("the longest outage of %d flows was %s; %d of %d datagrams did not arrive",
			flows, r.Summary, sent-arrived, sent)
		if k.travel.strays > 0 {
			r.Summary += fmt.Sprintf("; %d arrived that had not left, or had arrived before", k.travel.strays)
		}
	}
	if k.travel.short {
		found.Unclear = append(found.Unclear, "more packets at once than the check can remember")
	}
	k.capture.Conclude(&r, evidence.Need{Ports: k.nics(), Clocks: true}, found)
	return r
}

// judge compares the longest outage with the bound.
func (k *outage) judge(r *evidence.Result, found *evidence.Finding, worst flowOutage, silent []string) {
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
		found.Unclear = append(found.Unclear, silent...) // silent flows may change the verdict
	}
	if !holds && !k.longest.Upper() && len(silent) > 0 {
		found.Unclear = append(found.Unclear,
			fmt.Sprintf("the longest outage took %s, want %s", took.Round(10*time.Microsecond), k.longest))
		return
	}
	found.HoldEither("the longest outage", k.longest, float64(took), took.Round(10*time.Microsecond).String())
}
