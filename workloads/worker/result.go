package worker

import (
	"net/netip"
	"time"

	"railbed/internal/units"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/workloads/collective"
	"railbed/workloads/flows"
	"railbed/workloads/training"
)

// Operation is a round: one collective operation over all ranks, or several after each
// other.
type Operation struct {
	Index int             `json:"index"`
	Mode  collective.Mode `json:"mode"`
	Size  units.Bytes     `json:"size"`
	Count int             `json:"count"` // operations; of those that are not timed before them, none
	Timed bool            `json:"timed,omitempty"`
	// Checked says that every element of the result was looked at.
	Checked bool `json:"checked,omitempty"`
	// Start is when the first rank began, by the wall clock; Time is what an
	// operation took, in ns: the longest of a rank, or as Sweep.Average says.
	Start time.Time     `json:"start"`
	Time  time.Duration `json:"time_ns"`
	Wrong uint64        `json:"wrong"` // over all ranks
	// Missing is the bytes of partial sums that never came, over all ranks, and
	// Short the elements of the result that lack a part for that. What they are
	// without it is exact, or Wrong counts it.
	Missing uint64 `json:"missing,omitempty"`
	Short   uint64 `json:"short,omitempty"`
	// Ranks are how each rank of a training job spent it, and Spans, of the latest
	// operation alone, when its tasks were under way.
	Ranks []training.Times  `json:"ranks,omitempty"`
	Spans [][]training.Span `json:"spans,omitempty"`
	// ExposedBy is of each rank's exposed time what was of which kind of group.
	ExposedBy []map[string]time.Duration `json:"exposed_by,omitempty"`
	// OtherClocks says that ranks of a training job have clocks that are not the
	// coordinator's, so that Time, Ranks and Spans say nothing.
	OtherClocks bool `json:"other_clocks,omitempty"`
}

// Flow is one connection of a rank. Payload flows from the connecting to the
// listening side; the other way go replies of 24 bytes.
type Flow struct {
	PeerRank   int            `json:"peer_rank"`
	Connecting bool           `json:"connecting"`
	Local      netip.AddrPort `json:"local"`
	Remote     netip.AddrPort `json:"remote"`
}

