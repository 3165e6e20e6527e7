package probe

import (
	"fmt"
	"slices"
	"time"

	"railbed/internal/wire"
	"railbed/plan"
)

// Report holds the results of probes. Times are times of the testbed's clock.
type Report struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Sent    int    `json:"sent"`
	Arrived int    `json:"arrived"` // each probe counts once
	// Doubled counts probes that arrived again. Full counts probes that passed more switches than
	// they had room for.
	Doubled int    `json:"doubled,omitempty"`
	Full    int    `json:"full,omitempty"`
	Paths   []Path `json:"paths"` // most used first

	plan *plan.Plan
	seen map[uint64]bool
}

// Path is a sequence of switches and ports, with the probes that took it in the order of their
// sequence numbers.
type Path struct {
	Hops   []Hop   `json:"hops"`
	Probes []Probe `json:"probes"`
}

// Hop is a switch on a path.
type Hop struct {
	Switch string `json:"switch"`
	In     string `json:"in"` // ports
	Out    string `json:"out"`
}

// Probe holds the readings of one probe at each hop.
type Probe struct {
	Seq     uint64    `json:"seq"`
	Source  uint16    `json:"source_port"`
	Reports []Reading `json:"reports"`
}

// Reading is the telemetry that a switch wrote.
type Reading struct {
	Priority uint8 `json:"priority"`
	// Queue is the number of bytes that the packet left behind in its queue.
	Queue uint32 `json:"queue_bytes"`
	// Departure is the time at which its first bit left.
	Departure time.Duration `json:"departure_ns"`
	// Since is the time since it left the hop before. It is 0 at the first hop.
	Since time.Duration `json:"since_previous_ns"`
	// Use is the share of the last whole window in which the egress link was busy, in millionths.
	Use uint32 `json:"link_use_millionths"`
}

func newReport(p *plan.Plan, o *Options) *Report {
	return &Report{From: o.From, To: o.To, Sent: o.Count, Paths: []Path{}, plan: p, seen: map[uint64]bool{}}
}

// add adds a probe.
func (r *Report) add(one arrival) {
	if r.seen[one.Seq] {
		r.Doubled++
		return
	}
	r.seen[one.Seq] = true
	r.Arrived++
	if one.Full {
		r.Full++
	}
	probe := Probe{Seq: one.Seq, Source: one.Source, Reports: []Reading{}}
	hops := []Hop{}
	for i := range one.Hops {
		from := &one.Hops[i]
		hops = append(hops, r.name(from))
		reading := Reading{
			Priority:  from.Queue,
			Queue:     from.QueueBytes,
			Departure: time.Duration(from.EgressTime),
			Use:       from.Utilisation,
		}
		if i > 0 {
			reading.Since = reading.Departure - probe.Reports[i-1].Departure
		}
		probe.Reports = append(probe.Reports, reading)
	}
	at := slices.IndexFunc(r.Paths, func(p Path) bool { return slices.Equal(p.Hops, hops) })
	if at < 0 {
		at = len(r.Paths)
		r.Paths = append(r.Paths, Path{Hops: hops})
	}
	r.Paths[at].Probes = append(r.Paths[at].Probes, probe)
}

// name returns a hop with the names of the plan.
func (r *Report) name(h *wire.INTHop) Hop {
	for i := range r.plan.Switches {
		if sw := &r.plan.Switches[i]; sw.ID == h.Node && sw.ID != 0 {
			return Hop{Switch: sw.Name, In: portName(sw, h.Ingress), Out: portName(sw, h.Egress)}
		}
	}
	return Hop{Switch: fmt.Sprintf("switch %d", h.Node), In: fmt.Sprint(h.Ingress), Out: fmt.Sprint(h.Egress)}
}

func portName(sw *plan.Switch, number uint16) string {
	if int(number) < len(sw.Ports) {
		return sw.Ports[number].Name
	}
	return fmt.Sprint(number)
}

// finish sorts the report.
func (r *Report) finish() *Report {
	for i := range r.Paths {
		slices.SortFunc(r.Paths[i].Probes, func(a, b Probe) int { return int(int64(a.Seq) - int64(b.Seq)) })
	}
	slices.SortStableFunc(r.Paths, func(a, b Path) int { return len(b.Probes) - len(a.Probes) })
	return r
}

// Summary holds the medians and the maxima of the probes of a path at a hop.
type Summary struct {
	Queue, WorstQueue uint32
	Since, WorstSince time.Duration
	Use               uint32 // the maximum
	Priority          uint8
}

// Summary returns the medians and maxima over the probes at a hop, counted from 0. Priority is the last
// probe's. The path must have probes.
func (p *Path) Summary(hop int) Summary {
	var s Summary
	var queues []uint32
	var since []time.Duration
	for i := range p.Probes {
		reading := &p.Probes[i].Reports[hop]
		queues, since = append(queues, reading.Queue), append(since, reading.Since)
		s.Use, s.Priority = max(s.Use, reading.Use), reading.Priority
	}
	slices.Sort(queues)
	slices.Sort(since)
	s.Queue, s.WorstQueue = queues[len(queues)/2], queues[len(queues)-1]
	s.Since, s.WorstSince = since[len(since)/2], since[len(since)-1]
	return s
}
