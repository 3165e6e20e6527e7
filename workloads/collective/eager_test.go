package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/transports"
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

// TestEagerBackToBack checks operations on short buffers, whose messages need no permission. They
// must be right if ranks perform many in a row and some ranks are faster, with and without waiting
// for the arrival of sent messages.
func TestEagerBackToBack(t *testing.T) {
	const operations, seed = 80, 5
	for _, a := range eager {
		for _, ranks := range []int{2, 5, 8} {
			for name, open := range map[string]func() transports.Endpoint{"memory": openMemory(seed),
				"tcp": openTCP(t)} {
				t.Run(fmt.Sprintf("%s/%s/ranks=%d/%s", a.kind, a.algorithm, ranks, name), func(t *testing.T) {
					count, barrier := 1000, a.kind == schedule.Barrier
					if barrier {
						count = 0
					}
					p := program(t, a.kind, a.algorithm, ranks, 0, Data{Count: count})
					if !p.eager || !barrier && program(t, a.kind, a.algorithm, ranks, 0,
						Data{Count: ranks * eagerBytes}).eager {
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
	}{{schedule.Broadcast, 3, 10}, {schedule.Reduce, 3, 10}, {schedule.AllGather, 3, 2},
		{schedule.ReduceScatter, 3, 2}, {schedule.AllGather, 2, 1}, {schedule.AllReduce, 3, 0}} {
		if program(t, d.kind, "ring", d.ranks, 0, Data{Count: d.count}).eager {
			t.Errorf("%s of %d elements is eager, in which a rank may be an "+
				"operation ahead of where it sends", d.kind, d.count)
		}
	}
}

// late is an endpoint that reports completions late, and checks that the memory of a message has
// not changed until then.
type late struct {
	transports.Endpoint
	random  *rand.Rand
	posted  []transports.Request // without a reported completion, with copies of their bytes in More
	held    []transports.Completion
	changed int // messages whose memory changed before their completion was reported
}

func (l *late) Post(ctx context.Context, requests []transports.Request) (int, error) {
	n, err := l.Endpoint.Post(ctx, requests)
	for _, r := range requests[:n] {
		r.More = [][]byte{slices.Clone(r.Local)}
		l.posted = append(l.posted, r)
	}
	return n, err
}

func (l *late) Poll(completions []transports.Completion) (n int) {
	for _, c := range completions[:l.Endpoint.Poll(completions)] {
		if c.Op == transports.OpWriteImm {
			l.held = append(l.held, c)
			continue
		}
		completions[n] = c
		n++
	}
	for n < len(completions) && len(l.held) > 0 && l.random.IntN(8) == 0 {
		c := l.held[0]
		completions[n], l.held = c, l.held[1:]
		n++
		i := slices.IndexFunc(l.posted, func(r transports.Request) bool {
			return r.ID == c.ID && r.Peer == c.Peer
		})
		if !bytes.Equal(l.posted[i].Local, l.posted[i].More[0]) {
			l.changed++
		}
		l.posted = slices.Delete(l.posted, i, i+1)
	}
	return n
}

func (l *late) Wait(ctx context.Context) error {
	if len(l.held) == 0 {
		return l.Endpoint.Wait(ctx)
	}
	runtime.Gosched()
	return ctx.Err()
}

// TestAheadWaitsForRoom holds that nothing is sent from a place of which something is under
// way, also while the numbers of operations begin anew.
func TestAheadWaitsForRoom(t *testing.T) {
	for _, count := range []int{1000, 32 << 10} { // in many places, and in two
		p := program(t, schedule.AllReduce, "recursive-doubling", 8, 0, Data{Count: count})
		for seed := range uint64(4) {
			number := uint64(0)
			memory := openMemory(seed)
			runners := newRunners(t, p, func() transports.Endpoint {
				number++
				return &late{Endpoint: memory(), random: rand.New(rand.NewPCG(seed, number))}
			})
			group, ctx := errgroup.WithContext(t.Context())
			for rank, r := range runners {
				r.current = sequences - 30
				for i := range r.peers {
					r.peers[i].cleared = r.current
				}
				group.Go(func() error { return repeat(ctx, r, rank, 60) })
			}
			if err := group.Wait(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for rank, r := range runners {
				if changed := r.config.Endpoint.(*late).changed; changed > 0 {
					t.Errorf("seed %d: rank %d changed %d messages under way", seed, rank, changed)
				}
				if r.run.outstanding != 0 || r.ahead.outstanding != 0 || slices.Max(r.ahead.under) != 0 ||
					len(r.early) != 0 {
					t.Errorf("seed %d: rank %d ends with %d requests, %d ahead %v, %d messages early", seed,
						rank, r.run.outstanding, r.ahead.outstanding, r.ahead.under, len(r.early))
				}
			}
		}
	}
}

// numbered notes the largest number beside the first bit of immediate data.
type numbered struct {
	transports.Endpoint
	largest uint32
}

func (n *numbered) Post(ctx context.Context, requests []transports.Request) (int, error) {
	for i := range requests {
		n.largest = max(n.largest, requests[i].Imm&^clearToSend)
	}
	return n.Endpoint.Post(ctx, requests)
}

// TestNumbersOfLeaves holds that operations go on when their numbers begin anew, and that there
// is room for others beside these.
func TestNumbersOfLeaves(t *testing.T) {
	p := program(t, schedule.AllReduce, "ring", 3, 0, Data{Count: 1 << 18})
	memory := openMemory(1)
	runners := newRunners(t, p, func() transports.Endpoint { return &numbered{Endpoint: memory()} })
	group, ctx := errgroup.WithContext(t.Context())
	for rank, r := range runners {
		r.current = sequences - 5
		for i := range r.peers {
			r.peers[i].cleared = r.current
		}
		group.Go(func() error { return repeat(ctx, r, rank, 12) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for rank, r := range runners {
		if n := r.config.Endpoint.(*numbered).largest; n != 1<<20-1 {
			// as many as package worker's shares leave
			t.Errorf("rank %d: the largest number was %d", rank, n)
		}
	}
}

// TestWhoFailed: the name of who failed is its number in the job, and who takes no part may fail.
func TestWhoFailed(t *testing.T) {
	down := errors.New("down")
	for _, c := range []struct {
		completion transports.Completion
		want       string
	}{
		{transports.Completion{Op: transports.OpPeerDown, Peer: 5, Err: down}, "rank 9: down"},
		{transports.Completion{Op: transports.OpPeerDown, Peer: 6, Err: down}, "<nil>"},
		{transports.Completion{Op: transports.OpWriteImm, Peer: 5, Err: down}, "rank 9: down"},
		{transports.Completion{Op: transports.OpWriteImm, Peer: 6, Err: down}, "down"},
		{transports.Completion{Op: transports.OpReceive, Peer: 6}, "handled"},
	} {
		d := driver{rank: rankIn(map[transports.Peer]int{5: 1}), names: []int{4, 9}}
		if err := d.take(c.completion, func(transports.Completion) error {
			return errors.New("handled")
		}); fmt.Sprint(err) != c.want {
			t.Errorf("%+v: %v, want %s", c.completion, err, c.want)
		}
	}
	ring := program(t, schedule.AllReduce, "ring", 2, 0, Data{Count: 1}).schedule
	if _, err := NewProgram(ring, Data{Count: 1, Op: element.None}); err == nil {
		t.Error("an all-reduce that combines nothing")
	}
}

// repeat does operations at one rank, now and then after a pause.
func repeat(ctx context.Context, r *Runner, rank, operations int) error {
	pattern, err := NewPattern(r.Pattern())
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(uint64(rank), 1))
	for i := range operations {
		mode := r.traits.modes[i/10%len(r.traits.modes)]
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
		if r.run.outstanding != 0 {
			return fmt.Errorf("operation %d at rank %d: %d requests outstanding at its end", i, rank,
				r.run.outstanding)
		}
		if wrong, _ := r.Wrong(pattern, mode, i, nil); wrong > 0 {
			return fmt.Errorf("operation %d at rank %d: %d wrong", i, rank, wrong)
		}
	}
	return nil
}
