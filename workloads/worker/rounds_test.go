package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/rank"
)

// sweepOf makes a job measure sizes as nccl-tests does.
func sweepOf(j Job, checks int, sizes ...units.Bytes) Job {
	j.Sweep = &Sweep{Sizes: sizes, Checks: checks, Average: MeanRank}
	j.InPlace = j.Kind != spec.AllToAll
	return j
}

// TestSweeps checks that each size has its row and that all its results are checked. The bytes that
// ranks sent must match the formula over all operations, including warm-up and checked operations.
// The sizes rise and fall, and some have less than an element for each rank.
func TestSweeps(t *testing.T) {
	sizes := []units.Bytes{8, 0, 1 << 20, 4, 3 << 12, 64 << 10, 4}
	var total uint64
	for _, size := range sizes {
		total += uint64(size)
	}
	for _, c := range []struct {
		kind, algorithm, transport string
		ranks                      int
	}{
		{spec.AllReduce, "ring", TCP, 3}, {spec.AllReduce, "tree", TCP, 5},
		{spec.AllReduce, "halving-doubling", RD, 4}, {spec.AllGather, "ring", TCP, 4},
		{"reduce-scatter", "ring", RD, 3}, {"broadcast", "binomial", TCP, 5}, {"reduce", "ring", TCP, 3},
		{spec.AllToAll, schedule.Direct, TCP, 4}, {spec.AllToAll, schedule.Pairwise, RD, 3},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.kind, c.algorithm, c.transport), func(t *testing.T) {
			j := job(c.ranks, 0)
			j.Kind, j.Algorithm, j.Transport, j.Warmup, j.Iterations = c.kind, c.algorithm, c.transport, 2, 3
			if schedule.Kind(c.kind).Rooted() {
				j.Root = 2
			}
			j = sweepOf(j, 2, sizes...)
			j.Sweep.BusyPoll = c.ranks > 3
			var rows int
			result, err := Run(t.Context(), j, goroutines{}, func(p Progress) {
				if p.Row != nil && p.Row.Size != uint64(sizes[rows]) {
					t.Errorf("row %d is of %d bytes, want %d", rows, p.Row.Size, sizes[rows])
				}
				if p.Row != nil {
					rows++
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if rows != len(sizes) || len(result.Rows) != len(sizes) || result.Wrong() != 0 {
				t.Errorf("%d rows, %d at the end, %d wrong elements; want %d and none", rows,
					len(result.Rows), result.Wrong(), len(sizes))
			}
			operations := uint64(2 + 3 + 2) // in a mode
			if j.InPlace {
				operations *= 2
			}
			for i, r := range result.PerRank {
				if r.PID == 0 {
					t.Errorf("rank %d has no process", i)
				}
				if c.kind == spec.AllToAll {
					continue // its own formula has a test
				}
				// Chunks and slices differ by an element.
				want := float64(schedule.Sent(schedule.Kind(c.kind), c.algorithm, c.ranks, i,
					j.Root).Of(total * operations))
				if got := float64(r.Payload.Sent); got < 0.999*want-200 || got > 1.001*want+200 {
					t.Errorf("rank %d sent %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestSweepLooksAtEveryResult damages an element in a checked operation, of the second size
// in place, and one where nothing is checked.
func TestSweepLooksAtEveryResult(t *testing.T) {
	spoilt := sweepOf(job(3, 0), 1, 4096, 64)
	spoilt.Iterations = 2
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 1 && (id.Index == 6 || id.Index == 7) { // timed and checked in place
			result[5]++
		}
	})
	result, err := Run(t.Context(), spoilt, l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := result.Rows[0],
		result.Rows[1]; first.InPlace.Wrong != 0 || second.OutOfPlace.Wrong != 0 ||
		second.InPlace.Wrong != 1 || second.InPlace.Unchecked {
		t.Errorf("one element is wrong in place of the second size: %+v", result.Rows)
	}
	unchecked := spoilt
	unchecked.Sweep = &Sweep{Sizes: spoilt.Sweep.Sizes}
	if result, err = Run(t.Context(), unchecked, goroutines{}, nil); err != nil {
		t.Fatal(err)
	}
	if row := result.Row(); !row.OutOfPlace.Unchecked || !row.InPlace.Unchecked {
		t.Errorf("nothing was looked at: %+v", row)
	}
}

// TestAverages: whose time an operation takes.
func TestAverages(t *testing.T) {
	times := []time.Duration{4, 1, 7, 8}
	for a, want := range map[Average]time.Duration{Slowest: 8, MeanRank: 5, Fastest: 1, FirstRank: 4} {
		if got := a.of(times); got != want {
			t.Errorf("average %d of %v is %v, want %v", a, times, got, want)
		}
	}
}

// TestRanges: sizes are those that all_reduce_perf and all_gather_perf print.
func TestRanges(t *testing.T) {
	for _, c := range []struct {
		r     Range
		kind  string
		ranks int
		want  []units.Bytes
	}{
		{Range{From: 8, To: 64, Factor: 2}, spec.AllReduce, 3, []units.Bytes{8, 16, 32, 64}},
		{Range{From: 8, To: 40, Factor: 1, Step: 15}, spec.AllReduce, 3, []units.Bytes{8, 20, 36}},
		{Range{From: 100, To: 100}, spec.AllGather, 3, []units.Bytes{96}},
		{Range{From: 8, To: 512, Factor: 8}, spec.AllToAll, 4, []units.Bytes{0, 64, 512}},
		{Range{From: 1 << 63, To: 1 << 63, Factor: 2}, "reduce-scatter", 2, []units.Bytes{1 << 63}},
	} {
		if got, err := c.r.Sizes(c.kind, c.ranks, element.Float32); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v of %s: %v, %v; want %v", c.r, c.kind, got, err, c.want)
		}
	}
	for _, r := range []Range{{From: 8, To: 4}, {To: 4, Factor: 2}, {From: 4, To: 8},
		{From: 4, To: 1 << 40, Step: 4}} {
		if got, err := r.Sizes(spec.AllReduce, 2, element.Float32); err == nil {
			t.Errorf("%+v: %d sizes", r, len(got))
		}
	}
}
