package suite

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// TestTurns: the cells of a matrix take turns, so that a drift of the host is alike for all of them.
func TestTurns(t *testing.T) {
	var cases []Outcome
	for _, c := range []Case{{Name: "a", Repeat: 2}, {Name: "m/1", Matrix: "m", Repeat: 3},
		{Name: "m/2", Matrix: "m", Repeat: 3}, {Name: "z", Repeat: 1}, {Name: "m/3", Matrix: "m",
			Repeat: 1}} {
		cases = append(cases, Outcome{Case: c})
	}
	want := []turn{{0, 1}, {0, 2}, {1, 1}, {2, 1}, {4, 1}, {2, 2}, {1, 2}, {1, 3}, {2, 3}, {3, 1}}
	if got := turns(cases, groupsOf(cases)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// bounds parses bounds of a ratio.
func bounds(t *testing.T, text string) spec.Bounds {
	t.Helper()
	b, err := spec.ParseBounds(text, spec.BesideBound)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAA compares pairs of the same distribution. Their ratios reach from 27 to 158 %, as on a busy host. At
// most one of twenty suites may pass a bound of 110 or of 90 %, by the level of the interval. The medians
// alone pass a bound in most suites.
func TestAA(t *testing.T) {
	const suites = 200
	for _, runs := range []int{5, 10} {
		draw := rand.New(rand.NewPCG(7, uint64(runs)))
		passed, medians := 0, 0
		for range suites {
			own, other := make([]float64, runs), make([]float64, runs)
			for i := range own {
				own[i], other[i] = math.Exp(0.4*draw.NormFloat64()), math.Exp(0.4*draw.NormFloat64())
			}
			r := ratioOf(own, other)
			for _, text := range []string{">= 110%", "<= 90%"} {
				if r.verdict(bounds(t, text)) == verdict.Pass {
					passed++
				}
				if bounds(t, text).Holds(r.value) {
					medians++
				}
			}
		}
		if passed > suites/20 || medians < suites/2 {
			t.Errorf("%d runs: %d of %d suites pass, and %d by medians alone", runs, passed, suites, medians)
		}
	}
}

// TestCoverage: the interval has the true ratio in it about as often as it claims.
func TestCoverage(t *testing.T) {
	const suites, want = 200, 3.0
	for _, runs := range []int{5, 10} {
		draw := rand.New(rand.NewPCG(8, uint64(runs)))
		covered := 0
		for range suites {
			own, other := make([]float64, runs), make([]float64, runs)
			for i := range own {
				seed := math.Exp(draw.NormFloat64()) // that both runs of a pair share
				own[i] = want * seed * math.Exp(0.2*draw.NormFloat64())
				other[i] = seed * math.Exp(0.2*draw.NormFloat64())
			}
			if r := ratioOf(own, other); r.low <= want && want <= r.high {
				covered++
			}
		}
		if share := float64(covered) / suites; share < 0.9 {
			t.Errorf("%d runs: the interval has the ratio in it in %g of the suites", runs, share)
		}
	}
}

func TestRatioVerdicts(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		bound     string
		want      verdict.Verdict
	}{
		{1.2, 1.5, ">= 110%", verdict.Pass},
		{1.0, 1.5, ">= 110%", verdict.Inconclusive},
		{0.8, 1.0, ">= 110%", verdict.Fail},
		{0.3, 0.5, "<= 90%", verdict.Pass},
		{0.3, 0.95, "<= 90%", verdict.Inconclusive},
		{0.95, 1.1, "<= 90%", verdict.Fail},
		{1.2, 1.5, ">= 110%, <= 140%", verdict.Inconclusive},
		{1.2, 1.3, ">= 110%, <= 140%", verdict.Pass},
		{1.5, 1.6, ">= 110%, <= 140%", verdict.Fail},
		{1, 1, "== 100%", verdict.Pass},
		{0.9, 1.1, "== 100%", verdict.Inconclusive},
		{1.1, 1.2, "== 100%", verdict.Fail},
		{2, math.Inf(1), "> 100%", verdict.Pass},
		{0, math.Inf(1), "> 100%", verdict.Inconclusive},
	} {
		r := ratio{value: (test.low + test.high) / 2, low: test.low, high: test.high}
		if got := r.verdict(bounds(t, test.bound)); got != test.want {
			t.Errorf("%g to %g, %s: %s, want %s", test.low, test.high, test.bound, got, test.want)
		}
	}
}
