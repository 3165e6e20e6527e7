package collective

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/workloads/collective/msccl"
)

// postCounter counts what an endpoint takes to send, by peer.
type postCounter struct {
	transports.Endpoint
	mu       sync.Mutex
	posted   map[transports.Peer]Amount
	signaled int // messages with a completion of their own
}

// Post implements transports.Endpoint.
func (c *postCounter) Post(ctx context.Context, requests []transports.Request) (int, error) {
	n, err := c.Endpoint.Post(ctx, requests)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range requests[:n] {
		amount := c.posted[requests[i].Peer]
		amount.Add(Amount{uint64(requests[i].Size()), 1})
		c.posted[requests[i].Peer] = amount
		if !requests[i].Unsignaled {
			c.signaled++
		}
	}
	return n, err
}

// counters opens endpoints that count.
type counters struct {
	open func() transports.Endpoint
	all  []*postCounter
}

func (c *counters) next() transports.Endpoint {
	c.all = append(c.all, &postCounter{Endpoint: c.open(), posted: map[transports.Peer]Amount{}})
	return c.all[len(c.all)-1]
}

// wantAmounts compares a rank's computed amounts with the requests that its endpoint accepted.
func wantAmounts(t *testing.T, rank int, got []Amount, c *postCounter, peers []transports.Peer) {
	t.Helper()
	for other, amount := range got {
		posted := Amount{}
		if other != rank {
			posted = c.posted[peers[other]]
		}
		if amount != posted {
			t.Errorf("rank %d to rank %d: counted %+v, and it sent %+v", rank, other, amount, posted)
		}
	}
}

// oddSizes returns element counts of buffers. Ranks can share only the last of them evenly, and
// some have less than one element for each rank.
func oddSizes(ranks int) []int { return []int{0, 1, 3, ranks - 1, ranks + 1, 1009, 240 * ranks} }

// TestAmountsOfPrograms compares the amounts counted from a program's steps with the requests of
// runners that executed it, also for several operations in a row. If all chunks are equal, it
// compares with the closed formulas too. The amounts of the channels add up to the whole buffer's
// amounts.
func TestAmountsOfPrograms(t *testing.T) {
	row := 0
	for _, kind := range schedule.Kinds() {
		for _, algorithm := range schedule.Algorithms(kind) {
			for ranks := 2; ranks <= 16; ranks++ {
				if row++; !hosttest.Sampled(t, row) {
					continue
				}
				if algorithm == schedule.HyperCube && ranks&(ranks-1) != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", kind, algorithm, ranks), func(t *testing.T) {
					s, err := schedule.Make(kind, algorithm, ranks, ranks/3)
					if err != nil {
						t.Fatal(err)
					}
					sizes := append(oddSizes(ranks), 90_007) // the last one not without leave
					if kind == schedule.AllToAll {
						sizes = []int{ranks, 31 * ranks}
					} else if kind == schedule.Barrier {
						sizes = []int{0}
					}
					for i, count := range sizes {
						channel := Channel{}
						if kind != schedule.AllToAll && i%3 == 1 {
							channel = Channel{Number: i % 2, Of: 2 + i%2}
						}
						amountsOfProgram(t, s, Data{Count: count, Type: element.Types()[(i+ranks)%12],
							Channel: channel})
					}
				})
			}
		}
	}
}

func amountsOfProgram(t *testing.T, s *schedule.Schedule, d Data) {
	t.Helper()
	p, err := NewProgram(s, d)
	if err != nil {
		t.Fatal(err)
	}
	const operations = 3
	for rank, amounts := range checkAmounts(t, p, operations) {
		if s.Kind == schedule.Barrier || s.Equal || d.Channel.Of > 1 || d.Count%s.Chunks != 0 {
			continue
		}
		var sent uint64
		for _, amount := range amounts {
			sent += amount.Bytes
		}
		if formula := schedule.Sent(s.Kind, s.Algorithm, len(s.Ranks), rank,
			s.Root).Of(uint64(operations * d.Count * p.data.Type.Size())); sent != formula {
			t.Errorf("%s by %s: %d elements, rank %d: %d bytes, and by the formula %d", s.Kind, s.Algorithm,
				d.Count, rank, sent, formula)
		}
	}
}

