package schedule

// builder builds a schedule from transfers between ranks. It tracks which buffer of each rank has
// the newest state of each chunk.
type builder struct {
	*Schedule
	at [][]Buffer // by rank and chunk
}

// build starts a schedule. Each rank has the given number of threads, on channels of their own.
func build(s Schedule, ranks, threads int) *builder {
	b := &builder{Schedule: &s, at: make([][]Buffer, ranks)}
	s.Ranks = make([][]Thread, ranks)
	for rank := range ranks {
		b.at[rank] = make([]Buffer, s.Chunks)
		for channel := range threads {
			s.Ranks[rank] = append(s.Ranks[rank], Thread{Channel: channel})
		}
	}
	return b
}

// add appends a step to a rank's thread.
func (b *builder) add(rank, thread int, s Step) {
	t := &b.Ranks[rank][thread]
	t.Steps = append(t.Steps, s)
}

// target returns the buffer in which a rank keeps results for a chunk.
func (b *builder) target(rank, chunk int) Buffer {
	if b.Has(rank, Output, chunk) {
		return Output
	}
	return Scratch
}

// send appends a Send of chunks. A receive or a combine must follow as its other end.
func (b *builder) send(thread, from, to, chunk, count int) {
	b.add(from, thread, Step{Op: Send, Peer: to, Chunk: chunk, Count: count, Source: b.at[from][chunk]})
}

func (b *builder) receive(thread, from, to, chunk, count int) {
	b.take(Receive, thread, from, to, chunk, count)
}

func (b *builder) combine(thread, from, to, chunk, count int) {
	b.take(Combine, thread, from, to, chunk, count)
}

// combineInto combines into a buffer other than the rank's buffer for results.
func (b *builder) combineInto(target Buffer, thread, from, to, chunk, count int) {
	b.takeInto(target, Combine, thread, from, to, chunk, count)
}

func (b *builder) take(op Op, thread, from, to, chunk, count int) {
	b.takeInto(b.target(to, chunk), op, thread, from, to, chunk, count)
}

func (b *builder) takeInto(target Buffer, op Op, thread, from, to, chunk, count int) {
	b.add(to, thread, Step{Op: op, Peer: from, Chunk: chunk, Count: count, Source: b.at[to][chunk],
		Target: target})
	for c := chunk; c < chunk+count; c++ {
		b.at[to][c] = target
	}
}

// keep copies to the output a chunk whose input is already the result.
func (b *builder) keep(rank, chunk int) {
	if b.at[rank][chunk] == Input {
		b.add(rank, 0, Step{Op: Copy, Chunk: chunk, Count: 1, Source: Input, Target: Output})
		b.at[rank][chunk] = Output
	}
}
