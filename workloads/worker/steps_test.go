package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/element"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// checkSteps requires so many steps of each part of a rank's algorithm, as "8" or "channel 1: 8". They follow
// each other within the operation.
func checkSteps(t *testing.T, name string, s *Span, want ...string) {
	t.Helper()
	var got []string
	for _, steps := range s.Steps {
		got = append(got, strings.TrimPrefix(fmt.Sprintf("%s: %d", steps.Of, steps.Count), ": "))
		ends := slices.Concat([]time.Duration{0, steps.From}, steps.Ends, []time.Duration{s.Took})
		if !slices.IsSorted(ends) || len(steps.Ends) != steps.Count || steps.Each != 1 {
			t.Errorf("%s: the begin, the ends of steps and the end of the operation are %v", name, ends)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: steps %q, want %q", name, got, want)
	}
}

// TestSteps compares the steps that ranks report with closed formulas.
func TestSteps(t *testing.T) {
	mixed := mixtureJob(4, TCP)
	mixed.Algorithm = schedule.Pairwise
	halving, integers := job(8, 1<<20), job(4, 1<<20)
	halving.Algorithm, integers.Type = "halving-doubling", element.Int32
	for name, test := range map[string]struct {
		job  Job
		want []string
	}{
		"long ring":        {job(4, 1<<20), []string{"6"}},
		"short ring":       {job(4, 1<<16), []string{"6"}},
		"ring of integers": {integers, []string{"6"}},
		"halving-doubling": {halving, []string{"6"}},
		"pairwise":         {allToAllJob(4, 1<<16, schedule.Pairwise, RD), []string{"3"}},
		"direct, short": {allToAllJob(4, 1<<16, schedule.Direct, TCP),
			[]string{"thread 0: 1", "thread 1: 1"}},
		"mixture of experts": {mixed, []string{"dispatch: 3", "combine: 3"}},
		"SGD":                {sgdJob(4, 2, TCP, spec.SGD{}), []string{"6"}},
		"ring in channels":   {inChannels(job(4, 1<<16), 2), []string{"channel 0: 6", "channel 1: 6"}},
		"pairwise in channels": {inChannels(allToAllJob(4, 1<<16, schedule.Pairwise, TCP), 2),
			[]string{"channel 0: 3", "channel 1: 3"}},
		"timed in succession": {sweepOf(job(4, 0), 1, 1<<10, 1<<16), nil},
	} {
		result, err := Run(t.Context(), test.job, goroutines{}, nil)
		if err != nil || result.Last == nil {
			t.Fatalf("%s: %v, %+v", name, err, result)
		}
		for _, spans := range []*Spans{result.Last, result.Slowest} {
			for rank := range spans.Ranks {
				checkSteps(t, fmt.Sprintf("%s, rank %d", name, rank), &spans.Ranks[rank], test.want...)
			}
		}
	}
}
