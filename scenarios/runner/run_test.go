package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/bundle"
	"railbed/capture/report"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/testbed"
	"railbed/testbed/doctor"
	"railbed/testkit/hosttest"
)

// twoHosts is the head of a file of two hosts on one switch.
const twoHosts = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  links: {default: {rate: 200mbit}}
`

// options makes the options of a file's text. The name is the test's own, so
// that test binaries can run side by side.
func options(t *testing.T, text string) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.yaml")
	mustWrite(t, path, "name: replaced\n"+strings.TrimPrefix(text, "\n"))
	o := load(t, path)
	o.Out = filepath.Join(t.TempDir(), "out")
	return o
}

func load(t *testing.T, path string) Options {
	t.Helper()
	file, err := spec.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return optionsOf(t, file, path)
}

// optionsOf makes the options of the testbed of a file.
func optionsOf(t *testing.T, file *spec.Testbed, path string) Options {
	t.Helper()
	file.Name = fmt.Sprintf("engine-%d", os.Getpid())
	compiled, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Options{File: file, Plan: compiled, Path: path, Out: t.TempDir(), Version: "test",
		Repeat: []string{"railbed", "run", path}}
}

// overloadedTries is how often a test makes a run for which the host is too busy.
const overloadedTries = 3

// tooBusy reports whether the host was too busy for a run, by the run's verdict.
func tooBusy(r *report.Report) bool {
	return r.Verdict == verdict.Overloaded && r.Fidelity != nil && r.Fidelity.Verdict == report.Overloaded
}

// carried skips a test if the host was too busy for its run.
func carried(t *testing.T, r *report.Report) {
	t.Helper()
	if tooBusy(r) && !slices.ContainsFunc(r.Checks, failedForGood) {
		t.Skipf("cannot run here: the machine is too busy: %s", r.Reason)
	}
}

// runAll runs a file and checks what holds of every run. It repeats a run for which the host was too busy,
// except if the test watches the run's progress.
func runAll(t *testing.T, ctx context.Context, o Options) *report.Report {
	t.Helper()
	hosttest.Need(t, hosttest.Testbed)
	hosttest.Long(t)
	r, err := Run(ctx, o)
	for try := 1; try < overloadedTries && err == nil && tooBusy(r) && o.Progress == nil; try++ {
		t.Logf("%s: %s", r.Verdict, r.Reason)
		r, err = Run(ctx, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if (r.Verdict == verdict.Pass) != (r.Reason == "") || r.Finished.IsZero() {
		t.Errorf("verdict %s for reason %q, finished %v", r.Verdict, r.Reason, r.Finished)
	}
	file, err := os.Open(filepath.Join(o.Out, report.JSONFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if kept, err := report.Read(file); err != nil || kept.Verdict != r.Verdict {
		t.Errorf("report.json has verdict %+v, %v; want %s", kept, err, r.Verdict)
	}
	readable(t, r, o.Out)
	for _, name := range []string{report.JUnitFile, report.HTMLFile, bundle.PlanFile} {
		if !exists(filepath.Join(o.Out, name)) {
			t.Errorf("no %s", name)
		}
	}
	if dir, err := rundir.Of(o.Plan.Name); err != nil || dir.Running() || exists(dir.Path) {
		t.Errorf("the testbed is still there: %v, %v", dir, err)
	}
	return r
}

// oneOfMany finds a count of one with a noun in the plural.
var oneOfMany = regexp.MustCompile(`(?m)(?:^|[^\w.:>-])1 (?:packets|switches|links|nodes|ranks|flows|taps|bytes|` +
	`frames|messages|queue pairs|requests|answers|groups|pauses|probes|steps|checks|windows|times)\b`)

// readable requires that the report of a run that passed has at most 25 lines, and that no report of any run
// counts "1 packets".
func readable(t *testing.T, r *report.Report, dir string) {
	t.Helper()
	var text, all strings.Builder
	if err := errors.Join(reporting.WriteText(&text, r, reporting.TextOptions{Dir: dir}),
		reporting.WriteText(&all, r, reporting.TextOptions{Dir: dir, Verbose: true})); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(text.String(), "\n"); r.Verdict == verdict.Pass && lines > 25 {
		t.Errorf("the report has %d lines, want at most 25:\n%s", lines, &text)
	}
	if wrong := oneOfMany.FindString(all.String()); wrong != "" {
		t.Errorf("the report says %q:\n%s", wrong, &all)
	}
}

// want compares verdicts: of the run, then of each check in order. It skips the test if the host was too busy
// for the run.
func want(t *testing.T, r *report.Report, run verdict.Verdict, checks ...verdict.Verdict) {
	t.Helper()
	ok := r.Verdict == run && len(r.Checks) == len(checks)
	for i := range checks {
		ok = ok && r.Checks[i].Verdict == checks[i]
	}
	if !ok {
		var text strings.Builder
		reporting.WriteText(&text, r, reporting.TextOptions{})
		if run != verdict.Overloaded {
			carried(t, r)
		}
		t.Errorf("want %s and checks %v, got\n%s", run, checks, &text)
	}
}

func readOut(t *testing.T, o Options, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(o.Out, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestStepsAndTheirLogs(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: run.pcapng}
  - exec: {name: ping, nodes: ["h*"], command: [ping, -c1, -W2, h1]}
  - exec: {nodes: [h1], command: [sh, -c, "echo out; echo err >&2; exit 7"], expect: 7}
  - exec: {name: server, nodes: [h0], command: [sh, -c,
	"trap 'echo ended; exit 3' TERM; echo started; while :; do sleep 0.05; done"], background: true}
  - sleep: 200ms
`)
	var told []string
	o.Progress = func(u Update) { told = append(told, u.Line+u.Phase) }
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Pass)
	for name, text := range map[string]string{
		"logs/h0/ping.out": "1 received", "logs/h1/ping.out": "1 received", "logs/h1/step3.out": "out\n",
		"logs/h1/step3.err":  "err\n",
		"logs/h0/server.out": "started\nended\n", bundle.SupervisorLog: "testbed",
	} {
		if got := readOut(t, o, name); !strings.Contains(got, text) {
			t.Errorf("%s holds %q, want %q", name, got, text)
		}
	}
	if r.Captures[0].Packets() == 0 || r.Captures[0].Dropped() != 0 || len(r.Captures[0].Taps) != 4 {
		t.Errorf("capture %+v, want packets at 4 taps", r.Captures[0])
	}
	if r.Fidelity == nil || r.Fidelity.Samples < 2 || len(r.Fidelity.Links) == 0 || r.Testbed.BringUp <= 0 {
		t.Errorf("fidelity %+v, bring-up %v", r.Fidelity, r.Testbed.BringUp)
	}
	var p plan.Plan
	if err := json.Unmarshal([]byte(readOut(t, o, bundle.PlanFile)), &p); err != nil ||
		p.Hash() != r.PlanHash {
		t.Errorf("plan.json is not the plan of the report: %v", err)
	}
	if all := strings.Join(told, "\n"); !strings.Contains(all, "bring-up") ||
		!strings.Contains(all, "[2/5] exec ping: passed") {
		t.Errorf("progress told %q", told)
	}
}