// Pace is how late packets went that a rate held back: behind the moment at which
// its schedule let them go. None goes before. P50 and P99 are rounded up to powers of
// two of microseconds.
type Pace struct {
	Packets uint64        `json:"packets"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	Most    time.Duration `json:"most_ns"`
}

// QueuePairs is what a rank's queue pairs say of themselves over roce.
type QueuePairs struct {
	// First is the first number that they can have, of Count.
	First    uint32 `json:"first"`
	Count    int    `json:"count"`
	PathMTU  int    `json:"path_mtu"` // payload bytes of a packet
	Packets  uint64 `json:"packets"`  // requests and responses that went
	Resent   uint64 `json:"resent"`   // requests, again
	Naks     uint64 `json:"naks"`     // that it sent, of sequence errors and others
	RNRNaks  uint64 `json:"rnr_naks"`
	Timeouts uint64 `json:"timeouts"`
	CNPs     uint64 `json:"cnps"`   // that it sent
	Slowed   uint64 `json:"slowed"` // CNPs that it got
	BadICRC  uint64 `json:"bad_icrc"`
	// packets that came and that it had no room for: the host let it read too late
	Overruns uint64 `json:"overruns"`
}

// RankResult is one rank's own account, to be compared with the packets.
type RankResult struct {
	Rank int        `json:"rank"`
	Node string     `json:"node"`
	NIC  string     `json:"nic"`
	Addr netip.Addr `json:"addr"`
	Port uint16     `json:"port"` // where it listens; over roce the port of all
	PID  int        `json:"pid"`  // of its process, as its node numbers them
	// Payload counts the bytes of elements over all operations, and Warmup
	// the part of it that those moved that are not timed.
	Payload collective.Traffic `json:"payload"`
	Warmup  collective.Traffic `json:"warmup"`
	// Stream counts every byte that tcp gave to or took from its sockets,
	// payload, headers and replies; of rd and roce the payload alone, each byte once.
	Stream collective.Traffic `json:"stream"`
	Flows  []Flow             `json:"flows"` // of tcp
	// Engines is how many rd has, on ports from Port on.
	Engines int `json:"engines,omitempty"`
	// QueuePairs is what they did over roce.
	QueuePairs *QueuePairs `json:"queue_pairs,omitempty"`
	// Pace is how far the rank's packets were behind their schedule over rd, where
	// a rate held them back.
	Pace *Pace `json:"pace,omitempty"`
	// Life is that of rd's endpoint.
	Life uint64 `json:"life,omitempty"`
	// Channels are the rank's in an operation that has several: where they are, and what
	// passed there.
	Channels []RankResult `json:"channels,omitempty"`
	// Timed is how long the timed operations took at this rank, in ns, and Waited the
	// part of it in which there was nothing to do until another rank sent something.
	Timed  time.Duration `json:"timed_ns,omitempty"`
	Waited time.Duration `json:"waited_ns,omitempty"`
	// SlowestAnswer is the longest that the worker took to say that it lives, in ns; 0
	// where nobody asked.
	SlowestAnswer time.Duration `json:"slowest_answer_ns,omitempty"`
	// DeviceBound says that the sockets were bound to the NIC itself and not
	// to its address alone, which not every process may.
	DeviceBound bool   `json:"device_bound"`
	Wrong       uint64 `json:"wrong"`
	// Groups are the bytes that a training job sent in each of its groups.
	Groups map[string]uint64 `json:"groups,omitempty"`
}

// addChannels adds what the rank's channels did.
func (r *RankResult) addChannels(job Job, all []workerFinished) {
	inner := job.perChannel()
	for i, f := range all {
		c := inner.config(r.Rank*job.channels() + i)
		r.Channels = append(r.Channels, RankResult{
			Rank:       r.Rank,
			Node:       r.Node,
			NIC:        c.NIC,
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

// Times are over the timed operations of one mode, each as slow as its
// slowest rank, in ns.
type Times struct {
	Min time.Duration `json:"min_ns"`
	Avg time.Duration `json:"avg_ns"`
	Max time.Duration `json:"max_ns"`
}

// Result is what a job gave.
type Result struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Algorithm string `json:"algorithm"` // of auto with what it chose
	Transport string `json:"transport"`
	Ranks     int    `json:"ranks"`
	// Rows are by size, from the average times; wrong counts what is not timed too.
	Rows []perf.Row `json:"rows"`
	// OutOfPlace and InPlace are of the last size.
	OutOfPlace Times        `json:"out_of_place_times"`
	InPlace    *Times       `json:"in_place_times,omitempty"`
	Operations []Operation  `json:"operations"`
	PerRank    []RankResult `json:"per_rank"`
	// Sent are the messages of a job of these, by whom it was sent, in the testbed's time.
	Sent [][]flows.Sent `json:"sent,omitempty"`
	// Learning is of a job with Job.SGD.
	Learning *Learning `json:"learning,omitempty"`
	Mixture  *Mixture  `json:"mixture,omitempty"` // of a job with Job.MoE
}

// Row is that of the last size.
func (r *Result) Row() perf.Row { return r.Rows[len(r.Rows)-1] }

// Wrong is the number of wrong elements over everything that the job did.
func (r *Result) Wrong() uint64 {
	var wrong uint64
	for _, o := range r.Operations {
		wrong += o.Wrong
	}
	return wrong
}

// Missing is the number of bytes of partial sums that never came, over everything
// that the job did.
func (r *Result) Missing() uint64 {
	var missing uint64
	for _, o := range r.Operations {
		missing += o.Missing
	}
	return missing
}

// addRow computes the row of a size, whose rounds come last, from these.
func (r *Result) addRow(job Job, size int) {
	if job.Kind == Training || job.Kind == Messages {
		r.Rows = append(r.Rows, perf.Row{}) // it has no bandwidth
		return
	}
	bytes := job.sizes()[size]
	row := perf.Row{
		Size: uint64(bytes), Count: int(bytes) / job.Type.Size(),
		Type:      string(job.Type),
		RedOp:     string(job.Op),
		Root:      -1,
		Algorithm: AlgorithmFor(job.Kind, job.Algorithm, job.Ranks, job.channels(), bytes),
	}
	switch kind := schedule.Kind(job.Kind); { // as nccl-tests has it
	case job.Kind == MoE:
		row.Count = job.MoE.Tokens * job.MoE.Hidden
	case kind.Shares():
		row.Count /= len(job.Ranks)
	}
	if schedule.Kind(job.Kind).Rooted() {
		row.Root = job.Root
	}
	rounds := job.config(0).rounds()
	done := make([]Operation, 0, len(r.Operations))
	for i, o := range r.Operations {
		if rounds[i].size == size {
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

// summary is what the rounds of a size and a mode gave.
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
