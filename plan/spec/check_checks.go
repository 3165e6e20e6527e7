package spec

import (
	"fmt"
	"regexp"
	"slices"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/units"
)

// Comparison is a bound on a bus bandwidth, such as ">= 600 Mbit/s".
type Comparison struct {
	Op   string // >=, >, <= or <
	Rate units.Rate
}

var comparisonForm = regexp.MustCompile(`^(>=|>|<=|<)\s*([0-9]+(?:\.[0-9]+)?)\s*([kMG]?bit/s|[kMG]?B/s)$`)

// rateOf maps each unit of a Comparison to the notation of units.ParseRate and the factor from
// bytes to bits.
var rateOf = map[string]struct {
	suffix string
	factor units.Rate
}{
	"bit/s": {"bit", 1}, "kbit/s": {"kbit", 1}, "Mbit/s": {"mbit", 1}, "Gbit/s": {"gbit", 1},
	"B/s": {"bit", 8}, "kB/s": {"kbit", 8}, "MB/s": {"mbit", 8}, "GB/s": {"gbit", 8},
}

// ParseComparison parses text such as ">= 600 Mbit/s". The units are bit/s and B/s with k, M and G,
// which are powers of 1,000, as nccl-tests counts.
func ParseComparison(text string) (Comparison, error) {
	parts := comparisonForm.FindStringSubmatch(text)
	if parts == nil {
		return Comparison{}, fmt.Errorf("comparison %q: want >=, >, <= or <, a number, and Mbit/s, Gbit/s, "+
			"MB/s or GB/s, as in %q", printable.Clip(text), ">= 600 Mbit/s")
	}
	unit := rateOf[parts[3]]
	rate, err := units.ParseRate(parts[2] + unit.suffix)
	if err != nil || rate > 1e18 {
		return Comparison{}, fmt.Errorf("comparison %q: want a whole number of bits per second below 10^18",
			printable.Clip(text))
	}
	return Comparison{Op: parts[1], Rate: rate * unit.factor}, nil
}

// Holds reports whether a measured rate satisfies the comparison.
func (c Comparison) Holds(rate units.Rate) bool {
	switch c.Op {
	case ">=":
		return rate >= c.Rate
	case ">":
		return rate > c.Rate
	case "<=":
		return rate <= c.Rate
	default:
		return rate < c.Rate
	}
}

// Bound returns the comparison as a bound on bits per second.
func (c Comparison) Bound() Bound { return Bound{Op: c.Op, Limit: float64(c.Rate), text: c.String()} }

// String returns the comparison in the form that ParseComparison reads.
func (c Comparison) String() string {
	for _, unit := range []struct {
		text  string
		scale units.Rate
	}{{"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}} {
		if c.Rate >= unit.scale && c.Rate%unit.scale == 0 {
			return fmt.Sprintf("%s %d %s", c.Op, c.Rate/unit.scale, unit.text)
		}
	}
	return fmt.Sprintf("%s %d bit/s", c.Op, uint64(c.Rate))
}

// workloads returns the names of all workloads, training jobs included, in order.
func (t *Testbed) workloads() []string {
	var names []string
	for _, step := range t.Steps {
		if name := step.Work(); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (c *checker) checks() {
	captures := slices.ContainsFunc(c.t.Steps, func(s Step) bool { return s.Capture != nil })
	for i, check := range c.t.Checks {
		at := fmt.Sprintf("checks[%d]", i)
		c.exactlyOne(at, check, "workload", "packets", "why", "fidelity")
		if w := check.Workload; w != nil {
			c.workloadNamed(at+".workload.name", w.Name)
			c.workloadCheck(at+".workload", w)
		}
		if p := check.Packets; p != nil {
			c.packets(at+".packets", p)
			c.captured(at+".packets", "a check of packets", captures)
		}
		if w := check.Why; w != nil {
			if w.Workload != "" {
				c.workloadNamed(at+".why.workload", w.Workload)
			}
			if w.Cause == NoCause && (w.At != "" || w.Among != 0) {
				c.Report(at+".why.cause", "no cause has no place and no order", "remove at and among")
			}
			c.captured(at+".why", "a check of causes", captures)
		}
	}
}

// captured reports a check that needs a recording in a file without one.
func (c *checker) captured(path, what string, captures bool) {
	if !captures && !c.Known("steps") {
		c.ReportKey(path, what+" in a file without a capture",
			"add the step - capture: {at: [all], file: run.pcapng}")
	}
}

func (c *checker) workloadCheck(at string, w *WorkloadCheck) {
	if b := w.Beside; b != nil {
		c.workloadNamed(at+".beside.workload", b.Workload)
		if b.Workload != "" && b.Workload == w.Name {
			c.Report(at+".beside.workload", "a workload compared with itself", "name another workload")
		}
		if *b == (Beside{Workload: b.Workload}) && !c.Broken(at+".beside") {
			c.Report(at+".beside", at+".beside compares nothing", `add busbw: ">= 90%"`)
		}
	}
	c.figures(at, w)
	if *w == (WorkloadCheck{Name: w.Name}) && !c.Broken(at) {
		c.Report(at, at+" checks nothing", `add correct: true or busbw: ">= 600 Mbit/s"`)
	}
}

// workloadNamed checks that a check names a workload of this file.
func (c *checker) workloadNamed(path, name string) {
	if name == "" || c.workloads[name] || c.Full() || c.Known("steps") || c.Broken("steps") {
		return // a step that could not be decoded may have this name
	}
	want := "add a workload to the steps"
	if len(c.workloads) > 0 {
		_, want = nearest.Suggest(name, c.named)
	}
	c.Report(path, fmt.Sprintf("workload %q does not exist", printable.Clip(name)), want)
}

// workloadOf checks the workload of a check, which may omit it if the file has only one.
func (c *checker) workloadOf(at, name string) {
	if name != "" {
		c.workloadNamed(at+".workload", name)
	} else if len(c.workloads) != 1 && !c.Broken("steps") && !c.Known("steps") {
		c.Report(at, fmt.Sprintf("the file has %d workloads, and this check names none", len(c.workloads)),
			"add workload: NAME")
	}
}