// TestOneDirectionOfALinkGoesDown checks that one direction of a link goes down as railbed link
// down does it. Packets in that direction are lost, both ends keep their carrier, and the direction
// comes up again by itself.
func TestOneDirectionOfALinkGoesDown(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, twoHosts+`
steps:
  - exec: {name: before, nodes: [h0], command: [ping, -c1, -W5, h1]}
  - link: {where: h0--leaf1 b-to-a, state: down}
  - exec: {name: lost, nodes: [h0], command: [ping, -c1, -W1, h1], expect: 1}
  - exec: {name: carrier, nodes: [h0], command: [cat, /sys/class/net/eth0/carrier]}
  - link: {where: h0--leaf1 b-to-a, state: up}
  - exec: {name: again, nodes: [h0], command: [ping, -c1, -W5, h1]}
  - link: {where: h0--leaf1 a-to-b, state: down, for: 1s}
  - exec: {name: lost2, nodes: [h0], command: [ping, -c1, -W1, h1], expect: 1}
  - sleep: 500ms
  - exec: {name: after, nodes: [h0], command: [ping, -c1, -W5, h1]}
`)
	want(t, runAll(t, t.Context(), o), verdict.Pass)
	if got := readOut(t, o, "logs/h0/carrier.out"); got != "1\n" {
		t.Errorf("carrier %q while the other direction was down", got)
	}
}

func TestFailingStepEndsTheRunAndIsPlaced(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: run.pcapng}
  - exec: {nodes: [h0], command: [ping, -c1, -W2, h1]}
  - exec: {name: bad, nodes: ["*"], command: [sh, -c, "echo no such luck >&2; exit 4"]}
  - sleep: 1h
