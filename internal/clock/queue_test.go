package clock

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue compares a queue with a stable sort of the pushed items.
func TestQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type pushed struct {
		at     Time
		number int
	}
	for range 100 {
		var q Queue[int]
		var open []pushed
		for n := range 300 {
			if random.IntN(3) > 0 {
				at := Time(random.IntN(20))
				q.Push(at, n)
				open = append(open, pushed{at, n})
			}
			slices.SortStableFunc(open, func(a, b pushed) int { return cmp.Compare(a.at, b.at) })
			if q.Len() != len(open) || len(open) == 0 && q.Next() != Never ||
				len(open) > 0 && q.Next() != open[0].at {
				t.Fatalf("%d wait, the first for %d; want %v", q.Len(), q.Next(), open)
			}
			if len(open) > 0 && random.IntN(3) == 0 {
				if at, number := q.Pop(); (pushed{at, number}) != open[0] {
					t.Fatalf("%d at %d comes, want %v", number, at, open[0])
				}
				open = open[1:]
			}
		}
		if q.Count() < uint64(q.Len()) {
			t.Errorf("%d went in, %d are left", q.Count(), q.Len())
		}
	}
}
