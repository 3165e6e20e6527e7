package collective

// sliceBytes is the most bytes that one message carries. It is small enough that a slice is still
// in the cache when it is reduced and sent on. It is also small enough that a chunk of a large
// buffer has many slices, so that reduction overlaps with transfer. It is large enough that a
// header and a reply per slice cost little.
const sliceBytes = 256 << 10

// slicesPerChunk is the number of slices of a chunk before slices grow to sliceBytes. minSliceBytes
// is the least size of a slice with that number.
const (
	slicesPerChunk = 4
	minSliceBytes  = 16 << 10
)

// layout is how a ring cuts a buffer. There is one chunk per rank, and the first count % ranks
// chunks are one element longer. All slices of a chunk have the same length, except the last.
type layout struct {
	ranks, count int
	slice        int // elements of a slice
	slices       int // slices of the longest chunk
	// scatter is set if chunks are only reduced, not gathered. Then each chunk ends at the rank of
	// its number, one rank further than where the reduction ends before a gather.
	scatter bool
}

func newLayout(ranks, count, elementSize int) layout {
	longest := max(1, (count+ranks-1)/ranks)
	slice := (longest + slicesPerChunk - 1) / slicesPerChunk
	slice = min(max(slice, minSliceBytes/elementSize), sliceBytes/elementSize)
	return layout{ranks: ranks, count: count, slice: slice, slices: (longest + slice - 1) / slice}
}

// steps returns how often each chunk is sent: n-1 times to be reduced and n-1 times to be gathered.
func (l layout) steps() int {
	if l.scatter {
		return l.ranks - 1
	}
	return 2 * (l.ranks - 1)
}

// starts returns the rank that sends a chunk first.
func (l layout) starts(chunk int) int {
	if l.scatter {
		return (chunk + 1) % l.ranks
	}
	return chunk
}

// bounds returns the elements [from, to) of a chunk.
func (l layout) bounds(chunk int) (from, to int) {
	from, _ = l.part(chunk, 0)
	_, to = l.part(chunk, l.slices)
	return from, to
}

// part returns the elements [from, to) of one slice of a chunk. It is empty if a short chunk has no
// such slice.
func (l layout) part(chunk, slice int) (from, to int) {
	short, long := l.count/l.ranks, l.count%l.ranks
	start := chunk*short + min(chunk, long)
	end := start + short
	if chunk < long {
		end++
	}
	return min(start+slice*l.slice, end), min(start+(slice+1)*l.slice, end)
}

// sends returns the chunk that a rank sends in a step. The rank receives the chunk that the
// previous rank sends. Steps 0..n-2 send partial sums, and the later steps results.
func (l layout) sends(rank, step int) int {
	return (rank - l.starts(0) - step + 2*l.ranks) % l.ranks
}

// total returns the sum of some numbers.
func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}
