package collective

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"railbed/internal/element"
	"railbed/plan/schedule"
)

// checkEnds requires so many steps in each thread, which end in order within the operation.
func checkEnds(t *testing.T, name string, l *StepLog, took time.Duration, want ...int) {
	t.Helper()
	var got []int
	for _, ends := range l.Ends() {
		got = append(got, len(ends))
		if !slices.IsSorted(ends) || ends[0] < 0 || ends[len(ends)-1] > took {
			t.Errorf("%s: steps end after %v of %v", name, ends, took)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v steps by thread, want %v", name, got, want)
	}
}

// TestStepLog records two threads. Parts of a step may be done before the step before it has ended.
func TestStepLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &StepLog{}
		l.Add(2, 0, 1)
		l.Add()
		l.Add(1)
		for range 2 {
			l.Begin()
			began := time.Now()
			for _, step := range []int{2, 0, -1, 3, 0} {
				time.Sleep(time.Second)
				l.Done(step)
			}
			want := "[[5s 5s 5s] [4s]]"
			if got := fmt.Sprint(l.Ends()); got != want || !l.Began().Equal(began) {
				t.Errorf("steps end after %s from %v, want %s from %v", got, l.Began(), want, began)
			}
		}
		if n := testing.AllocsPerRun(10, func() { l.Begin(); l.Done(3); l.Done(2) }); n > 0 {
			t.Errorf("an operation allocates %v times", n)
		}
	})
	var none *StepLog
	none.Add(1)
	none.Begin()
	none.Done(0)
}

// TestSteps compares numbers of steps with closed formulas, and the times with the order of cause and effect.
// A rank sends in a step after the step before has ended, and only then can the receiver end its step.
func TestSteps(t *testing.T) {
	log2 := func(n int) int { return bits.Len(uint(n)) - 1 }
	for _, test := range []struct {
		kind      schedule.Kind
		algorithm string
		want      func(n, rank int) []int
	}{
		{schedule.AllReduce, "ring", func(n, _ int) []int { return []int{2 * (n - 1)} }},
		{schedule.AllReduce, "halving-doubling", func(n, _ int) []int { return []int{2 * log2(n)} }},
		{schedule.AllReduce, "recursive-doubling", func(n, _ int) []int { return []int{log2(n)} }},
		{schedule.AllReduce, "hierarchical", func(n, _ int) []int { return []int{n} }},
		{schedule.AllReduce, "tree", nil},
		{schedule.AllGather, "ring", func(n, _ int) []int { return []int{n - 1} }},
		{schedule.AllGather, "hypercube", func(n, _ int) []int { return []int{log2(n)} }},
		{schedule.ReduceScatter, "ring", func(n, _ int) []int { return []int{n - 1} }},
		{schedule.Reduce, "binomial", nil},
		{schedule.Barrier, "dissemination", func(n, _ int) []int { return []int{log2(n)} }},
		{schedule.AllToAll, "direct", func(int, int) []int { return []int{1, 1} }},
		{schedule.Broadcast, "ring", func(n, rank int) []int {
			if rank == 0 || rank == n-1 { // sends only, or receives only
				return []int{1}
			}
			return []int{2}
		}},
	} {
		for _, n := range []int{2, 4, 8} {
			d := Data{Count: 9_000*n + n, Type: element.Int32}
			if test.kind == schedule.Barrier {
				d.Count = 0
			}
			t.Run(fmt.Sprintf("%s/%s/ranks=%d", test.kind, test.algorithm, n), func(t *testing.T) {
				runners := newRunners(t, programOf(t, test.kind, test.algorithm, n, d), openMemory(4))
				for range 2 {
					began := time.Now()
					if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
						t.Fatal(err)
					}
					took, compared := time.Since(began), 0
					for rank, r := range runners {
						if test.want != nil {
							checkEnds(t, fmt.Sprint("rank ", rank), r.config.Steps, took,
								test.want(n, rank)...)
						}
						compared += checkCauses(t, runners, rank)
					}
					if compared == 0 && n > 2 && test.kind != schedule.AllToAll {
						t.Error("no step depends on a step before another")
					}
				}
			})
		}
	}
}

