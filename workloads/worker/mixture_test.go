package worker

import (
	"slices"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/workloads/rank"
	"railbed/workloads/training/moe"
)

func mixtureJob(ranks int, transport string) Job {
	j := job(ranks, 0)
	j.Algorithm, j.Transport, j.Seed = "", transport, 3
	j.Work = MoE{Config: moe.Config{Ranks: ranks, Experts: 2 * ranks, Tokens: 20, Hidden: 256,
		TopK: min(3, 2*ranks), Skew: 1, Seed: 3}}
	return j
}

// TestMixtureRates holds that what goes out and what comes back keep to rates of their own.
func TestMixtureRates(t *testing.T) {
	j := controlledJob(spec.ControlOffline, 1)
	j.Algorithm, j.Size, j.Warmup, j.Iterations = schedule.Direct, 0, 0, 4
	mixture := mixtureJob(4, RD).Work.(MoE)
	mixture.Config.Tokens = 500
	var most [exchanges]int // bits of a pair
	for i, words := range Matrices(mixture.Config) {
		for from, row := range words {
			row[from] = 0 // stays there
			most[i] = max(most[i], slices.Max(row)*WordBytes*8)
		}
	}
	for slow, rate := range [exchanges]units.Rate{8_000_000, 15_000_000} {
		rates := [exchanges]units.Rate{500_000_000, 500_000_000}
		rates[slow] = rate
		mixture.RatesBack = planned(t, schedule.Direct, rates[combine])
		j.Rates, j.Work = planned(t, schedule.Direct, rates[dispatch]), mixture
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil || result.Wrong() != 0 {
			t.Fatalf("%v: %+v", err, result)
		}
		// A bucket that is full when an exchange begins takes 5 ms off, and its last packet, of
		// up to 64 KiB here, waits for nothing.
		least := time.Duration(float64(most[slow]-8*64<<10)/float64(rate)*1e9) - 5*time.Millisecond
		m := result.Own.(*Mixture)
		if took := []time.Duration{m.Dispatch, m.Combine}[slow]; took < least {
			t.Errorf("exchange %d took %v, want at least %v", slow, took, least)
		}
	}
}

// TestMixtures holds that all comes right, that ranks send what the gates chose, and that what
// is damaged is counted.
func TestMixtures(t *testing.T) {
	for i, ranks := range []int{1, 3, 4, 6} {
		j := mixtureJob(ranks, []string{TCP, RD}[i%2])
		j.Algorithm = []string{schedule.Direct, schedule.Pairwise}[i/2]
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil || result.Wrong() != 0 {
			t.Errorf("%d ranks: %v, %+v", ranks, err, result)
			continue
		}
		mixture := j.Work.(MoE).Config
		load := mixture.Load()
		for from, r := range result.PerRank {
			var want uint64
			for to := range ranks {
				if out, back := mixture.Bytes(&load, from, to); to != from {
					want += uint64(out + back)
				}
			}
			if want *= uint64(j.Warmup + j.Iterations); r.Payload.Sent != want {
				t.Errorf("%d ranks: rank %d sent %d bytes, want %d", ranks, from, r.Payload.Sent, want)
			}
		}
		m := result.Own.(*Mixture)
		if m.Dispatch <= 0 || m.Combine <= 0 || m.Error.Relative() < 0.01 || m.Error.Relative() > 0.05 ||
			m.Error.Most > 1 {
			t.Errorf("%d ranks: %+v", ranks, m)
		}
	}
	for transport, at := range map[string]int{TCP: 1, RD: 2} {
		l := after(func(rank int, id rank.OperationID, result []byte) {
			if rank == at && id.Index == 1 {
				result[7] ^= 0x40
			}
		})
		result, err := Run(t.Context(), mixtureJob(3, transport), l, nil)
		if err != nil || result.Wrong() != 1 || result.PerRank[at].Wrong != 1 {
			t.Errorf("%s: %v, %+v", transport, err, result)
		}
	}
	for name, change := range map[string]func(*Job){
		"no mixture": func(j *Job) { j.Work = MoE{} },
		"ranks":      func(j *Job) { j.Work = mixtureJob(2, TCP).Work },
		"experts":    func(j *Job) { m := j.Work.(MoE); m.Config.Experts = 7; j.Work = m },
		"no work":    func(j *Job) { j.Kind, j.Work = spec.KindMoE, nil },
		"size":       func(j *Job) { j.Size = 4096 },
		"in place":   func(j *Job) { j.InPlace = true },
		"algorithm":  func(j *Job) { j.Algorithm = schedule.Ring },
		"offline":    func(j *Job) { j.Transport, j.RD = RD, &spec.RD{Control: spec.ControlOffline} },
	} {
		j := mixtureJob(3, TCP)
		change(&j)
		if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}
