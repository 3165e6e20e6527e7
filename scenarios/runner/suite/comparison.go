package suite

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/reporting/compare"
)

// Comparison is a check between two cells, or between two parts of the reports of one cell.
type Comparison struct {
	// Metric and Of name the number.
	Metric string `json:"metric"`
	Of     string `json:"of,omitempty"`
	// Cell is the cell to judge, Beside the other one. BesideOf is the part that has the other number, if it
	// is not Of.
	Cell     string `json:"cell"`
	Beside   string `json:"beside"`
	BesideOf string `json:"beside_of,omitempty"`
	// Claimed is set if Cell has the treatment of the claim, and Beside its baseline.
	Claimed bool `json:"claimed,omitempty"`
	// Pairs is the number of pairs of runs with one seed that count.
	Pairs int `json:"pairs"`
	// Median and Other are the medians of the two cells in these runs, and Ratio is Median by Other. They are
	// absent if they cannot be had.
	Median *float64 `json:"median,omitempty"`
	Other  *float64 `json:"other,omitempty"`
	Ratio  *float64 `json:"ratio,omitempty"`
	// Low and High are the interval of Ratio.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Want bounds the ratio, such as ">= 200%", and WantBaseline the other median.
	Want         string          `json:"want"`
	WantBaseline string          `json:"want_baseline,omitempty"`
	Verdict      verdict.Verdict `json:"verdict"`
	// Reason is the result in words.
	Reason string `json:"reason"`
	// Where is the position of the check: file:line:column.
	Where string `json:"where"`

	// decided is set if the pairs of runs were enough for a verdict.
	decided bool
}

// Title names the check: "ar busbw of transport=rd beside transport=tcp".
func (c *Comparison) Title() string {
	own, other := c.Cell, c.Beside
	if c.Claimed {
		own, other = "the treatment "+own, "the baseline "+other
	}
	switch {
	case c.BesideOf == "":
		return strings.TrimSpace(c.Of+" "+c.Metric) + " of " + own + " beside " + other
	case c.Cell == c.Beside && c.Claimed:
		own, other = "the treatment "+c.Of, "the baseline "+c.BesideOf
		return c.Metric + " of " + own + " beside " + other
	case c.Cell == c.Beside:
		return c.Metric + " of " + c.Of + " beside " + c.BesideOf + " in " + own
	}
	return c.Metric + " of " + c.Of + " in " + own + " beside " + c.BesideOf + " in " + other
}

// judge judges the checks whose cells the suite has.
func (m *Matrix) judge(checks []spec.Compare) {
	for i := range checks {
		for _, pair := range checks[i].Pairs {
			own, other := m.cell(pair[0]), m.cell(pair[1])
			if own < 0 || other < 0 {
				m.Left++
				continue
			}
			m.Compare = append(m.Compare, m.comparison(&checks[i], own, other))
		}
	}
}

// Control is the result of a claim whose baseline ran in place of its treatment.
type Control struct {
	// Verdict is PASS if a comparison of the claim did not pass.
	Verdict verdict.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
}

// control sets the verdict of the claim without its treatment. Each comparison that demands a difference must
// not pass.
func (m *Matrix) control() {
	m.Control = &Control{Verdict: verdict.Fail, Reason: "no comparison of the claim demands a difference"}
	var proved []string
	for i := range m.Compare {
		c := &m.Compare[i]
		if bounds, err := spec.ParseBounds(c.Want, spec.BesideBound); !c.Claimed || err == nil &&
			bounds.Holds(1) {
			continue
		}
		switch {
		case c.Verdict == verdict.Pass:
			*m.Control = Control{verdict.Fail, "without the treatment, it passes: " + c.Title() + ": " +
				c.Reason}
			return
		case c.Verdict == verdict.Unsupported:
			*m.Control = Control{verdict.Unsupported, c.Reason}
			return
		case !c.decided: // this would be so with the treatment, too
			*m.Control = Control{verdict.Inconclusive, c.Title() + ": " + c.Reason}
			return
		}
		proved = append(proved, fmt.Sprintf("%s is %s: %s", c.Title(), c.Verdict, c.Reason))
	}
	if len(proved) > 0 {
		*m.Control = Control{verdict.Pass, "without the treatment, " + strings.Join(proved, "; ")}
	}
}

// judgements returns the verdicts that count: those of the comparisons, or that of the control.
func (m *Matrix) judgements() (all []verdict.Verdict) {
	if m.Control != nil {
		return []verdict.Verdict{m.Control.Verdict}
	}
	for i := range m.Compare {
		all = append(all, m.Compare[i].Verdict)
	}
	return all
}

