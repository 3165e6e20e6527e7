package suite

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
)

// TestComparisons has comparisons, their verdicts and that of the suite.
func TestComparisons(t *testing.T) {
	const inconclusive = verdict.Inconclusive
	only := func(v verdict.Verdict) func(string, int) verdict.Verdict {
		return func(cell string, repetition int) verdict.Verdict {
			if strings.Contains(cell, "tcp, loss=1%") && repetition == 1 {
				return v
			}
			return ""
		}
	}
	none := func(string, int) float64 { return 0 }
	noisy := func(cell string, n int) float64 {
		if strings.HasSuffix(cell, "loss=0") {
			return 28.5
		}
		return []float64{31.8, 31.8, 58.3, 31.8, 58.3}[n-1]
	}
	const few = "{metric: busbw, of: ar, cells: {transport: tcp, loss: 1%}, beside: {loss: 0}, ratio: '<= " +
		"100%'}"
	for _, test := range []struct {
		name, compare string
		repeat        int
		lab           *lab
		want          []verdict.Verdict // of the comparisons, and of the suite
		reason        string
	}{
		{"holds", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, beside: {transport: tcp}, " +
			"ratio: '>= 500%'}", 5, &lab{}, []verdict.Verdict{pass, pass},
			"236 Gbit/s beside 28 Gbit/s: 842.9%, 572.7% to 1833% in 5 pairs of runs, want >= 500%"},
		{"does not hold", "{metric: busbw, of: ar, cells: {loss: 1%}, beside: {loss: 0}, ratio: '>= 99%'}", 5,
			&lab{}, []verdict.Verdict{fail, fail, fail}, "want >= 99%"},
		{"bound in the interval", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, " +
			"beside: {transport: tcp}, ratio: '>= 800%'}", 5, &lab{}, []verdict.Verdict{inconclusive,
			inconclusive},
			"the interval has the bound in it, and more than 100 pairs would be needed"},
		{"number of runs", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, beside: {loss: 0}, " +
			"ratio: '>= 160%'}", 5, &lab{busbw: noisy}, []verdict.Verdict{inconclusive, inconclusive},
			"111.6%, 111.6% to 204.6% in 5 pairs of runs, want >= 160%; the interval has the bound in it: " +
				"about 19 pairs would decide"},
		{"two bounds", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, beside: {transport: " +
			"tcp}, " +
			"ratio: '>= 200%, <= 500%'}", 5, &lab{}, []verdict.Verdict{fail, fail}, "want >= 200%, <= 500%"},
		{"broken baseline", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, beside: " +
			"{transport: tcp}, " +
			"ratio: '>= 500%', baseline: '>= 100gbit'}", 5, &lab{}, []verdict.Verdict{inconclusive,
			inconclusive},
			"the baseline is 28 Gbit/s and not >= 100gbit, so that it may be broken"},
		{"unit of the baseline", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, " +
			"beside: {transport: tcp}, ratio: '>= 500%', baseline: '>= 10KB'}", 5, &lab{},
			[]verdict.Verdict{inconclusive, inconclusive}, "the bound of the baseline"},
		{"two parts", "{metric: busbw, of: ar, beside-of: other, cells: {loss: 0, transport: rd}, ratio: " +
			"'>= 2000%'}",
			5, &lab{}, []verdict.Verdict{pass, pass}, "252 Gbit/s beside 8 Gbit/s"},
		{"too few runs", few, 4, &lab{}, []verdict.Verdict{inconclusive, inconclusive},
			"a time needs at least 5 pairs: write repeat: 5"},
		{"too few faithful runs", few, 5, &lab{degraded: func(_ string, n int) bool { return n == 2 }},
			[]verdict.Verdict{inconclusive, inconclusive},
			"1 more pair is not faithful; a time needs at least 5 pairs: " +
				"write repeat: 6"},
		{"no faithful run", few, 5, &lab{degraded: func(cell string, _ int) bool {
			return strings.HasSuffix(cell, "0")
		}}, []verdict.Verdict{inconclusive, inconclusive}, "the emulation was not faithful in 5 of 5 pairs"},
		{"a count needs few runs", "{metric: wrong elements, of: ar, cells: {transport: rd, loss: 1%}, " +
			"beside: {loss: 0}, ratio: '>= 200%'}", 2, &lab{}, []verdict.Verdict{pass, pass},
			"infinite in 2 pairs"},
		{"a count of late runs", "{metric: wrong elements, of: ar, cells: {transport: rd, loss: 0}, " +
			"beside: {loss: 1%}, ratio: '>= 200%'}", 2, &lab{degraded: func(string,
			int) bool {
			return true
		}},
			[]verdict.Verdict{inconclusive, inconclusive}, "was not faithful, and this may be the cause"},
		{"zero by zero", "{metric: busbw, of: ar, cells: {transport: rd, loss: 1%}, beside: {loss: 0}, " +
			"ratio: '<= 100%'}", 5, &lab{busbw: none}, []verdict.Verdict{inconclusive, inconclusive},
			"both are 0"},
		{"several parts", "{metric: busbw, cells: {transport: rd, loss: 1%}, beside: {loss: 0}, " +
			"ratio: '<= 100%'}", 5, &lab{}, []verdict.Verdict{inconclusive, inconclusive},
			"name one with of: ar; other"},
		{"unknown metric", "{metric: busbv, of: ar, cells: {transport: rd, loss: 1%}, beside: {loss: 0}, " +
			"ratio: '<= 100%'}", 5, &lab{}, []verdict.Verdict{inconclusive, inconclusive},
			"want one of time; algbw; busbw"},
		{"unknown part", "{metric: busbw, of: as, cells: {transport: rd, loss: 1%}, beside: {loss: 0}, " +
			"ratio: '<= 100%'}", 5, &lab{}, []verdict.Verdict{inconclusive, inconclusive},
			`no numbers of "as"`},
		{"unsupported cell", few, 5, &lab{verdict: func(cell string, _ int) verdict.Verdict {
			return map[bool]verdict.Verdict{true: unsupported}[strings.Contains(cell, "tcp, loss=1%")]
		}}, []verdict.Verdict{unsupported, pass}, "this host cannot run transport=tcp, loss=1%"},
		{"overloaded cell", few, 5, &lab{verdict: func(cell string, _ int) verdict.Verdict {
			return map[bool]verdict.Verdict{true: overloaded}[strings.Contains(cell, "tcp, loss=1%")]
		}}, []verdict.Verdict{inconclusive, overloaded}, "is OVERLOADED and has no numbers"},
		{"failed run", few, 5, &lab{verdict: only(fail)}, []verdict.Verdict{inconclusive, fail},
			"transport=tcp, loss=1% is FAIL, and its numbers prove nothing unless all its runs pass"},
		{"inconclusive run", few, 5, &lab{verdict: only(inconclusive)},
			[]verdict.Verdict{inconclusive, inconclusive}, "is INCONCLUSIVE, and its numbers prove nothing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := test.lab
			l.t, l.file = t, repeatedFile(t, test.repeat, "compare:\n  - "+test.compare+"\n")
			if l.busbw == nil {
				l.busbw = byCell
			}
			r := l.run(l.options(t.TempDir()))
			var got []verdict.Verdict
			for _, c := range r.Matrices[0].Compare {
				got = append(got, c.Verdict)
			}
			if got = append(got, r.Verdict); !slices.Equal(got, test.want) {
				t.Errorf("verdicts %v, want %v", got, test.want)
			}
			if c := r.Matrices[0].Compare[0]; !strings.Contains(c.Reason, test.reason) ||
				c.Where != "a.yaml:6:5" {
				t.Errorf("%s: reason %q, want %q", c.Where, c.Reason, test.reason)
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		})
	}
}

const claimOfRD = "claim: {system: rd, source: here, published: 10 times, holds: 5 times, " +
	"baseline: {transport: tcp}, treatment: {transport: rd}}\n"

// TestClaims: comparisons are of the treatment and the baseline unless they name cells. With quick runs, only
// the direction counts. A control must not pass, and too few runs prove nothing of it.
func TestClaims(t *testing.T) {
	const inconclusive = verdict.Inconclusive
	alike := func(cell string, n int) float64 { return byCell(cell[strings.Index(cell, "loss"):], n) + 20 }
	const bound = "compare:\n  - {metric: busbw, of: ar, cells: {loss: 0}, ratio: '>= 180%'}\n"
	const two = "compare:\n  - {metric: busbw, of: ar, cells: {loss: 0}, ratio: '>= 110%, <= 120%'}\n"
	for _, test := range []struct {
		name, keys     string
		repeat         int
		busbw          func(string, int) float64
		quick, control bool
		want           verdict.Verdict
		reason         string
	}{
		{"passes", claimOfRD + bound, 5, byCell, false, false, pass,
			"ar busbw of the treatment transport=rd, loss=0 beside the baseline transport=tcp, loss=0"},
		{"two runs", claimOfRD + bound, 2, byCell, false, false, inconclusive, ""},
		{"two quick runs", claimOfRD + bound, 2, byCell, true, false, pass, ""},
		{"two quick runs, more than wanted", claimOfRD + two, 2, byCell, true, false, pass, ""},
		{"two quick runs, alike", claimOfRD + bound, 2, alike, true, false, fail, ""},
		{"quick without a claim", strings.Replace(bound, "ratio", "beside: {loss: 1%}, ratio", 1), 2, byCell,
			true, false, inconclusive, ""},
		{"control that passes", claimOfRD + bound, 5, byCell, false, true, fail,
			"without the treatment, it passes"},
		{"control", claimOfRD + bound, 5, alike, false, true, pass, "without the treatment, ar busbw of"},
		{"control of few runs", claimOfRD + bound, 2, alike, false, true, inconclusive, "at least 5 pairs"},
		{"control of a cost", claimOfRD + bound + "  - {metric: busbw, of: other, ratio: '<= 110%'}\n", 5,
			alike,
			false, true, pass, "without the treatment, ar busbw of"},
		{"control of a cost alone", claimOfRD + "compare:\n  - {metric: busbw, of: other, ratio: '<= " +
			"110%'}\n", 5,
			alike, false, true, fail, "no comparison of the claim demands a difference"},
		{"control of two", claimOfRD + bound + "  - {metric: busbw, of: other, ratio: '<= 99%'}\n", 5, byCell,
			false,
			true, fail, "it passes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := &lab{t: t, busbw: test.busbw, file: repeatedFile(t, test.repeat, test.keys)}
			o := l.options(t.TempDir())
			o.Quick, o.Control = test.quick, test.control
			r := l.run(o)
			m := r.Matrices[0]
			text := m.Compare[0].Title()
			if m.Control != nil {
				text = m.Control.Reason
			}
			if r.Verdict != test.want || !strings.Contains(text, test.reason) || len(m.Compare) == 0 {
				t.Errorf("%s: %q, %+v, want %s: %q", r.Verdict, text, m.Compare, test.want, test.reason)
			}
			var junit strings.Builder
			if err := r.WriteJUnit(&junit); err != nil || m.Claim != nil && m.Control == nil &&
				m.Compare[0].Claimed !=
					strings.Contains(junit.String(), "published: 10 times") {
				t.Errorf("%v: %s", err, junit.String())
			}
		})
	}
}

