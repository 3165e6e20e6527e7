package tcp

import (
	"context"
	"sync"

	"railbed/transports"
)

// receiveLimit is how many immediates wait to be polled before the endpoint
// stops reading from its peers. Completions of requests need no limit: the
// queues of the peers bound them.
const receiveLimit = 1024

// completionQueue is where every goroutine of an endpoint reports.
type completionQueue struct {
	mu       sync.Mutex
	items    []transports.Completion // from head on
	head     int
	receives int // OpReceive among the items
	closed   bool
	wake     chan struct{} // closed at the next push; nil when nobody waits
	room     sync.Cond     // receives fell, or closed
}

func newCompletionQueue() *completionQueue {
	q := &completionQueue{}
	q.room.L = &q.mu
	return q
}

// push reports the end of requests or of a peer.
func (q *completionQueue) push(done ...transports.Completion) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.appendLocked(done...)
}

// appendLocked moves the items to the front before the slice would grow, so
// that a queue that never runs empty stays as long as what is in it.
func (q *completionQueue) appendLocked(done ...transports.Completion) {
	if len(q.items)+len(done) > cap(q.items) && q.head > len(q.items)/2 {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	q.items = append(q.items, done...)
	if q.wake != nil {
		close(q.wake)
		q.wake = nil
	}
}

// tryReceive reports an immediate unless too many wait already.
func (q *completionQueue) tryReceive(c transports.Completion) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.receives >= receiveLimit {
		return false
	}
	q.receives++
	q.appendLocked(c)
	return true
}

// awaitRoom waits until tryReceive can succeed; false when the queue closed.
func (q *completionQueue) awaitRoom() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.receives >= receiveLimit && !q.closed {
		q.room.Wait()
	}
	return !q.closed
}

func (q *completionQueue) poll(to []transports.Completion) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := copy(to, q.items[q.head:])
	freed := 0
	for _, c := range to[:n] {
		if c.Op == transports.OpReceive {
			freed++
		}
	}
	clear(q.items[q.head : q.head+n]) // errors are not kept alive
	if q.head += n; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	if q.receives -= freed; freed > 0 {
		q.room.Broadcast()
	}
	return n
}

func (q *completionQueue) wait(ctx context.Context) error {
	for {
		q.mu.Lock()
		switch {
		case q.head < len(q.items):
			q.mu.Unlock()
			return nil
		case q.closed:
			q.mu.Unlock()
			return transports.ErrClosed
		}
		if q.wake == nil {
			q.wake = make(chan struct{})
		}
		wake := q.wake
		q.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close wakes everybody; what was pushed stays to be polled.
func (q *completionQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.appendLocked()
	q.room.Broadcast()
}
