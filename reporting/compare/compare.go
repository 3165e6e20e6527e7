// Package compare compares two runs, or two sets of runs: their plans, versions,
// hosts and verdicts, all numbers of their reports, and the times of the messages in their recordings.
//
// A number of a set has one value for each run. benchmath gives the median, its confidence interval, and
// the significance of the difference by the Mann-Whitney U test, as benchstat does. The test assumes that
// runs are independent of each other, and nothing about how values are distributed. With one run on each side
// no difference is significant.
//
// Where nothing differs, a share Alpha of the tests still finds a difference. So a number is only called
// better, worse or different if p is at most its part of Alpha. Each section has an equal part, which its
// tests divide.
//
// The messages of one run share queues, senders and the host, so they are not independent samples. Their
// times are only described: quantiles of each run, and curves for pictures. The test sees a quantile as one
// value of a run.
//
// If a run has several recordings, recordings of the same name are compared: each may have other ports and
// other packets, and one message may be in several. If no run has several, names do not matter. One recording
// is in memory at a time, with the bounds of package follow. Compare keeps the report of each run and the
// quantiles of each recording, workload and protocol. Each side keeps one plan. A report has the settings of
// workloads and not of other steps, so that settings of other steps are not compared.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/perf/benchmath"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/plan"
)

// Format is the version of the JSON document, by the rules of report.Format.
const Format = "railbed-comparison/1"

// DefaultAlpha is benchstat's.
const DefaultAlpha = 0.05

// Options are the options of Runs.
type Options struct {
	// Alpha is the probability of a test to find a difference where there is none. 0 stands for DefaultAlpha.
	Alpha float64
	// NoRecordings leaves recordings unread.
	NoRecordings bool
}

// Comparison compares two sides, each a set of runs. Lists are in the order of the first side's reports.
type Comparison struct {
	Format string `json:"format"`
	Base   []Run  `json:"base"`
	New    []Run  `json:"new"`
	// Notes add what the numbers do not show, such as too few runs.
	Notes []string `json:"notes"`
	// Plan lists how the plan of the new runs differs from the plan of the base runs. PlanCompared is false
	// if a side has no plan.
	Plan         []string `json:"plan"`
	PlanCompared bool     `json:"plan_compared"`
	// Facts are the words in reports that differ, such as versions and hosts.
	Facts []Fact `json:"facts"`
	// Verdicts are the verdicts of runs, of their fidelity, steps and checks, also those that do not differ.
	Verdicts []Fact   `json:"verdicts"`
	Numbers  []Number `json:"numbers"`
	// Curves are the distributions of the messages' times.
	Curves []Curves `json:"curves"`
	// Alpha is the probability of each test to find a difference where there is none.
	Alpha float64 `json:"alpha"`
	// Tests is the number of tests and Significant the number of differences that they found. Different is
	// the number of differences that are significant among all tests: better, worse or differs.
	Tests       int `json:"tests"`
	Significant int `json:"significant"`
	Different   int `json:"different"`
}

// Run is one of the runs of a side.
type Run struct {
	Name     string          `json:"name"` // as it was given
	File     string          `json:"file"`
	Started  time.Time       `json:"started,omitzero"`
	Verdict  verdict.Verdict `json:"verdict"`
	Fidelity string          `json:"fidelity,omitempty"`
	PlanHash string          `json:"plan_hash"`
}

// run is the part of a run that stays in memory.
type run struct {
	name     string
	report   *report.Report
	messages []messages
	// recordings are the names of the recordings that messages are of.
	recordings []string
}

// side is the runs of a side.
type side struct {
	name string
	runs []*run
	plan *plan.Plan // of the first run that has one
	// notes are of the runs' own plans and recordings.
	notes []string
}