// TestControls: without its treatment, a scenario that passes is FAIL, and a scenario of which a check does
// not hold is PASS. A failed step, a mistake and a busy host prove nothing. A run beside others is repeated.
func TestControls(t *testing.T) {
	const inconclusive = verdict.Inconclusive
	for name, test := range map[string]struct {
		verdicts []verdict.Verdict // of runs in turn
		change   func(r *report.Report)
		jobs     int
		want     verdict.Verdict
	}{
		"good":           {[]verdict.Verdict{fail}, nil, 1, pass},
		"bad":            {[]verdict.Verdict{pass}, nil, 1, fail},
		"unclear":        {[]verdict.Verdict{inconclusive}, nil, 1, pass},
		"busy":           {[]verdict.Verdict{overloaded}, nil, 1, overloaded},
		"mistake":        {[]verdict.Verdict{""}, nil, 1, fail},
		"beside others":  {[]verdict.Verdict{late, pass}, nil, 2, fail},
		"unclear, late":  {[]verdict.Verdict{inconclusive}, degrade, 1, inconclusive},
		"fails by steps": {[]verdict.Verdict{fail}, failStep, 1, inconclusive},
	} {
		h := &host{t: t, want: test.jobs,
			verdicts: map[string][]verdict.Verdict{"a": test.verdicts, "b": {fail}}}
		o := Options{Out: t.TempDir(), Prune: prune, Control: true, Jobs: test.jobs,
			Cases: []Case{{Name: "a", Path: "a.yaml", Control: "loss=0"},
				{Name: "b", Path: "b.yaml", Control: "loss=0"}},
			Do: func(ctx context.Context, c Case, repetition int, out string) (*report.Report, error) {
				r, err := h.do(ctx, c, repetition, out)
				if r != nil && test.change != nil {
					test.change(r)
				}
				return r, err
			}}
		r, err := Run(t.Context(), o)
		if err != nil || r.Cases[0].Verdict != test.want {
			t.Errorf("%s: %v, %s, want %s: %s", name, err, r.Cases[0].Verdict, test.want, r.Cases[0].Reason)
		}
	}
}

func degrade(r *report.Report) { r.Fidelity.Verdict = report.Degraded }

func failStep(r *report.Report) { r.Steps = []report.Step{{State: report.Failed}} }

// TestResumedControl: a suite takes no runs of a control over.
func TestResumedControl(t *testing.T) {
	o := Outcome{Case: Case{Name: "a", Content: "1", Repeat: 1}}
	earlier := &Results{Cases: []Outcome{{Case: Case{Name: "a", Content: "1", Control: "loss=0"},
		Runs: []Attempt{{Repetition: 1, Verdict: pass, Reported: true}}}}}
	if o.resume(earlier); len(o.Runs) != 0 {
		t.Errorf("%+v", o.Runs)
	}
	earlier.Cases[0].Control = ""
	if o.resume(earlier); len(o.Runs) != 1 {
		t.Errorf("%+v", o.Runs)
	}
}
