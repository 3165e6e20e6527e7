package schedule

// Kind is a kind of collective operation.
type Kind string

// Kinds. The whole buffer has Chunks chunks. If ranks have shares of it, the share of rank r of n
// starts at chunk r*Chunks/n.
const (
	AllReduce     Kind = "all-reduce"     // Input: whole buffers. Output: their sum, at all ranks.
	AllGather     Kind = "all-gather"     // Input: each rank's share. Output: the whole buffer.
	ReduceScatter Kind = "reduce-scatter" // Input: whole buffers. Output: each rank's share of their sum.
	Broadcast     Kind = "broadcast"      // Input: the root's whole buffer. Output: the same at all ranks.
	Reduce        Kind = "reduce"         // Input: whole buffers. Output: their sum at the root.
	Gather        Kind = "gather"         // Input: each rank's share. Output: the whole buffer at the root.
	Scatter       Kind = "scatter"        // Input: the root's whole buffer. Output: each rank's share.
	AllToAll      Kind = "all-to-all"     // Input: whole buffers. Output: this rank's share of each of them.
	// SendReceive is nccl-tests' sendrecv. Input: whole buffers. Output: the buffer of the rank before,
	// and of the last rank at rank 0.
	SendReceive Kind = "sendrecv"
	Barrier     Kind = "barrier" // No data. No rank ends before all have begun.
)

// extent is the part of the whole buffer that a rank's input or output has.
type extent uint8

// Extents. With ofRoot the root has the whole buffer, and other ranks have nothing.
const (
	ofNone extent = iota
	ofWhole
	ofShare
	ofRoot
)

// Properties are the facts about a kind that other packages need.
type Properties struct {
	kind Kind
	// About ends a sentence of the reference that begins with the kind. Sends ends a sentence that begins
	// with the formula of its first algorithm. They are "" if a sentence describes several kinds.
	About, Sends string
	// Program is the program of nccl-tests without _perf, and MSCCL the name in files of MSCCL. They are ""
	// if there is none.
	Program, MSCCL string

	in, out    extent // of inputs and outputs
	combines   bool   // Outputs are made of several ranks' inputs.
	outOfPlace bool   // An operation in place does not exist.
	// source returns the rank and the chunk of its input that a chunk of a rank's output equals. If it is
	// nil, an output has the chunk of the same number of all ranks whose inputs have the chunk.
	source func(s *Schedule, rank, chunk int) (from, fromChunk int)
	// bus is the ratio of busbw to algbw among n ranks. If it is nil, the ratio is (n-1)/n: a rank's own part
	// crosses no link.
	bus func(n float64) float64
}

// kinds are the kinds, in the order of the reference. A new kind is a constant, an element here and an
// element of algorithms: the schema, checks, results and commands get the kind from this file.
var kinds = []Properties{
	{kind: AllReduce, in: ofWhole, out: ofWhole, combines: true,
		bus: func(n float64) float64 { return 2 * (n - 1) / n }, Program: "all_reduce", MSCCL: "allreduce"},
	{kind: AllGather, in: ofShare, out: ofWhole, Program: "all_gather", MSCCL: "allgather"},
	{kind: ReduceScatter, in: ofWhole, out: ofShare, combines: true, Program: "reduce_scatter",
		MSCCL: "reduce_scatter"},
	{kind: Broadcast, in: ofRoot, out: ofWhole, bus: same, Program: "broadcast", MSCCL: "broadcast"},
	{kind: Reduce, in: ofWhole, out: ofRoot, combines: true, bus: same, Program: "reduce", MSCCL: "reduce"},
	{kind: Gather, in: ofShare, out: ofRoot, Program: "gather"},
	{kind: Scatter, in: ofRoot, out: ofShare, Program: "scatter"},
	{kind: AllToAll, in: ofWhole, out: ofWhole, outOfPlace: true, Program: "alltoall", MSCCL: "alltoall",
		source: func(s *Schedule, rank, chunk int) (int, int) {
			each := s.Chunks / len(s.Ranks)
			return chunk / each, rank*each + chunk%each
		}},
	{kind: SendReceive, in: ofWhole, out: ofWhole, bus: same, Program: "sendrecv",
		source: func(s *Schedule, rank, chunk int) (int, int) { return before(rank, len(s.Ranks)), chunk },
		About:  "sends each rank's buffer to the next rank, and the last rank's to the first",
		Sends:  "the size to the next rank"},
	{kind: Barrier, About: "has no data. It is correct if no rank ends before all have begun",
		Sends: "messages without payload, two for each of the log2(n) rounds, rounded up: the message " +
			"of the round, and the permission for the next one"},
}

