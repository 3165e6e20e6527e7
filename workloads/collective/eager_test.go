package collective

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"

	"railbed/transports"
	"railbed/workloads/collective/schedule"
)

// eager are algorithms of which no rank can end an operation before the others have begun it.
var eager = []struct {
	kind      schedule.Kind
	algorithm string
}{
	{schedule.AllReduce, "ring"},
	{schedule.AllReduce, "tree"},
	{schedule.AllReduce, "halving-doubling"},
	{schedule.AllReduce, "recursive-doubling"},
	{schedule.AllGather, "ring"},
	{schedule.ReduceScatter, "ring"},
	{schedule.AllToAll, "direct"},
	{schedule.Barrier, "dissemination"},
}

// TestEagerBackToBack holds that operations on short buffers, whose messages nobody has to
// give leave to, are right when ranks do many after each other and some are faster, with and
// without waiting for what they send.
func TestEagerBackToBack(t *testing.T) {
	const operations, seed = 80, 5
	for _, a := range eager {
		for _, ranks := range []int{2, 5, 8} {
			for name, open := range map[string]func() transports.Endpoint{"memory": openMemory(seed), "tcp": openTCP(t)} {
				t.Run(fmt.Sprintf("%s/%s/ranks=%d/%s", a.kind, a.algorithm, ranks, name), func(t *testing.T) {
					count, barrier := 1000, a.kind == schedule.Barrier
					if barrier {
						count = 0
					}
					p := program(t, a.kind, a.algorithm, ranks, 0, Data{Count: count})
					if !p.eager || !barrier && program(t, a.kind, a.algorithm, ranks, 0, Data{Count: ranks * eagerBytes}).eager {
						t.Fatalf("eager %v, and not where it should be", p.eager)
					}
					runners := newRunners(t, p, open)
					group, ctx := errgroup.WithContext(t.Context())
					for rank, r := range runners {
						group.Go(func() error { return repeat(ctx, r, rank, operations) })
					}
					if err := group.Wait(); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
	for _, d := range []struct {
		kind         schedule.Kind
		ranks, count int
	}{{schedule.Broadcast, 3, 10}, {schedule.Reduce, 3, 10}, {schedule.AllGather, 3, 2}, {schedule.ReduceScatter, 3, 2}, {schedule.AllGather, 2, 1}, {schedule.AllReduce, 3, 0}} {
		if program(t, d.kind, "ring", d.ranks, 0, Data{Count: d.count}).eager {
			t.Errorf("%s of %d elements is eager, in which a rank may be an operation ahead of where it sends", d.kind, d.count)
		}
	}
}

// repeat does operations at one rank, now and then after a pause.
func repeat(ctx context.Context, r *Runner, rank, operations int) error {
	pattern, err := NewPattern(r.config.Program.Pattern(rank))
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(rank), 1))
	for i := range operations {
		mode := Mode(i / 10 % len(r.config.Program.modes()))
		for range random.IntN(20) {
			runtime.Gosched()
		}
		r.Fill(pattern, mode, i)
		run := r.Run
		if i < operations-1 && i%23 > 0 {
			run = r.RunAhead
		}
		if _, err := run(ctx, mode); err != nil {
			return err
		}
		if wrong := r.Wrong(pattern, mode, i); wrong > 0 {
			return fmt.Errorf("operation %d at rank %d: %d wrong", i, rank, wrong)
		}
	}
	return nil
}
