package suite

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"railbed/capture/compare"
	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/scenarios/outdir"
)

// Matrix has the numbers of the cells of a scenario's matrix.
type Matrix struct {
	// Name is the name of the scenario.
	Name string `json:"name"`
	// Cells are the cells that the suite has, in the order of the matrix.
	Cells []Cell `json:"cells"`
	// Compare are the checks between these cells. Left is the number of checks with other cells.
	Compare []Comparison `json:"compare,omitempty"`
	Left    int          `json:"left,omitempty"`
	// Numbers are the numbers of the reports, in the order of a report.
	Numbers []Number `json:"numbers"`
}

// Cell is a cell of a matrix.
type Cell struct {
	// Name is the name of the cell, such as "transport=rd, loss=1%". Case is the name of the case.
	Name   string         `json:"name"`
	Case   string         `json:"case"`
	Values []spec.Setting `json:"values"`
	// Verdict is the verdict of the case.
	Verdict verdict.Verdict `json:"verdict"`
	// Runs is the number of runs whose numbers count. Seeds are the seeds of these runs.
	Runs  int      `json:"runs"`
	Seeds []uint64 `json:"seeds"`
	// NotCounted describes the runs whose numbers do not count, such as "2 overloaded".
	NotCounted string `json:"not_counted,omitempty"`
}

// Number is a number of the reports of a matrix.
type Number struct {
	Section string            `json:"section"`
	Of      string            `json:"of"`
	What    string            `json:"what"`
	Unit    string            `json:"unit,omitempty"`
	Better  compare.Direction `json:"better,omitempty"`
	// Cells has a summary for each cell of the matrix.
	Cells []Summary `json:"cells"`
}

// Title names the number: "ar busbw", or "links: all dropped" for a number that belongs to no step.
func (n *Number) Title() string {
	title := strings.TrimSpace(n.Of + " " + n.What)
	if slices.Contains([]string{compare.Workloads, compare.Trainings, compare.Stacks, compare.Messages},
		n.Section) {
		return title
	}
	return n.Section + ": " + title
}

// Caption is the title with the unit, unless Text writes the unit.
func (n *Number) Caption() string {
	if n.unit() == "" && n.Unit != "" {
		return n.Title() + " in " + n.Unit
	}
	return n.Title()
}

// Text formats a value of the number.
func (n *Number) Text(value float64) string { return compare.Text(value, n.unit()) }

// unit returns the unit that values need beside them, because it changes with the value.
func (n *Number) unit() string {
	if slices.Contains([]string{compare.Seconds, compare.BitRate, compare.Share}, n.Unit) {
		return n.Unit
	}
	return ""
}

// Varies reports whether the runs have different values, or some cells have none.
func (n *Number) Varies() bool {
	return slices.ContainsFunc(n.Cells, func(s Summary) bool {
		return s.Runs != n.Cells[0].Runs && s.Runs*n.Cells[0].Runs == 0 ||
			s.Runs > 0 && (s.Least != n.Cells[0].Least || s.Most != n.Cells[0].Least)
	})
}

// measure reads the reports in the directory, and sets the numbers and the checks of the matrices.
func (r *Results) measure(out *outdir.Dir, checks map[string][]spec.Compare) error {
	var failures []error
	for i := range r.Cases {
		o := &r.Cases[i]
		if o.Matrix == "" {
			continue
		}
		at := slices.IndexFunc(r.Matrices, func(m Matrix) bool { return m.Name == o.Matrix })
		if at < 0 {
			at = len(r.Matrices)
			r.Matrices = append(r.Matrices, Matrix{Name: o.Matrix, Numbers: []Number{}})
		}
		reports, err := o.readReports(out)
		failures = append(failures, err)
		r.Matrices[at].add(o, reports)
	}
	for i := range r.Matrices {
		r.Matrices[i].judge(checks[r.Matrices[i].Name])
	}
	return errors.Join(failures...)
}

// notMeasured returns why the numbers of a run do not count, or "".
func (a *Attempt) notMeasured() string {
	switch {
	case a.Replaced:
		return "made again"
	case !a.Reported:
		return "without a report"
	case a.overloaded():
		return "overloaded"
	case a.Verdict == verdict.Aborted || a.Verdict == verdict.Unsupported:
		return string(a.Verdict)
	}
	return ""
}

// notCounted describes the runs whose numbers do not count.
func (o *Outcome) notCounted() string {
	counts := map[string]int{}
	for i := range o.Runs {
		if why := o.Runs[i].notMeasured(); why != "" {
			counts[why]++
		}
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[why], why))
	}
	return strings.Join(parts, ", ")
}

// readReports returns the reports of the runs whose numbers count.
func (o *Outcome) readReports(out *outdir.Dir) (all []*report.Report, err error) {
	for _, a := range o.Runs {
		if a.notMeasured() != "" {
			continue
		}
		file, err := input.FolderOf(out.Root).Open(path.Join(a.Dir, report.JSONFile))
		if err != nil {
			return all, err
		}
		one, err := report.Read(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return all, fmt.Errorf("%s: %w", a.Dir, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// add adds a cell with its numbers.
func (m *Matrix) add(o *Outcome, reports []*report.Report) {
	cell := Cell{Name: spec.Cell{Values: o.Cell}.String(), Case: o.Name, Values: o.Cell, Verdict: o.Verdict,
		Runs: len(reports), Seeds: []uint64{}, NotCounted: o.notCounted()}
	for _, r := range reports {
		cell.Seeds = append(cell.Seeds, r.Seed)
	}
	m.Cells = append(m.Cells, cell)
	for _, n := range compare.Numbers(reports) {
		at := slices.IndexFunc(m.Numbers, func(have Number) bool {
			return have.Section == n.Section && have.Of == n.Of && have.What == n.What
		})
		if at < 0 {
			at = len(m.Numbers)
			m.Numbers = append(m.Numbers,
				Number{Section: n.Section, Of: n.Of, What: n.What, Unit: n.Unit, Better: n.Better})
		}
		have := &m.Numbers[at]
		for len(have.Cells) < len(m.Cells)-1 { // earlier cells lack the number
			have.Cells = append(have.Cells, Summary{})
		}
		have.Cells = append(have.Cells, summarise(n.Base.Values))
	}
	for i := range m.Numbers {
		for len(m.Numbers[i].Cells) < len(m.Cells) {
			m.Numbers[i].Cells = append(m.Numbers[i].Cells, Summary{})
		}
	}
}

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
