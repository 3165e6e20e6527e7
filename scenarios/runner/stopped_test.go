package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railbed/scenarios/runner/measure"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// steady is a fabric whose smallest time is 4 ms, that of 1,500 bytes at 3
// Mbit/s, and one datagram each 2 ms in each direction for three seconds. Of the
// thousand that a second has, a stop of 20 ms makes sixteen late by more than
// that time: 1 % are ten.
const steady = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 3mbit, delay: 5ms, mtu: 1500}}
steps:
  - traffic: {name: load, from: [h0, h1], shift: 1, rate: 800kbit, size: 200B, for: 3s}
`

// childOf returns the child process of another process that runs a part.
func childOf(parent int, part string) (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended
		}
		for child := range strings.FieldsSeq(string(text)) {
			if line, err := os.ReadFile("/proc/" + child + "/cmdline"); err == nil &&
				strings.HasPrefix(string(line), "railbed:"+part+"\x00") {
				pid := 0
				_, err := fmt.Sscan(child, &pid)
				return pid, err
			}
		}
	}
	return 0, fmt.Errorf("process %d has no child of part %s", parent, part)
}

// awaitFrames waits until the soft switches and NICs of a testbed have sent a number of frames, and returns
// the process of the soft switches.
func awaitFrames(ctx context.Context, name string, frames uint64) (pid int, err error) {
	tb, err := testbed.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer tb.Close()
	for {
		state, err := tb.Inspect(ctx)
		if err != nil {
			return 0, err
		}
		sent := uint64(0)
		for _, link := range state.Links {
			sent += link.A.Soft.Counters.Sent.Packets + link.B.Soft.Counters.Sent.Packets
		}
		if sent >= frames {
			return childOf(state.PID, "softswitch")
		}
	}
}

// pauseAfter stops the soft switches of a testbed for a time, after they have sent a number of frames.
func pauseAfter(ctx context.Context, name string, frames uint64, d time.Duration) error {
	pid, err := awaitFrames(ctx, name, frames)
	if err != nil {
		return err
	}
	return pause(pid, d)
}

// pause stops a process for a time.
func pause(pid int, d time.Duration) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return syscall.Kill(pid, syscall.SIGCONT)
}

// runSteady runs the steady traffic, stops the switches at a time after its
// start, or not at all, and judges what the host's other load has no part in.
func runSteady(t *testing.T, at, stop time.Duration) (*report.Fidelity, float64) {
	t.Helper()
	for try := 1; ; try++ {
		f, when := trySteady(t, at, stop)
		switch {
		case f == nil || f.Timing == nil:
			t.Fatalf("%+v: want the arrivals of nearly 3,000 packets", f)
		case f.Timing.Arrivals.Frames < 2500 && try < hostTries:
			t.Logf("arrivals of %d packets: %q", f.Timing.Arrivals.Frames, f.Reasons)
			continue
		case f.Timing.Arrivals.Frames < 2500 && f.Pressure > hostBusy:
			t.Skipf("cannot run here: idle cores: tasks waited for a CPU in %.0f%% of the time: %q",
				f.Pressure*100, f.Reasons)
		case f.Timing.Arrivals.Frames < 2500:
			t.Fatalf("%+v: want the arrivals of nearly 3,000 packets", f)
		}
		alone := &report.Fidelity{Links: f.Links, Timing: f.Timing}
		measure.Judge(alone, nil)
		alone.Pressure, alone.Steal = f.Pressure, f.Steal
		return alone, when
	}
}

func trySteady(t *testing.T, at, stop time.Duration) (*report.Fidelity, float64) {
	t.Helper()
	o := options(t, steady)
	stopped := make(chan error, 1)
	began, when := time.Time{}, 0.0
	o.Progress = func(u Update) {
		if !began.IsZero() || !strings.Contains(u.Phase, "traffic load") {
			return
		}
		began = time.Now()
		if stop == 0 {
			stopped <- nil
			return
		}
		go func() {
			pid, err := awaitFrames(t.Context(), o.Plan.Name, 10)
			if err != nil {
				stopped <- err
				return
			}
			time.Sleep(at)
			when = time.Since(began).Seconds()
			stopped <- pause(pid, stop)
		}()
	}
	r := runAll(t, t.Context(), o)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	return r.Fidelity, when
}

// A switch that stands still for over a second leaves no doubt, however many
// frames leave it at once afterwards: all of them are known again when they
// arrive.
func TestLongStopIsOverload(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const stop = 1200 * time.Millisecond
	f, when := runSteady(t, 1200*time.Millisecond, stop)
	arrivals := f.Timing.Arrivals
	if f.Verdict != report.Overloaded || arrivals.P99 < 500_000 || arrivals.Worst < 1_000_000 {
		t.Errorf("stopped for %v at %.2f s: %s, arrivals %+v, want it overloaded, and the latest frame "+
			"about as late", stop, when, f.Verdict, arrivals)
	}
	if most := arrivals.Frames / 50; f.Timing.Unmatched > most {
		t.Errorf("the lateness of %d frames is not known, beside %d of which it is, want at most %d",
			f.Timing.Unmatched, arrivals.Frames, most)
	}
}

// late is a run in which the switch stands still for over a second.
const late = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 3mbit, delay: 5ms, mtu: 1500}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - traffic: {name: load, from: [h0, h1], shift: 1, rate: 800kbit, size: 200B, for: 6s, background: true}
  - workload: {name: ar, kind: all-reduce, size: 4KiB, iterations: 2}
  - wait: [load]
checks:
  - workload: {name: ar, correct: true}
  - packets: {conservation: "*"}
  - packets: {lossless: {}}
  - packets: {bytes-per-rank: {workload: ar, formula: ring-all-reduce, tolerance: 10%}}
  - packets: {drops: {count: "== 0"}}
  - packets: {queue-depth: {at: switches, max: "<= 10MB"}}
  - workload: {name: ar, busbw: ">= 0.001 Mbit/s"}
`

