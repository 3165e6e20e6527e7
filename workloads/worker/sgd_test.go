package worker

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/rank"
	"railbed/workloads/training/sgd"
)

// sgdJob trains over a transport by an exchange.
func sgdJob(ranks, iterations int, transport string, s spec.SGD) Job {
	j := job(ranks, 0)
	j.Kind, j.Transport, j.Iterations, j.Warmup, j.InPlace, j.Seed = "", transport, iterations, 0, false, 7
	s.Hidden, s.Batch, s.Rate, s.Momentum = []int{16}, 8, units.Factor{Num: 1, Den: 10},
		units.Ratio{Num: 9, Den: 10}
	if s.Exchange == "" {
		s.Exchange = spec.ExchangeWhole
	}
	j.Work = SGD{Config: &s}
	return j
}

// TestSGDJobs checks that all ranks have the same weights after each iteration, by every exchange
// and transport. Whole gradients must give the same losses over every transport, and encrypted
// gradients nearly the same.
func TestSGDJobs(t *testing.T) {
	const iterations = 12
	var plain []float64
	for _, c := range []struct {
		transport, algorithm string
		sgd                  spec.SGD
	}{
		{TCP, schedule.Ring, spec.SGD{}},
		{RD, schedule.Ring, spec.SGD{}},
		{TCP, "tree", spec.SGD{}},
		{TCP, schedule.Ring, spec.SGD{Exchange: spec.ExchangeEncrypted}},
		{RD, "halving-doubling", spec.SGD{Exchange: spec.ExchangeEncrypted}},
		{RD, schedule.Ring, spec.SGD{Exchange: spec.ExchangeTopK, Keep: units.Ratio{Num: 1, Den: 20}}},
		{TCP, schedule.Ring, spec.SGD{Exchange: spec.ExchangeQuantised, Bits: "4"}},
	} {
		j := sgdJob(3, iterations, c.transport, c.sgd)
		j.Algorithm = c.algorithm
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l, config := result.Own.(*Learning), j.Work.(SGD).Config
		if result.Wrong() != 0 || len(l.Loss) != iterations || l.Clipped != 0 || l.Held == 0 ||
			l.Accuracy == 0 {
			t.Errorf("%s by %s over %s: %d ranks differ; %+v", config.Exchange, c.algorithm, c.transport,
				result.Wrong(), l)
		}
		if l.Loss[iterations-1] > l.Loss[0] {
			t.Errorf("%s by %s over %s: it learns nothing: %v", config.Exchange, c.algorithm, c.transport,
				l.Loss)
		}
		switch {
		case plain == nil:
			plain = l.Loss
		case c.algorithm == schedule.Ring && config.Exchange == spec.ExchangeWhole &&
			!slices.Equal(plain, l.Loss):
			t.Errorf("over %s the losses are %v, over %s %v", c.transport, l.Loss, TCP, plain)
		case sgd.CodecOf(config) == nil && math.Abs(plain[iterations-1]-l.Loss[iterations-1]) > 1e-3:
			t.Errorf("%s by %s: losses %v, want nearly %v", config.Exchange, c.algorithm, l.Loss, plain)
		}
		kind, size := config.Collective(), sgd.SizeOf(config, 3)
		if result.Kind != kind || result.Row().Size != uint64(size) {
			t.Errorf("a %s of %d bytes, want %s of %d", result.Kind, result.Row().Size, kind, size)
		}
	}
}

// TestOtherWeightsAreCounted damages one bit of a sum at one rank: from then on that has
// other weights.
func TestOtherWeightsAreCounted(t *testing.T) {
	l := after(func(rank int, id rank.OperationID, result []byte) {
		if rank == 1 && id.Index == 2 {
			result[6] ^= 1
		}
	})
	result, err := Run(t.Context(), sgdJob(3, 5, TCP, spec.SGD{}), l, nil)
	if err != nil || result.Wrong() != 3 {
		t.Errorf("%v: %d ranks had other weights, summed over iterations: want 3", err, result.Wrong())
	}
}