// algorithm is an algorithm of a kind.
type algorithm struct {
	name string
	// make makes the schedule for a number of ranks. It is nil if Make cannot: see the names.
	make func(k Kind, n, root int) *Schedule
	// sent is the closed formula of Sent, for more than one rank. place is the distance of the rank from the
	// root. If it is nil, the kind's first algorithm has the same formula.
	sent func(n, rank, place int) Share
}

// algorithms are the algorithms of each kind, the default first.
var algorithms = map[Kind][]algorithm{
	AllReduce: {{Ring, ring, twice}, {Tree, doubleTree, sentByTree},
		{HalvingDoubling, halvingDoubling, sentByHalving},
		{RecursiveDoubling, recursiveDoubling, sentByDoubling},
		{name: Auto}, {name: InNetwork}, {name: Hierarchical}, {name: MSCCL}},
	AllGather: {{Ring, ring, others}, {HyperCube, hyperCube, others}, {name: Auto}, {name: Hierarchical},
		{name: MSCCL}},
	ReduceScatter: {{Ring, ring, others}, {name: Auto}, {name: Hierarchical}, {name: MSCCL}},
	Broadcast: {
		{Ring, chain, func(n, _, place int) Share { return Share{min(1, n-1-place), 1} }},
		{Binomial, binomial, func(n, _, place int) Share { return Share{binomialChildren(place, n), 1} }},
		{name: Auto}, {name: MSCCL}},
	Reduce: {{Ring, chain, func(_, _, place int) Share { return Share{min(1, place), 1} }},
		{name: Binomial, make: binomial}, {name: Auto}, {name: MSCCL}},
	Gather:      sharesBy(Gather),
	Scatter:     sharesBy(Scatter),
	AllToAll:    {{Direct, direct, others}, {name: Pairwise}, {name: MSCCL}},
	SendReceive: {{Ring, shift, func(int, int, int) Share { return Share{1, 1} }}},
	Barrier:     {{Dissemination, dissemination, func(int, int, int) Share { return Share{0, 1} }}},
}

// sharesBy returns the algorithms of a gather or a scatter.
func sharesBy(k Kind) (all []algorithm) {
	for _, name := range []string{Direct, Binomial} {
		all = append(all, algorithm{name,
			func(k Kind, n, root int) *Schedule { return shares(k, name, n, root) },
			func(n, _, place int) Share { return Share{sharesPassed(k, name, place, n), n} }})
	}
	return append(all, algorithm{name: Auto}, algorithm{name: MSCCL})
}

func same(float64) float64 { return 1 }

// Properties returns the properties of a kind. An unknown kind has none.
func (k Kind) Properties() *Properties {
	for i := range kinds {
		if kinds[i].kind == k {
			return &kinds[i]
		}
	}
	return new(Properties)
}

// Kinds returns all kinds, in the order of the reference.
func Kinds() (all []Kind) {
	for i := range kinds {
		all = append(all, kinds[i].kind)
	}
	return all
}

// Combines reports whether outputs are made of several ranks' inputs.
func (k Kind) Combines() bool { return k.Properties().combines }

// BusFactor returns the ratio of busbw to algbw among a number of ranks: the rate on a link when every rank
// sends the least that the operation allows (nccl-tests, doc/PERFORMANCE.md).
func (k Kind) BusFactor(ranks int) float64 {
	n := float64(ranks)
	if bus := k.Properties().bus; bus != nil {
		return bus(n)
	}
	return (n - 1) / n
}

// extent returns the extent of an input or an output.
func (k Kind) extent(b Buffer) extent {
	if b == Input {
		return k.Properties().in
	}
	return k.Properties().out
}

// SharesOf reports whether each rank's input or output is its share of the whole buffer.
func (k Kind) SharesOf(b Buffer) bool { return k.extent(b) == ofShare }

// Shares reports whether ranks have shares of the whole buffer, as input or output, or as parts
// that they exchange.
func (k Kind) Shares() bool { return k.SharesOf(Input) || k.SharesOf(Output) || k == AllToAll }

// Rooted reports whether one rank, the root, has data that the others do not have.
func (k Kind) Rooted() bool { return k.extent(Input) == ofRoot || k.extent(Output) == ofRoot }

// HasInPlace reports whether the operation exists in place.
func (k Kind) HasInPlace() bool { return k.extent(Input) != ofNone && !k.Properties().outOfPlace }

// InPlace returns the buffer that holds both buffers in place. The other buffer is a part of it, or
// all of it.
func (k Kind) InPlace() Buffer {
	if k.extent(Output) == ofWhole || k.extent(Input) == ofShare {
		return Output
	}
	return Input
}
