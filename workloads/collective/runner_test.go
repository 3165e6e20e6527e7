package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/transports"
	"railbed/workloads/collective/schedule"
)

// newRunners makes all ranks of a program in one process.
func newRunners(t testing.TB, p *Program, open func() transports.Endpoint) []*Runner {
	t.Helper()
	n := len(p.schedule.Ranks)
	configs := make([]RunnerConfig, n)
	handles := make([]Memory[[]byte], n)
	for i := range configs {
		e := open()
		t.Cleanup(func() { e.Close() })
		length := func(b schedule.Buffer) int {
			from, to := p.Span(i, b)
			return to - from
		}
		c := RunnerConfig{Endpoint: e, Program: p, Rank: i, Peers: make([]transports.Peer, n), Handles: handles}
		c.Memory = Memory[[]float32]{make([]float32, length(schedule.Input)), make([]float32, length(schedule.Output)), make([]float32, p.WorkLen(i))}
		handle := func(b []float32) []byte {
			if len(b) == 0 {
				return nil
			}
			return register(t, e, b)
		}
		handles[i] = Memory[[]byte]{handle(c.Memory.Input), handle(c.Memory.Output), handle(c.Memory.Work)}
		configs[i] = c
	}
	var runners []*Runner
	for i := range configs {
		for other := range configs {
			if other != i {
				configs[i].Peers[other] = addPeer(t, configs[i].Endpoint, configs[other].Endpoint)
			}
		}
	}
	for _, c := range configs {
		r, err := NewRunner(c)
		if err != nil {
			t.Fatal(err)
		}
		runners = append(runners, r)
	}
	return runners
}

func runAll(ctx context.Context, runners []*Runner, mode Mode) ([]Traffic, error) {
	traffic := make([]Traffic, len(runners))
	group, ctx := errgroup.WithContext(ctx)
	for i, r := range runners {
		group.Go(func() (err error) {
			traffic[i], err = r.Run(ctx, mode)
			return err
		})
	}
	return traffic, group.Wait()
}

