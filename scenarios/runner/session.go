package runner

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/transports/rd/privacy"
	"railbed/workloads/stacks"
)

// session does steps on a running testbed. It is safe for concurrent use.
type session struct {
	file    *spec.Testbed
	plan    *plan.Plan
	testbed *testbed.Testbed
	results *results
	path    string   // of the file, absolute; "" if there is none
	notSeen sync.Map // notes that a node does not see the file's directory
	links   *linkBook
	secret  func() privacy.Material // for a workload that encrypts; nil: a new one
	// ended has a channel for each background step, by name, which is closed when the step ends.
	ended map[string]chan struct{}
	// progress receives the progress of a workload's iterations.
	progress func(Update)
	// silence is how long a process may not answer before its step fails.
	silence time.Duration
	// logged records a file that a step wrote.
	logged func(index int, files ...string)
	// now returns the testbed's time since the start of the first step, in seconds.
	now func() float64
	// logs are the logs of programs.
	logs stepLogs

	mu        sync.Mutex
	captures  []*recording
	workloads []judge.Finished // in the order of their end, as stacks
	harms     []*harm          // crashes, hangs and partitions
	harmed    []func(*harm)    // called for each
	adding    []uint16         // jobs of the aggregators of running workloads
	stacks    []stacks.Result
	keys      *privacy.KeyLog // of workloads with a key log
	heldUp    []report.HeldUp
}

// finished returns the workloads that ran to their end, in the order of their steps.
func (s *session) finished() []judge.Finished {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inFileOrder(s, s.workloads, func(w *judge.Finished) string { return w.Name })
}

// ran returns the stacks that ran to their end, in the order of their steps.
func (s *session) ran() []stacks.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return inFileOrder(s, s.stacks, func(r *stacks.Result) string { return r.Name })
}

// inFileOrder returns the results in the order of the steps that have their names.
func inFileOrder[R any](s *session, results []R, name func(*R) string) []R {
	at := map[string]int{}
	for i := range s.file.Steps {
		at[s.file.Steps[i].Traits().Name] = i
	}
	ordered := append([]R{}, results...)
	slices.SortStableFunc(ordered, func(a, b R) int { return cmp.Compare(at[name(&a)], at[name(&b)]) })
	return ordered
}

// sourcesHeldUp returns the traffic sources that the host has held up so far.
func (s *session) sourcesHeldUp() []report.HeldUp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heldUp)
}