checks:
  - packets: {conservation: "*"}
`)
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Fail, verdict.Pass) // what was recorded is judged
	if place := o.Path + ":10:5"; r.Steps[2].Where != place ||
		!strings.HasPrefix(r.Reason, place+": step exec bad: ") ||
		!strings.Contains(r.Reason, "exit code 4: no such luck") {
		t.Errorf("reason %q of step %+v, want its place, its code and its words", r.Reason, r.Steps[2])
	}
	if got := states(r.Steps); got != "passed passed failed skipped" {
		t.Errorf("states %s", got)
	}
}

func TestStepThatHangsFails(t *testing.T) {
	o := options(t, twoHosts+`
steps:
  - exec: {name: hang, nodes: [h0], command: [sh, -c, "trap '' TERM; while :; do sleep 0.1; done"],
	timeout: 300ms}
`)
	began := time.Now()
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Fail)
	if took := time.Since(began); !strings.Contains(r.Reason, "not done within its limit of 300ms") ||
		took > 20*time.Second {
		t.Errorf("reason %q after %v, want the limit", r.Reason, took)
	}
}

func TestLinkChangesWorkAndAreUndone(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	r := runAll(t, t.Context(), options(t, twoHosts+`
steps:
  - link: {where: "h1--*", state: down, for: 5s}
  - exec: {nodes: [h0], command: [ping, -c1, -W1, h1], expect: 1}
  - at: 6s
    exec: {nodes: [h0], command: [ping, -c1, -W2, h1]}
  - link: {where: "h*", set: {rate: 10mbit}}
  - exec: {nodes: [h0], command: [ping, -c1, -W2, h1]}
`))
	want(t, r, verdict.Pass)
	if undone := r.Steps[0].End; undone < 5 || undone > 6 {
		t.Errorf("the link was down until %v s, want about 5 s", undone)
	}
}

func TestNothingToJudgeIsNoPass(t *testing.T) {
	want(t, runAll(t, t.Context(), options(t, twoHosts)), verdict.Inconclusive)
}

// TestInterruptedWhileJudging: checks that an interruption leaves without a result say so.
func TestInterruptedWhileJudging(t *testing.T) {
	o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: run.pcapng}
checks:
  - packets: {conservation: "*"}
  - fidelity: faithful
`)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("interrupted")
	cancel(cause)
	checks, err := judge.Checks(ctx, o.File, o.Plan, &judge.Evidence{}, func(string) (io.ReadCloser, error) {
		return nil, os.ErrNotExist
	}, func(int64) {})
	if !errors.Is(err, cause) || len(checks) != 2 {
		t.Fatalf("%v, %+v", err, checks)
	}
	for _, c := range checks {
		if c.Verdict != verdict.Inconclusive || c.Summary != "not judged: interrupted" {
			t.Errorf("%s: %s: %q", c.Name, c.Verdict, c.Summary)
		}
	}
}

func TestInterruptedRun(t *testing.T) {
	o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: run.pcapng}
  - exec: {name: child, nodes: [h0], command: [sh, -c, "setsid sleep 3600 & sleep 3600"]}
checks:
  - packets: {conservation: "*"}
`)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "[2/2]") {
			time.AfterFunc(100*time.Millisecond, cancel)
		}
	}
	began := time.Now()
	r := runAll(t, ctx, o)
	want(t, r, verdict.Aborted, verdict.Inconclusive)
	if r.Reason != "interrupted" || time.Since(began) > 20*time.Second {
		t.Errorf("reason %q after %v, want interrupted at once", r.Reason, time.Since(began))
	}
	if !r.Captures[0].Complete {
		t.Errorf("capture %+v, want it ended properly", r.Captures[0])
	}
}

func TestInterruptDuringBringUp(t *testing.T) {
	o := options(t, strings.Replace(twoHosts, "hosts: 2", "hosts: 64", 1)+"steps:\n  - sleep: 1h\n")
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "bring-up") {
			cancel()
		}
	}
	r := runAll(t, ctx, o)
	want(t, r, verdict.Aborted)
	if r.Steps[0].State != report.Skipped {
		t.Errorf("step %+v, want it skipped", r.Steps[0])
	}
}

func TestSupervisorThatDies(t *testing.T) {
	o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: run.pcapng}
  - exec: {nodes: [h0], command: [sleep, "3600"]}
checks:
  - packets: {conservation: "*"}
`)
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "[2/2]") {
			go killSupervisor(t, o.Plan.Name)
		}
	}
	hosttest.Need(t, hosttest.Testbed)
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer rundir.Sweep(rundir.SweepOptions{}) // what the kernel does not take away
	want(t, r, verdict.Aborted, verdict.Inconclusive)
	if !strings.Contains(r.Reason, "supervisor died") || r.Captures[0].Complete {
		t.Errorf("reason %q, capture %+v; want the death and an incomplete capture", r.Reason, r.Captures[0])
	}
	if !exists(filepath.Join(o.Out, bundle.SupervisorLog)) {
		t.Error("its log is not in the results")
	}
}

