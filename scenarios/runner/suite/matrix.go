package suite

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/internal/input"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/reporting/compare"
	"railbed/reporting/sweep"
	"railbed/scenarios/runner/outdir"
)

// Matrix has the numbers of the cells of a scenario's matrix.
type Matrix struct {
	// Name is the name of the scenario.
	Name string `json:"name"`
	// Claim is the claim of the scenario, if it has one.
	Claim *spec.Claim `json:"claim,omitempty"`
	// Cells are the cells that the suite has, in the order of the matrix.
	Cells []Cell `json:"cells"`
	// Compare are the checks between these cells. Left is the number of checks with other cells.
	Compare []Comparison `json:"compare,omitempty"`
	Left    int          `json:"left,omitempty"`
	// Control is the verdict of a claim without its treatment.
	Control *Control `json:"control,omitempty"`
	// Numbers are the numbers of the reports, in the order of a report.
	Numbers []Number `json:"numbers"`
	// Sweeps are the numbers of workloads that the matrix has by size.
	Sweeps []sweep.Sweep `json:"sweeps,omitempty"`

	// quick is as in Results.
	quick bool
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

	// attempts are the runs whose numbers count.
	attempts []Attempt
}

// Number is a number of the reports of a matrix.
type Number struct {
	reporting.Quantity
	// Cells has a summary for each cell of the matrix.
	Cells []Summary `json:"cells"`

	// size and figure are as in compare.Number.
	size   uint64
	figure string
}

// Title names the number: "ar busbw", or "links: all dropped" for a number that belongs to no step.
func (n *Number) Title() string {
	title := strings.TrimSpace(n.Of + " " + n.What)
	if n.OfStep() {
		return title
	}
	return n.Section + ": " + title
}

// Caption is the title with the unit of Text, unless Text writes it.
func (n *Number) Caption() string {
	if unit := n.unit(); unit.Name != "" {
		return n.Title() + " in " + unit.Name
	}
	return n.Title()
}

// Text formats a value of the number. All values of a number have one unit, so that people can compare cells.
func (n *Number) Text(value float64) string {
	switch n.Unit {
	case reporting.Seconds, reporting.BitRate:
		return n.unit().Text(value)
	case reporting.Share:
		return compare.Text(value, reporting.Share)
	}
	return compare.Text(value, "")
}

// unit returns the unit of values. Its name is empty for shares, which Text writes in percent.
func (n *Number) unit() units.Unit {
	var medians []float64
	for i := range n.Cells {
		if n.Cells[i].Runs > 0 {
			medians = append(medians, n.Cells[i].Median)
		}
	}
	switch n.Unit {
	case reporting.Seconds:
		return units.Times.Of(medians...)
	case reporting.BitRate:
		return units.Rates.Of(medians...)
	case reporting.Share:
		return units.Unit{Size: 1}
	}
	return units.Unit{Name: n.Unit, Size: 1}
}

// Varies reports whether the runs have different values, or some cells have none.
func (n *Number) Varies() bool {
	return slices.ContainsFunc(n.Cells, func(s Summary) bool {
		return s.Runs != n.Cells[0].Runs && s.Runs*n.Cells[0].Runs == 0 ||
			s.Runs > 0 && (s.Least != n.Cells[0].Least || s.Most != n.Cells[0].Least)
	})
}

// measure reads the reports in the directory, and sets the numbers and the checks of the matrices.
func (r *Results) measure(out *outdir.Dir, files map[string]*spec.File) error {
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
		attempts, reports, err := o.readReports(out)
		failures = append(failures, err)
		r.Matrices[at].add(o, attempts, reports)
	}
	for i := range r.Matrices {
		m := &r.Matrices[i]
		if f := files[m.Name]; f != nil {
			m.Claim, m.quick = f.Claim, r.Quick && f.Claim != nil
			m.judge(f.Compare)
		}
		if r.Control {
			m.control()
		}
		m.Sweeps = m.sweeps()
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

// readReports returns the runs whose numbers count, and their reports.
func (o *Outcome) readReports(out *outdir.Dir) (of []Attempt, all []*report.Report, err error) {
	for _, a := range o.Runs {
		if a.notMeasured() != "" {
			continue
		}
		file, err := input.FolderOf(out.Root).Open(path.Join(a.Dir, report.JSONFile))
		if err != nil {
			return of, all, err
		}
		one, err := report.Read(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return of, all, fmt.Errorf("%s: %w", a.Dir, err)
		}
		of, all = append(of, a), append(all, one)
	}
	return of, all, nil
}

// add adds a cell with its numbers.
func (m *Matrix) add(o *Outcome, attempts []Attempt, reports []*report.Report) {
	cell := Cell{Name: cmp.Or(spec.Cell{Values: o.Cell}.String(), path.Base(m.Name)), Case: o.Name,
		Values: o.Cell, Verdict: o.Verdict,
		Runs: len(reports), Seeds: []uint64{}, NotCounted: o.notCounted(), attempts: attempts}
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
			m.Numbers = append(m.Numbers, Number{Quantity: n.Quantity, size: n.Size, figure: n.Figure})
		}
		have := &m.Numbers[at]
		for len(have.Cells) < len(m.Cells)-1 { // earlier cells lack the number
			have.Cells = append(have.Cells, Summary{})
		}
		summary := summarise(n.Base.Values)
		summary.byRun = n.Base.ByRun
		have.Cells = append(have.Cells, summary)
	}
	for i := range m.Numbers {
		for len(m.Numbers[i].Cells) < len(m.Cells) {
			m.Numbers[i].Cells = append(m.Numbers[i].Cells, Summary{})
		}
	}
}
