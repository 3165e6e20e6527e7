package schedule

import "slices"

// Sizes in bytes up to which Choose selects an algorithm.
const (
	autoRounds   = 32 << 10 // of all ranks' buffers together
	autoPair     = 32 << 10
	autoShort    = 16 << 10
	autoTree     = 8 << 10 // for each rank
	autoTreeFrom = 8       // ranks
)

// Choose selects the algorithm of Auto for a buffer of the given bytes at the given number of
// ranks. rails reports whether each node has the same number of ranks, and more than one. If the
// time depends on the number of rounds, Choose selects the algorithm with the fewest rounds. For
// larger buffers it selects the algorithm that sends the fewest bytes.
//
//   - An all-reduce uses recursive-doubling up to 32 KiB of all ranks' buffers together, or of each
//     of two ranks. It has log2(n) rounds instead of 2(n-1). From eight ranks on it uses tree up to
//     8 KiB for each rank, with twice the depth of a tree as rounds. Above that it uses ring, or
//     hierarchical if there are rails.
//   - A broadcast and a reduce use binomial up to 16 KiB, then ring, which is a pipeline.
//   - A gather and a scatter use binomial up to 16 KiB, then direct, which passes each share once.
//   - An all-gather and a reduce-scatter use hierarchical if there are rails, else ring.
//
// The limits are the sizes at which measured times over TCP cross on two cores. From eight ranks on
// they lie between that crossing and the crossing on links of 250 us
// (docs/explanation/notes/collectives.md, "The choice of auto").
func Choose(k Kind, ranks int, bytes uint64, rails bool) string {
	switch {
	case k == AllReduce && (bytes*uint64(ranks) <= autoRounds || ranks == 2 && bytes <= autoPair):
		return RecursiveDoubling
	case k.Rooted() && bytes <= autoShort:
		return Binomial
	case rails && slices.Contains(Choices(k), Hierarchical):
		return Hierarchical
	case k == AllReduce && ranks >= autoTreeFrom && bytes <= uint64(ranks)*autoTree:
		return Tree
	}
	return append(Choices(k), Ring)[0]
}
