package collective

import (
	"slices"

	"railbed/plan/schedule"
)

// number returns the number of a step among the steps of a rank.
func (p *Program) number(rank int, at schedule.At) int {
	for _, t := range p.schedule.Ranks[rank][:at.Thread] {
		at.Step += len(t.Steps)
	}
	return at.Step
}

// actions implements Algorithm. After the permissions there are all steps of the first slice, then those
// of the second, and so on.
func (p *Program) actions(rank int, mode Mode, add func(action)) []int {
	var senders []int
	for _, t := range p.schedule.Ranks[rank] {
		for i := range t.Steps {
			if peer := t.Steps[i].Peer; takes(t.Steps[i].Op) && !slices.Contains(senders, peer) {
				senders = append(senders, peer)
				add(action{op: permit, peer: peer, taken: noStep, arrived: noStep})
			}
		}
	}
	steps := p.steps(rank)
	taken, arrived, threads := p.logged(rank)
	for slice := range p.slices {
		before := len(senders) + slice*steps
		for thread, t := range p.schedule.Ranks[rank] {
			for i := range t.Steps {
				at := schedule.At{Thread: thread, Step: i}
				own := p.number(rank, at)
				a := p.action(rank, mode, slice, at)
				if i > 0 {
					a.after = append(a.after, before+own-1)
				}
				for _, other := range t.Steps[i].After {
					a.after = append(a.after, before+p.number(rank, other))
				}
				for _, send := range p.plans[mode].Unsent[rank][thread][i] {
					a.unsent = append(a.unsent, before+p.number(rank, send))
				}
				a.taken, a.arrived = taken[own], arrived[own]
				add(a)
			}
		}
	}
	return threads
}

// action returns a step for one slice.
func (p *Program) action(rank int, mode Mode, slice int, at schedule.At) action {
	step, size := &p.schedule.Ranks[rank][at.Thread].Steps[at.Step], p.data.Type.Size()
	from, to := p.source(step, slice)
	some := from < to // its target has the same number of elements
	// A slice without elements has no message, except in a barrier.
	a := action{op: step.Op, peer: step.Peer, message: !step.Op.Local() && (some || step.Count == 0)}
	if some && step.Op != schedule.Receive {
		a.source = p.place(rank, mode, step.Source, from, to).times(size)
	}
	if some && step.Op != schedule.Send {
		from, to := p.target(step, slice)
		a.target = p.place(rank, mode, step.Target, from, to).times(size)
		if step.Op == schedule.Combine || step.Op == schedule.Accumulate {
			a.combine = p.combinations(rank, mode, slice, at)
		}
	}
	receiver, end := rank, at
	switch {
	case !a.message:
		return a
	case step.Op == schedule.Send:
		receiver, end = step.Peer, p.plans[mode].Other[rank][at.Thread][at.Step]
	}
	number := slice*p.steps(receiver) + p.number(receiver, end)
	if a.imm = uint32(number); some {
		from, to := p.target(&p.schedule.Ranks[receiver][end.Thread].Steps[end.Step], slice)
		landings := p.landings(receiver, mode)
		a.landed = p.lands(receiver, mode, end, from, to, landings.at[number]).times(size)
		if p.eager {
			a.turn = landings.turn(p) * size
		}
	}
	return a
}

// logged returns the steps of a StepLog to which a rank's steps belong, and the number of them in each
// thread. They are the groups of each thread: see groups.
func (p *Program) logged(rank int) (taken, arrived, threads []int) {
	all := 0
	for _, t := range p.schedule.Ranks[rank] {
		numbers, sends := groups(t.Steps)
		for i, group := range numbers {
			taken, arrived = append(taken, noStep), append(arrived, noStep)
			switch last := len(taken) - 1; {
			case t.Steps[i].Op != schedule.Send:
				taken[last] = all + group
			case sends[group]:
				arrived[last] = all + group
			}
		}
		all += len(sends)
		threads = append(threads, len(sends))
	}
	return taken, arrived, threads
}

// groups numbers the groups of a thread's steps. A group ends before a send that follows a receive. sends
// has true for each group that receives nothing.
func groups(steps []schedule.Step) (numbers []int, sends []bool) {
	for i := range steps {
		if len(sends) == 0 || steps[i].Op == schedule.Send && !sends[len(sends)-1] {
			sends = append(sends, true)
		}
		if takes(steps[i].Op) {
			sends[len(sends)-1] = false
		}
		numbers = append(numbers, len(sends)-1)
	}
	return numbers, sends
}