// TestWrongSumsAreCounted damages an element of the sum alike at all ranks, in the first and
// in the last iteration: they go on with the same weights.
func TestWrongSumsAreCounted(t *testing.T) {
	for _, exchange := range []string{spec.ExchangeWhole, spec.ExchangeEncrypted} {
		l := after(func(_ int, id rank.OperationID, result []byte) {
			if id.Index != 1 {
				element := result[4*(5+id.Index):]
				value := binary.NativeEndian.Uint32(element) + 1
				if exchange == spec.ExchangeWhole {
					value = math.Float32bits(1)
				}
				binary.NativeEndian.PutUint32(element, value)
			}
		})
		result, err := Run(t.Context(), sgdJob(3, 3, TCP, spec.SGD{Exchange: exchange}), l, nil)
		if err != nil || result.Wrong() != 2 || result.Operations[0].Wrong != 1 ||
			result.Operations[2].Wrong != 1 {
			t.Errorf("%s: %v: %d elements of sums are wrong, want 2", exchange, err, result.Wrong())
		}
	}
}

// TestWrongMessagesAreCounted damages a compressed gradient alike at all ranks, or leaves them
// those of the step before: they go on with the same weights.
func TestWrongMessagesAreCounted(t *testing.T) {
	for _, s := range []spec.SGD{
		{Exchange: spec.ExchangeTopK, Keep: units.Ratio{Num: 1, Den: 20}},
		{Exchange: spec.ExchangeQuantised, Bits: "4"},
	} {
		var mu sync.Mutex
		before := map[int][]byte{}
		l := after(func(rank int, id rank.OperationID, result []byte) {
			mu.Lock()
			defer mu.Unlock()
			switch id.Index {
			case 0:
				result[5] ^= 1 // part of the first number
			case 2:
				before[rank] = bytes.Clone(result)
			case 3:
				copy(result, before[rank])
			}
		})
		result, err := Run(t.Context(), sgdJob(3, 5, TCP, s), l, nil)
		if err != nil {
			t.Fatal(err)
		}
		var wrong []uint64
		for _, o := range result.Operations {
			wrong = append(wrong, o.Wrong)
		}
		// In the first step the message is not its rank's, and the sum not that of gradients.
		if !slices.Equal(wrong, []uint64{2, 0, 0, 3, 0}) {
			t.Errorf("%s: %v are wrong", s.Exchange, wrong)
		}
	}
}

// TestDivergedSGD holds that a training whose weights grow without end says so, in the step
// that finds it or behind the last one.
func TestDivergedSGD(t *testing.T) {
	for iterations, want := range map[int]string{
		9: "the training diverged at step 1: the loss is not finite",
		1: "the training diverged at step 0: the loss over the held-out samples is not finite",
	} {
		j := sgdJob(2, iterations, TCP, spec.SGD{})
		config := j.Work.(SGD).Config
		config.Hidden, config.Rate = []int{16, 16, 16}, units.Factor{Num: 1 << 60, Den: 1}
		if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestLossySGD holds that sums without some parts still give all ranks the same.
func TestLossySGD(t *testing.T) {
	j := sgdJob(3, 5, RD, spec.SGD{})
	j.RD = &spec.RD{Droppable: units.Ratio{Num: 1, Den: 10}}
	if result, err := Run(t.Context(), j, goroutines{}, nil); err != nil || result.Wrong() != 0 {
		t.Errorf("%v: %+v", err, result)
	}
}

func TestBadSGDJobs(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"warm-up":   func(j *Job) { j.Warmup = 1 },
		"in place":  func(j *Job) { j.InPlace = true },
		"a type":    func(j *Job) { j.Type = "half" },
		"all sizes": func(j *Job) { j.Sweep = &Sweep{Sizes: []units.Bytes{4}} },
	} {
		j := sgdJob(2, 1, TCP, spec.SGD{})
		change(&j)
		if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil {
			t.Errorf("a training with %s was run", name)
		}
	}
}