// checkAmounts compares the amounts of an algorithm with the requests of runners that executed several
// operations, and returns the amounts by rank.
func checkAmounts(t *testing.T, a Algorithm, operations int) (all [][]Amount) {
	t.Helper()
	c := &counters{open: openMemory(7)}
	runners, modes := newRunners(t, a, c.next), a.traits().modes
	for i := range operations {
		group, ctx := errgroup.WithContext(t.Context())
		for _, r := range runners {
			group.Go(func() (err error) {
				if i < operations-1 {
					_, err = r.RunAhead(ctx, modes[i%len(modes)])
				} else {
					_, err = r.Run(ctx, OutOfPlace)
				}
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for rank, r := range runners {
		amounts := Amounts(a, rank, operations)
		all = append(all, amounts)
		wantAmounts(t, rank, amounts, c.all[rank], r.config.Peers)
	}
	return all
}

// TestAmountsAcrossRails does the same for hierarchical algorithms, and for programs from files.
func TestAmountsAcrossRails(t *testing.T) {
	for nodes := 2; nodes <= 5; nodes++ {
		for each := 2; each <= 3; each++ {
			rails := make(schedule.Rails, nodes)
			for i := range nodes * each {
				rails[i/each] = append(rails[i/each], i)
			}
			for _, kind := range []schedule.Kind{schedule.AllReduce, schedule.AllGather,
				schedule.ReduceScatter} {
				s, err := schedule.MakeHierarchical(kind, rails)
				if err != nil {
					t.Fatal(err)
				}
				for _, count := range oddSizes(nodes * each) {
					amountsOfProgram(t, s, Data{Count: count})
				}
			}
		}
	}
	for _, name := range []string{"ring", "allpairs", "broadcast", "exchange", "gather", "reduce",
		"scatter"} {
		s := readProgram(t, name)
		for _, count := range []int{s.Chunks, 17 * s.Chunks, 30_000 * s.Chunks} {
			amountsOfProgram(t, s, Data{Count: count, Type: element.BFloat16})
		}
	}
}

// readProgram reads one of the files of MSCCL.
func readProgram(t *testing.T, name string) *schedule.Schedule {
	t.Helper()
	text, err := os.ReadFile("msccl/testdata/" + name + ".xml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := msccl.Read(name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAmountsOfRings does the same for rings, with and without scatter.
func TestAmountsOfRings(t *testing.T) {
	const operations = 2
	for ranks := 1; ranks <= 16; ranks++ {
		for i, count := range append(oddSizes(ranks), 300_007) {
			if !hosttest.Sampled(t, ranks+i) {
				continue
			}
			for _, scatter := range []bool{false, true} {
				made := ring(t, Ring{Ranks: ranks, Count: count, Scatter: scatter})
				for rank, amounts := range checkAmounts(t, made, operations) {
					if !scatter && ranks > 1 && count%ranks == 0 {
						if formula := schedule.Sent(schedule.AllReduce, "ring", ranks, rank,
							0).Of(uint64(operations * count *
							floatSize)); amounts[made.next(rank)].Bytes != formula {
							t.Errorf("%d ranks, %d elements: rank %d sends %d bytes, and by the formula %d",
								ranks, count, rank, amounts[made.next(rank)].Bytes, formula)
						}
					}
				}
			}
		}
	}
}

// TestSignaled counts the messages of an operation that need a completion of their own. In a ring they are
// the permission and the last message. In an exchange all messages need it: the next phase waits for them.
func TestSignaled(t *testing.T) {
	for name, a := range map[string]Algorithm{"ring": ring(t, Ring{Ranks: 3, Count: 300_007}),
		"exchange": exchange(t, Even(3, 3*150_000), Pairwise)} {
		c := &counters{open: openMemory(10)}
		if _, err := runAll(t.Context(), newRunners(t, a, c.next), OutOfPlace); err != nil {
			t.Fatal(err)
		}
		for rank, e := range c.all {
			want, all := 2, 0
			for _, amount := range e.posted {
				all += int(amount.Messages)
			}
			if name == "exchange" {
				want = all
			}
			if e.signaled != want || all < 8 {
				t.Errorf("%s: %d of %d messages of rank %d need a completion, want %d", name, e.signaled, all,
					rank, want)
			}
		}
	}
}

// TestAmountsOfExchanges does the same for all-to-alls. Their blocks include uneven and empty
// blocks, and blocks of several messages.
func TestAmountsOfExchanges(t *testing.T) {
	const operations = 2
	for ranks := 2; ranks <= 16; ranks++ {
		matrices := []Matrix{Skewed(ranks, 7, 2, 5), Skewed(ranks, 1013, 1, 5), Even(ranks, 150_000*ranks)}
		for _, count := range oddSizes(ranks) {
			matrices = append(matrices, Even(ranks, count))
		}
		if ranks > 6 {
			matrices = slices.Delete(matrices, 2, 3) // once is enough
		}
		for i, m := range matrices {
			checkAmounts(t, exchange(t, m, []phases{Direct, Pairwise}[i%2]), operations)
		}
	}
}
