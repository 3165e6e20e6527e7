package worker

import (
	"net/netip"
	"time"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/transports/rd/engine"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// Operation is a round: one collective operation over all ranks, or several in succession.
type Operation struct {
	Index int             `json:"index"`
	Mode  collective.Mode `json:"mode"`
	Size  units.Bytes     `json:"size"`
	Count int             `json:"count"` // number of timed operations
	Timed bool            `json:"timed,omitempty"`
	// Checked is true if every element of the result was checked.
	Checked bool `json:"checked,omitempty"`
	// Start is the wall clock time at which the first rank began. Time is the time of an operation
	// in ns: the longest of a rank, or as Sweep.Average says.
	Start time.Time     `json:"start"`
	Time  time.Duration `json:"time_ns"`
	Wrong uint64        `json:"wrong"` // over all ranks
	// Missing is the number of bytes of partial sums that never arrived, over all ranks. Short is
	// the number of elements of the result that lack a part because of this. Wrong counts such an
	// element too if the sum of its other parts is not exact.
	Missing uint64 `json:"missing,omitempty"`
	Short   uint64 `json:"short,omitempty"`
}

// RankResult is one rank's result, with counters to compare with the packets.
type RankResult struct {
	Rank int    `json:"rank"`
	Node string `json:"node"`
	NIC  string `json:"nic"`
	// SecondNIC is the other NIC of the rank's rail, or "" (plan.Rank).
	SecondNIC string     `json:"second_nic,omitempty"`
	Addr      netip.Addr `json:"addr"`
	Port      uint16     `json:"port"` // on which it listens; over roce the common port of all
	PID       int        `json:"pid"`  // of its process, in its node's PID namespace
	// Payload counts the bytes of elements over all operations. Warmup is the part of them that
	// untimed operations moved.
	Payload collective.Traffic `json:"payload"`
	Warmup  collective.Traffic `json:"warmup"`
	// Stream counts every byte that tcp wrote to or read from its sockets: payload, headers and
	// replies. For rd, roce and quic it counts only the payload, each byte once.
	Stream collective.Traffic `json:"stream"`
	Flows  []rank.Flow        `json:"flows"` // only for tcp
	// Engines is the number of rd engines, on ports from Port on.
	Engines int `json:"engines,omitempty"`
	// QueuePairs are the counters of the rank's queue pairs over roce.
	QueuePairs *rank.QueuePairs `json:"queue_pairs,omitempty"`
	// Pace is the lateness of the rank's packets over rd that a rate delayed.
	Pace *rank.Pace `json:"pace,omitempty"`
	// Repeats are the packets that the rank sent again over rd. Nil: none.
	Repeats *engine.Repeats `json:"repeats,omitempty"`
	// Life is the random number that identifies rd's endpoint.
	Life uint64 `json:"life,omitempty"`
	// Channels are the rank's channels, if the operation has several: where they are and what
	// passed through them.
	Channels []RankResult `json:"channels,omitempty"`
	// Timed is the duration of the timed operations at this rank, in ns. Waited is the part of it
	// in which the rank had nothing to do until another rank sent something.
	Timed  time.Duration `json:"timed_ns,omitempty"`
	Waited time.Duration `json:"waited_ns,omitempty"`
	// SlowestAnswer is the worker's longest time, in ns, to answer a question of the coordinator. 0
	// means that the coordinator did not ask.
	SlowestAnswer time.Duration `json:"slowest_answer_ns,omitempty"`
	// DeviceBound is true if the sockets were bound to the NIC itself, which not every process may
	// do, and not only to its address.
	DeviceBound bool   `json:"device_bound"`
	Wrong       uint64 `json:"wrong"`
}

// addChannels adds the results of the rank's channels.
func (r *RankResult) addChannels(job Job, all []rank.Finished) {
	inner := job.perChannel()
	for i, f := range all {
		c := inner.config(r.Rank*job.channels() + i)
		r.Channels = append(r.Channels, RankResult{
			Rank:       r.Rank,
			Node:       r.Node,
			NIC:        c.NIC,
			SecondNIC:  inner.Ranks[r.Rank*job.channels()+i].SecondNIC,
			Addr:       c.Addr,
			Port:       c.Port,
			Stream:     f.Stream,
			Flows:      f.Flows,
			Engines:    f.Engines,
			QueuePairs: f.QueuePairs,
			Life:       f.Life,
		})
	}
}

// Times are the times in ns over the timed operations of one mode. The time of an operation is its
// slowest rank's.
type Times struct {
	Min time.Duration `json:"min_ns"`
	Avg time.Duration `json:"avg_ns"`
	Max time.Duration `json:"max_ns"`
}

// Result is the result of a job.
type Result struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Algorithm string `json:"algorithm"` // for auto with the chosen algorithms
	Transport string `json:"transport"`
	Ranks     int    `json:"ranks"`
	// Rows are the results by size, from the average times. Their wrong elements include untimed
	// operations.
	Rows []perf.Row `json:"rows"`
	// OutOfPlace and InPlace are the times of the last size.
	OutOfPlace Times        `json:"out_of_place_times"`
	InPlace    *Times       `json:"in_place_times,omitempty"`
	Operations []Operation  `json:"operations"`
	PerRank    []RankResult `json:"per_rank"`
	// Last and Slowest are the ranks' times in the last and in the slowest timed operation. They are nil
	// without a timed operation, and if ranks have other clocks than the coordinator.
	Last    *Spans `json:"-"`
	Slowest *Spans `json:"-"`
	// Own are the results of the job's kind of workload, or nil.
	Own Results `json:"-"`
}

