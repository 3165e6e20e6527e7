package collective

import (
	"railbed/plan/schedule"
)

// number returns the number of a step among the steps of a rank.
func (p *Program) number(rank int, at schedule.At) int {
	for _, t := range p.schedule.Ranks[rank][:at.Thread] {
		at.Step += len(t.Steps)
	}
	return at.Step
}

// link finds for each step the steps that wait for it.
func (r *Runner) link() {
	r.behind = make([][]int, r.steps)
	p, rank := r.config.Program, r.config.Rank
	for thread, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			own := p.number(rank, schedule.At{Thread: thread, Step: i})
			if i > 0 {
				r.behind[own-1] = append(r.behind[own-1], own)
			}
			for _, a := range t.Steps[i].After {
				before := p.number(rank, a)
				r.behind[before] = append(r.behind[before], own)
			}
		}
	}
}

// prepare makes the actions of a mode.
func (r *Runner) prepare(mode Mode) {
	p, rank := r.config.Program, r.config.Rank
	m := &r.modes[mode]
	m.unsent = make([][]int, r.steps)
	waits := make([]int, r.steps)
	for thread, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			own := p.number(rank, schedule.At{Thread: thread, Step: i})
			for _, a := range p.plans[mode].Unsent[rank][thread][i] {
				send := p.number(rank, a)
				m.unsent[send] = append(m.unsent[send], own)
				waits[own]++
			}
		}
	}
	for _, behind := range r.behind {
		for _, i := range behind {
			waits[i]++
		}
	}
	own, _ := p.landings(rank, mode)
	others := map[int][]int{} // landings at the ranks to which this rank sends
	for slice := range p.slices {
		for thread, t := range p.schedule.Ranks[rank] {
			for i := range t.Steps {
				at := schedule.At{Thread: thread, Step: i}
				a := r.action(mode, slice, at, own, others)
				if a.op == schedule.Send {
					a.copied = m.sent
					m.sent += len(a.source)
				}
				m.actions = append(m.actions, a)
				wait := waits[p.number(rank, at)]
				if takes(&t.Steps[i]) && a.message {
					wait++
				}
				m.waits = append(m.waits, wait)
			}
		}
	}
}

// action prepares a step for one slice.
func (r *Runner) action(mode Mode, slice int, at schedule.At, own []int, others map[int][]int) action {
	p, rank := r.config.Program, r.config.Rank
	step := &p.schedule.Ranks[rank][at.Thread].Steps[at.Step]
	from, to := p.source(step, slice)
	some := from < to // its target has the same number of elements
	a := action{op: step.Op, peer: step.Peer, message: isMessage(step, from, to)}
	if some && step.Op != schedule.Receive {
		a.source = r.memory(p.place(rank, mode, step.Source, from, to))
	}
	if some && step.Op != schedule.Send {
		from, to := p.target(step, slice)
		a.target = r.memory(p.place(rank, mode, step.Target, from, to))
		if takes(step) {
			lands := p.lands(rank, mode, at, from, to, own[slice*r.steps+p.number(rank, at)])
			if a.landed = r.memory(lands); p.eager {
				turn := p.turn(rank, mode)
				a.turned = r.memory(place{lands.buffer, lands.from + turn, lands.to + turn})
			}
		}
		if step.Op == schedule.Combine || step.Op == schedule.Accumulate {
			a.combine = p.combinations(rank, mode, slice, at)
		}
	}
	if step.Op == schedule.Send && a.message {
		other := p.plans[mode].Other[rank][at.Thread][at.Step]
		if others[step.Peer] == nil {
			others[step.Peer], _ = p.landings(step.Peer, mode)
		}
		number := slice*p.steps(step.Peer) + p.number(step.Peer, other)
		a.imm = uint32(number)
		if some {
			from, to := p.target(&p.schedule.Ranks[step.Peer][other.Thread].Steps[other.Step], slice)
			lands := p.lands(step.Peer, mode, other, from, to, others[step.Peer][number])
			a.remote, a.offset = r.config.Handles[step.Peer].of(lands.buffer),
				uint64(lands.from*p.data.Type.Size())
			if p.eager {
				a.turn = uint64(p.turn(step.Peer, mode) * p.data.Type.Size())
			}
		}
	}
	return a
}

// isMessage reports whether a step sends or receives a message for these elements of a slice. A
// slice without elements has no message, except in a barrier.
func isMessage(step *schedule.Step, from, to int) bool {
	return !step.Op.Local() && (from < to || step.Count == 0)
}

func (r *Runner) memory(p place) []byte {
	size := r.config.Program.data.Type.Size()
	return r.config.Memory.of(p.buffer)[p.from*size : p.to*size]
}
