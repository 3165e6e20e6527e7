package worker

import (
	"io"
	"net/netip"
	"time"

	"railbed/workloads/collective"
	"railbed/workloads/collective/schedule"
)

// Operation is one collective operation over all ranks.
type Operation struct {
	Index  int             `json:"index"`
	Mode   collective.Mode `json:"mode"`
	Warmup bool            `json:"warmup,omitempty"`
	// Start is when the first rank began, by the wall clock; Time is the
	// longest time that a rank took, in ns.
	Start time.Time     `json:"start"`
	Time  time.Duration `json:"time_ns"`
	Wrong uint64        `json:"wrong"` // over all ranks
	// Missing is the bytes of partial sums that never came, over all ranks, and
	// Short the elements of the result that lack a part for that. What they are
	// without it is exact, or Wrong counts it.
	Missing uint64 `json:"missing,omitempty"`
	Short   uint64 `json:"short,omitempty"`
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
}

// RankResult is one rank's own account, to be compared with the packets.
type RankResult struct {
	Rank int        `json:"rank"`
	Node string     `json:"node"`
	NIC  string     `json:"nic"`
	Addr netip.Addr `json:"addr"`
	Port uint16     `json:"port"` // where it listens; over roce the port of all
	// Payload counts the bytes of elements over all operations, and Warmup
	// the part of it that the warm-up moved.
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
	// DeviceBound says that the sockets were bound to the NIC itself and not
	// to its address alone, which not every process may.
	DeviceBound bool   `json:"device_bound"`
	Wrong       uint64 `json:"wrong"`
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
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`
	Algorithm  string         `json:"algorithm"`
	Transport  string         `json:"transport"`
	Ranks      int            `json:"ranks"`
	Row        collective.Row `json:"row"` // from the average times; wrong counts the warm-up too
	OutOfPlace Times          `json:"out_of_place_times"`
	InPlace    *Times         `json:"in_place_times,omitempty"`
	Operations []Operation    `json:"operations"`
	PerRank    []RankResult   `json:"per_rank"`
}

// WriteTable prints the result in the columns of nccl-tests.
func (r *Result) WriteTable(w io.Writer) error {
	return collective.WriteTable(w, []collective.Row{r.Row})
}

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

// summarise computes the row from the operations.
func (r *Result) summarise(job Job) {
	r.Row = collective.Row{
		Size: uint64(job.Size), Count: int(job.Size) / collective.ElementSize,
		Type: "float", RedOp: "sum", Root: -1,
	}
	switch job.Kind { // as nccl-tests has it
	case AllToAll, AllGather:
		r.Row.RedOp = "none"
		r.Row.Count /= len(job.Ranks)
	case ReduceScatter:
		r.Row.Count /= len(job.Ranks)
	case Broadcast:
		r.Row.RedOp, r.Row.Root = "none", Root
	case Reduce:
		r.Row.Root = Root
	}
	times, measure := r.mode(job, collective.OutOfPlace)
	r.OutOfPlace, r.Row.OutOfPlace = times, measure
	if job.InPlace {
		times, measure := r.mode(job, collective.InPlace)
		r.InPlace, r.Row.InPlace = &times, &measure
	}
}

func (r *Result) mode(job Job, mode collective.Mode) (Times, collective.Measure) {
	var times Times
	var wrong uint64
	var total time.Duration
	count := 0
	for _, o := range r.Operations {
		if o.Mode != mode {
			continue
		}
		wrong += o.Wrong
		if o.Warmup {
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
	return times, collective.MeasureOf(schedule.Kind(job.Kind), uint64(job.Size), len(job.Ranks), times.Avg, wrong)
}
