package collective

import (
	"fmt"

	"railbed/internal/element"
	"railbed/internal/units"
	"railbed/plan/schedule"
)

// Ring is the Algorithm that sums float32 around a ring: n-1 steps of reduce-scatter, then n-1 of all-gather.
// It is by Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
// Parts of sums may be lost. And a Ring needs no proof, as a Program does: the time of that proof grows with
// the cube of the number of ranks. Input and Output of each rank have Count elements. In place, Input is
// scratch memory.
type Ring struct {
	Ranks, Count int
	// Droppable is the share of each message's bytes that the transport may leave out of partial
	// sums. Missing elements count as 0, and the sum continues with the receiving rank's elements.
	// Results always arrive completely, so that they are the same everywhere.
	Droppable units.Ratio
	// Scatter is set if each rank gets only the chunk of the sum that has its number, at that
	// chunk's position in Output. The rest of Output then has no defined content.
	Scatter bool
}

// NewRing checks a ring.
func NewRing(r Ring) (*Ring, error) {
	if r.Ranks < 1 || r.Count < 0 {
		return nil, fmt.Errorf("make ring: %d elements at %d ranks, want at least 0 and 1", r.Count, r.Ranks)
	}
	if l := r.layout(); l.steps()*l.slices >= clearToSend {
		return nil, fmt.Errorf("make ring: %d messages per operation, limit %d", l.steps()*l.slices,
			clearToSend-1)
	}
	return &r, nil
}

func (r *Ring) layout() layout {
	l := newLayout(r.Ranks, r.Count, floatSize)
	l.scatter = r.Scatter
	return l
}

func (r *Ring) traits() traits {
	t := traits{kind: schedule.AllReduce, algorithm: "ring", ranks: r.Ranks, data: element.Float32,
		op: element.Sum, modes: []Mode{OutOfPlace, InPlace}, lastSignaled: true}
	if r.Scatter {
		t.kind = schedule.ReduceScatter
	}
	return t
}

func (r *Ring) next(rank int) int { return (rank + 1) % r.Ranks }
func (r *Ring) prev(rank int) int { return (rank + r.Ranks - 1) % r.Ranks }

// Partners implements Algorithm.
func (r *Ring) Partners(rank int) []int {
	switch r.Ranks {
	case 1:
		return nil
	case 2:
		return []int{r.next(rank)}
	}
	return []int{r.next(rank), r.prev(rank)}
}

// Lengths implements Algorithm.
func (r *Ring) Lengths(int) Memory[int] {
	return Memory[int]{Input: r.Count * floatSize, Output: r.Count * floatSize}
}

// buffer implements Algorithm.
func (r *Ring) buffer(rank int, mode Mode, b schedule.Buffer) (place, int) {
	from, to := 0, r.Count
	if b == schedule.Output && r.Scatter {
		from, to = r.layout().bounds(rank)
	}
	if mode == InPlace {
		b = schedule.Output
	}
	return place{b, from, to}.times(floatSize), from
}

// actions implements Algorithm. Message step*slices+slice is a slice of the chunk that travels in a step.
// The steps of a rank are the receptions of all slices in all steps, then the sends.
func (r *Ring) actions(rank int, mode Mode, add func(action)) (threads []int) {
	landing, own := schedule.Output, schedule.Input // of partial sums, and of the rank's elements
	if mode == InPlace {
		landing, own = own, landing
	}
	if r.Ranks == 1 {
		whole := place{schedule.Input, 0, r.Count}.times(floatSize)
		if own == schedule.Input {
			add(action{op: schedule.Copy, source: whole, target: place{schedule.Output, 0, whole.to},
				taken: noStep, arrived: noStep})
		}
		return nil
	}
	l := r.layout()
	// message returns an action that takes or sends the message that sender sends.
	message := func(op schedule.Op, peer, sender, step, slice int) action {
		from, to := l.part(l.sends(sender, step), slice)
		whole := place{schedule.Output, from, to}.times(floatSize)
		a := action{op: op, peer: peer, source: whole, target: whole, landed: whole, message: from < to,
			imm: uint32(step*l.slices + slice), first: from, taken: noStep, arrived: noStep}
		if step < r.Ranks-1 {
			a.landed.buffer = landing
			a.droppable = int(r.Droppable.Of(units.Bytes(whole.len())))
		}
		return a
	}
	add(action{op: permit, peer: r.prev(rank), taken: noStep, arrived: noStep})
	for step := range l.steps() {
		for slice := range l.slices {
			a := message(schedule.Receive, r.prev(rank), r.prev(rank), step, slice)
			if a.message {
				a.taken = step
			}
			if step < r.Ranks-1 {
				a.op, a.source.buffer = schedule.Combine, own
				a.combine = []combination{{0, a.target.len(), sum}}
			}
			add(a)
		}
	}
	for step := range l.steps() {
		for slice := range l.slices {
			a := message(schedule.Send, r.next(rank), rank, step, slice)
			if step == 0 {
				a.source.buffer = own
			} else {
				a.after = []int{1 + (step-1)*l.slices + slice}
			}
			add(a)
		}
	}
	return []int{l.steps()}
}

// wrong implements Algorithm.
func (r *Ring) wrong(p *Pattern, _ int, output []byte, from, iteration int, lost []Loss) (wrong,
	short uint64) {
	return p.wrongBut(r.layout(), Floats(output), from, iteration, lost)
}
