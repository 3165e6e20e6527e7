package collective

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"railbed/internal/element"
	"railbed/testkit/hosttest"
	"railbed/transports"
)

// phases returns the phases of a rank.
type phases func(rank, ranks int) []Phase

// exchange returns the algorithm of an all-to-all.
func exchange(t testing.TB, m Matrix, p phases) *Exchange {
	t.Helper()
	c := ExchangeConfig{Matrix: m, Phases: map[int][]Phase{}}
	for rank := range m {
		c.Phases[rank] = p(rank, len(m))
	}
	e, err := NewExchange(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAllToAll compares with a transposition of the blocks, for data of its own, over a transport
// without any order. Every element must be where its sender meant it, and each rank must send as
// many bytes as the matrix says.
func TestAllToAll(t *testing.T) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 1))
	row := 0
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		matrices := map[string]Matrix{
			"even": Even(ranks, 4096*ranks), "nothing": Even(ranks, 0), "one": Even(ranks, 1),
			"uneven":           Even(ranks, 1023),
			"several messages": Even(ranks, ranks*sliceBytes/floatSize+77),
			"skewed":           Skewed(ranks, 100_003, 2, seed), "any": make(Matrix, ranks),
		}
		for from := range ranks {
			for range ranks {
				matrices["any"][from] = append(matrices["any"][from], max(0, random.IntN(3000)-1000))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(matrices)) {
			for way, p := range map[string]phases{"direct": Direct, "pairwise": Pairwise,
				"mixed": mixedPhases} {
				if row++; !hosttest.Sampled(t, row) {
					continue
				}
				m := matrices[name]
				t.Run(fmt.Sprintf("ranks=%d/%s/%s", ranks, name, way), func(t *testing.T) {
					runners := newRunners(t, exchange(t, m, p), openMemory(seed))
					for range 2 {
						checkExchange(t, runners, m, random)
					}
				})
			}
		}
	}
}

// mixedPhases has one other rank in the first phase, none in the second and all others in the
// third.
func mixedPhases(rank, ranks int) []Phase {
	all := Pairwise(rank, ranks)
	if ranks < 3 {
		return all
	}
	var rest Phase
	for _, p := range all[1:] {
		rest.To, rest.From = append(rest.To, p.To...), append(rest.From, p.From...)
	}
	return []Phase{all[0], {}, rest}
}

func checkExchange(t *testing.T, runners []*Runner, m Matrix, random *rand.Rand) {
	t.Helper()
	for _, r := range runners {
		for i := range r.config.Memory.Input {
			r.config.Memory.Input[i] = byte(random.Uint32())
		}
		clear(r.config.Memory.Output)
	}
	traffic, err := runAll(t.Context(), runners, OutOfPlace)
	if err != nil {
		t.Fatal(err)
	}
	for rank, r := range runners {
		var want []byte
		in, out := 0, 0
		for from, row := range m {
			start := 0
			for _, elements := range row[:rank] {
				start += elements
			}
			want = append(want,
				runners[from].config.Memory.Input[floatSize*start:floatSize*(start+row[rank])]...)
			if from != rank {
				in += row[rank]
				out += m[rank][from]
			}
		}
		if !slices.Equal(r.config.Memory.Output, want) {
			t.Fatalf("rank %d has another output than the blocks for it", rank)
		}
		if got := traffic[rank]; got.Sent != uint64(out*floatSize) || got.Received != uint64(in*floatSize) ||
			out != m.Sends(rank) {
			t.Errorf("rank %d: %+v, want %d and %d elements, and Sends %d", rank, got, out, in, m.Sends(rank))
		}
	}
}

// TestEvenBytes holds an even matrix against the formula: of the elements, (n-1)/n go to
// others, and as many come.
func TestEvenBytes(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		for _, count := range []int{0, 840, 1023} {
			m, total := Even(ranks, count), 0
			for rank := range ranks {
				total += m.Sends(rank)
				if m.InputLen(rank) != count {
					t.Errorf("%d ranks: rank %d has %d elements, want %d", ranks, rank, m.InputLen(rank),
						count)
				}
				if count%ranks == 0 &&
					(m.Sends(rank) != count*(ranks-1)/ranks || m.OutputLen(rank) != count) {
					t.Errorf("%d ranks: rank %d sends %d elements of %d and has %d then", ranks, rank,
						m.Sends(rank), count, m.OutputLen(rank))
				}
			}
			if total != count*(ranks-1) { // each element goes to one receiver, who has it already once
				t.Errorf("%d ranks, %d elements: %d cross, want %d", ranks, count, total, count*(ranks-1))
			}
		}
	}
}

