package suite

import (
	"context"
	"slices"
	"sync"
)

// queue hands out cases in their order. It is safe for concurrent use. Cells of one matrix take turns, so
// that they do not disturb each other: later cases go before them.
type queue struct {
	matrices []string // of all cases, "" for none
	mu       sync.Mutex
	changed  *sync.Cond
	waiting  []int
	busy     map[string]bool // matrices
}

func newQueue(cases []Outcome) *queue {
	q := &queue{busy: map[string]bool{}}
	q.changed = sync.NewCond(&q.mu)
	for i, c := range cases {
		q.matrices = append(q.matrices, c.Matrix)
		q.waiting = append(q.waiting, i)
	}
	return q
}

// take waits for a case that may run now. It returns false if none is left or ctx has ended.
func (q *queue) take(ctx context.Context) (i int, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 && ctx.Err() == nil {
		at := slices.IndexFunc(q.waiting, func(i int) bool { return !q.busy[q.matrices[i]] })
		if at >= 0 {
			i = q.waiting[at]
			q.waiting = slices.Delete(q.waiting, at, at+1)
			q.busy[q.matrices[i]] = q.matrices[i] != ""
			return i, true
		}
		q.changed.Wait() // the busy ones end if ctx ends
	}
	return 0, false
}

// done returns a case that take handed out.
func (q *queue) done(i int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy[q.matrices[i]] = false
	q.changed.Broadcast()
}