// Runs reads the runs of two sides, each a directory of results or a bundle, and compares them. Its error has
// every run that cannot be read.
func Runs(ctx context.Context, base, changed []string, o Options) (*Comparison, error) {
	if o.Alpha == 0 {
		o.Alpha = DefaultAlpha
	}
	sides := [2]*side{{name: "base"}, {name: "new"}}
	seen := map[identity]string{}
	var problems []error
	for i, names := range [2][]string{base, changed} {
		for _, name := range names {
			err := sides[i].read(ctx, name, o, seen)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	nameRecordings(sides)
	return compare(sides, o), nil
}

// identity distinguishes runs, whatever the names of their directories and bundles.
type identity struct {
	host    string
	started int64
	hash    string
}

// read adds a run. seen has the runs of both sides.
func (s *side) read(ctx context.Context, name string, o Options, seen map[identity]string) error {
	opened, err := bundle.Open(name)
	if err != nil {
		return err
	}
	defer opened.Close()
	r := opened.Report
	if r == nil {
		return fmt.Errorf("%s has no %s: want a directory of results of railbed run, or a bundle of one",
			name, report.JSONFile)
	}
	// The same run twice would make its numbers look certain.
	id := identity{r.Host.Name, r.Started.UnixNano(), r.PlanHash}
	if other, twice := seen[id]; twice && !r.Started.IsZero() {
		return fmt.Errorf("%s is the same run as %s, started %s on %s: want each run once", name, other,
			r.Started.Format(time.RFC3339), r.Host.Name)
	}
	seen[id] = name
	one := &run{name: name, report: r}
	if !o.NoRecordings {
		s.readRecordings(ctx, opened, one)
	}
	switch {
	case opened.Plan == nil:
		s.notes = append(s.notes, fmt.Sprintf("%s %s has no %s: its plan is not compared", s.name, name,
			bundle.PlanFile))
	case s.plan == nil:
		s.plan = opened.Plan
	default:
		if changes := plan.Changes(s.plan, opened.Plan); len(changes) > 0 {
			s.notes = append(s.notes, fmt.Sprintf("%s %s has another plan than the runs before it: %s",
				s.name, name, few(changes)))
		}
	}
	s.runs = append(s.runs, one)
	return nil
}

// few returns the first of many changes.
func few(changes []string) string {
	if len(changes) == 1 {
		return changes[0]
	}
	return plural.Text("%s, and %d more changes", changes[0], len(changes)-1)
}

func compare(sides [2]*side, o Options) *Comparison {
	c := &Comparison{Format: Format, Alpha: o.Alpha, Base: sides[0].list(), New: sides[1].list(),
		Notes: []string{}, Plan: []string{}, Facts: []Fact{}, Curves: curves(sides)}
	if c.PlanCompared = sides[0].plan != nil && sides[1].plan != nil; c.PlanCompared {
		c.Plan = append(c.Plan, plan.Changes(sides[0].plan, sides[1].plan)...)
	}
	for _, f := range facts(sides, inputs) {
		if !f.Same() {
			c.Facts = append(c.Facts, f)
		}
	}
	c.Verdicts = facts(sides, verdicts)
	c.Numbers = numbers(sides, &benchmath.Thresholds{CompareAlpha: o.Alpha})
	c.note(sides)
	return c
}

func (s *side) list() (all []Run) {
	for _, one := range s.runs {
		r := Run{Name: one.name, File: one.report.File, Started: one.report.Started,
			Verdict: one.report.Verdict, PlanHash: one.report.PlanHash}
		if one.report.Fidelity != nil {
			r.Fidelity = one.report.Fidelity.Verdict
		}
		all = append(all, r)
	}
	return all
}

// note counts the tests and writes the notes.
func (c *Comparison) note(sides [2]*side) {
	few, needs, unbounded := 0, "", ""
	for i := range c.Numbers {
		n := &c.Numbers[i]
		unbounded = cmp.Or(n.Base.needs, n.New.needs, unbounded)
		switch {
		case n.Outcome == TooFew:
			few++
			needs = n.Needs
		case n.Outcome == Perhaps:
			c.Significant++
		case n.Significant():
			c.Significant++
			c.Different++
		}
		if n.P != nil {
			c.Tests++
		}
	}
	if few > 0 && c.Tests == 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("no difference can be significant: %s, and each run is a "+
			"sample (base has %d, new has %d)", needs, len(c.Base), len(c.New)))
	} else if few > 0 {
		c.Notes = append(c.Notes,
			plural.Text("%d numbers are in too few runs for a test: %s", few, needs))
	}
	if c.Tests > 0 {
		c.noteTests()
	}
	if unbounded != "" && c.Several() {
		c.Notes = append(c.Notes, "± ∞: "+unbounded)
	}
	for _, s := range sides {
		c.Notes = append(c.Notes, s.notes...)
		behind := 0
		for _, one := range s.runs {
			if f := one.report.Fidelity; f != nil && f.Verdict != report.Faithful {
				behind++
			}
		}
		if behind > 0 {
			c.Notes = append(c.Notes,
				fmt.Sprintf("the emulation of %d of %d %s runs was not faithful, so that times may be the "+
					"host's and not the fabric's", behind, len(s.runs), s.name))
		}
	}
}

// noteTests adds a note on the significance of the tests.
func (c *Comparison) noteTests() {
	c.Notes = append(c.Notes, plural.Text("%d of %d tests found a difference (p <= %.3g), where chance "+
		"alone gives up to %.0f on average. The tests assume that runs are independent of each other",
		c.Significant, c.Tests, c.Alpha, math.Ceil(c.Alpha*float64(c.Tests))))
	if c.Tests == 1 || c.Significant == 0 {
		return
	}
	note := fmt.Sprintf("%d of these are reported as better, worse or different: chance alone causes any of "+
		"them with a probability of at most %.3g", c.Different, c.Alpha)
	if c.Different < c.Significant {
		note += ". The others are reported as perhaps"
	}
	c.Notes = append(c.Notes, note)
}
