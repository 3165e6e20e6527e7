package suite

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"railbed/capture/compare"
	"railbed/internal/verdict"
)

// alpha bounds the probability that any number is called worse although no number changed.
const alpha = compare.DefaultAlpha

// chosen is a number of a case that a metric names.
type chosen struct {
	compare.Number
	of string // the case
}

// Compare compares the runs of each case in a directory with the runs of an earlier suite. If numbers are
// significantly worse, Compare describes them in Worse, sets the verdict to at least FAIL, and writes the
// results again. The limit for p of each number's Mann-Whitney U test is alpha divided by the number of tests
// (Bonferroni). A metric is the beginning of a number's name, such as busbw. The error names a metric that no
// case has on both sides, or a number with too few runs for a significant result.
func (r *Results) Compare(ctx context.Context, dir string, base *Results, baseDir string,
	metrics []string) error {
	worse, err := r.worse(ctx, dir, base, baseDir, metrics)
	if err != nil || len(worse) == 0 {
		return err
	}
	r.Worse, r.Verdict = worse, verdict.Worst(r.Verdict, verdict.Fail)
	return r.write(dir)
}

func (r *Results) worse(ctx context.Context, dir string, base *Results, baseDir string,
	metrics []string) (worse []string, err error) {
	var all []chosen
	var known []string
	for i := range r.Cases {
		o := &r.Cases[i]
		at := slices.IndexFunc(base.Cases, func(b Outcome) bool { return b.Name == o.Name })
		if at < 0 {
			continue
		}
		before, now := base.Cases[at].reports(baseDir), o.reports(dir)
		if len(before) == 0 || len(now) == 0 {
			continue
		}
		c, err := compare.Runs(ctx, before, now, compare.Options{NoRecordings: true})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.Name, err)
		}
		for _, n := range c.Numbers {
			if n.Better == compare.Neither || len(n.Base.Values) == 0 || len(n.New.Values) == 0 {
				continue
			}
			if !slices.Contains(known, n.What) {
				known = append(known, n.What)
			}
			if slices.ContainsFunc(metrics, func(m string) bool { return strings.HasPrefix(n.What, m) }) {
				all = append(all, chosen{n, o.Name})
			}
		}
	}
	for _, m := range metrics {
		if !slices.ContainsFunc(all, func(n chosen) bool { return strings.HasPrefix(n.What, m) }) {
			want := "no scenario has comparable runs on both sides"
			if len(known) > 0 {
				want = fmt.Sprintf("want the beginning of one of %q", known)
			}
			return nil, fmt.Errorf("no scenario has a number %s both here and in %s; %s", m, baseDir, want)
		}
	}
	limit := alpha / float64(len(all))
	for _, n := range all {
		runs, before := len(n.New.Values), len(n.Base.Values)
		if leastP(runs, before) > limit {
			return nil, fmt.Errorf("%s of %s: %d and %d runs are too few for a significant result among %d "+
				"tests; make more runs with --repeat", n.What, n.of, runs, before, len(all))
		}
		down, up := n.New.Median < n.Base.Median, n.New.Median > n.Base.Median
		wrong := down && n.Better == compare.More || up && n.Better == compare.Less
		if wrong && n.P != nil && *n.P <= limit {
			worse = append(worse, fmt.Sprintf("%s: %s %s: %s, was %s (%s)", n.of, n.Of, n.What,
				n.Texts(n.New), n.Texts(n.Base), n.Test()))
		}
	}
	return worse, nil
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

// reports returns the directories of the runs that count and had a testbed.
func (o *Outcome) reports(dir string) (all []string) {
	for _, a := range o.Runs {
		if !a.Replaced && a.Reported {
			all = append(all, filepath.Join(dir, filepath.FromSlash(a.Dir)))
		}
	}
	return all
}