func program(t testing.TB, kind schedule.Kind, algorithm string, ranks, root, count int) *Program {
	t.Helper()
	s, err := schedule.Make(kind, algorithm, ranks, root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram(s, count)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// everyAlgorithm is each of each kind that has data.
func everyAlgorithm(f func(kind schedule.Kind, algorithm string)) {
	for _, kind := range []schedule.Kind{schedule.AllReduce, schedule.AllGather, schedule.ReduceScatter, schedule.Broadcast, schedule.Reduce} {
		for _, algorithm := range schedule.Algorithms(kind) {
			f(kind, algorithm)
		}
	}
}

// TestRunnersAgainstSum compares with plain loops over whole buffers, over a transport
// without any order, in place and out of place.
func TestRunnersAgainstSum(t *testing.T) {
	const seed = 6
	random := rand.New(rand.NewPCG(seed, 1))
	everyAlgorithm(func(kind schedule.Kind, algorithm string) {
		for _, ranks := range []int{1, 2, 3, 7} {
			for _, count := range []int{0, ranks - 1, 1023, 9_000*ranks + 5} {
				t.Run(fmt.Sprintf("%s/%s/ranks=%d/count=%d", kind, algorithm, ranks, count), func(t *testing.T) {
					runners := newRunners(t, program(t, kind, algorithm, ranks, ranks/2, count), openMemory(seed))
					for _, mode := range []Mode{OutOfPlace, InPlace, InPlace, OutOfPlace} {
						checkRun(t, runners, mode, random)
					}
				})
			}
		}
	})
}

func checkRun(t *testing.T, runners []*Runner, mode Mode, random *rand.Rand) {
	t.Helper()
	p := runners[0].config.Program
	kind := p.schedule.Kind
	want := make([]float32, p.count)
	for _, r := range runners {
		for _, m := range [][]float32{r.config.Memory.Output, r.config.Memory.Work, r.config.Memory.Input} {
			for i := range m {
				m[i] = -1e9 // what stays shows
			}
		}
		input, from := r.Buffer(mode, schedule.Input)
		for i := range input {
			input[i] = float32(random.IntN(1<<20) - 1<<19)
			want[from+i] += input[i]
		}
	}
	given := make([][]float32, len(runners))
	for rank, r := range runners {
		given[rank] = slices.Clone(r.config.Memory.Input)
	}
	traffic, err := runAll(t.Context(), runners, mode)
	if err != nil {
		t.Fatal(err)
	}
	for rank, r := range runners {
		output, from := r.Buffer(mode, schedule.Output)
		for i, value := range output {
			if value != want[from+i] {
				t.Fatalf("%v: rank %d element %d is %v, want %v", mode, rank, from+i, value, want[from+i])
			}
		}
		if mode == OutOfPlace && !slices.Equal(given[rank], r.config.Memory.Input) {
			t.Errorf("rank %d: its input changed", rank)
		}
		share := schedule.Sent(kind, p.schedule.Algorithm, len(runners), rank, p.schedule.Root)
		if exact := share.Of(uint64(p.count) * ElementSize); traffic[rank].Sent != exact && p.count%p.schedule.Chunks == 0 {
			t.Errorf("%v: rank %d sent %d bytes, want %d", mode, rank, traffic[rank].Sent, exact)
		}
	}
}

// TestRunnersOverTCP runs operations without any barrier between them, over the kernel's
// connections: ranks that are ahead must not touch the memory of those behind.
func TestRunnersOverTCP(t *testing.T) {
	const ranks, count, rounds = 5, 50_003, 6
	everyAlgorithm(func(kind schedule.Kind, algorithm string) {
		if kind != schedule.AllReduce && algorithm == "ring" {
			return
		}
		t.Run(fmt.Sprintf("%s/%s", kind, algorithm), func(t *testing.T) {
			runners := newRunners(t, program(t, kind, algorithm, ranks, 1, count), openTCP(t))
			group, ctx := errgroup.WithContext(t.Context())
			for rank, r := range runners {
				group.Go(func() error {
					pattern := NewPattern(rank, ranks)
					random := rand.New(rand.NewPCG(uint64(rank), 0))
					for round := range rounds {
						mode := Mode(round % 2)
						input, _ := r.Buffer(mode, schedule.Input)
						pattern.Fill(input, round)
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						if _, err := r.Run(ctx, mode); err != nil {
							return err
						}
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						output, _ := r.Buffer(mode, schedule.Output)
						wrong := pattern.Wrong(output, round)
						if kind == schedule.Broadcast {
							wrong = pattern.WrongOf(1, output, round, 0)
						}
						if wrong > 0 {
							return fmt.Errorf("rank %d round %d: %d wrong", rank, round, wrong)
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestBarrier holds that nobody leaves before the last one comes.
func TestBarrier(t *testing.T) {
	for _, ranks := range []int{1, 2, 5, 8} {
		runners := newRunners(t, program(t, schedule.Barrier, "dissemination", ranks, 0, 0), openMemory(3))
		left := make(chan int, ranks)
		group, ctx := errgroup.WithContext(t.Context())
		for _, r := range runners[1:] {
			group.Go(func() error {
				_, err := r.Run(ctx, OutOfPlace)
				left <- r.config.Rank
				return err
			})
		}
		time.Sleep(2 * time.Millisecond) // what leaves too early has the time to
		if len(left) > 0 {
			t.Errorf("%d ranks: rank %d left before rank 0 came", ranks, <-left)
		}
		if _, err := runners[0].Run(t.Context(), OutOfPlace); err != nil {
			t.Fatal(err)
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunnerEndsWithItsPeers(t *testing.T) {
	runners := newRunners(t, program(t, schedule.AllReduce, "tree", 2, 0, 1<<18), openTCP(t))
	if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
		t.Fatal(err)
	}
	runners[1].config.Endpoint.Close()
	if _, err := runners[0].Run(t.Context(), OutOfPlace); !errors.Is(err, transports.ErrPeerFailed) {
		t.Errorf("the other rank is gone: %v", err)
	}
}

// TestRunnerRefusesMessages sends what a wrong rank would send.
func TestRunnerRefusesMessages(t *testing.T) {
	runners := newRunners(t, program(t, schedule.AllReduce, "ring", 3, 0, 300), openMemory(1))
	r := runners[0]
	r.begin(OutOfPlace)
	r.work()
	good := transports.Completion{Op: transports.OpReceive, Peer: r.config.Peers[2], Imm: 1, Bytes: 100 * ElementSize}
	for name, change := range map[string]func(*transports.Completion){
		"number":        func(c *transports.Completion) { c.Imm = uint32(len(r.run.came)) },
		"length":        func(c *transports.Completion) { c.Bytes -= 4 },
		"sender":        func(c *transports.Completion) { c.Peer = r.config.Peers[1] },
		"stranger":      func(c *transports.Completion) { c.Peer = 77 },
		"holes":         func(c *transports.Completion) { c.Missing = 4 },
		"a send":        func(c *transports.Completion) { c.Imm = 0 },
		"ready too far": func(c *transports.Completion) { c.Imm = clearToSend | 7 },
		"request error": func(c *transports.Completion) { c.Op, c.Err = transports.OpWriteImm, transports.ErrAccess },
		"peer is gone":  func(c *transports.Completion) { c.Op, c.Err = transports.OpPeerDown, transports.ErrPeerFailed },
	} {
		bad := good
		change(&bad)
		if err := r.driver.take(bad, r.handle); err == nil {
			t.Errorf("%s: %+v was taken", name, bad)
		}
	}
	if err := r.driver.take(good, r.handle); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	if err := r.driver.take(good, r.handle); err == nil {
		t.Error("it was taken twice")
	}
}

func TestNewRunnerRefuses(t *testing.T) {
	p := program(t, schedule.AllReduce, "ring", 2, 0, 10)
	good := newRunners(t, p, openMemory(1))[0].config
	for name, change := range map[string]func(*RunnerConfig){
		"rank":    func(c *RunnerConfig) { c.Rank = 2 },
		"peers":   func(c *RunnerConfig) { c.Peers = nil },
		"handles": func(c *RunnerConfig) { c.Handles = nil },
		"input":   func(c *RunnerConfig) { c.Memory.Input = nil },
		"work":    func(c *RunnerConfig) { c.Memory.Work = make([]float32, 1000) },
	} {
		bad := good
		change(&bad)
		if _, err := NewRunner(bad); err == nil {
			t.Errorf("%s: made a runner", name)
		}
	}
}

// TestRunnerAllocates holds that operations do not allocate by messages.
func TestRunnerAllocates(t *testing.T) {
	r := newRunners(t, program(t, schedule.AllReduce, "tree", 4, 0, 1<<20), openMemory(1))[0]
	r.begin(OutOfPlace)
	r.work() // lists grow once
	clear(r.peers)
	if allocated := testing.AllocsPerRun(5, func() {
		for i := range r.peers {
			r.peers[i].held = r.peers[i].held[:0]
		}
		r.begin(OutOfPlace)
		r.work()
		for i, a := range r.run.mode.actions {
			if a.op != schedule.Send && a.message {
				if err := r.receive(a.peer, transports.Completion{Imm: uint32(i), Bytes: len(a.target) * ElementSize}); err != nil {
					t.Fatal(err)
				}
				r.work()
			}
		}
	}); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}
