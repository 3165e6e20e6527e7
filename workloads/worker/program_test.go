package worker

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"railbed/capture/report"
	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/transports/rd/engine"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// kindsBut returns all kinds of collectives but some.
func kindsBut(some ...string) (kinds []string) {
	for _, kind := range schedule.Kinds() {
		if !slices.Contains(some, string(kind)) {
			kinds = append(kinds, string(kind))
		}
	}
	return kinds
}

// scheduledKinds are those that run as programs.
var scheduledKinds = kindsBut(spec.AllToAll, spec.Barrier)

// TestScheduledJobs holds that every element comes right by every algorithm, in place and
// out of place, over tcp and rd in turn, and payload against the formulas.
func TestScheduledJobs(t *testing.T) {
	counts := []int{1, 3, 4, 5}
	if testing.Short() {
		counts = counts[1:3]
	}
	row := 0
	for _, kind := range scheduledKinds {
		for a, algorithm := range spec.Algorithms(kind) {
			if algorithm == schedule.MSCCL || algorithm == schedule.InNetwork {
				continue // TestJobsOfFiles; a switch is in scenarios
			}
			for i, ranks := range counts {
				for k, size := range []units.Bytes{8, 1<<16 + 8, units.Bytes(ranks) << 14} {
					if row++; !hosttest.Sampled(t, row) {
						continue
					}
					if algorithm == schedule.HyperCube {
						ranks = 4
					}
					j := job(ranks, size)
					j.Kind, j.Algorithm, j.Transport = kind, algorithm, []string{TCP, RD}[(a+i+k)%2]
					j.Family, j.InPlace = []int{4, 6}[i%2], k > 0
					j.Type, j.Op = element.Types()[(row+k)%12], element.Ops()[(row+a+i)%5]
					for r := range j.Ranks {
						if algorithm == schedule.Hierarchical && ranks%2 == 0 {
							j.Ranks[r].Node = fmt.Sprint("n", r/2)
						}
					}
					if schedule.Kind(kind).Rooted() {
						j.Root = k % ranks
					}
					t.Run(fmt.Sprintf("%s/%s/ranks=%d/size=%v/%s/%s/%s", kind, algorithm, ranks, size, j.Type,
						j.Op, j.Transport), func(t *testing.T) {
						checkScheduled(t, j)
					})
				}
			}
		}
	}
}

func checkScheduled(t *testing.T, j Job) {
	t.Helper()
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, operations := uint64(len(j.Ranks)), uint64(j.Warmup+j.Iterations)
	if j.InPlace {
		operations *= 2
	}
	if result.Wrong() != 0 || uint64(len(result.Operations)) != operations {
		t.Errorf("%d wrong elements in %d operations, want none in %d", result.Wrong(),
			len(result.Operations), operations)
	}
	for i, r := range result.PerRank {
		share := schedule.Sent(schedule.Kind(j.Kind),
			plan.AlgorithmFor(j.Kind, j.Algorithm, j.Ranks, 0, j.Size),
			int(n), i, j.Root)
		// Chunks of slices differ by an element.
		if want := operations * share.Of(uint64(j.Size)); j.Size > 8 &&
			math.Abs(float64(r.Payload.Sent)-float64(want)) > 0.001*float64(want) {
			t.Errorf("rank %d: payload %+v, want %d sent", i, r.Payload, want)
		}
		if j.Transport == RD && r.Stream.Sent != r.Payload.Sent {
			t.Errorf("rank %d: stream %+v of payload %+v", i, r.Stream, r.Payload)
		}
	}
	row, count, op, root := result.Row(), uint64(j.Size)/uint64(j.Type.Size()), string(j.Op), -1
	if schedule.Kind(j.Kind).Shares() {
		count /= n
	}
	if !schedule.Kind(j.Kind).Combines() {
		op = "none"
	}
	if schedule.Kind(j.Kind).Rooted() {
		root = j.Root
	}
	if row.Type != string(j.Type) || row.RedOp != op || row.Root != root || row.Size != uint64(j.Size) ||
		uint64(row.Count) != count || (row.InPlace != nil) != j.InPlace {
		t.Errorf("row %+v, want %d elements of %s, %s, root %d", row, count, j.Type, op, root)
	}
	factor := schedule.Kind(j.Kind).BusFactor(int(n))
	if got := row.OutOfPlace; got.BusBW != got.AlgBW*factor {
		t.Errorf("busbw %v of algbw %v, want %v of it", got.BusBW, got.AlgBW, factor)
	}
}