// programOf makes a program. In a hierarchical one, nodes have two ranks.
func programOf(t *testing.T, kind schedule.Kind, algorithm string, n int, d Data) *Program {
	t.Helper()
	if algorithm != "hierarchical" {
		return program(t, kind, algorithm, n, 0, d)
	}
	var rails schedule.Rails
	for rank := 0; rank < n; rank += 2 {
		rails = append(rails, []int{rank, rank + 1})
	}
	s, err := schedule.MakeHierarchical(kind, rails)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram(s, d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// checkCauses compares the ends of a rank's steps with the ends of other ranks' steps, and counts them.
func checkCauses(t *testing.T, runners []*Runner, rank int) (compared int) {
	t.Helper()
	p := runners[rank].config.Algorithm.(*Program)
	end := func(rank, thread, step int) time.Time {
		l := runners[rank].config.Steps
		return l.Began().Add(l.Ends()[thread][step])
	}
	for thread, own := range p.schedule.Ranks[rank] {
		numbers, _ := groups(own.Steps)
		for i := range own.Steps {
			if !takes(own.Steps[i].Op) {
				continue
			}
			peer, at := own.Steps[i].Peer, p.plans[OutOfPlace].Other[rank][thread][i]
			theirs, _ := groups(p.schedule.Ranks[peer][at.Thread].Steps)
			before := theirs[at.Step] - 1
			if before < 0 {
				continue
			}
			compared++
			if got, cause := end(rank, thread, numbers[i]), end(peer, at.Thread, before); got.Before(cause) {
				t.Errorf("rank %d ended step %d %v before rank %d ended step %d", rank, numbers[i],
					cause.Sub(got), peer, before)
			}
		}
	}
	return compared
}

// TestStepsOfRing does as TestSteps with a Ring, in whose last chunks some slices are missing.
func TestStepsOfRing(t *testing.T) {
	for _, count := range []int{0, 3, 100_001} {
		for _, n := range []int{1, 2, 5} {
			runners := newRunners(t, ring(t, Ring{Ranks: n, Count: count}), openMemory(4))
			began := time.Now()
			if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			var want []int
			if n > 1 {
				want = []int{2 * (n - 1)}
			}
			for rank, r := range runners {
				name := fmt.Sprintf("rank %d of %d", rank, n)
				l, before := r.config.Steps, runners[(rank+n-1)%n].config.Steps
				checkEnds(t, name, l, took, want...)
				for step := 1; count > 3 && n > 1 && step < want[0]; step++ {
					if got, cause := l.Began().Add(l.Ends()[0][step]),
						before.Began().Add(before.Ends()[0][step-1]); got.Before(cause) {
						t.Errorf("%s ended step %d %v before its sender ended step %d", name, step,
							cause.Sub(got), step-1)
					}
				}
			}
		}
	}
}

// TestStepsOfPhases holds that a phase ends after the phase before it at the rank from which it receives.
func TestStepsOfPhases(t *testing.T) {
	const n = 5
	for name, phases := range map[string]phases{"pairwise": Pairwise, "direct": Direct} {
		runners := newRunners(t, exchange(t, Even(n, 100_000*n), phases), openMemory(4))
		began := time.Now()
		if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		for rank, r := range runners {
			l := r.config.Steps
			checkEnds(t, fmt.Sprint(name, " rank ", rank), l, took, len(phases(rank, n)))
			for k, p := range phases(rank, n)[1:] {
				sender := runners[p.From[0]].config.Steps
				if got, cause := l.Began().Add(l.Ends()[0][k+1]),
					sender.Began().Add(sender.Ends()[0][k]); got.Before(cause) {
					t.Errorf("rank %d ended phase %d %v before rank %d ended phase %d", rank, k+1,
						cause.Sub(got), p.From[0], k)
				}
			}
		}
	}
}
