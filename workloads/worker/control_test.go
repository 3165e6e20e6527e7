package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// controlledJob is a job over rd that something holds back besides the NICs' rates.
func controlledJob(control string, rate units.Rate) Job {
	const ranks = 4
	j := job(ranks, ranks<<16)
	j.Transport, j.RD, j.Ordinal = RD, &spec.RD{Control: control}, 2
	for range j.Ranks {
		j.Sends = append(j.Sends, plan.Direction{Rate: 1_000_000_000})
	}
	if control == spec.ControlOffline {
		j.Rates = &allocation.File{Format: allocation.Format, Ranks: ranks, Phases: []allocation.Phase{{}}}
		for i := range ranks {
			j.Rates.Phases[0].Rates = append(j.Rates.Phases[0].Rates,
				allocation.Entry{From: i, To: (i + 1) % ranks, Rate: rate})
		}
	}
	return j
}

// TestControls checks that jobs are right under every control, that rates take their minimum time,
// and that the result reports lateness.
func TestControls(t *testing.T) {
	hosttest.MarkTest(t, hosttest.Raced)
	const rate = 40_000_000
	for _, control := range []string{"line", "nscc", "learned", spec.ControlOffline, spec.ControlArbiter} {
		j := controlledJob(control, rate)
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil || result.Wrong() != 0 {
			t.Errorf("%s: %v, %+v", control, err, result)
			continue
		}
		for _, r := range result.PerRank {
			if r.Pace == nil || r.Pace.Packets == 0 || r.Pace.P50 > r.Pace.P99 || r.Pace.P99 > r.Pace.Most {
				t.Errorf("%s, rank %d: %+v", control, r.Rank, r.Pace)
			}
		}
		// of three operations
		asked := time.Duration(float64(result.PerRank[0].Payload.Sent*8) / rate * 1e9 / 3)
		// A bucket that is full when an operation begins, and clocks that are read at its ends,
		// take a little off.
		if control == spec.ControlOffline && result.OutOfPlace.Min < asked*97/100 {
			t.Errorf("%v for what takes %v at its rate", result.OutOfPlace.Min, asked)
		}
	}
	sealed := controlledJob(spec.ControlArbiter, 0)
	sealed.RD.Encrypt = true
	if result, err := Run(t.Context(), sealed, goroutines{}, nil); err != nil || result.Wrong() != 0 {
		t.Errorf("an arbiter of those who encrypt: %v, %+v", err, result)
	}
	j := controlledJob(spec.ControlOffline, rate)
	j.Rates = nil
	if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil {
		t.Error("a job without its rates ran")
	}
}

// TestRatesOfAlgorithms checks that the rates for the pairs of an algorithm cover all pairs in
// which its ranks send. To a rank without a rate, a rank sends nothing at all.
func TestRatesOfAlgorithms(t *testing.T) {
	for _, algorithm := range []string{allocation.Tree, allocation.HalvingDoubling} {
		j := controlledJob(spec.ControlOffline, 0)
		pairs, err := allocation.Pairs(algorithm, len(j.Ranks))
		if err != nil {
			t.Fatal(err)
		}
		j.Algorithm, j.Rates.Phases[0].Rates = algorithm, nil
		for _, p := range pairs {
			j.Rates.Phases[0].Rates = append(j.Rates.Phases[0].Rates,
				allocation.Entry{From: p.From, To: p.To, Rate: 80_000_000})
		}
		if result, err := Run(t.Context(), j, goroutines{}, nil); err != nil || result.Wrong() != 0 {
			t.Errorf("%s: %v, %+v", algorithm, err, result)
		}
	}
}

// TestArbiterEnds holds that a job whose arbiter is killed ends, and says why.
func TestArbiterEnds(t *testing.T) {
	j := controlledJob(spec.ControlArbiter, 0)
	j.Size, j.Iterations = 1<<22, 1000
	first := true
	started := func(_ string, p *goroutineProcess) {
		if first { // the arbiter is before all ranks
			first = false
			time.AfterFunc(300*time.Millisecond, func() { p.inside.Close() })
		}
	}
	_, err := Run(context.Background(), j, goroutines{started: started}, nil)
	if !errors.Is(err, errArbiter) {
		t.Errorf("it ends with %v", err)
	}
}
