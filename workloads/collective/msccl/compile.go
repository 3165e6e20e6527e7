package msccl

import (
	"fmt"
	"slices"

	"railbed/internal/input"
	"railbed/plan/schedule"
)

// compiler makes a schedule from an algorithm.
type compiler struct {
	*algorithm
	file *file
	s    *schedule.Schedule
	// scratch is the number of chunks of the file's own scratch memory.
	scratch int
	// merged is set if input and output are the same memory: the file only runs in place.
	merged bool
	// ends are, for the rank that is compiled, the last compiled steps by the file's thread block
	// and step. temporary is the next free chunk of the rank's scratch memory.
	ends      [][]int
	temporary int
	origins   [][][]origin // by rank, thread and step
}

// origin is the element from which a step was made.
type origin struct {
	*element
	words string
}

// compile makes the schedule. Each thread block becomes the thread with the same number. The
// threads that copy inputs follow.
func compile(f *file, a *algorithm, root int) *compiler {
	c := &compiler{algorithm: a, file: f, merged: a.inPlace && !a.outOfPlace}
	c.s = &schedule.Schedule{
		Kind: a.kind, Algorithm: a.title, Root: root, Chunks: a.chunks, Equal: true,
		OutOfPlace: !a.inPlace, Ranks: make([][]schedule.Thread, a.ranks), Name: c.words,
	}
	c.origins = make([][][]origin, a.ranks)
	for _, g := range a.gpus {
		c.scratch = max(c.scratch, g.chunks["s"])
	}
	for _, g := range a.gpus {
		c.temporary = c.scratch
		if work, first := c.work(g); work == schedule.Scratch {
			c.temporary = first + a.chunks
		}
		c.number(g)
		for _, b := range g.blocks {
			c.block(g, b)
		}
		c.inputs(g)
		c.s.Scratch = max(c.s.Scratch, c.temporary)
	}
	return c
}

// number computes the numbers of a rank's compiled steps.
func (c *compiler) number(g *gpu) {
	c.ends = make([][]int, len(g.blocks))
	for i, b := range g.blocks {
		next := 0
		for _, s := range b.steps {
			switch {
			case s.nop():
			case s.receives && s.sends:
				next += 2
			default:
				next++
			}
			c.ends[i] = append(c.ends[i], next-1)
		}
	}
}

// block compiles a thread block.
func (c *compiler) block(g *gpu, b *block) {
	thread, origins := schedule.Thread{Channel: b.channel}, []origin(nil)
	var after []schedule.At
	if g.copies != nil && b != g.copies {
		after = append(after, schedule.At{Thread: g.copies.id, Step: len(g.copies.steps) - 1})
	}
	for i, s := range b.steps {
		words := fmt.Sprintf("gpu %d tb %d step %d (%s)", g.id, b.id, i, s.verb)
		if b == g.copies {
			words = fmt.Sprintf("gpu %d copy %d", g.id, i)
		}
		if s.waits {
			after = append(after, schedule.At{Thread: s.block, Step: c.ends[s.block][s.after]})
		}
		if s.nop() {
			continue
		}
		for _, made := range c.step(g, b, s) {
			made.After, after = after, nil
			thread.Steps, origins = append(thread.Steps, made), append(origins, origin{s.element, words})
		}
	}
	c.s.Ranks[g.id] = append(c.s.Ranks[g.id], thread)
	c.origins[g.id] = append(c.origins[g.id], origins)
}

// step compiles a step of a thread block to one step, or to two if it receives and sends.
func (c *compiler) step(g *gpu, b *block, s *step) []schedule.Step {
	made := schedule.Step{Peer: b.recv, Count: s.count}
	var from, to int
	if s.reads {
		made.Source, from = c.place(g, s.src)
	}
	switch {
	case s.writes:
		made.Target, to = c.place(g, s.dst)
	case s.receives: // and only sends the result
		made.Target, to = schedule.Scratch, c.temporary
		c.temporary += s.count
	}
	made.Chunk, made.Move = from, to-from
	switch {
	case s.receives && s.reads:
		made.Op = schedule.Combine
	case s.receives:
		made.Op, made.Chunk, made.Move = schedule.Receive, to, 0
	case s.adds:
		made.Op, made.Peer = schedule.Accumulate, 0
	case s.writes:
		made.Op, made.Peer = schedule.Copy, 0
	default:
		return []schedule.Step{{Op: schedule.Send, Peer: b.send, Chunk: from, Count: s.count,
			Source: made.Source}}
	}
	if s.sends {
		return []schedule.Step{made, {Op: schedule.Send, Peer: b.send, Chunk: to, Count: s.count,
			Source: made.Target}}
	}
	return []schedule.Step{made}
}

