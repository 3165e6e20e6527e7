package worker

import (
	"fmt"
	"reflect"
	"testing"

	"railbed/internal/units"
	"railbed/plan/allocation"
	"railbed/plan/perf"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// allToAllJob is a job that is an all-to-all.
func allToAllJob(ranks int, size units.Bytes, algorithm, transport string) Job {
	j := job(ranks, size)
	j.Kind, j.Algorithm, j.Transport = spec.AllToAll, algorithm, transport
	return j
}

// TestAllToAllJobs holds that every element comes right over every transport, and payload
// against the formula: (n-1)/n of the size from each rank, of each operation.
func TestAllToAllJobs(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		for _, size := range []units.Bytes{0, 4, 1<<16 + 4, units.Bytes(ranks) << 14} {
			for i, transport := range []string{TCP, RD} {
				j := allToAllJob(ranks, size, []string{schedule.Direct, schedule.Pairwise}[(i+ranks)%2],
					transport)
				j.Family = []int{4, 6}[(i+int(size/4))%2]
				t.Run(fmt.Sprintf("ranks=%d/size=%v/%s/%s", ranks, size, transport, j.Algorithm),
					func(t *testing.T) {
						checkAllToAll(t, j)
					})
			}
		}
	}
}

func checkAllToAll(t *testing.T, j Job) {
	t.Helper()
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, operations := uint64(len(j.Ranks)), uint64(j.Warmup+j.Iterations)
	if result.Wrong() != 0 || uint64(len(result.Operations)) != operations {
		t.Errorf("%d wrong elements in %d operations", result.Wrong(), len(result.Operations))
	}
	var sent, received uint64
	for i, r := range result.PerRank {
		sent, received = sent+r.Payload.Sent, received+r.Payload.Received
		if want := operations * (n - 1) * uint64(j.Size) / n; uint64(j.Size)/4%n == 0 && j.Skew == 0 &&
			(r.Payload.Sent != want || r.Payload.Received != want) {
			t.Errorf("rank %d: payload %+v, want %d each way", i, r.Payload, want)
		}
		if j.Transport == RD && r.Stream.Sent != r.Payload.Sent {
			t.Errorf("rank %d: stream %+v of payload %+v", i, r.Stream, r.Payload)
		}
	}
	if want := operations * (n - 1) * uint64(j.Size); j.Skew == 0 && (sent != want || received != want) {
		t.Errorf("%d bytes sent and %d received, want %d", sent, received, want)
	}
	row := result.Row()
	if row.RedOp != "none" || row.Root != -1 || row.Size != uint64(j.Size) ||
		uint64(row.Count) != uint64(j.Size)/4/n || row.InPlace != nil {
		t.Errorf("row %+v", row)
	}
	if want := perf.MeasureOf(schedule.AllToAll, uint64(j.Size), int(n), result.OutOfPlace.Avg,
		0); row.OutOfPlace != want {
		t.Errorf("measure %+v, want %+v", row.OutOfPlace, want)
	}
}

// TestSkewedAllToAll holds that each rank sends what the matrix says.
func TestSkewedAllToAll(t *testing.T) {
	j := allToAllJob(4, 100_000, schedule.Direct, TCP)
	j.Skew, j.Seed = 2, 3
	checkAllToAll(t, j)
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := collective.Skewed(4, 25_000, 2, 3)
	for rank, r := range result.PerRank {
		if want := uint64(3 * 4 * m.Sends(rank)); r.Payload.Sent != want {
			t.Errorf("rank %d sent %d bytes, want %d", rank, r.Payload.Sent, want)
		}
	}
}

// TestWrongBlockIsCounted damages two elements on one rank.
func TestWrongBlockIsCounted(t *testing.T) {
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 1 && id.Index == 2 {
			for i := range 4 {
				result[20+i], result[2800+i] = result[2800+i], result[20+i]
			}
		}
	})
	result, err := Run(t.Context(), allToAllJob(3, 4096, schedule.Pairwise, RD), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.Wrong() != 2 || result.Row().OutOfPlace.Wrong != 2 || result.PerRank[1].Wrong != 2 ||
		result.Operations[2].Wrong != 2 {
		t.Errorf("two elements changed places: %+v", result.Row())
	}
}

