package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/testkit/hosttest"
	"railbed/transports"
)

// newRunners makes all ranks of an algorithm in one process.
func newRunners(t testing.TB, a Algorithm, open func() transports.Endpoint) []*Runner {
	t.Helper()
	n := a.traits().ranks
	configs := make([]RunnerConfig, n)
	handles := make([]Memory[[]byte], n)
	for i := range configs {
		e := open()
		t.Cleanup(func() { e.Close() })
		c := RunnerConfig{Endpoint: e, Algorithm: a, Rank: i, Peers: make([]transports.Peer, n),
			Handles: handles, Steps: &StepLog{}}
		lengths := a.Lengths(i)
		c.Memory = Memory[[]byte]{make([]byte, lengths.Input), make([]byte, lengths.Output),
			make([]byte, lengths.Work)}
		handle := func(b []byte) []byte {
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

func program(t testing.TB, kind schedule.Kind, algorithm string, ranks, root int, d Data) *Program {
	t.Helper()
	s, err := schedule.Make(kind, algorithm, ranks, root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProgram(s, d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// everyAlgorithm is each of each kind that has data.
func everyAlgorithm(f func(kind schedule.Kind, algorithm string)) {
	for _, kind := range schedule.Kinds() {
		if kind == schedule.AllToAll || kind == schedule.Barrier {
			continue
		}
		for _, algorithm := range schedule.Algorithms(kind) {
			f(kind, algorithm)
		}
	}
}

// TestRunners compares results with exact results, within the bound of rounding errors, and the
// results of several ranks bit by bit. It covers every kind, type and operation, in place and out
// of place, over a transport without any order.
func TestRunners(t *testing.T) {
	const seed = 6
	random := rand.New(rand.NewPCG(seed, 1))
	counts := []int{1, 2, 3, 7}
	if testing.Short() {
		counts = counts[1:3]
	}
	row := 0
	everyAlgorithm(func(kind schedule.Kind, algorithm string) {
		for _, ranks := range counts {
			if row++; !hosttest.Sampled(t, row) {
				continue
			}
			if algorithm == schedule.HyperCube {
				ranks = 1 << (ranks / 2)
			}
			for i, count := range []int{0, ranks - 1, 1023, 9_000*ranks + 5} {
				for k, op := range element.Ops() {
					if k > 0 && (!kind.Combines() || i < 3) {
						continue // once is enough
					}
					d := Data{Count: count, Type: element.Types()[(row+i+k)%12], Op: op} // each with each
					t.Run(fmt.Sprintf("%s/%s/ranks=%d/count=%d/%s/%s", kind, algorithm, ranks, count, d.Type,
						op), func(t *testing.T) {
						runners := newRunners(t, program(t, kind, algorithm, ranks, ranks/2, d),
							openMemory(seed))
						for _, mode := range []Mode{OutOfPlace, InPlace, InPlace, OutOfPlace} {
							checkRun(t, runners, mode, random)
						}
					})
				}
			}
		}
	})
}

func checkRun(t *testing.T, runners []*Runner, mode Mode, random *rand.Rand) {
	t.Helper()
	p := runners[0].config.Algorithm.(*Program)
	size, inputs := p.data.Type.Size(), make([][]byte, len(runners))
	for rank, r := range runners {
		for _, m := range [][]byte{r.config.Memory.Output, r.config.Memory.Work, r.config.Memory.Input} {
			for i := range m {
				m[i] = 0x5a // what stays shows
			}
		}
		input, _ := r.Buffer(mode, schedule.Input)
		for into := input[:0]; len(into) < len(input); {
			into = appendRandom(into, p.data, random)
		}
		inputs[rank] = slices.Clone(input)
	}
	given := make([][]byte, len(runners))
	for rank, r := range runners {
		given[rank] = slices.Clone(r.config.Memory.Input)
	}
	traffic, err := runAll(t.Context(), runners, mode)
	if err != nil {
		t.Fatal(err)
	}
	checkOutputs(t, runners, mode, inputs)
	for rank, r := range runners {
		if mode == OutOfPlace && !bytes.Equal(given[rank], r.config.Memory.Input) {
			t.Errorf("rank %d: its input changed", rank)
		}
		share := schedule.Sent(p.schedule.Kind, p.schedule.Algorithm, len(runners), rank, p.schedule.Root)
		if exact := share.Of(uint64(p.data.Count * size)); traffic[rank].Sent != exact &&
			p.data.Count%p.schedule.Chunks == 0 {
			t.Errorf("%v: rank %d sent %d bytes, want %d", mode, rank, traffic[rank].Sent, exact)
		}
	}
}

// checkOutputs compares the outputs with each other and with the exact results.
func checkOutputs(t *testing.T, runners []*Runner, mode Mode, inputs [][]byte) {
	t.Helper()
	p := runners[0].config.Algorithm.(*Program)
	kind := p.data.Type
	if k := p.schedule.Kind; !k.Rooted() && !k.Shares() && !k.Combines() { // each has another's buffer
		for rank, r := range runners {
			output, _ := r.Buffer(mode, schedule.Output)
			if of, _ := p.schedule.Source(rank, 0); !bytes.Equal(output, inputs[of]) {
				t.Errorf("%v: rank %d has other data than rank %d sent", mode, rank, of)
			}
		}
		return
	}
	whole := make([][]byte, p.data.Count) // by element, the first result
	for rank, r := range runners {
		output, from := r.Buffer(mode, schedule.Output)
		for i := range len(output) / kind.Size() {
			own := output[i*kind.Size():][:kind.Size()]
			if whole[from+i] == nil {
				whole[from+i] = own
			} else if !bytes.Equal(whole[from+i], own) {
				t.Fatalf("%v: rank %d element %d is %x, elsewhere %x", mode, rank, from+i, own, whole[from+i])
			}
		}
	}
	for i, result := range whole {
		var all [][]byte
		for rank, input := range inputs {
			if first, behind := p.Span(rank, schedule.Input); i >= first && i < behind {
				all = append(all, input[(i-first)*kind.Size():][:kind.Size()])
			}
		}
		if len(runners) == 1 {
			continue // an average over one rank combines nothing
		}
		if kind.Integer() || len(all) == 1 {
			if want := folded(p.data, all); !bytes.Equal(result, want) {
				t.Fatalf("%v: element %d is %x, want %x", mode, i, result, want)
			}
			continue
		}
		want, tolerance := bounded(p.data, all)
		if got := element.At(kind, result, 0); math.Abs(got-want) > tolerance {
			t.Fatalf("%v: element %d is %v, want %v up to %v", mode, i, got, want, tolerance)
		}
	}
}

// appendRandom appends an element whose combinations over seven ranks are in range.
func appendRandom(to []byte, d Data, random *rand.Rand) []byte {
	switch {
	case d.Type.Integer():
		return element.AppendBits(d.Type, to, random.Uint64())
	case d.Op == element.Product:
		return element.Append(d.Type, to, 1+float64(random.IntN(1<<16))/(1<<17))
	case d.Type.Size() == 1:
		return element.Append(d.Type, to, math.Round(random.NormFloat64()*(1<<11))/(1<<8))
	}
	return element.Append(d.Type, to, math.Round(random.NormFloat64()*(1<<16))/(1<<8))
}

// folded combines elements in their order.
func folded(d Data, all [][]byte) []byte {
	result := slices.Clone(all[0])
	for i, next := range all[1:] {
		element.Combiner(d.Type, d.Op, element.Terms{A: i + 1, B: 1, Ranks: len(all)})(result, result, next)
	}
	return result
}

// bounded returns the result for floating-point elements, computed with 53 digits, and the bound of the
// rounding errors in any order: see package element.
func bounded(d Data, all [][]byte) (want, tolerance float64) {
	n, sum, product, size, low, high := float64(len(all)), 0.0, 1.0, 0.0, math.Inf(1), math.Inf(-1)
	for _, own := range all {
		value := element.At(d.Type, own, 0)
		sum, size, product = sum+value, size+math.Abs(value), product*value
		low, high = min(low, value), max(high, value)
	}
	// The exponent is n and not n-1, which covers the rounding of want itself.
	factor := math.Expm1(n * math.Log1p(math.Ldexp(1, -d.Type.Digits())))
	least, _ := d.Type.Exponents()
	switch d.Op {
	case element.Max:
		return high, 0
	case element.Min:
		return low, 0
	case element.Product:
		return product, product * factor
	case element.Average:
		// 1/n and each product are rounded too. A product may be subnormal.
		return sum / n, size/n*factor*(1+2/n) + n*math.Ldexp(1, least)
	}
	return sum, size * factor
}

// TestRingOrder checks that a ring adds chunk c in the order from rank c+1 around to rank c. The
// result must agree bit by bit whatever the order of messages, also for numbers whose sums are
// rounded.
func TestRingOrder(t *testing.T) {
	const ranks, count = 5, 5 * 3001
	for _, kind := range element.Types() {
		for _, op := range []element.Op{element.Sum, element.Average} {
			p := program(t, schedule.AllReduce, "ring", ranks, 0, Data{Count: count, Type: kind, Op: op})
			for seed := range uint64(3) {
				runners := newRunners(t, p, openMemory(seed))
				random := rand.New(rand.NewPCG(6, 7)) // the same each time
				inputs := make([][]byte, ranks)
				for rank, r := range runners {
					for range count {
						inputs[rank] = appendRandom(inputs[rank], p.data, random)
					}
					copy(r.config.Memory.Input, inputs[rank])
				}
				if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
					t.Fatal(err)
				}
				for i := range count {
					chunk := 0
					for from, to := p.part(schedule.Output, chunk, 1, 0); i < from || i >= to; from,
						to = p.part(schedule.Output, chunk%ranks, 1, chunk/ranks) {
						chunk++
					}
					at := func(rank int) []byte { return inputs[rank%ranks][i*kind.Size():][:kind.Size()] }
					want := slices.Clone(at(chunk + 1))
					for k := 1; k < ranks; k++ {
						element.Combiner(kind, op, element.Terms{A: k, B: 1, Ranks: ranks})(want, want,
							at(chunk+1+k))
					}
					if got := runners[0].config.Memory.Output[i*kind.Size():][:kind.Size()]; !bytes.Equal(got,
						want) {
						t.Fatalf("%s %s, seed %d: element %d of chunk %d is %x, want %x", kind, op, seed, i,
							chunk%ranks, got, want)
					}
				}
			}
		}
	}
}

// TestRunnersOverTCP runs operations without any barrier between them, over the kernel's
// connections: ranks that are ahead must not touch the memory of those behind.
func TestRunnersOverTCP(t *testing.T) {
	const count, rounds = 50_003, 6
	everyAlgorithm(func(kind schedule.Kind, algorithm string) {
		ranks := 5
		if algorithm == schedule.HyperCube {
			ranks = 4
		}
		if kind != schedule.AllReduce && kind != schedule.SendReceive && algorithm == "ring" {
			return
		}
		t.Run(fmt.Sprintf("%s/%s", kind, algorithm), func(t *testing.T) {
			runners := newRunners(t, program(t, kind, algorithm, ranks, 1,
				Data{Count: count, Type: element.BFloat16}), openTCP(t))
			group, ctx := errgroup.WithContext(t.Context())
			for rank, r := range runners {
				group.Go(func() error {
					pattern, err := NewPattern(r.Pattern())
					if err != nil {
						return err
					}
					random := rand.New(rand.NewPCG(uint64(rank), 0))
					for round := range rounds {
						mode := Mode(round % 2)
						r.Fill(pattern, mode, round)
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						if _, err := r.Run(ctx, mode); err != nil {
							return err
						}
						time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
						if wrong, _ := r.Wrong(pattern, mode, round, nil); wrong > 0 {
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

// TestBarrier checks that no rank leaves before the last rank arrives.
func TestBarrier(t *testing.T) {
	for _, ranks := range []int{1, 2, 5, 8} {
		runners := newRunners(t, program(t, schedule.Barrier, "dissemination", ranks, 0, Data{}),
			openMemory(3))
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
	runners := newRunners(t, program(t, schedule.AllReduce, "tree", 2, 0, Data{Count: 1 << 18}), openTCP(t))
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
	runners := newRunners(t, program(t, schedule.AllReduce, "ring", 3, 0, Data{Count: 300}), openMemory(1))
	r := runners[0]
	r.begin(t.Context(), OutOfPlace, false)
	r.work()
	good := transports.Completion{Op: transports.OpReceive, Peer: r.config.Peers[2], Imm: 1 | r.turn(),
		Bytes: 400}
	for name, change := range map[string]func(*transports.Completion){
		"number":        func(c *transports.Completion) { c.Imm = uint32(len(r.run.came)) | r.turn() },
		"length":        func(c *transports.Completion) { c.Bytes -= 4 },
		"sender":        func(c *transports.Completion) { c.Peer = r.config.Peers[1] },
		"stranger":      func(c *transports.Completion) { c.Peer = 77 },
		"holes":         func(c *transports.Completion) { c.Missing = 4 },
		"a send":        func(c *transports.Completion) { c.Imm = r.turn() },
		"ready too far": func(c *transports.Completion) { c.Imm = clearToSend | 7 },
		"request error": func(c *transports.Completion) {
			c.Op, c.Err = transports.OpWriteImm, transports.ErrAccess
		},
		"peer is gone": func(c *transports.Completion) {
			c.Op, c.Err = transports.OpPeerDown, transports.ErrPeerFailed
		},
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
	p := program(t, schedule.AllReduce, "ring", 2, 0, Data{Count: 10})
	good := newRunners(t, p, openMemory(1))[0].config
	for name, change := range map[string]func(*RunnerConfig){
		"rank":    func(c *RunnerConfig) { c.Rank = 2 },
		"peers":   func(c *RunnerConfig) { c.Peers = nil },
		"handles": func(c *RunnerConfig) { c.Handles = nil },
		"input":   func(c *RunnerConfig) { c.Memory.Input = nil },
		"work":    func(c *RunnerConfig) { c.Memory.Work = make([]byte, 4000) },
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
	r := newRunners(t, program(t, schedule.AllReduce, "tree", 4, 0, Data{Count: 1 << 20}), openMemory(1))[0]
	r.begin(t.Context(), OutOfPlace, false)
	r.work() // lists grow once
	if allocated := testing.AllocsPerRun(5, func() {
		for i := range r.peers {
			r.peers[i].held, r.peers[i].cleared = r.peers[i].held[:0], 0
		}
		r.begin(t.Context(), OutOfPlace, false)
		r.work()
		for _, a := range r.run.mode.actions {
			if takes(a.op) && a.message {
				if err := r.receive(a.peer, transports.Completion{Imm: a.imm,
					Bytes: a.target.len()}); err != nil {
					t.Fatal(err)
				}
				r.work()
			}
		}
	}); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}
