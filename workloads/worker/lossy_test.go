package worker

import (
	"encoding/json"
	"slices"
	"testing"

	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/rank"
)

// Where parts of sums may be left out, ranks tell each other what they lost, and an
// element that no loss explains is wrong.
func TestDroppableJob(t *testing.T) {
	j := job(3, 1<<18)
	j.Transport, j.RD = RD, &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if err != nil || result.Wrong() != 0 ||
		result.Missing() > 2*uint64(j.Size)*uint64(len(result.Operations))/10 {
		t.Fatalf("%v: %+v", err, result)
	}
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 1 && id.Index == 0 {
			result[28]--
		}
	})
	if result, err := Run(t.Context(), j, l, nil); err != nil || result.Wrong() != 1 {
		t.Errorf("%v: one element was changed, and wrong are %+v", err, result)
	}
}

// So in a training job: gradients alone may lack something, and a loss is one operation's.
func TestDroppableTraining(t *testing.T) {
	for _, zero := range []int{0, 1} {
		j := trainingJob(t, RD, func(m *spec.Model) { m.DP, m.TP, m.Vocabulary, m.ZeRO = 4, 2, 128, zero })
		j.RD = &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
		for _, damage := range []int{-1, 0} { // first none
			result, err := Run(t.Context(), j,
				after(func(rank int, _ rank.OperationID, result []byte) {
					if rank == damage {
						result[28]--
					}
				}), nil)
			if err != nil {
				t.Fatal(err)
			}
			if (result.Wrong() != 0) != (damage >= 0) {
				t.Fatalf("zero %d: %d wrong elements with damage at rank %d", zero, result.Wrong(), damage)
			}
			for rank := range j.Ranks {
				checkTrainingRank(t, j, rank, result)
			}
		}
	}
	kept := &kept{}
	p := &player{operations: []rank.Part{&filled{}, nil, kept}}
	of := []collective.Loss{{Rank: 1, From: 3, To: 9, Operation: 2}, {Rank: 0, From: 5, To: 6}}
	if wrong, _ := p.Check(rank.OperationID{}, of); wrong != 0 || !slices.Equal(kept.told, of[:1]) {
		t.Errorf("%d wrong, and operation 2 lost %v", wrong, kept.told)
	}
	if wrong, _ := p.Check(rank.OperationID{}, []collective.Loss{{Operation: 3}}); wrong == 0 {
		t.Error("an operation that there is not lost something")
	}
}

// kept is a part that remembers what was lost of it.
type kept struct {
	filled
	told []collective.Loss
}

func (k *kept) Check(_ rank.OperationID, lost []collective.Loss) (wrong, short uint64) {
	k.told = lost
	return 0, 0
}

// TestLossesAreGathered plays ranks that lost something. Each rank must receive the losses of all
// ranks.
func TestLossesAreGathered(t *testing.T) {
	var o Operation
	o.add(rank.Done{Short: 5, Traffic: collective.Traffic{Missing: 40}})
	o.add(rank.Done{Short: 5, Traffic: collective.Traffic{Missing: 2}})
	r := Result{Operations: []Operation{o, {Missing: 1}}}
	if o.Short != 5 || r.Missing() != 43 {
		t.Errorf("%+v", r)
	}
	c := &coordinator{events: make(chan event, 2), early: map[int]*rank.Message{},
		workers: []*workerProcess{{out: make(chan []byte, 1)}, {out: make(chan []byte, 1)}}}
	want := []collective.Loss{{Rank: 1, From: 3, To: 9}, {Rank: 0, From: 5, To: 6}}
	for i, loss := range []collective.Loss{want[1], want[0]} {
		lost := &rank.Losses{Losses: []collective.Loss{loss}}
		c.events <- event{rank: i, message: &rank.Message{Reduced: lost}}
	}
	if err := c.gatherLosses(t.Context(), rank.OperationID{}, "operation"); err != nil {
		t.Fatal(err)
	}
	for _, w := range c.workers {
		m := decoded(t, <-w.out)
		if m.Lost == nil || len(m.Lost.Losses) != 2 || !slices.Contains(m.Lost.Losses, want[0]) ||
			!slices.Contains(m.Lost.Losses, want[1]) {
			t.Errorf("told %+v", m.Lost)
		}
	}
}

func decoded(t *testing.T, payload []byte) (m rank.Message) {
	t.Helper()
	if err := json.Unmarshal(payload, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
