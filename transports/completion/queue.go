// Package completion is the queue between the workers of an endpoint and the goroutines that poll
// it. Every transport has one.
package completion

import (
	"sync"

	"railbed/transports"
)

// receiveLimit is the number of immediates waiting to be polled at which the endpoint stops
// accepting more from its peers. Completions of requests need no limit: the peers' queues bound
// them.
const receiveLimit = 1024

// Queue holds the completions of all goroutines of an endpoint: a List that counts immediates. It
// is safe for concurrent use.
type Queue struct {
	List[transports.Completion]
	receives int       // OpReceive among the items, and reserved; under the list's lock
	room     sync.Cond // signals that receives fell, or that the queue closed
}

// New makes a queue.
func New() *Queue {
	q := &Queue{}
	q.room.L = &q.mu
	return q
}

// TryReceive pushes an immediate. It returns false when receiveLimit immediates wait already.
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

// Reserve reserves room for an immediate that is pushed soon. It returns false when there is none.
func (q *Queue) Reserve() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.receives >= receiveLimit {
		return false
	}
	q.receives++
	return true
}

// Unreserve releases room that Reserve reserved.
func (q *Queue) Unreserve() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.receives--
	q.room.Broadcast()
}

// AwaitRoom waits until TryReceive can succeed. It returns false when the queue is closed.
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
	n := q.pollLocked(to)
	freed := 0
	for _, c := range to[:n] {
		if c.Op == transports.OpReceive {
			freed++
		}
	}
	if q.receives -= freed; freed > 0 {
		q.room.Broadcast()
	}
	return n
}

// Close wakes all waiting goroutines. Pushed completions can still be polled.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked()
	q.room.Broadcast()
}
