package suite

import (
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
)

// comparedSuite makes a suite of cells, whose names are suffixes of cells of a matrix, with busbw of each.
func comparedSuite(t *testing.T, l *lab, cells ...string) (*Results, string) {
	t.Helper()
	dir := t.TempDir()
	o := l.options(dir)
	o.Files = nil
	o.Cases = slices.DeleteFunc(o.Cases, func(c Case) bool {
		return !slices.ContainsFunc(cells, func(cell string) bool { return strings.HasSuffix(c.Name, cell) })
	})
	for i := range o.Cases {
		o.Cases[i].Repeat = 8
	}
	return l.run(o), dir
}

// TestWhatIsNotCompared: a scenario or a number that only one side has is stated, and the suite is
// INCONCLUSIVE. A FAIL stays one.
func TestWhatIsNotCompared(t *testing.T) {
	const a, b = "transport=tcp, loss=0", "transport=rd, loss=0"
	const compare = "  - {metric: busbw, of: ar, cells: {transport: rd}, beside: {transport: tcp}, " +
		"ratio: \">= 1%\"}\n"
	failing := func(string, int) verdict.Verdict { return fail }
	for _, test := range []struct {
		name        string
		base, now   []string
		metric      string
		of          func(string, int) verdict.Verdict
		overloaded  bool
		want        verdict.Verdict
		notCompared []string
	}{
		{"both", []string{a, b}, []string{a, b}, "busbw", nil, false, pass, nil},
		{"only before", []string{a, b}, []string{a}, "busbw", nil, false, verdict.Inconclusive,
			[]string{"a/" + b + ": only in old"}},
		{"only now", []string{a}, []string{a, b}, "busbw", nil, false, verdict.Inconclusive,
			[]string{"a/" + b + ": not in old"}},
		{"no metric", []string{a}, []string{a}, "absent", nil, false, verdict.Inconclusive,
			[]string{"no scenario has a number absent both here and in old"}},
		{"fails without the number", []string{a}, []string{a}, "absent", failing, false, fail,
			[]string{"no scenario has a number absent"}},
		{"overloaded", []string{a}, []string{a}, "busbw", nil, true, verdict.Inconclusive,
			[]string{"a/" + a + ": no run has numbers that count: 16 made again, 8 overloaded",
				"no scenario has a number busbw"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			lab := func(busbw func(string, int) float64, v func(string, int) verdict.Verdict) *lab {
				return &lab{t: t, file: matrixFile(t, compare), busbw: busbw, verdict: v}
			}
			base, old := comparedSuite(t, lab(byCell, nil), test.base...)
			l := lab(byCell, test.of)
			l.overloaded = func(string, int) bool { return test.overloaded }
			now, dir := comparedSuite(t, l, test.now...)
			out, err := Claim(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			if err := now.Compare(t.Context(), out, dir, &Baseline{Results: base, Dir: old,
				Metrics: []string{test.metric}}); err != nil {
				t.Fatal(err)
			}
			said := now.NotCompared
			ok := len(said) == len(test.notCompared) && now.Verdict == test.want
			for i := range min(len(said), len(test.notCompared)) {
				ok = ok && strings.HasPrefix(strings.ReplaceAll(said[i], old, "old"), test.notCompared[i])
			}
			if !ok {
				t.Errorf("%s, not compared %q; want %s and %q", now.Verdict, said, test.want,
					test.notCompared)
			}
			if again, err := Read(dir); err != nil || again.Verdict != test.want ||
				len(again.NotCompared) != len(said) {
				t.Errorf("the file has %+v, %v", again, err)
			}
		})
	}
}

// A FAIL rests on time only if each step and each check that failed does.
func TestRestsOnTime(t *testing.T) {
	late := report.Step{State: report.Failed, Late: true}
	for _, test := range []struct {
		r    report.Report
		want bool
	}{
		{report.Report{Verdict: fail}, false},
		{report.Report{Verdict: pass, Steps: []report.Step{late}}, false},
		{report.Report{Verdict: fail, Steps: []report.Step{late}}, true},
		{report.Report{Verdict: fail, Steps: []report.Step{late, {State: report.Failed}}}, false},
		{report.Report{Verdict: fail, Checks: []report.Check{{Verdict: fail, Timed: true},
			{Verdict: pass}}}, true},
		{report.Report{Verdict: fail, Checks: []report.Check{{Verdict: fail, Timed: true},
			{Verdict: fail}}}, false},
	} {
		if got := test.r.RestsOnTime(); got != test.want {
			t.Errorf("%+v: %t", test.r, got)
		}
	}
}
