package report

import (
	"math"
	"slices"
	"strings"
	"time"

	"railbed/internal/plural"
)

// Training is a training job's result. Its shares are shares of the time of the measured
// iterations. Times are in seconds.
type Training struct {
	Name      string `json:"name"`      // the step's name
	Transport string `json:"transport"` // tcp, rd, roce or quic
	Ranks     int    `json:"ranks"`     // number of ranks
	Warmup    int    `json:"warmup"`    // iterations before the measured ones
	// Iterations are the durations of the measured iterations, from the first rank's begin to the
	// last rank's end.
	Iterations []float64 `json:"iterations"`
	// Ideal is the time of an iteration if communication took no time.
	Ideal float64 `json:"ideal"`
	// OtherClocks is set if some ranks' clocks are not this host's clock, so that times are
	// unknown.
	OtherClocks bool `json:"other_clocks,omitempty"`
	// Wrong counts the elements of exchange results with a wrong value, over all ranks and
	// iterations.
	Wrong   uint64         `json:"wrong"`
	PerRank []TrainingRank `json:"per_rank"`
	Conduct
	LeftOut
	// Bars are the tasks of the last iteration, by rank. For large jobs they cover only the first
	// ranks. Began is when the iteration began.
	Bars  [][]TrainingBar `json:"bars,omitempty"`
	Began time.Time       `json:"began,omitzero"`
}

// Activity returns the last iteration, with the steps of the exchanges of each rank.
func (t *Training) Activity() Activity {
	a := Activity{Step: t.Name, What: plural.Text("the last of %d iterations", len(t.Iterations)),
		Source: RanksSource, Began: t.Began}
	for i, bars := range t.Bars[:min(len(t.Bars), len(t.PerRank))] {
		lane := Lane{Rank: &t.PerRank[i].Rank, Node: t.PerRank[i].Node}
		whole := Span{Of: OperationSpan, Start: math.Inf(1)}
		for _, b := range bars {
			whole.Start, whole.End = min(whole.Start, b.Start), max(whole.End, b.End)
			for _, s := range b.Steps {
				s.Of = strings.TrimSuffix(b.Name+", "+s.Of, ", ")
				lane.Steps = append(lane.Steps, s)
			}
		}
		if len(bars) > 0 {
			lane.Spans, a.Took = []Span{whole}, max(a.Took, whole.End)
			a.Lanes = append(a.Lanes, lane)
		}
	}
	return a
}

// TrainingRank divides the time of a rank.
type TrainingRank struct {
	Rank int    `json:"rank"` // in the job
	Node string `json:"node"` // its node
	NIC  string `json:"nic"`  // its NIC
	// Compute is the share of time in which the rank's device computed, its utilisation. Exposed is
	// the share in which the device did not compute while bytes were in transit. Idle is the rest.
	Compute float64         `json:"compute"`
	Exposed float64         `json:"exposed"`
	Idle    float64         `json:"idle"`
	Groups  []TrainingGroup `json:"groups"`
}

// TrainingGroup is the payload that a rank sent in one kind of group, such as dp, over all
// iterations, warm-ups included. Expected is by the rank's program, and Sent by the rank's own
// count. Exposed is the group's part of the rank's Exposed, which is divided among the groups that
// were active at the same time.
type TrainingGroup struct {
	Group    string  `json:"group"`    // kind of parallelism
	Expected uint64  `json:"expected"` // bytes by the formula
	Sent     uint64  `json:"sent"`     // bytes that were sent
	Exposed  float64 `json:"exposed"`  // time of communication that no computation hid
}

// TrainingBar is a task: a computation or an exchange of a group.
type TrainingBar struct {
	Name  string  `json:"name"`  // the computation or exchange
	Group string  `json:"group"` // compute, delay, or the group's name
	Start float64 `json:"start"` // seconds from the iteration's begin
	End   float64 `json:"end"`   // from the start of the iteration
	// Begun is the time at which all ranks of an exchange had begun it. Until then the rank waited
	// for others.
	Begun float64 `json:"begun,omitempty"`
	// Steps are the steps of an exchange's algorithm. Their times count as Start does. Jobs with more than
	// 1,024 exchanges per rank have none.
	Steps []RankSteps `json:"steps,omitempty"`
}

// Median returns the median duration of the iterations, or 0 without iterations.
func (t *Training) Median() float64 {
	sorted := slices.Sorted(slices.Values(t.Iterations))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Mean returns the mean shares over all ranks.
func (t *Training) Mean() (mean TrainingRank) {
	for _, r := range t.PerRank {
		n := float64(len(t.PerRank))
		mean.Compute += r.Compute / n
		mean.Exposed += r.Exposed / n
		mean.Idle += r.Idle / n
	}
	return mean
}
