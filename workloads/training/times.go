package training

import (
	"cmp"
	"slices"
	"time"
)

// Times are how a rank spent an iteration. Together they are its whole length, which is
// from the first rank's begin to the last one's end.
type Times struct {
	// Compute is the time in which the device computed.
	Compute time.Duration `json:"compute"`
	// Exposed is when it did not and bytes were under way for the rank: an operation is
	// under way when the last of its ranks has begun it.
	Exposed time.Duration `json:"exposed"`
	// Idle is the rest: the rank waited for others to begin, as in the bubble of a
	// pipeline, or had nothing to do.
	Idle time.Duration `json:"idle"`
}

// Times divides an iteration from when its tasks were under way, by rank and task.
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

// ExposedBy divides each rank's exposed time among the groups whose bytes were under way: of a
// moment with several of them each has an equal part.
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

// change is the begin or end of something of a group; the empty one is computation.
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

// UnderWay is when the bytes of each exchange were: the n-th time that an operation is done
// is the same one at all of its ranks.
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

// covered is the time that some spans cover, once where they overlap.
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
