package measure

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/usage"
	"railbed/plan"
)

const (
	// othersNamed is how many programs a text names.
	othersNamed = 3
	// processorsNeeded is how many processors the scenarios of the library need (README.md).
	processorsNeeded = 2
	// hostLookTime is how long HostLoad measures at least. The kernel counts in units of 10 ms.
	hostLookTime = 200 * time.Millisecond
	// noneIdle is the share of idle time below which a run and its kernel used all processors.
	noneIdle = 0.10
	// busyLeast is how many processors a program must use to be in the report.
	busyLeast = 0.01
)

// HostLoad is the use of the host's processors by programs that are not part of a run.
type HostLoad struct {
	CPUs   int
	Others []usage.Busy // busiest first
}

// StartHostLoad begins to measure. The function that it returns ends the measurement, 0.2 s after the
// beginning or later.
func StartHostLoad() func() HostLoad {
	before, began := usage.ReadProcesses(procRoot), time.Now()
	return func() HostLoad {
		time.Sleep(hostLookTime - time.Since(began))
		return hostLoad(before)
	}
}

// hostLoad returns the use of the processors since before by programs other than this one's.
func hostLoad(before usage.Processes) HostLoad {
	others := usage.ReadProcesses(procRoot).Others(before, os.Getpid())
	return HostLoad{CPUs: runtime.NumCPU(),
		Others: slices.DeleteFunc(others, func(b usage.Busy) bool { return b.CPUs < busyLeast })}
}

// used is how many processors other programs use.
func (h HostLoad) used() float64 { return report.OthersUse(h.Others, h.CPUs) }

// Warning returns a warning if a run of the plan would have less than two processors for itself, else "".
func (h HostLoad) Warning(p *plan.Plan) string {
	if h.used() < report.OthersLeast || float64(h.CPUs)-h.used() >= processorsNeeded {
		return ""
	}
	warning := usedBy("use", h) + ", so frames may be late and the verdict OVERLOADED; run it on an idle " +
		"machine"
	if p.Dilation > 1 {
		return warning
	}
	return warning + ", or " + slower(p)
}

// usedBy names programs and the processors that they use, or used.
func usedBy(verb string, h HostLoad) string {
	var names []string
	for _, one := range h.Others[:min(len(h.Others), othersNamed)] {
		if one.CPUs >= report.OthersLeast/othersNamed {
			names = append(names, one.Name)
		}
	}
	text := fmt.Sprintf("other programs %s %.1f of %s", verb, h.used(), plural.Count(h.CPUs, "processors"))
	if len(names) > 0 {
		text += " (" + strings.Join(names, ", ") + ")"
	}
	return text
}

// tryDilation is the factor that texts propose. It is a first try: the load that a run needs is known only
// where the run could have all of it.
const tryDilation = 4

// slower proposes a run with less traffic per second.
func slower(p *plan.Plan) string {
	if !p.Soft() { // links of the kernel keep real time
		return "with lower rates of its links"
	}
	return fmt.Sprintf("with --dilation %d", tryDilation*max(1, p.Dilation))
}

// Explain sets the cause of an emulation that was not faithful, with its largest effect, and the remedy, as
// far as the measurements show a cause.
func Explain(f *report.Fidelity, cpus int, p *plan.Plan) {
	host := HostLoad{cpus, f.Others}
	switch {
	case f.Verdict == report.Faithful, f.Samples == 0:
		return
	case f.OthersCompete(cpus):
		f.Cause, f.Remedy = usedBy("used", host), "run it on an idle machine, or "+slower(p)
	case f.Steal > verify.StealDegraded:
		f.Cause = fmt.Sprintf("the hypervisor took %.0f%% of the processors' time", f.Steal*100)
		f.Remedy = "run it on a machine with processors of its own, or " + slower(p)
	case f.Idle < noneIdle:
		f.Cause = plural.Text("the run needed more than the %d processors of this machine", cpus)
		f.Remedy = "run it " + slower(p)
	default:
		return
	}
	if late := latest(f.Timing); late > 0 {
		f.Cause += fmt.Sprintf(", and frames arrived up to %s late", units.Micros(late))
	}
}

// latest is the lateness of the latest frame, in microseconds.
func latest(t *report.Timing) float64 {
	if t == nil {
		return 0
	}
	late := t.Arrivals.Worst
	for _, w := range []*report.Window{t.First, t.Worst} {
		if w != nil {
			late = max(late, w.Lateness.Worst)
		}
	}
	return late
}