// TestLatenessTakesOnlyTheProofOfTime checks a run whose frames are late on purpose. Checks that
// depend on time prove nothing, nor do failures of other checks. Other checks that pass remain
// valid.
func TestLatenessTakesOnlyTheProofOfTime(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, late)
	stopped := make(chan error, 1)
	var once sync.Once
	o.Progress = func(u Update) {
		if strings.Contains(u.Line, "workload ar: passed") {
			once.Do(func() {
				go func() { stopped <- pauseAfter(t.Context(), o.Plan.Name, 0, 1200*time.Millisecond) }()
			})
		}
	}
	r, held := runAndHold(t, o)
	if err := <-stopped; err != nil || r.Fidelity.Verdict != report.Overloaded {
		t.Fatalf("%v, %s %q: want a run that is overloaded", err, r.Fidelity.Verdict, r.Fidelity.Reasons)
	}
	want(t, r, verdict.Overloaded, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Pass, verdict.Overloaded,
		verdict.Overloaded, verdict.Overloaded)

	// The same run without checks of time passes, and proves nothing if another check failed.
	concluded := func(checks []report.Check, file []spec.Check) *report.Report {
		again := &run{Options: Options{File: &spec.Testbed{Steps: o.File.Steps, Checks: file}, Plan: o.Plan},
			report: &report.Report{
				Steps: r.Steps, Fidelity: r.Fidelity, Checks: checks,
			}}
		again.conclude(t.Context(), nil)
		return again.report
	}
	if got := concluded(rejudge(t, o, held)[:4], o.File.Checks[:4]); got.Verdict != verdict.Pass {
		t.Errorf("without checks that rest on time: %s, %s", got.Verdict, got.Reason)
	}
	held.Workloads[0].Traffic.Ranks[0].Expected /= 2
	checks := rejudge(t, o, held)[:4]
	if checks[3].Verdict != verdict.Fail {
		t.Errorf("a rank that sent twice its bytes: %+v", checks[3])
	}
	if got := concluded(checks, o.File.Checks[:4]); got.Verdict != verdict.Overloaded ||
		!strings.Contains(got.Reason, "the failed check proves nothing") {
		t.Errorf("with a check that failed: %s, %s", got.Verdict, got.Reason)
	}
}

// hostTries is how often a run may be spoilt by a pause of the host's.
const hostTries = 6

// hostBusy is the share of the time in which tasks wait for a CPU on a host that
// does other work. The traffic of these runs alone stays far below it.
const hostBusy = 0.6

// TestStoppedSwitchChangesTheVerdict checks that a switch which stops for 20 ms changes the
// verdict, and that the report says when. Without the stop the verdict stays unchanged.
func TestStoppedSwitchChangesTheVerdict(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	var control *report.Fidelity
	for range hostTries {
		if control, _ = runSteady(t, 0, 0); control.Verdict == report.Faithful {
			break
		}
		t.Logf("a run that nobody stopped: %s %q", control.Verdict, control.Reasons)
	}
	if control.Verdict != report.Faithful && control.Pressure > hostBusy {
		t.Skipf("cannot run here: idle cores: tasks waited for a CPU in %.0f%% of the time, and the "+
			"switches with them: %q", control.Pressure*100, control.Reasons)
	}
	if control.Verdict != report.Faithful && control.Steal > verify.StealDegraded {
		t.Skipf("cannot run here: CPUs: the hypervisor took %.0f%% of their time: %q", control.Steal*100,
			control.Reasons)
	}
	if control.Verdict != report.Faithful || control.Timing.First != nil {
		t.Fatalf("%d runs that nobody stopped, the last one %s: %q", hostTries, control.Verdict,
			control.Reasons)
	}
	const (
		stop = 20 * time.Millisecond
		// leastLate is by how many microseconds at least the first frame is late that
		// was due while the switch stood still: up to ten milliseconds pass
		// before one is due.
		leastLate = 10_000
	)
	for range hostTries {
		f, when := runSteady(t, 1500*time.Millisecond, stop)
		first := f.Timing.First
		if f.Verdict == report.Faithful || first == nil {
			t.Fatalf("stopped for %v: %s %+v, want at least degraded", stop, f.Verdict, f.Timing)
		}
		if late := first.WorstAt - when; first.From > when || when > first.From+first.Length || late < 0 ||
			late > 0.5 {
			// the host's own pause came first
			t.Logf("the first late second is another one: %q, stopped at %.2f s", f.Reasons, when)
			continue
		}
		if first.P99 < f.Timing.Unit || first.Lateness.Worst < leastLate || first.Lateness.Worst > 200_000 {
			t.Errorf("stopped for %v at %.2f s: %+v, want the latest frame about as late", stop, when, first)
		}
		if !strings.Contains(strings.Join(f.Reasons, "\n"), fmt.Sprintf("from %.1f s on", first.From)) {
			t.Errorf("reasons %q do not say which second", f.Reasons)
		}
		t.Logf("control: p99 %v us, worst %v us; stopped at %.2f s: %q", control.Timing.Arrivals.P99,
			control.Timing.Arrivals.Worst, when, f.Reasons)
		return
	}
	t.Errorf("in none of %d runs the first late second was the one in which the switch stood still",
		hostTries)
}
