package clock

import "container/heap"

// Queue is what is to happen at moments, for who invents a time: it comes out in the
// order of the moments, and of one moment in the order in which it went in. The zero
// value is empty. A Queue is not safe for concurrent use.
type Queue[T any] struct {
	items queued[T]
	count uint64 // of all that went in
}

type item[T any] struct {
	at    Time
	order uint64
	what  T
}

// Len is how many are to come.
func (q *Queue[T]) Len() int { return len(q.items) }

// Count is how many went in so far.
func (q *Queue[T]) Count() uint64 { return q.count }

// Next is the moment of the first; Never of none.
func (q *Queue[T]) Next() Time {
	if len(q.items) == 0 {
		return Never
	}
	return q.items[0].at
}

// Push adds one.
func (q *Queue[T]) Push(at Time, what T) {
	q.count++
	heap.Push(&q.items, item[T]{at, q.count, what})
}

// Pop takes the first, of which there has to be one.
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
