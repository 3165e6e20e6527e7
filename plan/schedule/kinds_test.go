package schedule

import "testing"

// TestKinds compares the kinds with MPI's definitions of the operations, and with the factors of nccl-tests,
// doc/PERFORMANCE.md, for four ranks.
func TestKinds(t *testing.T) {
	type properties struct {
		combines, rooted, shares, inPlace bool
		bus                               float64
		from, fromChunk                   int // the source of chunk 2 of 4 at rank 1, with root 3
	}
	want := map[Kind]properties{
		AllReduce:     {combines: true, inPlace: true, bus: 1.5},
		AllGather:     {shares: true, inPlace: true, bus: 0.75, from: 2, fromChunk: 2},
		ReduceScatter: {combines: true, shares: true, inPlace: true, bus: 0.75},
		Broadcast:     {rooted: true, inPlace: true, bus: 1, from: 3, fromChunk: 2},
		Reduce:        {combines: true, rooted: true, inPlace: true, bus: 1},
		Gather:        {rooted: true, shares: true, inPlace: true, bus: 0.75, from: 2, fromChunk: 2},
		Scatter:       {rooted: true, shares: true, inPlace: true, bus: 0.75, from: 3, fromChunk: 2},
		AllToAll:      {shares: true, bus: 0.75, from: 2, fromChunk: 1},
		SendReceive:   {inPlace: true, bus: 1, fromChunk: 2},
		Barrier:       {bus: 0.75},
	}
	for _, k := range Kinds() {
		got := properties{combines: k.Combines(), rooted: k.Rooted(), shares: k.Shares(),
			inPlace: k.HasInPlace(), bus: k.BusFactor(4)}
		if !got.combines && k != Barrier {
			s := &Schedule{Kind: k, Chunks: 4, Root: 3, Ranks: make([][]Thread, 4)}
			got.from, got.fromChunk = s.Source(1, 2)
		}
		if got != want[k] {
			t.Errorf("%s: %+v, want %+v", k, got, want[k])
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("no kinds %v", want)
	}
	if k := Kind("sgd"); k.HasInPlace() || k.Combines() || Choices(k) != nil {
		t.Error("an unknown kind has properties")
	}
}
