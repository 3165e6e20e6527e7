package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// each calls f for every algorithm, number of ranks and root.
func each(t *testing.T, most int, f func(t *testing.T, s *Schedule)) {
	t.Helper()
	for kind := range algorithms {
		for _, name := range Algorithms(kind) {
			for ranks := 1; ranks <= most; ranks++ {
				for _, root := range slices.Compact([]int{0, ranks / 2, ranks - 1}) {
					s, err := Make(kind, name, ranks, root)
					if name == HyperCube && ranks&(ranks-1) != 0 {
						if err == nil || !strings.Contains(err.Error(), "want a power of two") {
							t.Errorf("%s of %d ranks: %v", name, ranks, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					t.Run(fmt.Sprintf("%s/%s/ranks=%d/root=%d", kind, name, ranks, root),
						func(t *testing.T) { f(t, s) })
				}
			}
		}
	}
}

// TestAlgorithms checks that every algorithm does what its kind requires, in place and out of
// place. Each rank sends the bytes of the formula in its paper.
func TestAlgorithms(t *testing.T) {
	each(t, 17, func(t *testing.T, s *Schedule) {
		for _, inPlace := range []bool{false, true} {
			if _, err := Check(s, inPlace); (err != nil) != (inPlace && s.OutOfPlace) {
				t.Errorf("in place %v: %v", inPlace, err)
			}
		}
		for rank := range s.Ranks {
			share := Sent(s.Kind, s.Algorithm, len(s.Ranks), rank, s.Root)
			if s.Counted(rank)*share.Den != share.Num*s.Chunks {
				t.Errorf("rank %d sends %d of %d chunks, want %+v", rank, s.Counted(rank), s.Chunks, share)
			}
		}
	})
}

// TestHierarchical also checks that a rank sends to other nodes only on its rail, and the right
// number of bytes.
func TestHierarchical(t *testing.T) {
	for _, kind := range []Kind{AllReduce, AllGather, ReduceScatter} {
		for nodes := 1; nodes <= 5; nodes++ {
			for each := 1; each <= 4; each++ {
				rails := make(Rails, nodes)
				for rank := range nodes * each {
					rails[rank%nodes] = append(rails[rank%nodes], rank) // ranks of a node are not neighbours
				}
				t.Run(fmt.Sprintf("%s/nodes=%d/ranks=%d", kind, nodes, each), func(t *testing.T) {
					s, err := MakeHierarchical(kind, rails)
					if err != nil {
						t.Fatal(err)
					}
					for _, inPlace := range []bool{false, true} {
						if _, err := Check(s, inPlace); err != nil {
							t.Error(err)
						}
					}
					all, along := Sent(kind, "hierarchical", nodes*each, 0, 0), sentAlong(kind, rails)
					for rank := range s.Ranks {
						out := s.CountedTo(rank, func(peer int) bool { return peer%nodes != rank%nodes })
						elsewhere := s.CountedTo(rank, func(peer int) bool {
							return peer%nodes != rank%nodes && peer/nodes != rank/nodes
						})
						if out*along.Den != along.Num*s.Chunks || elsewhere != 0 ||
							s.Counted(rank)*all.Den != all.Num*s.Chunks {
							t.Errorf("rank %d sends %d of %d chunks, %d to other nodes and %d of these to "+
								"another rail; want %+v, %+v and none", rank, s.Counted(rank), s.Chunks, out,
								elsewhere, all, along)
						}
					}
				})
			}
		}
	}
	for _, rails := range []Rails{nil, {{}}, {{0, 1}, {2}}, {{0, 1}, {1, 2}}, {{0, 1}, {2, 4}}} {
		if s, err := MakeHierarchical(AllReduce, rails); err == nil {
			t.Errorf("%v: %+v", rails, s)
		}
	}
	if s, err := MakeHierarchical(Broadcast, Rails{{0}}); err == nil {
		t.Errorf("%+v", s)
	}
}

// TestEveryStepCounts removes steps, one after the other. The rest is no longer such an algorithm.
func TestEveryStepCounts(t *testing.T) {
	each(t, 6, func(t *testing.T, s *Schedule) {
		for rank := range s.Ranks {
			for k := range s.Ranks[rank] {
				thread := &s.Ranks[rank][k]
				whole := thread.Steps
				for i := range whole {
					thread.Steps = slices.Delete(slices.Clone(whole), i, i+1)
					for _, inPlace := range []bool{false, true} {
						// In place, a copy of a chunk to itself has no effect.
						if _, err := Check(s, inPlace); err == nil && !(inPlace && whole[i].Op == Copy) {
							t.Errorf("without %v of rank %d it passes", &whole[i], rank)
						}
					}
				}
				thread.Steps = whole
			}
		}
	})
}

// ring3 returns a schedule for tests that break it.
func ring3() *Schedule { return ring(AllReduce, 3, 0) }

func TestBroken(t *testing.T) {
	step := func(s *Schedule, rank, i int) *Step { return &s.Ranks[rank][0].Steps[i] }
	for name, test := range map[string]struct {
		change func(s *Schedule)
		want   string
	}{
		"doubled": {func(s *Schedule) { // rank 1's own part is in the sum twice
			s.Ranks[0][0].Steps = append([]Step{{Op: Send, Peer: 1, Chunk: 2, Count: 1}},
				s.Ranks[0][0].Steps...)
			s.Ranks[1][0].Steps = append([]Step{{Op: Combine, Peer: 0, Chunk: 2, Count: 1, Source: Input,
				Target: Output}}, s.Ranks[1][0].Steps...)
			*step(s, 1, 2) = Step{Op: Combine, Peer: 0, Chunk: 2, Count: 1, Source: Output, Target: Output}
		}, "ends with 2 x rank 0 chunk 2"},
		"replaced": {func(s *Schedule) { step(s, 1, 1).Op = Receive }, "ends with"},
		"deadlock": {func(s *Schedule) {
			for r := range 3 {
				steps := s.Ranks[r][0].Steps
				steps[0], steps[1] = steps[1], steps[0]
			}
		}, "deadlock: each waits for the next: rank 0 thread 0 step 0 (combine chunk 1 from rank 2), rank 2"},
		"waits itself": {func(s *Schedule) { step(s, 0, 1).After = []At{{0, 2}} }, "deadlock"},
		"after nothing": {func(s *Schedule) {
			step(s, 0, 1).After = []At{{1, 0}}
		}, "thread 1 step 0, which does not exist"},
		"chunk": {func(s *Schedule) { step(s, 0, 0).Chunk = 3 }, "end of the buffer, which has 3"},
		"other chunk": {func(s *Schedule) {
			step(s, 0, 0).Chunk = 1
		}, "it receives the message of rank 0 thread 0 step 0"},
		"peer":      {func(s *Schedule) { step(s, 0, 0).Peer = 0 }, "its peer is not another rank"},
		"no peer":   {func(s *Schedule) { step(s, 0, 0).Peer = 3 }, "its peer is not another rank"},
		"input":     {func(s *Schedule) { step(s, 0, 1).Target = Input }, "it changes the input"},
		"buffer":    {func(s *Schedule) { step(s, 0, 0).Source = 7 }, "unknown buffer 7"},
		"operation": {func(s *Schedule) { step(s, 0, 0).Op = 9 }, "unknown operation 9"},
		"undefined": {func(s *Schedule) { step(s, 0, 0).Source = Scratch }, "before any step wrote it"},
		"unsent": {func(s *Schedule) {
			s.Ranks[0][0].Steps = s.Ranks[0][0].Steps[:6]
		}, "no step sends its message"},
		"untaken": {func(s *Schedule) {
			s.Ranks[0][0].Steps = s.Ranks[0][0].Steps[:7]
		}, "no step receives its message"},
		"two threads": {func(s *Schedule) {
			steps := s.Ranks[0][0].Steps
			s.Ranks[0] = []Thread{{0, steps[:4]}, {0, steps[4:]}}
		}, "messages have no order"},
		"race": {func(s *Schedule) {
			s.Ranks[0] = append(s.Ranks[0],
				Thread{1, []Step{{Op: Copy, Chunk: 1, Count: 1, Source: Input, Target: Output}}})
		}, "is used at the same time by"},
		"shares": {func(s *Schedule) { s.Kind, s.Chunks = AllGather, 4 }, "3 ranks, root 0, 4 chunks"},
		"moved":  {func(s *Schedule) { step(s, 0, 1).Move = 1 }, "chunks, which may differ in length"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ring3()
			test.change(s)
			if _, err := Check(s, false); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v\nwant %q", err, test.want)
			}
		})
	}
}

// exchange is an all-to-all of three ranks over two hops. A message for the second next rank goes
// through the next rank, which has it in scratch memory.
func exchange() *Schedule {
	s := &Schedule{Kind: AllToAll, Algorithm: "test", Chunks: 3, Equal: true, Scratch: 1}
	for rank := range 3 {
		next, prev := (rank+1)%3, (rank+2)%3
		s.Ranks = append(s.Ranks, []Thread{{0, []Step{
			{Op: Copy, Chunk: rank, Count: 1, Target: Output},
			{Op: Send, Peer: next, Chunk: next, Count: 1},
			{Op: Send, Peer: next, Chunk: prev, Count: 1},
			{Op: Receive, Peer: prev, Chunk: prev, Count: 1, Target: Output},
			{Op: Receive, Peer: prev, Chunk: 0, Count: 1, Target: Scratch},
			{Op: Send, Peer: next, Chunk: 0, Count: 1, Source: Scratch},
			{Op: Receive, Peer: prev, Chunk: next, Count: 1, Target: Output},
		}}})
	}
	return s
}

// gatherAndAdd is an all-reduce of two ranks that add the received data to a copy of their own.
func gatherAndAdd() *Schedule {
	s := &Schedule{Kind: AllReduce, Algorithm: "test", Chunks: 2, Equal: true, Scratch: 3}
	for rank := range 2 {
		s.Ranks = append(s.Ranks, []Thread{{0, []Step{
			{Op: Send, Peer: 1 - rank, Count: 2},
			{Op: Copy, Count: 2, Target: Output},
			{Op: Receive, Peer: 1 - rank, Chunk: 1, Count: 2, Target: Scratch},
			{Op: Accumulate, Chunk: 1, Count: 2, Move: -1, Source: Scratch, Target: Output},
		}}})
	}
	return s
}

// TestMoves proves schedules that move data between chunks, and finds every error in them.
func TestMoves(t *testing.T) {
	for _, s := range []*Schedule{exchange(), gatherAndAdd()} {
		for _, inPlace := range []bool{false, true} {
			if _, err := Check(s, inPlace); err != nil {
				t.Error(err)
			}
		}
	}
	for name, test := range map[string]struct {
		s       *Schedule
		inPlace bool
		change  func(s *Schedule, steps []Step)
		want    string
	}{
		"in place": {exchange(), true, func(_ *Schedule, steps []Step) {
			steps[2], steps[3] = steps[3], steps[2]
		}, "rank 2 ends with 1 x rank 2 chunk 0 in chunk 0"},
		"barrier": {dissemination(Barrier, 3, 0), false, func(s *Schedule, _ []Step) { s.Equal = true },
			"a barrier has Equal set"},
		"says so": {exchange(), true, func(s *Schedule, _ []Step) {
			s.OutOfPlace = true
		}, "the schedule works only out of place"},
		"other block": {exchange(), false, func(_ *Schedule, steps []Step) {
			steps[1].Chunk = 0
		}, "rank 1 ends with 1 x rank 0 chunk 0 in chunk 0, want 1 x rank 0 chunk 1"},
		"exchanged": {exchange(), false, func(_ *Schedule, steps []Step) {
			steps[3].Chunk, steps[6].Chunk = 1, 2
		}, "rank 0 ends with 1 x rank 2 chunk 0 in chunk 1"},
		"scratch": {exchange(), false, func(_ *Schedule, steps []Step) {
			steps[5].Chunk = 1
		}, "end of the buffer, which has 1"},
		"no scratch": {exchange(), false, func(s *Schedule, _ []Step) { s.Scratch = 0 },
			"end of the buffer, which has 0"},
		"negative": {exchange(), false, func(_ *Schedule, steps []Step) {
			steps[0].Move = -1
		}, "end of the buffer, which has 3"},
		"far": {exchange(), false, func(_ *Schedule, steps []Step) {
			steps[0].Move = 1<<63 - 1
		}, "end of the buffer, which has 3"},
		"count": {exchange(), false, func(_ *Schedule, steps []Step) {
			steps[4].Chunk, steps[4].Count = 0, 1<<62
		}, "end of the buffer, which has 1"},
		"not equal": {exchange(), false, func(s *Schedule, _ []Step) { s.Equal = false },
			"it receives the message of"},
		"moved too far": {gatherAndAdd(), false, func(_ *Schedule, steps []Step) { steps[3].Move = 0 },
			"end of the buffer, which has 2"},
		"added twice": {gatherAndAdd(), false, func(_ *Schedule, steps []Step) {
			steps[3].Source, steps[3].Chunk, steps[3].Move = Input, 0, 0
		}, "rank 0 ends with 2 x rank 0 chunk 0 in chunk 0"},
		"added elsewhere": {gatherAndAdd(), false, func(_ *Schedule, steps []Step) {
			steps[3].Chunk, steps[3].Move = 0, 0
		}, "it reads chunk 0 of its scratch memory before any step wrote it"},
		"onto nothing": {gatherAndAdd(), false, func(_ *Schedule, steps []Step) {
			steps[1].Op = Accumulate
		}, "it reads chunk 0 of its output before any step wrote it"},
		"overlap": {gatherAndAdd(), true, func(_ *Schedule, steps []Step) {
			steps[3].Target, steps[3].Chunk, steps[3].Move = Scratch, 0, 1
		}, "its source overlaps with its target"},
	} {
		t.Run(name, func(t *testing.T) {
			test.change(test.s, test.s.Ranks[0][0].Steps)
			if _, err := Check(test.s, test.inPlace); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v\nwant %q", err, test.want)
			}
		})
	}
}