// Spans are the times of an operation at each rank.
type Spans struct {
	Operation
	Ranks []Span
}

// Span is a rank's time in an operation, or in several that were timed together. Waited is the part of it in
// which the rank had nothing to do until another rank sent something, and Waits are its times, if they are
// known. Steps are the steps of its algorithm, if one operation was timed. StepsLeftOut counts parts of the
// algorithm whose steps are left out.
type Span struct {
	Start        time.Time
	Took, Waited time.Duration
	Waits        []rank.Wait
	Steps        []rank.Steps
	StepsLeftOut int
}

// keepSpans keeps the ranks' times of the latest operation, and of the slowest.
func (r *Result) keepSpans(o *Operation, dones []rank.Done) {
	r.Last = &Spans{Operation: *o}
	for _, d := range dones {
		r.Last.Ranks = append(r.Last.Ranks, Span{time.Unix(0, d.Start), d.Time, d.Waited, d.Waits,
			d.Steps, d.StepsLeftOut})
	}
	if r.Slowest == nil || o.Time > r.Slowest.Time {
		r.Slowest = r.Last
	}
}

// Repeats returns what all ranks sent again over rd.
func (r *Result) Repeats() (all report.Repeats) {
	var sum engine.Repeats
	for i := range r.PerRank {
		all.Payload += r.PerRank[i].Stream.Sent
		if of := r.PerRank[i].Repeats; of != nil {
			sum.Add(of)
		}
	}
	if sum == (engine.Repeats{}) {
		return report.Repeats{}
	}
	// A needless retransmission was made because of later arrivals, or of a probe.
	early := min(sum.Needless, sum.Late)
	all.Bytes, all.Order, all.Loss = sum.Bytes, sum.Needless, sum.Late-early
	all.Timer = sum.Probed - min(sum.Needless-early, sum.Probed)
	all.Trimming, all.Refused = sum.Trimmed, sum.Refused
	return all
}

// RoCE returns what the queue pairs of all ranks did, or nil without queue pairs.
func (r *Result) RoCE() (all *report.RoCE) {
	for i := range r.PerRank {
		q := r.PerRank[i].QueuePairs
		if q == nil {
			continue
		}
		if all == nil {
			all = &report.RoCE{}
		}
		all.Packets, all.Again = all.Packets+q.Packets, all.Again+q.Resent
		all.NAKs, all.RNRNAKs = all.NAKs+q.Naks, all.RNRNAKs+q.RNRNaks
		all.Timeouts, all.CNPs = all.Timeouts+q.Timeouts, all.CNPs+q.CNPs
	}
	return all
}

// Row returns the row of the last size.
func (r *Result) Row() perf.Row { return r.Rows[len(r.Rows)-1] }

// Wrong returns the number of wrong elements over all operations of the job.
func (r *Result) Wrong() uint64 {
	var wrong uint64
	for _, o := range r.Operations {
		wrong += o.Wrong
	}
	return wrong
}

// Missing returns the number of bytes of partial sums that never arrived, over all operations of
// the job.
func (r *Result) Missing() uint64 {
	var missing uint64
	for _, o := range r.Operations {
		missing += o.Missing
	}
	return missing
}

// addRow computes the row of a size from its rounds, which are the latest of the job's rounds.
func (r *Result) addRow(job Job, rounds []rank.Round, size int) {
	bytes := job.sizes()[size]
	row := perf.Row{
		Size: uint64(bytes), Count: int(bytes) / job.Type.Size(),
		Type:      string(job.Type),
		RedOp:     string(job.Op),
		Root:      -1,
		Algorithm: plan.AlgorithmFor(job.Kind, job.Algorithm, job.Ranks, job.channels(), bytes),
	}
	if !job.Work.measure(&job, &row) {
		r.Rows = append(r.Rows, perf.Row{})
		return
	}
	if schedule.Kind(job.Kind).Rooted() {
		row.Root = job.Root
	}
	done := make([]Operation, 0, len(r.Operations))
	for i, o := range r.Operations {
		if rounds[i].Size == size {
			done = append(done, o)
		}
	}
	r.OutOfPlace, row.OutOfPlace = summary(job, bytes, done, collective.OutOfPlace)
	if job.InPlace {
		times, measure := summary(job, bytes, done, collective.InPlace)
		r.InPlace, row.InPlace = &times, &measure
	}
	r.Rows = append(r.Rows, row)
}

// summary returns the times and the measure of the rounds of a size and a mode.
func summary(job Job, size units.Bytes, done []Operation, mode collective.Mode) (Times, perf.Measure) {
	var times Times
	var wrong uint64
	var total time.Duration
	count, checked := 0, false
	for _, o := range done {
		if o.Mode != mode {
			continue
		}
		wrong += o.Wrong
		checked = checked || o.Checked
		if !o.Timed {
			continue
		}
		if count++; count == 1 || o.Time < times.Min {
			times.Min = o.Time
		}
		times.Max = max(times.Max, o.Time)
		total += o.Time
	}
	if count > 0 {
		times.Avg = total / time.Duration(count)
	}
	measure := perf.MeasureOf(schedule.Kind(job.Kind), uint64(size), len(job.Ranks), times.Avg, wrong)
	measure.Unchecked = !checked
	return times, measure
}
