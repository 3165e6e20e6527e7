package completion

import (
	"context"
	"sync"

	"railbed/transports"
)

// List is an unbounded queue of items to poll, in order. The zero value is empty. It is safe for
// concurrent use.
type List[T any] struct {
	mu     sync.Mutex
	items  []T // from head on
	head   int
	closed bool
	wake   chan struct{} // closed at the next push; nil when no goroutine waits
}

// Push appends items.
func (l *List[T]) Push(items ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendLocked(items...)
}

// appendLocked moves the items to the front before the slice would grow, so that a list that never
// runs empty needs no more memory than its items.
func (l *List[T]) appendLocked(items ...T) {
	if len(l.items)+len(items) > cap(l.items) && l.head > len(l.items)/2 {
		l.items = append(l.items[:0], l.items[l.head:]...)
		l.head = 0
	}
	l.items = append(l.items, items...)
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// Poll moves the oldest items out, as many as fit into to, and returns their number. It never
// waits.
func (l *List[T]) Poll(to []T) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pollLocked(to)
}

func (l *List[T]) pollLocked(to []T) int {
	n := copy(to, l.items[l.head:])
	clear(l.items[l.head : l.head+n]) // errors are not kept alive
	if l.head += n; l.head == len(l.items) {
		l.items, l.head = l.items[:0], 0
	}
	return n
}

// Empty reports that no item waits to be polled and that more may come.
func (l *List[T]) Empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head == len(l.items) && !l.closed
}

// Wait returns nil once an item can be polled, transports.ErrClosed when the list is closed and
// empty, and the context's error when the context is done.
func (l *List[T]) Wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		switch {
		case l.head < len(l.items):
			l.mu.Unlock()
			return nil
		case l.closed:
			l.mu.Unlock()
			return transports.ErrClosed
		}
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		wake := l.wake
		l.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close wakes all waiting goroutines. Pushed items can still be polled.
func (l *List[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *List[T]) closeLocked() {
	l.closed = true
	l.appendLocked()
}
