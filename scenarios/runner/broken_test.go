package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// ring is a file with an all-reduce over four hosts, two leaves and two spines,
// and every check there is. It sends little, so that a busy machine loses
// nothing of it. The switches are routers, so that lateness is no verdict.
const ring = `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2, striped: 1}
  switch: {kind: router}
  links: {default: {rate: 200mbit, mtu: 9000}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ar, kind: all-reduce, size: 512KiB, iterations: 2, warmup: 1}
checks:
  - workload: {name: ar, correct: true, busbw: "> 1 kbit/s"}
  - packets: {bytes-per-rank: {workload: ar, formula: ring-all-reduce, tolerance: 2%}}
  - packets: {rank-nic: ar}
  - packets: {conservation: "*"}
  - packets: {path-spread: {switch: "leaf*"}}
  - fidelity: degraded
`

// faithful is a machine that kept up, for checks whose verdict is another one where it did not.
var faithful = &report.Fidelity{Verdict: report.Faithful}

// verdicts of ring's checks.
func verdicts(r *report.Report) []verdict.Verdict {
	var found []verdict.Verdict
	for _, c := range r.Checks {
		found = append(found, c.Verdict)
	}
	return found
}

// withoutFidelity makes a busy machine no reason for a test to fail.
func withoutFidelity(text string) string {
	return strings.ReplaceAll(text, "  - fidelity: degraded\n", "")
}

// The run that passes, and the same recording judged against expectations that
// are wrong: each must turn the check red that is about it, and no other.
func TestEveryCheckCanFail(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, withoutFidelity(
		strings.Replace(ring, `  - packets: {path-spread: {switch: "leaf*"}}`+"\n", "", 1)))
	r, held := runAndHold(t, o)
	want(t, r, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass)
	ranks := r.Workloads[0].Ranks
	// 2(n-1)/n of the size for each of 3 iterations.
	if formula := uint64(3 * 2 * (ranks - 1) * (512 << 10) / ranks); ranks != 4 ||
		uint64(held.Workloads[0].Traffic.Ranks[0].Expected) != formula ||
		!strings.HasPrefix(r.Checks[1].Values[0].Want, fmt.Sprint(formula)) {
		t.Errorf("expected bytes %+v, want %d", r.Checks[1].Values[0], formula)
	}
	slow := collectiveOutcome{&report.Workload{BusBW: 1e-12}}
	cases := []struct {
		name  string
		wrong func(*judge.Evidence)
		check int
		want  verdict.Verdict
	}{
		{"wrong elements", func(e *judge.Evidence) { e.Workloads[0].Wrong = 1 }, 0, verdict.Fail},
		{"too slow", func(e *judge.Evidence) {
			e.Workloads[0].Outcome, e.Fidelity = slow, faithful
		}, 0, verdict.Fail},
		{"too slow, on a busy machine", func(e *judge.Evidence) {
			e.Workloads[0].Outcome, e.Fidelity = slow, &report.Fidelity{Verdict: report.Degraded}
		}, 0, verdict.Inconclusive},
		{"a larger buffer", func(e *judge.Evidence) {
			for i := range e.Workloads[0].Traffic.Ranks {
				e.Workloads[0].Traffic.Ranks[i].Expected *= 2
			}
		}, 1, verdict.Fail},
		{"a worker that counts wrongly", func(e *judge.Evidence) {
			lie := *e.Workloads[0].Traffic.Ranks[2].Reported * 11 / 10
			e.Workloads[0].Traffic.Ranks[2].Reported = &lie
		}, 1, verdict.Fail},
		{"a rank on another NIC", func(e *judge.Evidence) {
			e.Workloads[0].Traffic.Ranks[3].Node = "h0"
		}, 2, verdict.Fail},
		{"no workload", func(e *judge.Evidence) { e.Workloads = nil }, 2, verdict.Inconclusive},
		{"no capture", func(e *judge.Evidence) { e.Captures = nil }, 3, verdict.Inconclusive},
		{"an aborted run", func(e *judge.Evidence) { e.Aborted = errRunEnded }, 0, verdict.Inconclusive},
	}
	for _, c := range cases {
		e := *held
		e.Workloads = []judge.Finished{held.Workloads[0]}
		e.Workloads[0].Traffic.Ranks = append([]verify.Rank{}, held.Workloads[0].Traffic.Ranks...)
		c.wrong(&e)
		checks := rejudge(t, o, &e)
		if checks[c.check].Verdict != c.want || checks[c.check].Summary == "" {
			t.Errorf("%s: check %d is %+v, want %s", c.name, c.check, checks[c.check], c.want)
		}
	}
}

// runAndHold is runAll that hands out the evidence.
func runAndHold(t *testing.T, o Options) (*report.Report, *judge.Evidence) {
	t.Helper()
	var held *judge.Evidence
	o.hold = func(e *judge.Evidence) { held = e }
	r := runAll(t, t.Context(), o)
	if held == nil || len(held.Workloads) == 0 {
		t.Fatalf("no evidence of a workload: %s", r.Reason)
	}
	return r, held
}

