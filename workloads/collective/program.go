package collective

import (
	"fmt"
	"slices"

	"railbed/workloads/collective/schedule"
)

// Program is a schedule for a whole buffer of some length, checked, with the memory that
// it needs. It is never changed, and safe for concurrent use.
type Program struct {
	schedule *schedule.Schedule
	plans    [2]*schedule.Plan // by Mode
	count    int               // elements of the whole buffer
	slices   int               // of each chunk, of which each runs on its own
	scratch  int               // elements of scratch memory
}

// NewProgram checks a schedule for a whole buffer of count elements. For an all-gather
// that is what a rank has at the end, for a reduce-scatter what it has at first.
func NewProgram(s *schedule.Schedule, count int) (*Program, error) {
	p := &Program{schedule: s, count: count, slices: 1}
	for _, mode := range []Mode{OutOfPlace, InPlace} {
		plan, err := schedule.Check(s, mode == InPlace)
		if err != nil {
			return nil, err
		}
		p.plans[mode] = plan
	}
	if count < 0 || s.Kind == schedule.Barrier && count != 0 {
		return nil, fmt.Errorf("make program: %s of %d elements", s.Kind, count)
	}
	if count > 0 {
		p.slices = newLayout(s.Chunks, count).slices
	}
	ranges := false
	for rank, threads := range s.Ranks {
		for _, t := range threads {
			for i := range t.Steps {
				step := &t.Steps[i]
				ranges = ranges || step.Count > 1
				if step.Op != schedule.Receive && step.Source == schedule.Scratch || step.Op != schedule.Send && step.Target == schedule.Scratch {
					p.scratch = count
				}
			}
		}
		if messages := p.slices * p.steps(rank); messages >= clearToSend {
			return nil, fmt.Errorf("make program: %d steps of rank %d, limit %d", messages, rank, clearToSend-1)
		}
	}
	if ranges && s.Kind.Shares() {
		p.slices = 1 // several chunks have one slice together only where that is all of them
	}
	return p, nil
}

// steps is how many steps a rank has.
func (p *Program) steps(rank int) (steps int) {
	for _, t := range p.schedule.Ranks[rank] {
		steps += len(t.Steps)
	}
	return steps
}

// divide is part i of several as equal ones of [from, to), the first ones being longer by
// an element where there is a rest.
func divide(from, to, parts, i int) (int, int) {
	short, long := (to-from)/parts, (to-from)%parts
	start := from + i*short + min(i, long)
	if i < long {
		short++
	}
	return start, start + short
}

// part is the elements of a slice of chunks. Where ranks have shares, chunks are whole
// and divided into slices; elsewhere slices are, and divided into chunks, so that several
// chunks are one message.
func (p *Program) part(chunk, count, slice int) (from, to int) {
	if count == 0 {
		return 0, 0
	}
	bound := func(chunk int) (int, int) {
		if p.schedule.Kind.Shares() {
			from, to := divide(0, p.count, p.schedule.Chunks, chunk)
			return divide(from, to, p.slices, slice)
		}
		from, to := divide(0, p.count, p.slices, slice)
		return divide(from, to, p.schedule.Chunks, chunk)
	}
	from, _ = bound(chunk)
	_, to = bound(chunk + count - 1)
	return from, to
}

// Span is the elements of the whole buffer that a rank's input or output has out of
// place.
func (p *Program) Span(rank int, b schedule.Buffer) (from, to int) {
	s := p.schedule
	if s.Kind == schedule.Barrier {
		return 0, 0
	}
	if s.Kind == schedule.AllGather && b == schedule.Input || s.Kind == schedule.ReduceScatter && b == schedule.Output {
		each := s.Chunks / len(s.Ranks)
		from, _ = divide(0, p.count, s.Chunks, rank*each)
		_, to = divide(0, p.count, s.Chunks, (rank+1)*each-1)
		return from, to
	}
	if !s.Has(rank, b, 0) {
		return 0, 0
	}
	return 0, p.count
}

// Whole is the buffer that is both in place: the one that has the whole buffer at all
// ranks.
func (p *Program) Whole() schedule.Buffer {
	if k := p.schedule.Kind; k == schedule.ReduceScatter || k == schedule.Reduce {
		return schedule.Input
	}
	return schedule.Output
}

// WorkLen is how many elements a rank needs beside its input and output: scratch memory,
// and places for messages that cannot land where they belong.
func (p *Program) WorkLen(rank int) int {
	_, outOfPlace := p.landings(rank, OutOfPlace)
	_, inPlace := p.landings(rank, InPlace)
	return max(outOfPlace, inPlace)
}

// landings are where in a rank's work memory the messages land that have places there, by
// slice and step; and the length of that memory.
func (p *Program) landings(rank int, mode Mode) (at []int, length int) {
	length = p.scratch
	for slice := range p.slices {
		for thread, t := range p.schedule.Ranks[rank] {
			for i := range t.Steps {
				step := &t.Steps[i]
				at = append(at, length)
				if takes(step) && !p.plans[mode].Direct[rank][thread][i] {
					from, to := p.part(step.Chunk, step.Count, slice)
					length += to - from
				}
			}
		}
	}
	return at, length
}

func takes(s *schedule.Step) bool { return s.Op == schedule.Receive || s.Op == schedule.Combine }

// place is memory of a rank: elements of one of its buffers, Scratch being its work
// memory.
type place struct {
	buffer   schedule.Buffer
	from, to int
}

// place is where a rank has elements of the whole buffer in one of its buffers.
func (p *Program) place(rank int, mode Mode, b schedule.Buffer, from, to int) place {
	if b == schedule.Scratch {
		return place{b, from, to}
	}
	if mode == InPlace {
		return place{p.Whole(), from, to}
	}
	start, _ := p.Span(rank, b)
	return place{b, from - start, to - start}
}

// lands is where a message lands that a step of a rank takes; landing is where it would in
// work memory.
func (p *Program) lands(rank int, mode Mode, at schedule.At, from, to, landing int) place {
	if p.plans[mode].Direct[rank][at.Thread][at.Step] {
		return p.place(rank, mode, p.schedule.Ranks[rank][at.Thread].Steps[at.Step].Target, from, to)
	}
	return place{schedule.Scratch, landing, landing + to - from}
}

// Partners are the ranks with which a rank exchanges messages, in order.
func (p *Program) Partners(rank int) []int {
	var partners []int
	for _, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			if step := &t.Steps[i]; step.Op != schedule.Copy {
				partners = append(partners, step.Peer)
			}
		}
	}
	slices.Sort(partners)
	return slices.Compact(partners)
}