// TestSkewed holds shares against Zipf's law worked out by hand, and that the seed says
// who gets them.
func TestSkewed(t *testing.T) {
	for _, c := range []struct {
		ranks, count, skew int
		shares             []int // from the most popular on
	}{
		{4, 25, 1, []int{12, 6, 4, 3}}, // 1 : 1/2 : 1/3 : 1/4 = 12 : 6 : 4 : 3.
		{3, 49, 2, []int{36, 9, 4}},    // 1 : 1/4 : 1/9 = 36 : 9 : 4.
		// of 12.48, 6.24, 4.16 and 3.12 the first has the largest remainder
		{4, 26, 1, []int{13, 6, 4, 3}},
		{5, 7, 0, []int{2, 2, 1, 1, 1}},          // even
		{2, 0, 3, []int{0, 0}},                   // nothing
		{1, 9, 1, []int{9}},                      // all to itself
		{2, 9_000_000, 3, []int{8e6, 1_000_000}}, // 8 : 1
	} {
		hot := map[int]bool{}
		for seed := range uint64(20) {
			m := Skewed(c.ranks, c.count, c.skew, seed)
			for rank, row := range m {
				sorted := slices.Sorted(slices.Values(row))
				slices.Reverse(sorted)
				if !slices.Equal(row, m[0]) || !slices.Equal(sorted, c.shares) ||
					m.InputLen(rank) != c.count {
					t.Errorf("%+v, seed %d: rank %d sends %v", c, seed, rank, row)
				}
			}
			hot[slices.Index(m[0], slices.Max(m[0]))] = true
			if !slices.Equal(m[0], Skewed(c.ranks, c.count, c.skew, seed)[0]) {
				t.Errorf("%+v, seed %d: another matrix the second time", c, seed)
			}
		}
		if (len(hot) > 1) != (c.skew > 0 && c.ranks > 1 && c.count > 0) {
			t.Errorf("%+v: the most popular are %v", c, hot)
		}
	}
}

// TestBlocksNotice damages an output in one thing at a time.
func TestBlocksNotice(t *testing.T) {
	for _, kind := range element.Types() {
		t.Run(string(kind), func(t *testing.T) { testBlocksNotice(t, kind) })
	}
}

func testBlocksNotice(t *testing.T, kind element.Type) {
	m, size := Even(4, 4096), kind.Size()
	const rank, iteration = 2, 7
	e, err := NewExchange(ExchangeConfig{Matrix: m, Type: kind})
	if err != nil {
		t.Fatal(err)
	}
	runners := newRunners(t, e, openMemory(1))
	pattern := func(rank int) *Pattern {
		p, err := NewPattern(runners[rank].Pattern())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	input := func(from, iteration int) []byte {
		runners[from].Fill(pattern(from), OutOfPlace, iteration)
		return slices.Clone(runners[from].config.Memory.Input)
	}
	own := pattern(rank)
	count := func(output []byte) uint64 {
		copy(runners[rank].config.Memory.Output, output)
		wrong, _ := runners[rank].Wrong(own, OutOfPlace, iteration, nil)
		return wrong
	}
	good := make([]byte, size*m.OutputLen(rank))
	block := func(o []byte, from, to int) []byte { return o[from*size : to*size] }
	for from := range m {
		copy(block(good, from*1024, (from+1)*1024), block(input(from, iteration), rank*1024, (rank+1)*1024))
	}
	if wrong := count(good); wrong != 0 {
		t.Fatalf("%d elements of a right output are wrong", wrong)
	}
	for name, c := range map[string]struct {
		damage func(output []byte)
		least  uint64 // random values are alike now and then
	}{
		"an element":           {func(o []byte) { o[1500*size]++ }, 1},
		"the last element":     {func(o []byte) { clear(block(o, 4095, 4096)) }, 1},
		"a block did not come": {func(o []byte) { clear(block(o, 1024, 2048)) }, 1024},
		"two blocks changed places": {func(o []byte) {
			s := slices.Clone(block(o, 0, 1024))
			copy(o, block(o, 1024, 2048))
			copy(block(o, 1024, 2048), s)
		}, 2040},
		"a block that is one too far": {func(o []byte) {
			copy(block(o, 1025, 2048), slices.Clone(block(o, 1024, 2047)))
		}, 1020},
		"a block of another receiver": {func(o []byte) {
			copy(block(o, 1024, 2048), input(1, iteration))
		}, 1020},
		"a block of another iteration": {func(o []byte) {
			copy(block(o, 1024, 2048), block(input(1, iteration-1), 2048, 3072))
		}, 1020},
	} {
		if size == 1 && c.least > 1 && name != "a block did not come" {
			c.least = c.least * 98 / 100 // one value of 255 is alike
		}
		bad := slices.Clone(good)
		c.damage(bad)
		if wrong := count(bad); wrong < c.least || wrong > 2048 {
			t.Errorf("%s: %d elements are wrong, want %d at least", name, wrong, c.least)
		}
	}
}

// TestPlacesOfBlocks compares the places of blocks with sums over the matrix, for ranks in any order.
func TestPlacesOfBlocks(t *testing.T) {
	const ranks = 7
	random := rand.New(rand.NewPCG(12, 1))
	m := make(Matrix, ranks)
	for from := range m {
		for range ranks {
			m[from] = append(m[from], random.IntN(9))
		}
	}
	var outputs, inputs prefix
	for range 50 {
		rank := random.IntN(ranks)
		out, in := outputs.before(rank, ranks, m.addRow), inputs.before(rank, ranks, m.addColumn)
		for other := range m {
			wantOut, wantIn := 0, 0
			for before := range rank {
				wantOut += m[before][other]
				wantIn += m[other][before]
			}
			if out[other] != wantOut || in[other] != wantIn {
				t.Fatalf("rank %d: its block is at %d in the output of rank %d, want %d; the block for it "+
					"is at %d in the input there, want %d", rank, out[other], other, wantOut, in[other],
					wantIn)
			}
		}
	}
}

// TestPhasesAreMatchings holds that in each of pairwise's phases everybody sends to one
// and receives from one, who sends to him in the same phase.
func TestPhasesAreMatchings(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5, 8} {
		for p := range ranks - 1 {
			to := map[int]bool{}
			for rank := range ranks {
				phase := Pairwise(rank, ranks)[p]
				if len(phase.To) != 1 || len(phase.From) != 1 ||
					Pairwise(phase.To[0], ranks)[p].From[0] != rank || to[phase.To[0]] {
					t.Errorf("%d ranks, phase %d: rank %d has %+v", ranks, p, rank, phase)
				}
				to[phase.To[0]] = true
			}
		}
	}
}