func TestTooLargeToProve(t *testing.T) {
	s := dissemination(Barrier, 1000, 0)
	for rank := range s.Ranks {
		s.Ranks[rank] = append(s.Ranks[rank], make([]Thread, 3)...)
	}
	if _, err := Check(s, false); err == nil || !strings.Contains(err.Error(), "too many to prove") {
		t.Error(err)
	}
	for _, c := range []struct {
		chunks, steps int
		want          string
	}{{1 << 16, 100, "more than 4194304 chunks"}, {1, 30_000, "more than 268435456 pairs of uses"}} {
		s := &Schedule{Kind: Broadcast, Algorithm: "test", Chunks: c.chunks, Ranks: [][]Thread{{{}}}}
		for range c.steps {
			s.Ranks[0][0].Steps = append(s.Ranks[0][0].Steps,
				Step{Op: Copy, Count: c.chunks, Source: Input, Target: Output})
		}
		if _, err := Check(s, false); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d steps of %d chunks: %v", c.steps, c.chunks, err)
		}
	}
}

// TestBarrierThatIsNone removes the last round.
func TestBarrierThatIsNone(t *testing.T) {
	s := dissemination(Barrier, 5, 0)
	for rank := range s.Ranks {
		s.Ranks[rank][0].Steps = s.Ranks[rank][0].Steps[:4]
	}
	if _, err := Check(s, false); err == nil ||
		!strings.Contains(err.Error(), "rank 0 may end before rank 1 has begun") {
		t.Error(err)
	}
}

