package fabricchecks

import (
	"fmt"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/plan/spec"
)

// queueDepth judges the queue lengths in bytes at the selected ports. The lengths come from the
// records of packets that were sent, marked or dropped there, or entered a queue.
//
// Control frames are left out, because they bypass all queues. A trimmed packet is left out where
// it is sent: it waited in one queue, but its record holds the length of another queue, which had
// no room for it. Where a trimmed packet enters the queue in which it waits, its record holds that
// queue's length, and it counts.
type queueDepth struct {
	selector
	priority int // -1 is any
	most     *spec.Bound
	p99      *spec.Bound

	depths  histogram
	where   *evidence.Tap
	when    int64
	byQueue [8]int64
	// nics caches the result of ofNICs for the first taps of the capture. A selection that includes
	// ports of switches leaves NICs out.
	nics bool
	taps int
	// undropped is the number of packets that were not dropped.
	undropped uint64
}

var _ = evidence.Register(evidence.Kind{Key: "queue-depth", Example: `{at: leaf1, max: "<= 100KB"}`,
	Conditions: conditions.Conditions{Soft: true, Examine: queueDepthConditions},
	Make:       evidence.OfSelected(NewQueueDepth)})

func queueDepthConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.QueueDepth
	// Packets entering and leaving an emulated NIC are recorded only with events: all.
	at := l.Which(func(p *conditions.Port) bool {
		return p.Matches(k.At) && (!p.NIC || l.Capture.Events == "all")
	})
	if len(at) == 0 {
		// The record of an overrun drop has the length of the NIC's queue.
		report := l.Never
		if conditions.Demands(k.Max, spec.BytesBound) || conditions.Demands(k.P99, spec.BytesBound) {
			report = l.Hardly
		}
		report(path+".at", "want ports of switches, or events: all in the capture at "+l.Where("at"),
			"NICs do not record their send queues")
	}
	l.Seen(path, at, true)
}

// NewQueueDepth makes the check for the packets of a workload, or for all packets if it is nil.
func NewQueueDepth(k *spec.QueueDepthCheck, w *evidence.Workload) evidence.Check {
	return &queueDepth{
		selector: selector{selection: selection{At: k.At, Workload: w}},
		priority: priority(k.Priority),
		most:     evidence.Bound(k.Max, spec.BytesBound),
		p99:      evidence.Bound(k.P99, spec.BytesBound),
	}
}

// ofNICs reports whether only NICs are selected.
func (k *queueDepth) ofNICs() bool {
	if n := len(k.capture.Taps); n != k.taps { // without a plan the taps give the ports
		k.taps, k.nics = n, len(k.switchPorts()) == 0
	}
	return k.nics
}

// switchPorts are the selected ports of switches.
func (k *queueDepth) switchPorts() []string {
	return k.capture.Ports(func(t *evidence.Tap) bool { return !t.NIC && k.tap(t) })
}

// Packet implements Check.
func (k *queueDepth) Packet(p *evidence.Packet) { k.Event(p) }

// Event implements Watcher.
func (k *queueDepth) Event(p *evidence.Packet) {
	if p.Depth < 0 || p.Control() || p.Verdict == "trim" || p.Direction == evidence.In ||
		k.priority >= 0 && p.Queue != k.priority || !k.at(p.Tap) || !k.of(p) || p.Tap.NIC && !k.ofNICs() {
		return
	}
	if p.Drop == "" {
		k.undropped++
	}
	longest := k.depths.most
	k.depths.add(uint64(p.Depth))
	if p.Queue >= 0 && p.Queue < len(k.byQueue) {
		k.byQueue[p.Queue] = max(k.byQueue[p.Queue], p.Depth)
	}
	if uint64(p.Depth) > longest || k.where == nil {
		k.where, k.when = p.Tap, p.Time
	}
}

// Result implements Check.
func (k *queueDepth) Result() evidence.Result {
	p50, p99, longest := k.depths.quantile(0.5), k.depths.quantile(0.99), k.depths.most
	r := evidence.Result{Name: k.titled("queue-depth"), Measured: map[string]float64{
		"packets": float64(k.depths.total), "max": float64(longest), "p50": float64(p50), "p99": float64(p99),
	}}
	var f evidence.Finding
	f.Hold("longest queue", k.most, float64(longest), units.Bytes(longest).String())
	f.HoldEither("queue that 99 of 100 packets found", k.p99, float64(p99), units.Bytes(p99).String())
	if k.depths.total == 0 {
		f = evidence.Finding{Unclear: []string{"no packet says how long its queue was"}}
	} else {
		r.Details = append(r.Details, fmt.Sprintf("the longest was at %s at %s", k.where.Name,
			evidence.ClockTime(k.when)))
	}
	if k.depths.total > 0 && k.undropped == 0 {
		f.Rests = true
		f.Unclear = append(f.Unclear, "only dropped packets say how long the queue was")
	}
	for q, depth := range k.byQueue {
		if depth > 0 {
			r.Details = append(r.Details, fmt.Sprintf("priority %d: at most %s", q, units.Bytes(depth)))
		}
	}
	r.Summary = fmt.Sprintf("packets found queues of at most %s; 99 of 100 found %s or less, half of them %s",
		units.Bytes(longest), units.Bytes(p99), units.Bytes(p50))
	need := evidence.Need{Ports: k.switchPorts(), Records: evidence.RecordsQueues, AnyOrder: true}
	if k.ofNICs() {
		need.Ports = k.ports()
	}
	k.capture.Conclude(&r, need, f)
	return r
}
