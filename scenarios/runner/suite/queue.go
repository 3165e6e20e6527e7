package suite

import (
	"context"
	"slices"
	"sync"
)

// turn is a repetition, counted from 1, of the case with an index.
type turn struct{ of, repetition int }

// groupsOf returns the indices of the cells of each matrix, and of each case without one.
func groupsOf(cases []Outcome) (groups [][]int) {
	at := map[string]int{} // by matrix
	for i, c := range cases {
		group, known := at[c.Matrix]
		if c.Matrix == "" || !known {
			group = len(groups)
			at[c.Matrix], groups = group, append(groups, nil)
		}
		groups[group] = append(groups[group], i)
	}
	return groups
}

// turns returns all repetitions in the order in which they should begin. A group makes all of its
// repetitions, then the next group begins. The cells of a matrix take turns: A B B A A B. So a host whose
// speed drifts is alike for all cells.
func turns(cases []Outcome, groups [][]int) (all []turn) {
	for _, group := range groups {
		most := 0
		for _, i := range group {
			most = max(most, cases[i].Repeat)
		}
		group = slices.Clone(group)
		for repetition := 1; repetition <= most; repetition++ {
			for _, i := range group {
				if repetition <= cases[i].Repeat {
					all = append(all, turn{i, repetition})
				}
			}
			slices.Reverse(group)
		}
	}
	return all
}

// queue hands out turns in their order. It is safe for concurrent use. The repetitions of a case, and the
// cells of a matrix, do not run beside each other: later cases go before them.
type queue struct {
	groups  []int // of each case
	mu      sync.Mutex
	changed *sync.Cond
	waiting []turn
	busy    map[int]bool // groups
}

func newQueue(cases []Outcome) *queue {
	groups := groupsOf(cases)
	q := &queue{busy: map[int]bool{}, waiting: turns(cases, groups), groups: make([]int, len(cases))}
	q.changed = sync.NewCond(&q.mu)
	for group, members := range groups {
		for _, i := range members {
			q.groups[i] = group
		}
	}
	return q
}

// take waits for a turn that may begin now. It returns false if none is left or ctx has ended.
func (q *queue) take(ctx context.Context) (t turn, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 && ctx.Err() == nil {
		at := slices.IndexFunc(q.waiting, func(t turn) bool { return !q.busy[q.groups[t.of]] })
		if at >= 0 {
			t = q.waiting[at]
			q.waiting = slices.Delete(q.waiting, at, at+1)
			q.busy[q.groups[t.of]] = true
			return t, true
		}
		q.changed.Wait() // the busy ones end if ctx ends
	}
	return turn{}, false
}

// done returns a turn that take handed out. last is set if the case has no other turn.
func (q *queue) done(t turn) (last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy[q.groups[t.of]] = false
	q.changed.Broadcast()
	return !slices.ContainsFunc(q.waiting, func(other turn) bool { return other.of == t.of })
}
