package flows

import (
	"cmp"
	"slices"
	"time"
)

// Prompt is a request of a Cache, in the schedule's time.
type Prompt struct {
	Arrived time.Duration
	// Begun and Computed are when its prefill rank computes it.
	Begun, Computed time.Duration
	To              int // the rank that decodes it
	Output          int // tokens that it gets
}

// Decode is how ranks make tokens: each of up to Slots requests at a time at a rank gets one in
// each TokenTime, and others wait there with their caches.
type Decode struct {
	Slots     int
	TokenTime time.Duration
}

// Decoded is when a request was decoded.
type Decoded struct{ Begun, Done time.Duration }

// Decode plays it, from when the cache of each of Prompts had come.
func (s *Schedule) Decode(d Decode, came []time.Duration) []Decoded {
	order := make([]int, len(came))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(came[a], came[b]), cmp.Compare(a, b))
	})
	free := map[int][]time.Duration{} // by rank, when its slots are
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
