package flows

import (
	"cmp"
	"slices"
	"time"
)

// Prompt is a request of a Cache, in the schedule's time.
type Prompt struct {
	Arrived time.Duration
	// Begun and Computed are the times at which its prefill rank begins and ends its computation.
	Begun, Computed time.Duration
	To              int // the rank that decodes it
	Output          int // number of output tokens
}

// Decode describes how ranks generate tokens. A rank serves up to Slots requests at a time, and
// each of them gets a token in each TokenTime. Other requests wait at the rank with their caches.
type Decode struct {
	Slots     int
	TokenTime time.Duration
}

// Decoded has the times at which the decoding of a request began and ended.
type Decoded struct{ Begun, Done time.Duration }

// Decode simulates decoding. came are the times at which the caches of Prompts had arrived.
func (s *Schedule) Decode(d Decode, came []time.Duration) []Decoded {
	order := make([]int, len(came))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(came[a], came[b]), cmp.Compare(a, b))
	})
	free := map[int][]time.Duration{} // by rank, the times at which its slots are free
	all := make([]Decoded, len(came))
	for _, request := range order {
		p := s.Prompts[request]
		if free[p.To] == nil {
			free[p.To] = make([]time.Duration, d.Slots)
		}
		slots := free[p.To]
		first := 0
		for i, at := range slots {
			if at < slots[first] {
				first = i
			}
		}
		begun := max(came[request], slots[first])
		slots[first] = begun + time.Duration(p.Output)*d.TokenTime
		all[request] = Decoded{begun, slots[first]}
	}
	return all
}
