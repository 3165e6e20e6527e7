package suite

import (
	"fmt"
	"slices"
	"strings"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/reporting/compare"
)

// Comparison is a check between two cells.
type Comparison struct {
	// Metric and Of name the number.
	Metric string `json:"metric"`
	Of     string `json:"of,omitempty"`
	// Cell is the cell to judge, Beside the other one.
	Cell   string `json:"cell"`
	Beside string `json:"beside"`
	// Median and Other are the medians of the two cells, and Ratio is Median by Other. They are absent if
	// they cannot be had.
	Median *float64 `json:"median,omitempty"`
	Other  *float64 `json:"other,omitempty"`
	Ratio  *float64 `json:"ratio,omitempty"`
	// Want is the bound of the ratio, such as ">= 200%".
	Want    string          `json:"want"`
	Verdict verdict.Verdict `json:"verdict"`
	// Reason is the result in words.
	Reason string `json:"reason"`
	// Where is the position of the check: file:line:column.
	Where string `json:"where"`
}

// Title names the check: "ar busbw of transport=rd beside transport=tcp".
func (c *Comparison) Title() string {
	return strings.TrimSpace(c.Of+" "+c.Metric) + " of " + c.Cell + " beside " + c.Beside
}

// judge judges the checks whose cells the suite has.
func (m *Matrix) judge(checks []spec.Compare) {
	for i := range checks {
		for _, pair := range checks[i].Pairs {
			own, other := m.cell(pair[0].String()), m.cell(pair[1].String())
			if own < 0 || other < 0 {
				m.Left++
				continue
			}
			m.Compare = append(m.Compare, m.comparison(&checks[i], own, other))
		}
	}
}

func (m *Matrix) cell(name string) int {
	return slices.IndexFunc(m.Cells, func(c Cell) bool { return c.Name == name })
}

// comparison judges a check between two cells.
func (m *Matrix) comparison(check *spec.Compare, own, other int) Comparison {
	c := Comparison{Metric: check.Metric, Of: check.Of, Cell: m.Cells[own].Name, Beside: m.Cells[other].Name,
		Want: check.Ratio, Where: check.Where.String(), Verdict: verdict.Inconclusive}
	for _, of := range []int{own, other} {
		if m.Cells[of].Verdict == verdict.Unsupported {
			c.Verdict, c.Reason = verdict.Unsupported, "this host cannot run "+m.Cells[of].Name
			return c
		} else if m.Cells[of].Runs == 0 {
			c.Reason = fmt.Sprintf("%s is %s and has no numbers", m.Cells[of].Name, m.Cells[of].Verdict)
			if why := m.Cells[of].NotCounted; why != "" {
				c.Reason += " that count: runs " + why
			}
			return c
		}
	}
	number, reason := m.number(check)
	if number == nil {
		c.Reason = reason
		return c
	}
	c.Of = number.Of
	for _, of := range []int{own, other} {
		if number.Cells[of].Runs == 0 {
			c.Reason = fmt.Sprintf("%s has no %s", m.Cells[of].Name, number.Title())
			return c
		}
	}
	a, b := number.Cells[own].Median, number.Cells[other].Median
	c.Median, c.Other = &a, &b
	if b != 0 {
		ratio := a / b
		c.Ratio = &ratio
	}
	bound, err := spec.ParseBound(check.Ratio, spec.BesideBound)
	if err != nil { // the file was checked
		c.Reason = err.Error()
		return c
	}
	c.Reason = fmt.Sprintf("%s beside %s", compare.Text(a, number.Unit), compare.Text(b, number.Unit))
	if a == 0 && b == 0 {
		c.Reason += ": both are 0, and so there is nothing to compare"
		return c
	}
	if c.Ratio != nil {
		c.Reason += fmt.Sprintf(": %.4g%%", *c.Ratio*100)
	}
	c.Reason += ", want " + check.Ratio
	c.Verdict = verdict.Fail
	bound.Limit *= b // so that the ratio may be infinite
	if bound.Holds(a) {
		c.Verdict = verdict.Pass
	}
	return c
}

// number finds the number of a check, or returns why there is none.
func (m *Matrix) number(check *spec.Compare) (found *Number, reason string) {
	var of, metrics []string
	for i := range m.Numbers {
		n := &m.Numbers[i]
		if n.What == check.Metric && (check.Of == "" || n.Of == check.Of) {
			found = n
			of = append(of, n.Of)
		}
		if (check.Of == "" || n.Of == check.Of) && !slices.Contains(metrics, n.What) {
			metrics = append(metrics, n.What)
		}
	}
	switch {
	case len(of) == 1:
		return found, ""
	case len(of) > 1:
		return nil, fmt.Sprintf("several parts of the report have %s; name one with of: %s", check.Metric,
			strings.Join(of, "; "))
	case len(metrics) == 0:
		return nil, fmt.Sprintf("the reports have no numbers of %q", check.Of)
	}
	return nil, fmt.Sprintf("the reports have no number %q; want one of %s", check.Metric,
		strings.Join(metrics, "; "))
}
