package verdict

import (
	"slices"
	"testing"
)

// An overloaded emulator's failures prove nothing, and neither do those of a host
// that lacks what the file needs.
func TestWorst(t *testing.T) {
	order := []Verdict{Pass, Inconclusive, Fail, Overloaded, Unsupported, Aborted}
	for i, worse := range order {
		for _, better := range order[:i+1] {
			for _, both := range [][]Verdict{{worse, better}, {better, worse},
				{Pass, better, worse, better}} {
				if got := Worst(both...); got != worse {
					t.Errorf("the worst of %v is %s, want %s", both, got, worse)
				}
			}
		}
	}
	if len(order) != len(rank) || len(order) != len(exitCode) {
		t.Errorf("%d verdicts have a rank and %d an exit code, want %d", len(rank), len(exitCode), len(order))
	}
	if got := Worst(); got != Inconclusive {
		t.Errorf("nothing judged is %s", got)
	}
}

func TestExitCodes(t *testing.T) {
	var codes []int
	for _, v := range []Verdict{Pass, Fail, Unsupported, Overloaded, Inconclusive, Aborted, "NONSENSE"} {
		codes = append(codes, v.ExitCode())
	}
	if want := []int{0, 1, 3, 4, 5, 1, 1}; !slices.Equal(codes, want) {
		t.Errorf("exit codes %v, want %v", codes, want)
	}
}
