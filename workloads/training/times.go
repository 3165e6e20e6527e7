package training

import (
	"cmp"
	"slices"
	"time"
)

// Times are the parts of the time of an iteration of a rank. They add up to the
// iteration's length, which is from the first rank's begin to the last rank's end.
type Times struct {
	// Compute is the time in which the device computed.
	Compute time.Duration `json:"compute"`
	// Exposed is the time in which the device did not compute and bytes of the rank were in
	// transit. The bytes of an operation are in transit once the last of its ranks has begun it.
	Exposed time.Duration `json:"exposed"`
	// Idle is the rest. The rank waited for others to begin, as in the bubble of a pipeline, or had
	// nothing to do.
	Idle time.Duration `json:"idle"`
}

// Times computes, from the spans of the tasks by rank and task, the length of an iteration and the
// times of each rank.
func (p *Program) Times(spans [][]Span) (whole time.Duration, ranks []Times) {
	for _, tasks := range spans {
		for _, s := range tasks {
			whole = max(whole, s.End)
		}
	}
	under := p.UnderWay(spans)
	for rank, tasks := range p.Tasks {
		var computed, busy []Span
		for i := range tasks {
			switch tasks[i].Kind {
			case Compute:
				computed = append(computed, spans[rank][i])
			case Exchange:
				busy = append(busy, under[rank][i])
			}
		}
		compute := covered(computed)
		both := covered(append(busy, computed...))
		ranks = append(ranks, Times{Compute: compute, Exposed: both - compute, Idle: whole - both})
	}
	return whole, ranks
}

// ExposedBy divides each rank's exposed time among the groups whose bytes were in transit. If
// several groups were active at a time, each gets an equal part of it.
func (p *Program) ExposedBy(spans [][]Span) (ranks []map[string]time.Duration) {
	under := p.UnderWay(spans)
	for rank, tasks := range p.Tasks {
		var changes []change
		for i := range tasks {
			s, group := under[rank][i], ""
			switch tasks[i].Kind {
			case Delay:
				continue
			case Exchange:
				group = p.Operations[tasks[i].Operation].Group
			}
			if s.End > s.Start {
				changes = append(changes, change{s.Start, group, 1}, change{s.End, group, -1})
			}
		}
		ranks = append(ranks, exposedBy(changes))
	}
	return ranks
}

// change is the begin or end of a task of a group. The empty group is computation.
type change struct {
	at    time.Duration
	group string
	by    int
}

func exposedBy(changes []change) map[string]time.Duration {
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	exposed, active := map[string]time.Duration{}, map[string]int{}
	var last time.Duration
	for _, c := range changes {
		if _, computes := active[""]; !computes {
			for group := range active {
				exposed[group] += (c.at - last) / time.Duration(len(active))
			}
		}
		if last = c.at; active[c.group]+c.by == 0 {
			delete(active, c.group)
		} else {
			active[c.group] += c.by
		}
	}
	return exposed
}

// UnderWay returns the spans in which the bytes of exchanges were in transit. The n-th use of an
// operation at one rank belongs to its n-th use at the other ranks.
func (p *Program) UnderWay(spans [][]Span) [][]Span {
	type use struct{ operation, number int }
	begun := map[use]time.Duration{}
	each := func(do func(rank, task int, u use)) {
		for rank, tasks := range p.Tasks {
			count := map[int]int{}
			for i := range tasks {
				if t := &tasks[i]; t.Kind == Exchange {
					do(rank, i, use{t.Operation, count[t.Operation]})
					count[t.Operation]++
				}
			}
		}
	}
	under := make([][]Span, len(spans))
	for rank := range spans {
		under[rank] = slices.Clone(spans[rank])
	}
	each(func(rank, task int, u use) { begun[u] = max(begun[u], spans[rank][task].Start) })
	each(func(rank, task int, u use) {
		s := &under[rank][task]
		s.Start = min(max(s.Start, begun[u]), s.End)
	})
	return under
}

// covered returns the time that the spans cover. Overlaps count once.
func covered(spans []Span) (sum time.Duration) {
	slices.SortFunc(spans, func(a, b Span) int { return int(a.Start - b.Start) })
	var end time.Duration
	for _, s := range spans {
		if s.End > end {
			sum += s.End - max(s.Start, end)
			end = s.End
		}
	}
	return sum
}
