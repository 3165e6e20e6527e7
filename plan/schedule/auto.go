package schedule

// Auto is the algorithm that Choose chooses.
const Auto = "auto"

// Up to how many bytes what is chosen: see Choose.
const (
	autoRounds   = 32 << 10 // of all ranks' buffers together
	autoPair     = 32 << 10
	autoShort    = 16 << 10
	autoTree     = 8 << 10 // for each rank
	autoTreeFrom = 8       // ranks
)

// Choose is the algorithm for a buffer of so many bytes at so many ranks, by Auto; rails says that
// each node has as many ranks as the others, and more than one. Where rounds are what takes the
// time it is that with the fewest, beyond it the one that sends the least:
//
//   - an all-reduce up to 32 KiB of all ranks' buffers together, or of each of two ranks, by
//     recursive-doubling, in log2(n) rounds instead of 2(n-1); from eight ranks on up to 8 KiB
//     for each rank by tree, in two times the depth of a tree; then by ring, or hierarchical where
//     there are rails;
//   - a broadcast and a reduce up to 16 KiB by binomial, then by ring, which is a pipeline;
//   - a gather and a scatter up to 16 KiB by binomial, then by direct, which passes each share once;
//   - an all-gather and a reduce-scatter hierarchical where there are rails, or by ring.
//
// The numbers are where times over TCP cross on two cores, and from eight ranks on between where
// they cross there and on links of 250 us (BENCHMARKS.md, All-reduce).
func Choose(k Kind, ranks int, bytes uint64, rails bool) string {
	switch {
	case k == AllReduce && (bytes*uint64(ranks) <= autoRounds || ranks == 2 && bytes <= autoPair):
		return "recursive-doubling"
	case k.Rooted() && bytes <= autoShort:
		return "binomial"
	case k == Gather || k == Scatter:
		return "direct"
	case rails && (k == AllReduce || k == AllGather || k == ReduceScatter):
		return "hierarchical"
	case k == AllReduce && ranks >= autoTreeFrom && bytes <= uint64(ranks)*autoTree:
		return "tree"
	}
	return "ring"
}