// watched counts the ranks that may write to a rank at the same time. A rank may write from the
// posting of its permission until the last of its bytes has arrived.
type watched struct {
	transports.Endpoint
	open, most int
}

func (w *watched) Post(ctx context.Context, requests []transports.Request) (int, error) {
	n, err := w.Endpoint.Post(ctx, requests)
	for _, r := range requests[:n] {
		if r.Imm&clearToSend != 0 {
			w.open++
			w.most = max(w.most, w.open)
		}
	}
	return n, err
}

func (w *watched) Poll(completions []transports.Completion) int {
	n := w.Endpoint.Poll(completions)
	for _, c := range completions[:n] {
		if c.Op == transports.OpReceive && c.Bytes > 0 {
			w.open--
		}
	}
	return n
}

// TestOneSenderAtATime holds that whoever follows phases that are matchings is never sent
// to by two, and that with all at once he is by all.
func TestOneSenderAtATime(t *testing.T) {
	const ranks = 5
	for want, p := range map[int]phases{1: Pairwise, ranks - 1: Direct} {
		var all []*watched
		memory := openMemory(3)
		runners := newRunners(t, exchange(t, Even(ranks, 1000), p), func() transports.Endpoint {
			all = append(all, &watched{Endpoint: memory()})
			return all[len(all)-1]
		})
		for range 20 {
			if _, err := runAll(t.Context(), runners, OutOfPlace); err != nil {
				t.Fatal(err)
			}
		}
		for rank, e := range all {
			if e.most != want || e.open != 0 {
				t.Errorf("rank %d had %d senders at once, want %d, and has %d at the end", rank, e.most, want,
					e.open)
			}
		}
	}
}

