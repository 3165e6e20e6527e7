package arena

import (
	"testing"

	"railbed/transports/rd/rate"
)

// modes are those with a window.
func modes() map[string]func(rate.NSCCOptions) rate.Controller {
	policy := rate.Trained()
	return map[string]func(rate.NSCCOptions) rate.Controller{
		"nscc":    func(o rate.NSCCOptions) rate.Controller { return rate.NewNSCC(o) },
		"learned": func(o rate.NSCCOptions) rate.Controller { return rate.NewLearned(policy, o) },
	}
}

// TestLearnedBesideNSCC holds what docs/explanation/notes/rates.md says of the
// trained policy, on scenarios that training has not seen: which of both is better on which.
func TestLearnedBesideNSCC(t *testing.T) {
	const seeds = 5
	wins := map[string]bool{"held-out-incast": true, "held-out-drops": true, "held-out-all-to-all": true,
		"held-out-emulated": true}
	total := map[string]map[string]float64{}
	for seed := range uint64(seeds) {
		for _, s := range HeldOut(100 + seed) {
			if total[s.Name] == nil {
				total[s.Name] = map[string]float64{}
			}
			line := s.Play(nil).Score()
			for mode, control := range modes() {
				o := s.Play(control)
				total[s.Name][mode] += o.Score() / seeds
				if o.Score() < line {
					t.Errorf("%s, seed %d, %s: %+v is worse than line rate's %v", s.Name, seed, mode, o, line)
				}
			}
			total[s.Name]["line"] += line / seeds
		}
	}
	for name, scores := range total {
		t.Logf("%s: line rate %.3f, nscc %.3f, learned %.3f", name, scores["line"], scores["nscc"],
			scores["learned"])
		if better := scores["learned"] > scores["nscc"]; better != wins[name] {
			t.Errorf("%s: nscc %.4f, learned %.4f", name, scores["nscc"], scores["learned"])
		}
	}
}

// TestPlayRepeats holds that the same seed plays the same.
func TestPlayRepeats(t *testing.T) {
	for _, s := range append(Training(3), HeldOut(3)...) {
		for mode, control := range modes() {
			if a, b := s.Play(control), s.Play(control); a != b || a.Time < a.Ideal {
				t.Errorf("%s, %s: %+v, again %+v", s.Name, mode, a, b)
			}
		}
	}
}