// TestTrees compares with NCCL's trees of eight ranks (src/graph/trees.cc), from the drawing there
// and its mirror.
func TestTrees(t *testing.T) {
	want := [2][]int{{-1, 2, 4, 2, 0, 6, 4, 6}, {1, 3, 1, 7, 5, 3, 5, -1}}
	for tree := range want {
		for rank, up := range want[tree] {
			if got := parent(tree, rank, 8); got != up {
				t.Errorf("tree %d: parent of %d is %d, want %d", tree, rank, got, up)
			}
		}
	}
	for n := 2; n <= 64; n++ {
		for rank := range n {
			// No rank has two children in both trees.
			if a, b := neighbours(0, rank, n), neighbours(1, rank, n); a+b > 4 {
				t.Errorf("%d ranks: rank %d has %d and %d neighbours", n, rank, a, b)
			}
		}
	}
}

// TestPlacement checks that all messages of a ring land in their targets out of place, and its
// results also in place. No step waits for sends.
func TestPlacement(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		p, err := Check(ring(AllReduce, 4, 0), inPlace)
		if err != nil {
			t.Fatal(err)
		}
		for rank, threads := range p.Schedule.Ranks {
			for i, step := range threads[0].Steps {
				if want := step.Op == Receive ||
					step.Op == Combine && !inPlace; p.Direct[rank][0][i] != want {
					t.Errorf("in place %v: %v of rank %d lands there: %v", inPlace, &step, rank, !want)
				}
				if len(p.Unsent[rank][0][i]) > 0 {
					t.Errorf("in place %v: %v of rank %d waits for %v", inPlace, &step, rank,
						p.Unsent[rank][0][i])
				}
			}
		}
	}
}