func (m *Matrix) cell(of *spec.Cell) int {
	return slices.IndexFunc(m.Cells, func(c Cell) bool { return slices.Equal(c.Values, of.Values) })
}

// comparison judges a check between two cells.
func (m *Matrix) comparison(check *spec.Compare, own, other int) Comparison {
	c := Comparison{Metric: check.Metric, Of: check.Of, Cell: m.Cells[own].Name, Beside: m.Cells[other].Name,
		Want: check.Ratio, WantBaseline: check.Baseline, Where: check.Where.String(),
		Verdict: verdict.Inconclusive, Claimed: m.Claim.Compared(check, m.Cells[own].Values,
			m.Cells[other].Values)}
	for _, of := range []int{own, other} {
		if m.Cells[of].Verdict == verdict.Unsupported {
			c.Verdict, c.Reason = verdict.Unsupported, "this host cannot run "+m.Cells[of].Name
			return c
		} else if c.Reason = m.Cells[of].unproved(); c.Reason != "" {
			return c
		}
	}
	number, reason := m.number(check.Metric, check.Of)
	beside := number
	if number != nil && check.BesideOf != "" && check.BesideOf != number.Of {
		beside, reason = m.number(check.Metric, check.BesideOf)
	}
	if number == nil || beside == nil {
		c.Reason = reason
		return c
	}
	c.Of = number.Of
	if beside != number {
		c.BesideOf = beside.Of
	}
	p := m.pairs(number, beside, own, other)
	if c.Pairs = len(p.own); c.Pairs == 0 {
		c.Reason = p.lost(m.Cells[own].Name, m.Cells[other].Name, number, beside)
		return c
	}
	c.judge(p, number, m.quick)
	return c
}

// unproved returns why the runs of a cell prove nothing, or "".
func (c *Cell) unproved() string {
	if c.Runs == 0 {
		reason := fmt.Sprintf("%s is %s and has no numbers", c.Name, c.Verdict)
		if c.NotCounted != "" {
			reason += " that count: runs " + c.NotCounted
		}
		return reason
	}
	for _, a := range c.attempts {
		if a.Verdict != verdict.Pass {
			return fmt.Sprintf("%s is %s, and its numbers prove nothing unless all its runs pass", c.Name,
				a.Verdict)
		}
	}
	return ""
}

// pairs are the values of two numbers in runs with the same seed.
type pairs struct {
	own, other []float64
	// made is the number of pairs of runs, of which some do not count.
	made int
	// unfaithful is set if the emulation of a run did not keep up. Only numbers that are no times have such
	// runs.
	unfaithful bool
	// late is the number of pairs that do not count because of this.
	late int
}

// pairs returns the pairs of runs that have both numbers. A number that is a time counts only if both runs
// are faithful.
func (m *Matrix) pairs(number, beside *Number, own, other int) (p pairs) {
	timed := number.Timed() && !m.quick
	for i, a := range m.Cells[own].attempts {
		k := slices.IndexFunc(m.Cells[other].attempts, func(b Attempt) bool {
			return b.Repetition == a.Repetition
		})
		if k < 0 {
			continue
		}
		p.made++
		value, has := number.Cells[own].byRun[i]
		with, hasOther := beside.Cells[other].byRun[k]
		late := !a.faithful() || !m.Cells[other].attempts[k].faithful()
		switch {
		case !has || !hasOther:
			continue
		case late && timed:
			p.late++
			continue
		}
		p.unfaithful = p.unfaithful || late
		p.own, p.other = append(p.own, value), append(p.other, with)
	}
	return p
}

// faithful reports whether the emulation kept up, as far as the run has an emulation that can be late.
func (a *Attempt) faithful() bool { return a.Fidelity == "" || a.Fidelity == report.Faithful }

// lost returns why no pair counts.
func (p *pairs) lost(cell, other string, number, beside *Number) string {
	switch {
	case p.made == 0:
		return fmt.Sprintf("%s and %s have no runs of the same repetition", cell, other)
	case p.late > 0:
		return fmt.Sprintf("no pair of runs counts: %s is a time, and the emulation was not faithful in "+
			"%d of %d "+
			"pairs; run it on an idle machine, or with a dilation", number.Title(), p.late, p.made)
	case number == beside:
		return fmt.Sprintf("no pair of runs of %s and %s has %s", cell, other, number.Title())
	}
	return fmt.Sprintf("no pair of runs of %s and %s has %s and %s", cell, other, number.Title(),
		beside.Title())
}