// TestExchangesBackToBack runs operations without any barrier between them.
func TestExchangesBackToBack(t *testing.T) {
	const ranks, count, rounds = 4, 100_003, 15
	m := Even(ranks, count)
	for name, open := range map[string]func() transports.Endpoint{"memory": openMemory(9),
		"tcp": openTCP(t)} {
		for way, p := range map[string]phases{"direct": Direct, "pairwise": Pairwise} {
			t.Run(name+"/"+way, func(t *testing.T) {
				runners := newRunners(t, exchange(t, m, p), open)
				group, ctx := errgroup.WithContext(t.Context())
				for rank, r := range runners {
					group.Go(func() error {
						blocks, err := NewPattern(r.Pattern())
						if err != nil {
							return err
						}
						random := rand.New(rand.NewPCG(uint64(rank), 0))
						for round := range rounds {
							r.Fill(blocks, OutOfPlace, round)
							time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
							if _, err := r.Run(ctx, OutOfPlace); err != nil {
								return err
							}
							if wrong, _ := r.Wrong(blocks, OutOfPlace, round, nil); wrong > 0 {
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
		}
	}
}

// TestUnexpectedBlocks sends what a wrong rank would send.
func TestUnexpectedBlocks(t *testing.T) {
	const ranks, slice = 3, sliceBytes / floatSize
	r := newRunners(t, exchange(t, Even(ranks, ranks*2*slice), Pairwise), openMemory(1))[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Run(ctx, OutOfPlace); err == nil { // it has begun
		t.Fatal("an exchange without others came to its end")
	}
	peer := r.config.Peers
	// rank 0 receives from 2 first
	good := transports.Completion{Op: transports.OpReceive, Peer: peer[2], Imm: 0, Bytes: sliceBytes}
	if err := r.driver.take(good, r.handle); err != nil {
		t.Fatalf("the first slice: %v", err)
	}
	for name, change := range map[string]func(*transports.Completion){
		"twice":            func(*transports.Completion) {},
		"number":           func(c *transports.Completion) { c.Imm = 2 },
		"length":           func(c *transports.Completion) { c.Imm, c.Bytes = 1, sliceBytes-4 },
		"empty":            func(c *transports.Completion) { c.Imm, c.Bytes = 1, 0 },
		"holes":            func(c *transports.Completion) { c.Imm, c.Bytes, c.Missing = 1, sliceBytes-4, 4 },
		"before its phase": func(c *transports.Completion) { c.Peer = peer[1] },
		"sender":           func(c *transports.Completion) { c.Peer = 77 },
		"ready too far":    func(c *transports.Completion) { c.Imm = clearToSend | 7 },
		"request error": func(c *transports.Completion) {
			c.Op, c.Err = transports.OpWriteImm, transports.ErrAccess
		},
		"peer is not here": func(c *transports.Completion) {
			c.Op, c.Err = transports.OpPeerDown, transports.ErrPeerFailed
		},
	} {
		bad := good
		change(&bad)
		if err := r.driver.take(bad, r.handle); err == nil {
			t.Errorf("%s: %+v was taken", name, bad)
		}
	}
}

func TestNewExchangeRefuses(t *testing.T) {
	good := func() ExchangeConfig {
		return ExchangeConfig{Matrix: Even(3, 6), Phases: map[int][]Phase{0: Pairwise(0, 3)}}
	}
	if _, err := NewExchange(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*ExchangeConfig){
		"rank":         func(c *ExchangeConfig) { c.Phases = map[int][]Phase{3: Pairwise(0, 3)} },
		"short row":    func(c *ExchangeConfig) { c.Matrix = Matrix{{1, 1, 1}, {1, 1}, {1, 1, 1}} },
		"type":         func(c *ExchangeConfig) { c.Type = "quad" },
		"phases":       func(c *ExchangeConfig) { c.Phases[0] = c.Phases[0][:1] },
		"phase twice":  func(c *ExchangeConfig) { c.Phases[0] = append(c.Phases[0], c.Phases[0][0]) },
		"phase of one": func(c *ExchangeConfig) { c.Phases[0] = []Phase{{To: []int{1, 2}, From: []int{1}}} },
		"to itself": func(c *ExchangeConfig) {
			c.Phases[0] = append(c.Phases[0], Phase{To: []int{0}, From: []int{0}})
		},
		"to no rank": func(c *ExchangeConfig) { c.Phases[0] = append(c.Phases[0], Phase{To: []int{3}}) },
	} {
		c := good()
		change(&c)
		if _, err := NewExchange(c); err == nil {
			t.Errorf("%s: made an all-to-all", name)
		}
	}
	runner := newRunners(t, exchange(t, Even(3, 6), Pairwise), openMemory(1))[0].config
	for name, change := range map[string]func(*RunnerConfig){
		"rank":    func(c *RunnerConfig) { c.Rank = 3 },
		"input":   func(c *RunnerConfig) { c.Memory.Input = c.Memory.Input[:20] },
		"output":  func(c *RunnerConfig) { c.Memory.Output = nil },
		"peers":   func(c *RunnerConfig) { c.Peers = c.Peers[:2] },
		"outputs": func(c *RunnerConfig) { c.Handles = nil },
	} {
		c := runner
		change(&c)
		if _, err := NewRunner(c); err == nil {
			t.Errorf("%s: made a runner of an all-to-all", name)
		}
	}
}
