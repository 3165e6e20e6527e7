package runner

import (
	"slices"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/plan/spec"
	"railbed/workloads/stacks"
)

// TestResultsAreInFileOrder: background steps may end in another order than the file has them in.
func TestResultsAreInFileOrder(t *testing.T) {
	s := &session{
		file: &spec.Testbed{Steps: []spec.Step{
			{Stack: &spec.Stack{Name: "s1"}}, {Workload: &spec.Workload{Name: "a"}},
			{Stack: &spec.Stack{Name: "s2"}}, {Workload: &spec.Workload{Name: "b"}},
		}},
		workloads: []judge.Finished{{Name: "b"}, {Name: "a"}},
		stacks:    []stacks.Result{{Stack: report.Stack{Name: "s2"}}, {Stack: report.Stack{Name: "s1"}}},
	}
	var names []string
	for _, w := range s.finished() {
		names = append(names, w.Name)
	}
	for _, r := range s.ran() {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "s1", "s2"}) {
		t.Errorf("%q", names)
	}
	if s.workloads[0].Name != "b" {
		t.Error("the session's own list was sorted")
	}
}