func killSupervisor(t *testing.T, name string) {
	tb, err := testbed.Open(context.Background(), name)
	if err != nil {
		t.Error(err)
		return
	}
	defer tb.Close()
	state, err := tb.Inspect(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestNameThatIsUp(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, twoHosts+"steps:\n  - sleep: 1s\n")
	tb, err := testbed.Up(t.Context(), o.Plan, testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tb.Close()
	if _, err := Run(t.Context(), o); !errors.Is(err, testbed.ErrRunning) {
		t.Errorf("error %v, want ErrRunning", err)
	}
	if exists(o.Out) {
		t.Error("results were made for a run that did not happen")
	}
	if err := tb.Verify(t.Context()); err != nil {
		t.Errorf("the testbed that was up: %v", err)
	}
}

func TestUnsupportedBeforeAnythingIsMade(t *testing.T) {
	missing := ""
	for _, feature := range []string{"netem", "rdma-rxe", "wireshark"} {
		if doctor.Has(t.Context(), feature) != nil {
			missing = feature
			break
		}
	}
	if missing == "" {
		t.Skip("cannot run here: the host has everything that is asked for")
	}
	o := options(t, twoHosts+"requires: ["+missing+"]\nsteps:\n  - sleep: 1s\n")
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "bring-up") {
			t.Errorf("told %q of a testbed that is not to be made", u.Phase)
		}
	}
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Unsupported)
	if u := r.Unsupported; u == nil || u.Feature != missing || u.Remedy == "" || u.Where != o.Path+":6:12" {
		t.Errorf("unsupported %+v, want %s with its remedy and place", u, missing)
	}
}

// TestRequiredFiles: a host may lack a file that the scenario file requires. A path is relative to that file.
func TestRequiredFiles(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, twoHosts+"requires: [parts/root.tar]\nsteps:\n  - sleep: 1ms\n")
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Unsupported)
	if u := r.Unsupported; u == nil || u.Feature != "parts/root.tar" || u.Where != o.Path+":6:12" ||
		!strings.Contains(u.Reason, filepath.Join(filepath.Dir(o.Path), "parts/root.tar")) {
		t.Errorf("unsupported %+v", u)
	}
	o = options(t, twoHosts+"requires: [parts/root.tar, ./, /dev/null]\nsteps:\n  - sleep: 1ms\n")
	mustWrite(t, filepath.Join(filepath.Dir(o.Path), "parts/root.tar"), "")
	want(t, runAll(t, t.Context(), o), verdict.Pass)
}

func TestStepThatNeedsNetemIsFoundBeforehand(t *testing.T) {
	o := options(t, twoHosts+"steps:\n  - link: {where: \"h0--*\", set: {rate: 1mbit}}\n  - link: {where: "+
		"\"h0--*\", set: {loss: 1%}}\n")
	needs := netemRequirements(o.File)
	if len(needs) != 1 || needs[0].Feature != plan.Netem || !strings.HasSuffix(needs[0].Where, ":8:28") {
		t.Errorf("needs %+v, want netem for the second step", needs)
	}
}

func TestInitialReportSaysAborted(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, twoHosts+"steps:\n  - sleep: 10ms\n")
	seen := false
	o.Progress = func(u Update) {
		if seen || !strings.HasPrefix(u.Phase, "bring-up") {
			return
		}
		seen = true
		file, err := os.Open(filepath.Join(o.Out, report.JSONFile))
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		if r, err := report.Read(io.Reader(file)); err != nil || r.Verdict != verdict.Aborted ||
			r.Steps[0].State != report.Skipped {
			t.Errorf("during the bring-up report.json is %+v, %v; want ABORTED", r, err)
		}
	}
	runAll(t, t.Context(), o)
	if !seen {
		t.Error("no progress of the bring-up")
	}
}