// TestControlledAllToAll holds that all-to-alls are right under every control, and that
// rates take the time that they must.
func TestControlledAllToAll(t *testing.T) {
	const rate = 40_000_000
	for _, control := range []string{"line", "nscc", "learned", spec.ControlOffline, spec.ControlArbiter} {
		for _, algorithm := range []string{schedule.Direct, schedule.Pairwise} {
			j := controlledJob(control, rate)
			j.Kind, j.Algorithm = spec.AllToAll, algorithm
			if control == spec.ControlOffline {
				j.Rates = planned(t, algorithm, rate)
			}
			result, err := Run(t.Context(), j, goroutines{}, nil)
			if err != nil || result.Wrong() != 0 {
				t.Errorf("%s, %s: %v, %+v", control, algorithm, err, result)
				continue
			}
			least := result.PerRank[0].Payload.Sent * 8 / 3 // bits of one of three operations, by 3 pairs
			if algorithm == schedule.Direct {
				least /= 3 // at once
				// rd may catch up by some packets after a pause, because no rank waits for
				// permission.
				least = least * 3 / 4
			}
			if control == spec.ControlOffline && result.OutOfPlace.Min.Seconds() < float64(least)/rate {
				t.Errorf("%s: %v for %d bits at its rates", algorithm, result.OutOfPlace.Min, least)
			}
		}
	}
}

// planned is a plan for four ranks: the phases that Matchings finds, or one.
func planned(t *testing.T, algorithm string, rate units.Rate) *allocation.File {
	t.Helper()
	const ranks = 4
	pairs, err := allocation.Pairs(allocation.AllToAll, ranks)
	if err != nil {
		t.Fatal(err)
	}
	self := func(rank int) int { return rank }
	phases := [][]allocation.Pair{pairs}
	if algorithm == schedule.Pairwise {
		phases = allocation.Matchings(pairs, self, self)
	}
	file := &allocation.File{Format: allocation.Format, Ranks: ranks}
	for _, phase := range phases {
		var p allocation.Phase
		for _, pair := range phase {
			p.Rates = append(p.Rates, allocation.Entry{From: pair.From, To: pair.To, Rate: rate})
		}
		file.Phases = append(file.Phases, p)
	}
	return file
}

// TestPlannedPhases holds that ranks pass through the phases of the plan, that what the
// plan leaves out comes last, and that without a plan phases are the algorithm's.
func TestPlannedPhases(t *testing.T) {
	entry := func(from, to int) allocation.Entry {
		return allocation.Entry{From: from, To: to, Rate: 1_000_000_000}
	}
	j := allToAllJob(3, 4096, schedule.Pairwise, RD)
	j.RD = &spec.RD{Control: spec.ControlOffline}
	j.Rates = &allocation.File{Ranks: 3, Phases: []allocation.Phase{
		{Rates: []allocation.Entry{entry(0, 2)}}, {Rates: []allocation.Entry{entry(1, 0), entry(0, 1)}},
		{Rates: []allocation.Entry{entry(0, 2)}},
	}}
	want := [][]collective.Phase{
		{{To: []int{2}}, {To: []int{1}, From: []int{1}}, {}, {From: []int{2}}},
		{{}, {To: []int{0}, From: []int{0}}, {}, {To: []int{2}, From: []int{2}}},
		{{From: []int{0}}, {}, {}, {To: []int{0, 1}, From: []int{1}}},
	}
	for i := range want {
		if got := j.phases(i); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("rank %d: %+v, want %+v", i, got, want[i])
		}
	}
	if result, err := Run(t.Context(), j, goroutines{}, nil); err != nil || result.Wrong() > 0 {
		t.Errorf("%v: %+v", err, result)
	}
	j.RD.Control = "line"
	if got := j.phases(1); !reflect.DeepEqual(got, collective.Pairwise(1, 3)) {
		t.Errorf("without a plan: %+v", got)
	}
}

func TestBadAllToAlls(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"ring":     func(j *Job) { j.Algorithm = schedule.Ring },
		"in place": func(j *Job) { j.InPlace = true },
		"droppable": func(j *Job) {
			j.Transport, j.RD = RD, &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
		},
		"skew":          func(j *Job) { j.Skew = -1 },
		"skewed sums":   func(j *Job) { j.Kind, j.Algorithm, j.Skew = spec.AllReduce, schedule.Ring, 1 },
		"pairwise sums": func(j *Job) { j.Kind = spec.AllReduce },
		"no rates":      func(j *Job) { j.Transport, j.RD = RD, &spec.RD{Control: spec.ControlOffline} },
		"phases, directly": func(j *Job) {
			j.Transport, j.RD, j.Algorithm, j.Rates = RD, &spec.RD{Control: spec.ControlOffline},
				schedule.Direct, planned(t, schedule.Pairwise, 1)
		},
	} {
		j := allToAllJob(4, 4096, schedule.Pairwise, TCP)
		change(&j)
		l := goroutines{started: func(string, *goroutineProcess) {
			t.Errorf("%s: a worker was started", name)
		}}
		if _, err := Run(t.Context(), j, l, nil); err == nil {
			t.Errorf("%s: the job was run", name)
		}
	}
}