// TestWaitsForSends makes a rank change data that it has just sent, and receive into the same
// memory at once. Neither may affect the message.
func TestWaitsForSends(t *testing.T) {
	s := &Schedule{Kind: AllReduce, Algorithm: "test", Chunks: 1, Ranks: [][]Thread{
		{{0, []Step{{Op: Send, Peer: 1, Count: 1}, {Op: Receive, Peer: 1, Count: 1, Target: Output},
			{Op: Combine, Peer: 2, Count: 1, Source: Output, Target: Output}}}},
		{{0, []Step{{Op: Send, Peer: 0, Count: 1}, {Op: Combine, Peer: 0, Count: 1, Target: Output},
			{Op: Combine, Peer: 2, Count: 1, Source: Output, Target: Output}}}},
		{{0, []Step{{Op: Send, Peer: 0, Count: 1}, {Op: Send, Peer: 1, Count: 1}}}},
	}}
	// Rank 2 has no result and rank 0 lacks its own part, which this test ignores.
	c := &checker{s: s, plan: &Plan{Schedule: s, InPlace: true}}
	for _, part := range []func() error{c.number, c.match, c.sort, c.clock, c.races} {
		if err := part(); err != nil {
			t.Fatal(err)
		}
	}
	c.place()
	if c.plan.Direct[0][0][1] {
		t.Error("it lands where something is being sent")
	}
	if got := c.plan.Unsent[0][0][1]; !slices.Equal(got, []At{{0, 0}}) {
		t.Errorf("it waits for %v", got)
	}
}

func TestMakeRefuses(t *testing.T) {
	for _, test := range []struct {
		kind        Kind
		name        string
		ranks, root int
	}{{"gather", "ring", 2, 0}, {AllReduce, "star", 2, 0}, {AllReduce, "ring", 0, 0}, {Reduce, "ring", 2, 2},
		{Reduce, "ring", 2, -1}} {
		if s, err := Make(test.kind, test.name, test.ranks, test.root); err == nil {
			t.Errorf("%+v: %+v", test, s)
		}
	}
}

// sentAlong returns the share that each rank of a Hierarchical collective sends to other nodes.
// rails gives the number N of nodes per rail and of ranks per node. An all-reduce sends 2(N-1)/N of
// the rail's part of the buffer. The other kinds send half of that.
func sentAlong(k Kind, rails Rails) Share {
	nodes, each := len(rails), len(rails[0])
	if k == AllReduce {
		return Share{2 * (nodes - 1), nodes * each}
	}
	return Share{nodes - 1, nodes * each}
}