func rejudge(t *testing.T, o Options, e *judge.Evidence) []report.Check {
	t.Helper()
	open := func(name string) (io.ReadCloser, error) { return os.Open(filepath.Join(o.Out, name)) }
	checks, err := judge.Checks(t.Context(), o.File, o.Plan, e, open, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

// Recordings that lack something prove nothing.
func TestIncompleteRecordingsAreInconclusive(t *testing.T) {
	cases := []struct {
		name, capture string
		want          []verdict.Verdict // of bytes-per-rank, rank-nic and conservation
	}{
		{"a filter that misses the workload", "{at: [all], file: run.pcapng, filter: icmp}",
			[]verdict.Verdict{verdict.Inconclusive, verdict.Inconclusive, verdict.Inconclusive}},
		{"taps at the wrong places", "{at: [spine1], file: run.pcapng}",
			[]verdict.Verdict{verdict.Inconclusive, verdict.Inconclusive, verdict.Inconclusive}},
		{"a size limit", "{at: [all], file: run.pcapng, limit: 64KiB}",
			[]verdict.Verdict{verdict.Inconclusive, verdict.Inconclusive, verdict.Inconclusive}},
		{"only the NICs", "{at: [nics], file: run.pcapng}",
			[]verdict.Verdict{verdict.Pass, verdict.Pass, verdict.Inconclusive}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(ring, "{at: [all], file: run.pcapng}", c.capture, 1)
			text, _, _ = strings.Cut(withoutFidelity(text), `  - packets: {path-spread`)
			r := runAll(t, t.Context(), options(t, text))
			want(t, r, verdict.Inconclusive, append([]verdict.Verdict{verdict.Pass}, c.want...)...)
		})
	}
}

// A cable that stays out ends the workload, and what was recorded is judged. At a tenth of
// ring's rate a busy machine keeps up, too.
func TestLinkThatStaysDown(t *testing.T) {
	text := strings.Replace(strings.Replace(withoutFidelity(ring), "200mbit", "20mbit", 1),
		"iterations: 2, warmup: 1}", "iterations: 1000, warmup: 0, timeout: 4s, background: true}\n  - "+
			"sleep: 1s\n  - link: {where: \"h2--*\", state: down}", 1)
	o := options(t, text)
	r := runAll(t, t.Context(), o)
	failed := r.Verdict == verdict.Fail && strings.Contains(r.Reason, "step workload ar: ")
	// A queue that two readings found filled may have been empty in between.
	busy := r.Verdict == verdict.Overloaded && r.Fidelity.Verdict == report.Overloaded &&
		strings.Contains(r.Reason, "the failed step proves nothing")
	if !failed && !busy || r.Steps[1].State != report.Failed {
		t.Errorf("%s: %s; want the workload's step to fail", r.Verdict, r.Reason)
	}
	if got := verdicts(r)[:3]; got[0] != verdict.Inconclusive || got[1] != verdict.Inconclusive ||
		got[2] != verdict.Inconclusive {
		t.Errorf("checks %v, want those of the workload INCONCLUSIVE", got)
	}
	if !r.Captures[0].Complete || r.Captures[0].Packets() == 0 {
		t.Errorf("capture %+v, want what was recorded", r.Captures[0])
	}
}

func TestOneFlowProvesNoSpread(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	// The kernel hashes ICMP by its addresses: one flow, one spine.
	text := strings.Replace(ring, "  - workload: {name: ar, kind: all-reduce, size: 512KiB, iterations: 2, "+
		"warmup: 1}\n", "  - exec: {nodes: [h0], command: [ping, \"-4\", -c3, -i0.2, -W2, h1]}\n", 1)
	head, _, _ := strings.Cut(text, "checks:")
	r := runAll(t, t.Context(), options(t,
		head+"checks:\n  - packets: {path-spread: {switch: leaf1, min-share: 10%}}\n"))
	want(t, r, verdict.Inconclusive, verdict.Inconclusive)
}

func TestBusBWBound(t *testing.T) {
	o := options(t, withoutFidelity(strings.Replace(ring, "> 1 kbit/s", ">= 100 Gbit/s", 1)))
	r, held := runAndHold(t, o)
	busy := r.Fidelity.Verdict != report.Faithful && r.Verdict == verdict.Inconclusive
	if r.Verdict != verdict.Fail && !busy || !strings.Contains(r.Reason, "is not >= 100 Gbit/s") {
		t.Errorf("%s: %s; want the bound to fail", r.Verdict, r.Reason)
	}
	held.Fidelity = faithful
	if c := rejudge(t, o, held)[0]; c.Verdict != verdict.Fail {
		t.Errorf("on a machine that kept up: %+v, want the bound to fail", c)
	}
	if r.Fidelity.Verdict != report.Faithful {
		return
	}
	// The recording shows that links kept their rates, which samples of counters did not.
	sampled := *r.Fidelity
	sampled.Verdict, sampled.Reasons = report.Degraded, []string{"a link was slow"}
	held.Fidelity = &sampled
	if c := rejudge(t, o, held)[0]; c.Verdict != verdict.Fail {
		t.Errorf("with rates from the recording: %+v, want the bound to fail", c)
	}
}

func TestFidelityChecks(t *testing.T) {
	for _, c := range []struct {
		have, check string
		want        verdict.Verdict
	}{
		{report.Faithful, report.Faithful, verdict.Pass},
		{report.Degraded, report.Faithful, verdict.Overloaded},
		{report.Degraded, report.Degraded, verdict.Pass},
		{report.Overloaded, report.Degraded, verdict.Overloaded},
	} {
		var check report.Check
		judge.JudgeFidelityCheck(&check, c.check, &report.Fidelity{Verdict: c.have})
		if check.Verdict != c.want {
			t.Errorf("%s asked, %s had: %s, want %s", c.check, c.have, check.Verdict, c.want)
		}
	}
	var check report.Check
	if judge.JudgeFidelityCheck(&check, report.Faithful, nil); check.Verdict != verdict.Inconclusive {
		t.Errorf("nothing measured: %s, want INCONCLUSIVE", check.Verdict)
	}
}

// TestOverloadWithoutChecksIsNoPass checks that an overloaded run without checks does not pass: its
// purpose is its measurements.
func TestOverloadWithoutChecksIsNoPass(t *testing.T) {
	r := &run{Options: Options{File: &spec.Testbed{Steps: []spec.Step{{}}}}, report: &report.Report{
		Fidelity: &report.Fidelity{Verdict: report.Overloaded, Reasons: []string{"a link was slow"}},
	}}
	r.conclude(context.Background(), nil)
	if r.report.Verdict != verdict.Overloaded || !strings.Contains(r.report.Reason, "a link was slow") {
		t.Errorf("%s: %s, want OVERLOADED", r.report.Verdict, r.report.Reason)
	}
}

// TestOverloadOverrulesFailures checks that failures while the emulator does not keep up give the
// verdict and the exit code of the overload, which may be their cause.
func TestOverloadOverrulesFailures(t *testing.T) {
	failing := []report.Check{{Name: "lossless", Verdict: verdict.Fail},
		{Name: "drops", Verdict: verdict.Inconclusive}}
	step := &stepError{index: 0, err: errors.New("exit code 1")}
	for _, c := range []struct {
		name   string
		level  string
		checks []report.Check
		err    error
		want   verdict.Verdict
		code   int
		says   string
	}{
		{"a check of a faithful run", report.Faithful, failing, nil, verdict.Fail, verdict.ExitFail,
			"lossless"},
		{"a check of a degraded run", report.Degraded, failing, nil, verdict.Fail, verdict.ExitFail,
			"lossless"},
		{"a check", report.Overloaded, failing, nil, verdict.Overloaded, verdict.ExitOverloaded,
			"a link was slow; the failed check proves nothing"},
		{"two checks", report.Overloaded, append(failing, failing...), nil, verdict.Overloaded,
			verdict.ExitOverloaded, "the 2 failed checks"},
		{"a step", report.Overloaded, failing, step, verdict.Overloaded, verdict.ExitOverloaded,
			"a link was slow; the failed step proves nothing"},
		{"a check of fidelity", report.Degraded,
			append(failing, report.Check{Name: "fidelity", Verdict: verdict.Overloaded}), nil,
			verdict.Overloaded, verdict.ExitOverloaded, "fidelity"},
		{"an interrupt", report.Overloaded, failing, errRunEnded, verdict.Aborted, verdict.ExitFail, ""},
	} {
		r := &run{Options: Options{File: &spec.Testbed{Steps: []spec.Step{{}}}}, report: &report.Report{
			Checks:   c.checks,
			Steps:    []report.Step{{Name: "exec"}},
			Fidelity: &report.Fidelity{Verdict: c.level, Reasons: []string{"a link was slow"}},
		}}
		r.conclude(context.Background(), c.err)
		if r.report.Verdict != c.want || r.report.Verdict.ExitCode() != c.code ||
			!strings.Contains(r.report.Reason, c.says) {
			t.Errorf("%s: %s, exit code %d, %q; want %s, %d and %q", c.name, r.report.Verdict,
				r.report.Verdict.ExitCode(), r.report.Reason, c.want, c.code, c.says)
		}
	}
}

func TestPortsOfWorkloadsAreApart(t *testing.T) {
	for _, ranks := range []int{2, 8, 256, 4096} {
		used := map[int]bool{}
		for ordinal := range 3 {
			first := basePort(ordinal, ranks)
			if first < firstPort || first+ranks*5-1 > lastPort {
				t.Errorf("workload %d of %d ranks begins at %d", ordinal, ranks, first)
			}
			if ranks <= 256 && used[first] {
				t.Errorf("workload %d of %d ranks has the ports of another", ordinal, ranks)
			}
			used[first] = true
		}
	}
}
