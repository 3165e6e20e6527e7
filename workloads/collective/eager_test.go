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

// TestEagerBackToBack holds that operations on short buffers, whose messages nobody has to
// give leave to, are right when ranks do many after each other and some are faster; and that
// only the first one has messages besides those of the algorithm.
func TestEagerBackToBack(t *testing.T) {
	const operations, seed = 60, 5
	for _, algorithm := range []string{"tree", "halving-doubling", "recursive-doubling"} {
		for _, ranks := range []int{2, 5, 8} {
			for name, open := range map[string]func() transports.Endpoint{"memory": openMemory(seed), "tcp": openTCP(t)} {
				t.Run(fmt.Sprintf("%s/ranks=%d/%s", algorithm, ranks, name), func(t *testing.T) {
					p := program(t, schedule.AllReduce, algorithm, ranks, 0, Data{Count: 1000})
					if !p.eager || program(t, schedule.AllReduce, algorithm, ranks, 0, Data{Count: eagerBytes}).eager {
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
	if program(t, schedule.AllReduce, "ring", 3, 0, Data{Count: 10}).eager {
		t.Error("a ring is eager, in which ranks do not hear from whom they send to")
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
		mode := Mode(i / 10 % 2)
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
