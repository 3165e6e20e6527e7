// Package completion is the queue between what works in an endpoint and who
// polls it. Every transport has one.
package completion

import (
	"context"
	"sync"

	"railbed/transports"
)

// receiveLimit is how many immediates wait to be polled before the endpoint
// stops taking more of its peers. Completions of requests need no limit: the
// queues of the peers bound them.
const receiveLimit = 1024

// Queue is where every goroutine of an endpoint reports. It is safe for
// concurrent use.
type Queue struct {
	mu       sync.Mutex
	items    []transports.Completion // from head on
	head     int
	receives int // OpReceive among the items, and reserved
	closed   bool
	wake     chan struct{} // closed at the next push; nil when nobody waits
	room     sync.Cond     // receives fell, or closed
}

// New makes a queue.
func New() *Queue {
	q := &Queue{}
	q.room.L = &q.mu
	return q
}

// Push reports the end of requests or of a peer, and immediates for which there
// is room since Reserve.
func (q *Queue) Push(done ...transports.Completion) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.appendLocked(done...)
}

// appendLocked moves the items to the front before the slice would grow, so
// that a queue that never runs empty stays as long as what is in it.
func (q *Queue) appendLocked(done ...transports.Completion) {
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

// TryReceive reports an immediate unless too many wait already.
func (q *Queue) TryReceive(c transports.Completion) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.receives >= receiveLimit {
		return false
	}
	q.receives++
	q.appendLocked(c)
	return true
}

// Reserve keeps room for an immediate that is pushed soon; false is none.
func (q *Queue) Reserve() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.receives >= receiveLimit {
		return false
	}
	q.receives++
	return true
}

// Unreserve gives room back that Reserve kept.
func (q *Queue) Unreserve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.receives--
	q.room.Broadcast()
}

// AwaitRoom waits until TryReceive can succeed; false when the queue closed.
func (q *Queue) AwaitRoom() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.receives >= receiveLimit && !q.closed {
		q.room.Wait()
	}
	return !q.closed
}

// Poll moves completions out, as transports.Endpoint.Poll does.
func (q *Queue) Poll(to []transports.Completion) int {
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

// Wait is transports.Endpoint.Wait.
func (q *Queue) Wait(ctx context.Context) error {
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

// Close wakes everybody; what was pushed stays to be polled.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.appendLocked()
	q.room.Broadcast()
}
