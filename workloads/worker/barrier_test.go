package worker

import (
	"fmt"
	"testing"
	"time"

	"railbed/plan/spec"
	"railbed/workloads/rank"
)

// TestBarriers holds that no rank ends before all have begun, however late one of them is, and
// that who does is counted.
func TestBarriers(t *testing.T) {
	for i, ranks := range []int{1, 3, 4, 6} {
		j := job(ranks, 0)
		j.Kind, j.Algorithm, j.Transport = spec.Barrier, "", []string{TCP, RD}[i%2]
		late := func(rank int, id rank.OperationID) {
			if rank == id.Index%ranks {
				time.Sleep(5 * time.Millisecond)
			}
		}
		// The others' times have the wait for the late one in them.
		result, err := Run(t.Context(), j, before(late), nil)
		if err != nil || result.Wrong() != 0 || result.OutOfPlace.Min < 5*time.Millisecond ||
			result.Row().OutOfPlace.Unchecked {
			t.Errorf("%d ranks: %v, %+v", ranks, err, result)
		}
	}
	released := time.Unix(100, 0)
	at := func(start, took time.Duration) rank.Done {
		return rank.Done{Start: released.Add(start).UnixNano(), Time: took}
	}
	for want, dones := range map[string][]rank.Done{
		"0 true":  {at(1, 9), at(10, 1), at(5, 7)},
		"2 true":  {at(1, 8), at(10, 1), at(5, 4)},
		"0 false": {at(1, 8), at(-1, 30), at(5, 4)},
	} {
		o := Operation{Checked: true}
		err := barrier{}.add(&o, dones, released, released.Add(20))
		if got := fmt.Sprint(o.Wrong, o.Checked); err != nil || got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
