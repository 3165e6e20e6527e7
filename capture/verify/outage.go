package verify

import (
	"fmt"
	"strings"
	"time"

	"railbed/fabric/clock"
	"railbed/testbed/spec"
)

// Outage judges the longest time in which a flow of datagrams sent and nothing of it
// arrived: from when the first one left that was missed, or where the flow begins, to
// the next arrival, or to the last departure where none came any more. A stream of
// datagrams at a rate measures with it how long routers take to route around a
// failure, as RFC 6413 does from lost packets, within the time between two of them.
type Outage struct {
	selector
	longest *spec.Bound
	flows   []flowOutage // by flow index
}

// flowOutage is what is known of one flow, in nanoseconds.
type flowOutage struct {
	flow           *Flow
	waits          bool  // for an arrival
	since, left    int64 // the first departure since the last arrival, and the last one
	longest, began int64 // the longest outage, and its first departure
	sent, received uint64
}

// NewOutage makes the check.
func NewOutage(s Selection, longest *spec.Bound) *Outage {
	return &Outage{selector: selector{Selection: s}, longest: longest}
}

// Begin implements Check.
func (k *Outage) Begin(c *Capture) { k.begin(c) }

// protocolUDP is IANA's number of UDP: other protocols send again, or answer.
const protocolUDP = 17

// Packet implements Check.
func (k *Outage) Packet(p *Packet) {
	if p.Flow == nil || p.Flow.Proto != protocolUDP || !p.Tap.NIC || p.Drop != "" || !k.flow(p.Flow) {
		return
	}
	for len(k.flows) <= p.Flow.Index {
		k.flows = append(k.flows, flowOutage{})
	}
	f := &k.flows[p.Flow.Index]
	f.flow = p.Flow
	switch p.Direction {
	case Out:
		if f.sent++; !f.waits {
			f.waits, f.since = true, p.Time
		}
		f.left = p.Time
	case In:
		f.received++
		f.until(p.Time)
		f.waits = false
	}
}

// until takes in that nothing arrived up to a moment.
func (f *flowOutage) until(at int64) {
	if f.waits && at-f.since > f.longest {
		f.longest, f.began = at-f.since, f.since
	}
}

// hidden are the NICs of each node that were not captured.
func (k *Outage) hidden() map[string][]string {
	hidden := map[string][]string{}
	for _, name := range k.untapped() {
		node, _, _ := strings.Cut(name, ":")
		hidden[node] = append(hidden[node], name)
	}
	return hidden
}

// Result implements Check.
func (k *Outage) Result() Result {
	r := Result{Name: k.titled("outage"), Measured: map[string]float64{}}
	taps := k.nicTaps()
	var wrong, unclear []string
	var worst flowOutage
	var sent, received uint64
	flows := 0
	hidden := k.hidden()
	var unseen []string // flows whose arrivals may be elsewhere
	var silent []string // flows of which nothing arrived: their outages have no end
	for _, f := range k.flows {
		if f.sent == 0 {
			continue // of the other end, or half seen
		}
		node, known := k.nodes[f.flow.Dst.Addr()]
		if nics := hidden[node]; len(nics) > 0 {
			unseen = append(unseen, fmt.Sprintf("%s > %s: %s was not captured, and so not all that arrived", f.flow.Src, f.flow.Dst, strings.Join(nics, ", ")))
			if f.received == 0 {
				continue
			}
		}
		flows++
		sent, received = sent+f.sent, received+f.received
		f.until(f.left)
		if f.longest > worst.longest || worst.flow == nil {
			worst = f
		}
		if f.received == 0 && (known || len(k.nodes) == 0) {
			silent = append(silent, fmt.Sprintf("%s > %s: none of %d datagrams arrived, and so no outage has an end", f.flow.Src, f.flow.Dst, f.sent))
		}
	}
	unclear = append(unclear, unseen...)
	switch {
	case received == 0:
		unclear = append(unclear, "no datagram was seen to leave one node and to arrive at another")
	default:
		virtual := clock.Dilation(k.capture.Dilation)
		took := virtual.Passed(time.Duration(worst.longest))
		r.Measured["longest"], r.Measured["flows"], r.Measured["lost"] = took.Seconds(), float64(flows), float64(int64(sent)-int64(received))
		from := ""
		if worst.longest > 0 {
			began := virtual.Passed(time.Duration(worst.began - k.capture.First))
			r.Measured["began"] = began.Seconds()
			from = fmt.Sprintf(", from %s of the recording on", began.Round(time.Millisecond))
		}
		r.Summary = fmt.Sprintf("the longest outage of %d flows was %s, of %s > %s%s; %d of %d datagrams did not arrive",
			flows, took.Round(10*time.Microsecond), worst.flow.Src, worst.flow.Dst, from, int64(sent)-int64(received), sent)
		holds := k.longest.Holds(float64(took))
		if holds == k.longest.Upper() {
			unclear = append(unclear, silent...) // what it would be with them may be otherwise
		}
		if !holds {
			line := fmt.Sprintf("the longest outage took %s, want %s", took.Round(10*time.Microsecond), k.longest)
			if k.capture.lossy(taps) || len(unseen) > 0 || len(silent) > 0 && !k.longest.Upper() {
				unclear = append(unclear, line)
			} else {
				wrong = append(wrong, line)
			}
		}
	}
	k.capture.conclude(&r, taps, wrong, unclear)
	return r
}