// place returns where a rank has a chunk of the file.
func (c *compiler) place(g *gpu, at reference) (schedule.Buffer, int) {
	if at.buffer == "s" {
		return schedule.Scratch, at.offset
	}
	chunk := at.offset
	if each := c.chunks / c.ranks; at.buffer == "i" && c.kind.SharesOf(schedule.Input) ||
		at.buffer == "o" && c.kind.SharesOf(schedule.Output) {
		chunk += g.id * each
	}
	if c.merged || at.buffer == "i" {
		buffer, first := c.work(g)
		return buffer, first + chunk
	}
	return schedule.Output, chunk
}

// work returns where a rank has its input, and in place its output too: the buffer, and the number
// of its first chunk. A file that changes an input that is not the output works on a copy of the
// input. In place, so do a reduce-scatter and a reduce, which keep only a part of the output.
func (c *compiler) work(g *gpu) (b schedule.Buffer, first int) {
	switch {
	case c.merged && c.kind != schedule.ReduceScatter && c.kind != schedule.Reduce:
		return schedule.Output, 0
	case c.merged, g.changes && !c.inPlace:
		return schedule.Scratch, c.scratch
	}
	return schedule.Input, 0
}

// inputs adds the thread of a rank that first copies its input to the memory on which the file
// works, and the thread that copies the results from there.
func (c *compiler) inputs(g *gpu) {
	work, first := c.work(g)
	if work == schedule.Input {
		return
	}
	own := len(g.blocks)
	thread := schedule.Thread{Steps: c.copies(g, schedule.Input, work, 0, first)}
	if copied := len(thread.Steps); copied > 0 {
		for i := range c.s.Ranks[g.id] {
			if steps := c.s.Ranks[g.id][i].Steps; len(steps) > 0 {
				steps[0].After = append(steps[0].After, schedule.At{Thread: own, Step: copied - 1})
			}
		}
	}
	if c.merged && work == schedule.Scratch {
		results := c.copies(g, work, schedule.Output, first, 0)
		if len(results) > 0 {
			for i, t := range c.s.Ranks[g.id] {
				if len(t.Steps) > 0 {
					results[0].After = append(results[0].After,
						schedule.At{Thread: i, Step: len(t.Steps) - 1})
				}
			}
		}
		thread.Steps = append(thread.Steps, results...)
	}
	c.s.Ranks[g.id] = append(c.s.Ranks[g.id], thread)
	origins := slices.Repeat([]origin{{g.element, fmt.Sprintf("gpu %d: copy of its input or output", g.id)}},
		len(thread.Steps))
	c.origins[g.id] = append(c.origins[g.id], origins)
}

// copies returns steps that copy all chunks of a rank from one buffer to another. first and toFirst
// are the numbers of the buffers' first chunks.
func (c *compiler) copies(g *gpu, from, to schedule.Buffer, first, toFirst int) (steps []schedule.Step) {
	given := from // the buffer that may lack chunks
	if from == schedule.Scratch {
		given = to
	}
	for chunk := range c.chunks {
		if !c.s.Has(g.id, given, chunk) {
			continue
		}
		if last := len(steps) - 1; last >= 0 && !c.kind.Shares() &&
			steps[last].Chunk+steps[last].Count == first+chunk {
			steps[last].Count++ // if ranks have shares, several chunks would be one message
			continue
		}
		steps = append(steps, schedule.Step{Op: schedule.Copy, Chunk: first + chunk, Count: 1, Source: from,
			Target: to, Move: toFirst - first})
	}
	return steps
}

// words returns the name of a step in errors.
func (c *compiler) words(rank int, at schedule.At) string {
	o := c.origins[rank][at.Thread][at.Step]
	line, _ := input.Position(c.file.bytes, o.start)
	return fmt.Sprintf("%s in line %d", o.words, line)
}
