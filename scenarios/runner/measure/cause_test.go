package measure

import (
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/usage"
	"railbed/plan"
	"railbed/plan/spec"
)

// The first line of an overloaded run names the programs, or the machine, that took the processors, and a
// remedy that the testbed supports.
func TestCause(t *testing.T) {
	soft := &plan.Plan{Switches: []plan.Switch{{Kind: spec.Soft}}}
	dilated := &plan.Plan{Dilation: 2, Switches: soft.Switches}
	routers := &plan.Plan{Switches: []plan.Switch{{Kind: spec.Router}}}
	late := &report.Timing{Arrivals: report.Lateness{Worst: 900}, Worst: &report.Window{
		Lateness: report.Lateness{Worst: 22_600}}}
	loops := []usage.Busy{{Name: "stress", CPUs: 1.2}, {Name: "go", CPUs: 0.7}, {Name: "cron", CPUs: 0.02}}
	cases := []struct {
		name string
		f    report.Fidelity
		plan *plan.Plan
		want string
	}{
		{"others", report.Fidelity{Others: loops, Timing: late}, soft,
			"other programs used 1.9 of 2 processors (stress, go), and frames arrived up to 22.6ms late; " +
				"run it on an idle machine, or with --dilation 4"},
		{"others, kernel switches", report.Fidelity{Others: loops, Idle: 0.04}, routers, "other programs " +
			"used 1.9 of 2 processors (stress, go); run it on an idle machine, or with lower rates of its " +
			"links"},
		{"others beside idle processors", report.Fidelity{Others: loops[1:], Idle: 0.6}, soft, ""},
		{"hypervisor", report.Fidelity{Others: loops[2:], Steal: 0.3}, soft, "the hypervisor took 30% of " +
			"the processors' time; run it on a machine with processors of its own, or with --dilation 4"},
		{"itself", report.Fidelity{Others: loops[2:], Idle: 0.01}, dilated, "the run needed more than the " +
			"2 processors of this machine; run it with --dilation 8"},
		{"no cause known", report.Fidelity{Idle: 0.7, Timing: late}, soft, ""},
	}
	faithful := report.Fidelity{Verdict: report.Faithful, Samples: 2, Others: loops}
	if Explain(&faithful, 2, soft); faithful.Cause != "" || faithful.Remedy != "" {
		t.Errorf("a faithful run has a cause: %+v", faithful)
	}
	for _, c := range cases {
		c.f.Verdict, c.f.Samples = report.Overloaded, 2
		Explain(&c.f, 2, c.plan)
		if got := strings.TrimSuffix(c.f.Cause+"; "+c.f.Remedy, "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestHostLoadWarning(t *testing.T) {
	soft := &plan.Plan{Switches: []plan.Switch{{Kind: spec.Soft}}}
	busy := func(cpus float64) []usage.Busy { return []usage.Busy{{Name: "stress", CPUs: cpus}} }
	for _, c := range []struct {
		load HostLoad
		want string
	}{
		{HostLoad{2, busy(0.2)}, ""},
		{HostLoad{2, busy(0.5)}, "other programs use 0.5 of 2 processors (stress), so frames may be late " +
			"and the verdict OVERLOADED; run it on an idle machine, or with --dilation 4"},
		{HostLoad{1, busy(9)}, "other programs use 1.0 of 1 processor (stress), so frames may be late " +
			"and the verdict OVERLOADED; run it on an idle machine, or with --dilation 4"},
		{HostLoad{16, busy(14)}, ""},
	} {
		if got := c.load.Warning(soft); got != c.want {
			t.Errorf("%+v: %q, want %q", c.load, got, c.want)
		}
	}
}
