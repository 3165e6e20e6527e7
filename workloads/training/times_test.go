package training

import (
	"maps"
	"slices"
	"testing"
	"time"

	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// Two ranks compute for 10 and 20, then exchange for 5, of which the first one's next
// computation hides 3.
func TestTimes(t *testing.T) {
	p := &Program{
		Operations: []Operation{{"dp", 0, schedule.AllReduce, []int{0, 1}, 8}},
		Tasks: [][]Task{
			{{Name: "a", Kind: Compute, Time: 10}, {Name: "x", Kind: Exchange, After: []int{0}},
				{Name: "b", Kind: Compute, Time: 13}},
			{{Name: "a", Kind: Compute, Time: 20}, {Name: "x", Kind: Exchange, After: []int{0}}},
		},
	}
	spans, err := p.Predict(func(*Operation) time.Duration { return 5 })
	if err != nil {
		t.Fatal(err)
	}
	whole, ranks := p.Times(spans)
	if want := []Times{{Compute: 23, Exposed: 2}, {Compute: 20, Exposed: 5}}; whole != 25 ||
		!slices.Equal(ranks, want) {
		t.Errorf("%d: %v, want 25: %v", whole, ranks, want)
	}
}

// Exposed time is divided among the groups that were under way in it.
func TestExposedBy(t *testing.T) {
	p := &Program{
		Operations: []Operation{{"dp", 0, schedule.AllReduce, []int{0, 1}, 8},
			{"tp", 0, schedule.AllReduce, []int{0, 1}, 8}, {"ep", 0, AllToAll, []int{0, 1}, 8}},
		Tasks: [][]Task{
			{{Kind: Compute}, {Kind: Exchange}, {Kind: Exchange, Operation: 1}, {Kind: Delay},
				{Kind: Exchange, Operation: 2}},
			{{Kind: Compute}, {Kind: Exchange}, {Kind: Exchange, Operation: 1},
				{Kind: Exchange, Operation: 2}},
		},
	}
	spans := [][]Span{{{0, 10}, {5, 20}, {10, 14}, {0, 30}, {20, 24}}, {{0, 2}, {2, 20}, {9, 14}, {20, 24}}}
	got, want := p.ExposedBy(spans),
		[]map[string]time.Duration{{"dp": 8, "tp": 2, "ep": 4}, {"dp": 13, "tp": 2, "ep": 4}}
	_, times := p.Times(spans)
	for rank := range want {
		var sum time.Duration
		for _, d := range got[rank] {
			sum += d
		}
		if !maps.Equal(got[rank], want[rank]) || sum != times[rank].Exposed {
			t.Errorf("rank %d: %v of %v, want %v", rank, got[rank], times[rank].Exposed, want[rank])
		}
	}
}

// The bubble of a pipeline is idle, not exposed communication.
func TestTimesOfAPipeline(t *testing.T) {
	_, p := compile(t, func(m *spec.Model) { m.PP, m.GlobalBatch = 4, 4 })
	all, want := spans(t, p, 0)
	whole, ranks := p.Times(all)
	if whole != want {
		t.Errorf("%v, want %v", whole, want)
	}
	for rank, times := range ranks {
		if times.Exposed != 0 || times.Compute != computed(p, rank) || times.Idle != whole-times.Compute ||
			times.Idle == 0 {
			t.Errorf("rank %d: %+v of %v", rank, times, whole)
		}
	}
}
