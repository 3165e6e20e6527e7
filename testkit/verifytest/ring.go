package verifytest

import (
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
)

// JudgeRing makes a scene with a ring over rd and mutates it. The capture ends the time after, in
// ns, after the ring. JudgeRing compares the verdicts of checks with the expected verdicts. One of
// the results must contain the given words.
func JudgeRing(t *testing.T, mutate func(*Scene), after int64, want []verdict.Verdict, says string,
	checks func(*Scene) []evidence.Check) {
	t.Helper()
	s := NewScene(t)
	s.RDRing(4)
	mutate(s)
	s.Now += after
	results, _ := s.Run(checks(s)...)
	found := false
	for i, result := range results {
		if result.Verdict != want[i] {
			t.Errorf("want %s:\n%v", want[i], result)
		}
		found = found || strings.Contains(strings.Join(append(result.Details, result.Summary), "\n"), says)
	}
	if !found {
		t.Errorf("nothing says %q: %v", says, results)
	}
}
