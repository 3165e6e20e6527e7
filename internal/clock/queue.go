package clock

import "container/heap"

// Queue holds items, each with the time at which it is due. It serves simulations, which set the
// time themselves. Items come out in the order of their times; items of the same time come out in
// the order of Push. The zero value is empty. A Queue is not safe for concurrent use.
type Queue[T any] struct {
	items queued[T]
	count uint64 // of all items that were pushed
}

type item[T any] struct {
	at    Time
	order uint64
	what  T
}

// Len returns the number of items in the queue.
func (q *Queue[T]) Len() int { return len(q.items) }

// Count returns the number of items pushed so far.
func (q *Queue[T]) Count() uint64 { return q.count }

// Next returns the time of the first item, or Never if the queue is empty.
func (q *Queue[T]) Next() Time {
	if len(q.items) == 0 {
		return Never
	}
	return q.items[0].at
}

// Push adds an item.
func (q *Queue[T]) Push(at Time, what T) {
	q.count++
	heap.Push(&q.items, item[T]{at, q.count, what})
}

// Pop removes and returns the first item. The queue must not be empty.
func (q *Queue[T]) Pop() (at Time, what T) {
	first := heap.Pop(&q.items).(item[T])
	return first.at, first.what
}

// queued implements heap.Interface.
type queued[T any] []item[T]

func (q queued[T]) Len() int { return len(q) }
func (q queued[T]) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q queued[T]) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queued[T]) Push(x any)   { *q = append(*q, x.(item[T])) }
func (q *queued[T]) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = item[T]{}
	*q = (*q)[:len(*q)-1]
	return last
}