// judge judges the pairs of a comparison.
func (c *Comparison) judge(p pairs, number *Number, quick bool) {
	a, b := median(p.own), median(p.other)
	c.Median, c.Other = &a, &b
	c.Reason = fmt.Sprintf("%s beside %s", compare.Text(a, number.Unit), compare.Text(b, number.Unit))
	if slices.Max(p.own) == 0 && slices.Max(p.other) == 0 {
		c.Reason += ": both are 0, and so there is nothing to compare"
		return
	}
	if reason := brokenBaseline(c.WantBaseline, b, number.Unit); reason != "" {
		c.Reason += ": " + reason
		return
	}
	r := ratioOf(p.own, p.other)
	c.Ratio, c.Low, c.High = finite(r.value), finite(r.low), finite(r.high)
	c.Reason += fmt.Sprintf(": %s, %s to %s in %s of runs, want %s", percent(r.value), percent(r.low),
		percent(r.high), plural.Count(c.Pairs, "pairs"), c.Want)
	if p.late > 0 {
		c.Reason += plural.Text("; %d more pairs are not faithful", p.late)
	}
	bounds, err := spec.ParseBounds(c.Want, spec.BesideBound)
	if err != nil { // the file was checked
		c.Reason = err.Error()
		return
	}
	needs := fewest(number)
	if quick {
		needs, bounds = 1, bounds.Direction()
		c.Reason += "; only the direction is judged"
	}
	if c.Pairs < needs {
		c.Reason += fmt.Sprintf("; a time needs at least %d pairs: write repeat: %d", needs, needs+p.late)
		return
	}
	switch c.Verdict, c.decided = r.verdict(bounds), true; {
	case c.Verdict == verdict.Inconclusive:
		c.Reason += "; " + r.needed(bounds, c.Pairs)
	case c.Verdict == verdict.Fail && p.unfaithful:
		c.Verdict, c.decided = verdict.Inconclusive, false
		c.Reason += "; the emulation was not faithful, and this may be the cause"
	case p.unfaithful:
		c.Reason += "; the emulation of some runs was degraded"
	}
}

// fewest returns the smallest number of pairs with which a comparison can pass.
func fewest(number *Number) int {
	if number.Timed() {
		return fewestBootstrap
	}
	return 1
}

// brokenBaseline returns why the median of the baseline is not as the file wants, or "".
func brokenBaseline(want string, value float64, unit string) string {
	if want == "" {
		return ""
	}
	kind, per := spec.NumberBound, 1.0
	switch unit {
	case reporting.Seconds:
		kind, per = spec.DurationBound, 1e9
	case reporting.BitRate:
		kind = spec.RateBound
	case reporting.Share:
		kind = spec.ShareBound
	case reporting.Bytes:
		kind = spec.BytesBound
	}
	bound, err := spec.ParseBound(want, kind)
	switch {
	case err != nil:
		return fmt.Sprintf("the bound of the baseline: %v", err)
	case !bound.Holds(value * per):
		return fmt.Sprintf("the baseline is %s and not %s, so that it may be broken", compare.Text(value,
			unit), want)
	}
	return ""
}

// percent formats a ratio.
func percent(ratio float64) string {
	if math.IsInf(ratio, 0) {
		return "infinite"
	}
	return fmt.Sprintf("%.4g%%", ratio*100)
}

// finite returns nil for a value that JSON cannot have.
func finite(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

// number finds a number of a part of the reports, or returns why there is none. A part of "" stands for the
// only part that has the number.
func (m *Matrix) number(metric, part string) (found *Number, reason string) {
	var of, metrics []string
	for i := range m.Numbers {
		n := &m.Numbers[i]
		if n.What == metric && (part == "" || n.Of == part) {
			found = n
			of = append(of, n.Of)
		}
		if (part == "" || n.Of == part) && !slices.Contains(metrics, n.What) {
			metrics = append(metrics, n.What)
		}
	}
	switch {
	case len(of) == 1:
		return found, ""
	case len(of) > 1:
		return nil, fmt.Sprintf("several parts of the report have %s; name one with of: %s", metric,
			strings.Join(of, "; "))
	case len(metrics) == 0:
		return nil, fmt.Sprintf("the reports have no numbers of %q", part)
	}
	return nil, fmt.Sprintf("the reports have no number %q; want one of %s", metric,
		strings.Join(metrics, "; "))
}
