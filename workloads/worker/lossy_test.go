package worker

import (
	"encoding/json"
	"slices"
	"testing"

	"railbed/fabric/units"
	"railbed/testbed/spec"
	"railbed/workloads/collective"
)

// Where parts of sums may be left out, ranks tell each other what they lost, and an
// element that no loss explains is wrong.
func TestDroppableJob(t *testing.T) {
	j := job(3, 1<<18)
	j.Transport, j.RD = RD, &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil || result.Wrong() != 0 || result.Missing() > 2*uint64(j.Size)*uint64(len(result.Operations))/10 {
		t.Fatalf("%v: %+v", err, result)
	}
	l := goroutines{hooks: hooks{afterOperation: func(rank int, id operationID, result []byte) {
		if rank == 1 && id.Index == 0 {
			result[28]--
		}
	}}}
	if result, err := Run(t.Context(), j, l, nil); err != nil || result.Wrong() != 1 {
		t.Errorf("%v: one element was changed, and wrong are %+v", err, result)
	}
}

// TestLossesAreGathered plays ranks that lost something: what each is told is
// what all lost.
func TestLossesAreGathered(t *testing.T) {
	var o Operation
	o.add(operationDone{Short: 5, Traffic: collective.Traffic{Missing: 40}})
	o.add(operationDone{Short: 5, Traffic: collective.Traffic{Missing: 2}})
	r := Result{Operations: []Operation{o, {Missing: 1}}}
	if o.Short != 5 || r.Missing() != 43 {
		t.Errorf("%+v", r)
	}
	c := &coordinator{events: make(chan event, 2), early: map[int]*message{}, workers: []*workerProcess{{out: make(chan []byte, 1)}, {out: make(chan []byte, 1)}}}
	want := []collective.Loss{{Rank: 1, From: 3, To: 9}, {Rank: 0, From: 5, To: 6}}
	for rank, loss := range []collective.Loss{want[1], want[0]} {
		c.events <- event{rank: rank, message: &message{Reduced: &losses{Losses: []collective.Loss{loss}}}}
	}
	if err := c.gatherLosses(t.Context(), operationID{}, "operation"); err != nil {
		t.Fatal(err)
	}
	for _, w := range c.workers {
		m := decoded(t, <-w.out)
		if m.Lost == nil || len(m.Lost.Losses) != 2 || !slices.Contains(m.Lost.Losses, want[0]) || !slices.Contains(m.Lost.Losses, want[1]) {
			t.Errorf("told %+v", m.Lost)
		}
	}
}

func decoded(t *testing.T, payload []byte) (m message) {
	t.Helper()
	if err := json.Unmarshal(payload, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
