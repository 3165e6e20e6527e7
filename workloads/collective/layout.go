package collective

// sliceBytes is the most that one message carries. It is small enough that a
// slice is still in the cache when it is reduced and sent on, and that a
// chunk of a large buffer has many slices, so that reduction overlaps with
// transfer; it is large enough that a header and a reply per slice do not show.
const sliceBytes = 256 << 10

// slicesPerChunk is how many slices a chunk is cut into before slices grow to
// sliceBytes, and minSliceBytes how small they may become for that.
const (
	slicesPerChunk = 4
	minSliceBytes  = 16 << 10
)

// layout is how a ring cuts a buffer: into one chunk per rank, the first
// count % ranks of them one element longer, and each chunk into slices of one
// length but for the last.
type layout struct {
	ranks, count int
	slice        int // elements of a slice
	slices       int // slices of the longest chunk
	// scatter is that chunks are reduced alone: each ends at the rank of its number, which is one
	// further than with the gather behind it.
	scatter bool
}

func newLayout(ranks, count, elementSize int) layout {
	longest := (count + ranks - 1) / ranks
	slice := (longest + slicesPerChunk - 1) / slicesPerChunk
	slice = min(max(slice, minSliceBytes/elementSize), sliceBytes/elementSize)
	return layout{ranks: ranks, count: count, slice: slice, slices: (longest + slice - 1) / slice}
}

// steps is how often each chunk travels: n-1 times to be reduced and n-1
// times to be gathered.
func (l layout) steps() int {
	if l.scatter {
		return l.ranks - 1
	}
	return 2 * (l.ranks - 1)
}

// starts is the rank that sends a chunk first.
func (l layout) starts(chunk int) int {
	if l.scatter {
		return (chunk + 1) % l.ranks
	}
	return chunk
}

// bounds are the elements of a chunk.
func (l layout) bounds(chunk int) (from, to int) {
	from, _ = l.part(chunk, 0)
	_, to = l.part(chunk, l.slices)
	return from, to
}

// part is the elements [from, to) of one slice of a chunk. It is empty where
// a short chunk has no such slice.
func (l layout) part(chunk, slice int) (from, to int) {
	short, long := l.count/l.ranks, l.count%l.ranks
	start := chunk*short + min(chunk, long)
	end := start + short
	if chunk < long {
		end++
	}
	return min(start+slice*l.slice, end), min(start+(slice+1)*l.slice, end)
}

// sends is the chunk that a rank sends in a step; what it receives is what
// the rank before it sends. In steps 0..n-2 partial sums travel, in the later
// ones results.
func (l layout) sends(rank, step int) int {
	return (rank - l.starts(0) - step + 2*l.ranks) % l.ranks
}

// messages is how many a rank sends in an operation.
func (l layout) messages(rank int) (n int) {
	for step := range l.steps() {
		chunk := l.sends(rank, step)
		for slice := range l.slices {
			if from, to := l.part(chunk, slice); from < to {
				n++
			}
		}
	}
	return n
}