// TestWrongScheduledElementIsCounted damages an element on the rank that has a result.
func TestWrongScheduledElementIsCounted(t *testing.T) {
	for _, kind := range scheduledKinds {
		l := after(func(rank int, id rank.OperationID, result []byte) {
			if rank == 0 && id.Index == 1 {
				result[len(result)-3]++
			}
		})
		j := job(3, 4800)
		all := spec.Algorithms(kind)
		j.Kind, j.Algorithm = kind, all[max(len(all)-2, 0)] // the last is msccl
		result, err := Run(t.Context(), j, l, nil)
		if err != nil || result.Wrong() != 1 || result.Operations[1].Wrong != 1 ||
			result.PerRank[0].Wrong != 1 {
			t.Errorf("%s: %v, %+v", kind, err, result)
		}
	}
}

// TestWrongGatherIsCounted gives two ranks' shares to each other's places.
func TestWrongGatherIsCounted(t *testing.T) {
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 2 && id.Index == 0 {
			for i := range 1600 {
				result[i], result[1600+i] = result[1600+i], result[i]
			}
		}
	})
	j := job(3, 4800)
	j.Kind = spec.AllGather
	result, err := Run(t.Context(), j, l, nil)
	if err != nil || result.Wrong() < 700 || result.PerRank[2].Wrong != result.Wrong() {
		t.Errorf("%v, %+v", err, result)
	}
}

// TestBadScheduledJobs holds that what no algorithm has is refused before it runs.
func TestBadScheduledJobs(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"algorithm":        func(j *Job) { j.Kind, j.Algorithm = spec.AllGather, "tree" },
		"kind":             func(j *Job) { j.Kind = "gossip" },
		"barrier of bytes": func(j *Job) { j.Kind, j.Algorithm = spec.Barrier, "" },
		"droppable": func(j *Job) {
			j.Algorithm, j.Transport, j.RD = "tree", RD, &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
		},
		"root":       func(j *Job) { j.Kind, j.Root = string(schedule.Broadcast), 3 },
		"no sizes":   func(j *Job) { j.Sweep = &Sweep{} },
		"swept size": func(j *Job) { j.Sweep = &Sweep{Sizes: []units.Bytes{4, 6}} },
		"lossy sweep": func(j *Job) {
			*j = sweepOf(*j, 1, 4)
			j.Transport, j.RD = RD, &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
		},
		"offline": func(j *Job) {
			j.Algorithm, j.Transport, j.RD = "tree", RD, &spec.RD{Control: spec.ControlOffline}
		},
	} {
		j := job(3, 4800)
		change(&j)
		if result, err := Run(t.Context(), j, goroutines{}, nil); err == nil {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// TestRepeatsOfRanks holds how the causes of all ranks' retransmissions add up: a needless retransmission
// counts as caused by the order, and no longer by a loss.
func TestRepeatsOfRanks(t *testing.T) {
	r := Result{PerRank: []RankResult{
		{Stream: collective.Traffic{Sent: 1000},
			Repeats: &engine.Repeats{Bytes: 500, Late: 3, Needless: 4, Probed: 2}},
		{Stream: collective.Traffic{Sent: 2000}},
		{Stream: collective.Traffic{Sent: 3000},
			Repeats: &engine.Repeats{Bytes: 100, Trimmed: 5, Refused: 6, Late: 2}},
	}}
	want := report.Repeats{Payload: 6000, Bytes: 600, Order: 4, Loss: 1, Trimming: 5, Timer: 2, Refused: 6}
	if got := r.Repeats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.PerRank[0].Repeats.Needless = 6
	if got := r.Repeats(); got.Order != 6 || got.Loss != 0 || got.Timer != 1 {
		t.Errorf("with more needless ones: %+v", got)
	}
	clean := Result{PerRank: []RankResult{{Stream: collective.Traffic{Sent: 9}}}}
	if got := clean.Repeats(); got != (report.Repeats{}) {
		t.Errorf("without retransmissions: %+v", got)
	}
}
