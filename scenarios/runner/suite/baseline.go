package suite

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"railbed/internal/verdict"
	"railbed/reporting"
	"railbed/reporting/compare"
	"railbed/scenarios/runner/outdir"
)

// alpha bounds the probability that any number is called worse although no number changed.
const alpha = compare.DefaultAlpha

// chosen is a number of a case that a metric names.
type chosen struct {
	compare.Number
	of string // the case
}

// Baseline is an earlier suite, and what to compare with it.
type Baseline struct {
	*Results
	// Dir is the directory of the earlier results.
	Dir string
	// Metrics are beginnings of the names of numbers, such as busbw.
	Metrics []string
	// Selects reports whether a case of the earlier suite should be in this one. nil stands for all.
	Selects func(*Case) bool
}

// Compare compares the runs of each case in a directory with the runs of an earlier suite. If numbers are
// significantly worse, Compare describes them in Worse, and the verdict is at least FAIL. What cannot be
// compared is described in NotCompared, and the verdict is at least INCONCLUSIVE. That is a case or a number
// that one side lacks, too few runs for a significant result, or a metric that no case has. Compare then
// writes the results again. The limit for p of each number's Mann-Whitney U test is alpha divided by the
// number of tests (Bonferroni). An error means that the results cannot be written, or that ctx ended.
func (r *Results) Compare(ctx context.Context, out *outdir.Dir, dir string, base *Baseline) error {
	all, known, err := r.choose(ctx, dir, base)
	if err != nil {
		return err
	}
	for _, m := range base.Metrics {
		if !slices.ContainsFunc(all, func(n chosen) bool { return strings.HasPrefix(n.What, m) }) {
			want := "no scenario has comparable runs on both sides"
			if len(known) > 0 {
				want = fmt.Sprintf("want the beginning of one of %q", known)
			}
			r.lacks("no scenario has a number %s both here and in %s; %s", m, base.Dir, want)
		}
	}
	limit := alpha / float64(max(len(all), 1))
	for _, n := range all {
		runs, before := len(n.New.Values), len(n.Base.Values)
		if leastP(runs, before) > limit {
			r.lacks("%s: %s %s: %d and %d runs are too few for a significant result among %d tests; "+
				"make more "+
				"runs with --repeat", n.of, n.Of, n.What, runs, before, len(all))
			continue
		}
		down, up := n.New.Median < n.Base.Median, n.New.Median > n.Base.Median
		wrong := down && n.Better == reporting.More || up && n.Better == reporting.Less
		if wrong && n.P != nil && *n.P <= limit {
			r.Worse = append(r.Worse, fmt.Sprintf("%s: %s %s: %s, was %s (%s)", n.of, n.Of, n.What,
				n.Texts(n.New), n.Texts(n.Base), n.Test()))
		}
	}
	if len(r.Worse) > 0 {
		r.Verdict = verdict.Worst(r.Verdict, verdict.Fail)
	}
	if len(r.NotCompared) > 0 {
		r.Verdict = verdict.Worst(r.Verdict, verdict.Inconclusive)
	}
	if len(r.Worse)+len(r.NotCompared) == 0 {
		return nil
	}
	return r.write(out)
}

// lacks adds a line to NotCompared.
func (r *Results) lacks(format string, values ...any) {
	r.NotCompared = append(r.NotCompared, fmt.Sprintf(format, values...))
}

// choose returns the numbers of the metrics that both sides have, and the names of all numbers that could be
// chosen. It notes the cases and the numbers of metrics that only one side has.
func (r *Results) choose(ctx context.Context, dir string, base *Baseline) (all []chosen, known []string,
	err error) {
	for i := range base.Cases {
		b := &base.Cases[i]
		here := slices.ContainsFunc(r.Cases, func(o Outcome) bool { return o.Name == b.Name })
		if !here && (base.Selects == nil || base.Selects(&b.Case)) {
			r.lacks("%s: only in %s", b.Name, base.Dir)
		}
	}
	for i := range r.Cases {
		o := &r.Cases[i]
		at := slices.IndexFunc(base.Cases, func(b Outcome) bool { return b.Name == o.Name })
		if at < 0 {
			r.lacks("%s: not in %s", o.Name, base.Dir)
			continue
		}
		before, now := base.Cases[at].reports(base.Dir), o.reports(dir)
		switch {
		case o.Verdict == verdict.Unsupported: // skipped, as the verdict says
			continue
		case len(now) == 0:
			r.lacks("%s: no run has numbers that count: %s", o.Name, cmp.Or(o.notCounted(), "none was made"))
			continue
		case len(before) == 0:
			r.lacks("%s: no run in %s has numbers that count: %s", o.Name, base.Dir,
				cmp.Or(base.Cases[at].notCounted(), "none was made"))
			continue
		}
		c, err := compare.Runs(ctx, before, now, compare.Options{NoRecordings: true})
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		} else if err != nil {
			r.lacks("%s: %v", o.Name, err)
			continue
		}
		for _, n := range c.Numbers {
			if n.Better == reporting.Neither {
				continue
			}
			both := len(n.Base.Values) > 0 && len(n.New.Values) > 0
			if both && !slices.Contains(known, n.What) {
				known = append(known, n.What)
			}
			switch wanted := slices.ContainsFunc(base.Metrics, func(m string) bool {
				return strings.HasPrefix(n.What, m)
			}); {
			case wanted && both:
				all = append(all, chosen{n, o.Name})
			case wanted && len(n.New.Values) == 0:
				r.lacks("%s: %s %s: only in %s", o.Name, n.Of, n.What, base.Dir)
			case wanted:
				r.lacks("%s: %s %s: not in %s", o.Name, n.Of, n.What, base.Dir)
			}
		}
	}
	return all, known, nil
}

// EnoughRuns reports a case that can have no significant result, because its runs are too few beside those of
// the same case in an earlier suite. A case without a number of runs has repeat of them.
func EnoughRuns(cases []Case, repeat int, base *Results, baseDir string) error {
	for _, c := range cases {
		at := slices.IndexFunc(base.Cases, func(b Outcome) bool { return b.Name == c.Name })
		if at < 0 {
			continue
		}
		runs, before := max(cmp.Or(c.Repeat, repeat), 1), len(base.Cases[at].reports(baseDir))
		if before == 0 || leastP(runs, before) <= alpha {
			continue
		}
		want := "make more runs there first"
		for more := runs + 1; more <= maxRepeat; more++ {
			if leastP(more, before) <= alpha {
				want = fmt.Sprintf("want --repeat %d or more", more)
				break
			}
		}
		return fmt.Errorf("%s: %d and, in %s, %d runs are too few for a significant result; %s", c.Name, runs,
			baseDir, before, want)
	}
	return nil
}

// maxRepeat bounds the number of runs that an error suggests.
const maxRepeat = 100

// leastP returns the smallest possible p of the two-sided test with a and b values. Of all ways to order the
// values, the two most extreme have this p.
func leastP(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return 2 / ways
}

// reports returns the directories of the runs whose numbers count.
func (o *Outcome) reports(dir string) (all []string) {
	for _, a := range o.Runs {
		if a.notMeasured() == "" {
			all = append(all, filepath.Join(dir, filepath.FromSlash(a.Dir)))
		}
	}
	return all
}
