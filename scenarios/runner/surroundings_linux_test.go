package runner

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/reporting"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
)

// sending is a run with a recording, switches, a command in the background, a source
// and a sink. Working is one with ranks and an arbiter.
const (
	sending = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - exec: {name: client, nodes: [h1], command: [sleep, "3600"], background: true}
  - traffic: {name: load, from: [h0], to: [h1], rate: 1mbit, size: 200B, for: 3s}
checks:
  - packets: {drops: {count: "== 0"}}
`
	working = `
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft}
  links: {default: {rate: 100mbit}}
steps:
  - workload: {name: ar, kind: all-reduce, algorithm: ring, transport: rd, size: 1MiB, iterations: 20, rd: {control: arbiter}}
`
	// bypassing has ranks that bypass their kernel. The last of them is a rank, as in working.
	bypassing = `
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft}
  links: {default: {rate: 50mbit}}
nodes: {default: {nic-path: bypass}}
steps:
  - workload: {name: ar, kind: all-reduce, algorithm: ring, transport: rd, size: 1MiB, iterations: 15}
`
	// clocked has kernel switches, as guests do.
	clocked = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: router}
  links: {default: {rate: 500kbit}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - traffic: {name: load, from: [h0], to: [h1], rate: 40kbit, size: 200B, for: 4s}
checks:
  - packets: {conservation: "*"}
  - packets: {lossless: {}}
`
	pausing = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft, pfc: {priorities: [3]}}
  links: {default: {rate: 100mbit}}
steps:
  - traffic: {name: storm, from: [h0], pause: {priorities: [3], quanta: 2000}, for: 3s}
`
)

// testSilence stands in for defaultSilence.
const testSilence = 3 * time.Second

// rowsBusy is the share of the time in which tasks wait for a CPU where one row runs beside another.
const rowsBusy = 0.2

// surrounding is a row of the table in docs/explanation/surroundings.md: what is done to a run, and
// what the run says.
type surrounding struct {
	what string
	file string
	// process is a text in the command lines of the processes that are hit, "" for
	// the supervisor; the first of them is, or with last the last one.
	process string
	last    bool
	// do is done to the process; act, where it is set, to the run instead.
	do  func(pid int) error
	act func(o *Options, supervisor int) error
	// verdicts are the allowed verdicts of the run. The reason of the run must contain reason.
	verdicts []verdict.Verdict
	reason   string
	// within bounds the time from the deed to the end of the run.
	within time.Duration
	// swept is set if the run leaves what the next command sweeps.
	swept bool
}

func send(signal syscall.Signal) func(int) error {
	return func(pid int) error { return syscall.Kill(pid, signal) }
}

// starve lets a process run for 1 ms of each 20 ms, for three seconds.
func starve(pid int) error {
	for range 150 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return nil // it has ended
		}
		time.Sleep(19 * time.Millisecond)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

var (
	kill, stop = send(syscall.SIGKILL), send(syscall.SIGSTOP)
	failing    = []verdict.Verdict{verdict.Fail}
	aborted    = []verdict.Verdict{verdict.Aborted}
	passed     = []verdict.Verdict{verdict.Pass}
)

// processRows kill, stop and starve each process of a run.
var processRows = []surrounding{
	{what: "kill the sink", file: sending, process: `"sink"`, do: kill, verdicts: failing,
		reason: "the sink in h1 ended while it was needed: railbed:traffic in h1: signal 9 (killed)",
		within: 10 * time.Second},
	{what: "stop the sink", file: sending, process: `"sink"`, do: stop, verdicts: failing,
		reason: "the sink in h1 does not answer: its process is stopped, or gets no processor",
		within: 20 * time.Second},
	{what: "starve the sink", file: sending, process: `"sink"`, do: starve, verdicts: passed,
		within: 20 * time.Second},
	{what: "kill the source", file: sending, process: `"source"`, do: kill, verdicts: failing,
		reason: "railbed:traffic in h0: signal 9 (killed)", within: 10 * time.Second},
	{what: "stop the source", file: sending, process: `"source"`, do: stop, verdicts: failing,
		reason: "the source in h0 does not answer: its process is stopped, or gets no processor",
		within: 20 * time.Second},
	{what: "starve the source", file: sending, process: `"source"`, do: starve,
		verdicts: []verdict.Verdict{verdict.Overloaded}, reason: "traffic load: the host held h0 up",
		within: 20 * time.Second},
	{what: "kill the pauser", file: pausing, process: `"pauser"`, do: kill, verdicts: failing,
		reason: "railbed:traffic in h0: signal 9 (killed)", within: 10 * time.Second},
	{what: "stop the pauser", file: pausing, process: `"pauser"`, do: stop, verdicts: failing,
		reason: "the pauser in h0 does not answer: its process is stopped, or gets no processor",
		within: 20 * time.Second},
	{what: "starve the pauser", file: pausing, process: `"pauser"`, do: starve,
		verdicts: []verdict.Verdict{verdict.Overloaded}, reason: "traffic storm: the host held h0 up",
		within: 20 * time.Second},
	{what: "kill a command in the background", file: sending, process: "sleep 3600", do: kill,
		verdicts: failing, reason: "sleep in h1: signal 9 (killed)", within: 10 * time.Second},
	{what: "stop a command in the background", file: sending, process: "sleep 3600", do: stop,
		verdicts: failing, reason: "sleep in h1 did not run to its end: a signal had stopped its process " +
			"sleep", within: 20 * time.Second},
	{what: "starve a command in the background", file: sending, process: "sleep 3600", do: starve,
		verdicts: []verdict.Verdict{verdict.Pass, verdict.Fail}, within: 20 * time.Second},
	{what: "kill a node's first process", file: sending, process: "railbed:init h1", do: kill,
		verdicts: failing, reason: "in h1: signal 9 (killed)", within: 10 * time.Second},
	{what: "stop a node's first process", file: sending, process: "railbed:init h1", do: stop,
		verdicts: passed, within: 10 * time.Second},
	{what: "starve a node's first process", file: sending, process: "railbed:init h1", do: starve,
		verdicts: passed, within: 20 * time.Second},
	{what: "kill the recorder", file: sending, process: "railbed:capture", do: kill, verdicts: aborted,
		reason: "end capture: run.pcapng: the recording process ended", within: 10 * time.Second},
	{what: "stop the recorder", file: sending, process: "railbed:capture", do: stop, verdicts: aborted,
		reason: "end capture: run.pcapng: the recording process does not answer, and was killed",
		within: 30 * time.Second},
	{what: "starve the recorder", file: sending, process: "railbed:capture", do: starve,
		verdicts: []verdict.Verdict{verdict.Pass, verdict.Inconclusive}, within: 30 * time.Second},
	{what: "kill the switches", file: sending, process: "railbed:softswitch", do: kill, verdicts: aborted,
		reason: "the process of the soft switches ended by itself: signal: killed", within: 10 * time.Second,
		swept: true},
	{what: "stop the switches", file: working, process: "railbed:softswitch", do: stop, verdicts: aborted,
		reason: "the process of the soft switches did not answer for 10s: " +
			"it was stopped, or got no processor", within: 40 * time.Second, swept: true},
	{what: "starve the switches", file: sending, process: "railbed:softswitch", do: starve,
		verdicts: []verdict.Verdict{verdict.Overloaded}, reason: "late", within: 20 * time.Second},
	{what: "kill the supervisor", file: sending, do: kill, verdicts: aborted,
		reason: "the testbed's supervisor died", within: 10 * time.Second, swept: true},
	{what: "stop the supervisor", file: sending, do: stop, verdicts: aborted,
		reason: "the testbed's supervisor does not answer, and was killed", within: 30 * time.Second,
		swept: true},
	{what: "starve the supervisor", file: sending, do: starve, verdicts: passed, within: 20 * time.Second},
	{what: "kill a rank", file: working, process: "railbed:worker", last: true, do: kill, verdicts: failing,
		reason: "signal 9 (killed)", within: 10 * time.Second},
	{what: "stop a rank", file: working, process: "railbed:worker", last: true, do: stop, verdicts: failing,
		reason: "the worker does not answer: its process is stopped, or gets no processor",
		within: 20 * time.Second},
	{what: "starve a rank", file: working, process: "railbed:worker", last: true, do: starve,
		verdicts: []verdict.Verdict{verdict.Pass, verdict.Overloaded},
		within:   30 * time.Second},
	{what: "kill a rank with kernel bypass", file: bypassing, process: "railbed:worker", last: true, do: kill,
		verdicts: failing, reason: "signal 9 (killed)", within: 10 * time.Second},
	{what: "stop a rank with kernel bypass", file: bypassing, process: "railbed:worker", last: true, do: stop,
		verdicts: failing, reason: "the worker does not answer: its process is stopped, or gets no processor",
		within: 20 * time.Second},
	{what: "starve a rank with kernel bypass", file: bypassing, process: "railbed:worker", last: true,
		do: starve, verdicts: []verdict.Verdict{verdict.Pass, verdict.Overloaded}, within: 30 * time.Second},
	{what: "kill the switches under kernel bypass", file: bypassing, process: "railbed:softswitch", do: kill,
		verdicts: aborted, reason: "the process of the soft switches ended by itself: signal: killed",
		within: 10 * time.Second, swept: true},
	{what: "stop the switches under kernel bypass", file: bypassing, process: "railbed:softswitch", do: stop,
		verdicts: aborted, reason: "the process of the soft switches did not answer for 10s: " +
			"it was stopped, or got no processor", within: 40 * time.Second, swept: true},
	{what: "starve the switches under kernel bypass", file: bypassing, process: "railbed:softswitch",
		do: starve, verdicts: []verdict.Verdict{verdict.Overloaded}, reason: "late",
		within: 30 * time.Second},
	{what: "kill the arbiter", file: working, process: "railbed:worker", do: kill, verdicts: failing,
		reason: "the job's arbiter failed: it ended", within: 10 * time.Second},
	{what: "stop the arbiter", file: working, process: "railbed:worker", do: stop, verdicts: failing,
		reason: "the job's arbiter failed: it does not answer: its process is stopped, or gets no processor",
		within: 20 * time.Second},
	{what: "starve the arbiter", file: working, process: "railbed:worker", do: starve,
		verdicts: []verdict.Verdict{verdict.Pass, verdict.Overloaded},
		within:   30 * time.Second},
}

func TestProcessesOfARunThatGo(t *testing.T) { testRows(t, processRows) }

// testRows tests rows beside each other.
func testRows(t *testing.T, rows []surrounding) {
	for i, row := range rows {
		if !hosttest.Sampled(t, i) {
			continue
		}
		t.Run(row.what, func(t *testing.T) {
			t.Parallel()
			row.test(t, fmt.Sprintf("engine-%d-%d", os.Getpid(), i))
		})
	}
}

// guestRows harm a whole machine: they run in a guest, one after the other.
var guestRows = []surrounding{
	{what: "set the clock forward by an hour", file: clocked, act: setClock(time.Hour),
		verdicts: clockVerdicts, within: time.Minute},
	{what: "set the clock back by an hour", file: clocked, act: setClock(-time.Hour),
		verdicts: clockVerdicts, within: time.Minute},
	{what: "remove the directory of all testbeds", file: clocked, act: remove(func(*Options) (string, error) {
		return rundir.Root()
	}), verdicts: aborted, reason: "was removed while it ran", within: time.Minute},
	{what: "fill the disk of the run directory", file: clocked, act: fillRun, verdicts: clockVerdicts,
		within: time.Minute},
}

// clockVerdicts are the verdicts of a run in a slow guest whose clock was set, or that lost its log. Its
// times may be wrong, and it blames no process.
var clockVerdicts = []verdict.Verdict{verdict.Pass, verdict.Inconclusive, verdict.Overloaded}

// fillRun leaves no room on the file system of the run directory.
func fillRun(*Options, int) error {
	var run syscall.Statfs_t
	if err := syscall.Statfs("/run", &run); err != nil {
		return err
	}
	used := (run.Blocks - run.Bfree) * uint64(run.Bsize)
	return syscall.Mount("tmpfs", "/run", "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("mode=755,size=%d", used))
}

// setClock sets the clock off by a time.
func setClock(by time.Duration) func(*Options, int) error {
	return func(*Options, int) error {
		at := syscall.NsecToTimeval(time.Now().Add(by).UnixNano())
		return syscall.Settimeofday(&at)
	}
}

func TestRunsInGuests(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root)
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "sch_tbf", "overlay"}, CPUs: 2,
		Timeout: 3 * time.Minute}) {
		return
	}
	if hosttest.Sampled(t, len(guestRows)) {
		// The guest has version 2 of control groups.
		t.Run("little memory", func(t *testing.T) { littleMemory(t, spec.Netns) })
	}
	for i, row := range guestRows {
		if !hosttest.Sampled(t, i) {
			continue
		}
		t.Run(row.what, func(t *testing.T) { row.test(t, fmt.Sprintf("engine-clock-%d", i)) })
	}
}

// pathRows remove what a run needs in the file system, or put something in its place.
var pathRows = []surrounding{
	{what: "remove the run directory", file: sending, act: remove(runDir), verdicts: aborted,
		reason: "was removed while it ran", within: 20 * time.Second},
	{what: "remove the run directory, then kill the supervisor", file: sending,
		act: func(o *Options, supervisor int) error {
			return errors.Join(remove(runDir)(o, supervisor), kill(supervisor))
		}, verdicts: aborted, reason: "the testbed's supervisor died", within: 10 * time.Second, swept: true},
	{what: "remove the control socket", file: sending, act: remove(func(o *Options) (string, error) {
		dir, err := rundir.Of(o.Plan.Name)
		return dir.Socket(), err
	}), verdicts: aborted, reason: "was removed while it ran", within: 20 * time.Second},
	{what: "remove a published name", file: sending, act: remove(func(o *Options) (string, error) {
		return filepath.Join(rundir.NamesDir, o.Plan.Name+"-h0"), nil
	}), verdicts: passed, within: 20 * time.Second},
	{what: "remove the supervisor's log", file: sending, act: remove(func(o *Options) (string, error) {
		dir, err := rundir.Of(o.Plan.Name)
		return dir.Log(), err
	}), verdicts: passed, within: 20 * time.Second},
	{what: "remove the capture", file: sending, act: remove(inResults("run.pcapng")),
		verdicts: []verdict.Verdict{verdict.Inconclusive, verdict.Aborted}, reason: "run.pcapng",
		within: 20 * time.Second},
	{what: "remove the program's logs", file: sending, act: remove(inResults("logs")), verdicts: aborted,
		reason: "logs", within: 20 * time.Second},
}

// TestStepWithoutRunDirectory removes the run directory just before a step, which fails before the supervisor
// has noticed.
func TestStepWithoutRunDirectory(t *testing.T) {
	o := options(t, twoHosts+`
steps:
  - sleep: 1s
  - traffic: {name: x, from: ["h*"], to: [h0, h1], rate: 1mbit, for: 5s}
`)
	o.Progress = func(u Update) {
		if strings.HasPrefix(u.Phase, "[2/2]") {
			if err := remove(runDir)(&o, 0); err != nil {
				t.Error(err)
			}
		}
	}
	r := runAll(t, t.Context(), o)
	if want(t, r, verdict.Aborted); !strings.Contains(r.Reason, "was removed while it ran") {
		t.Errorf("reason %q", r.Reason)
	}
}

func runDir(o *Options) (string, error) {
	dir, err := rundir.Of(o.Plan.Name)
	return dir.Path, err
}

func inResults(name string) func(*Options) (string, error) {
	return func(o *Options) (string, error) { return filepath.Join(o.Out, name), nil }
}

// remove removes what a path names, and fails where nothing was there.
func remove(path func(*Options) (string, error)) func(*Options, int) error {
	return func(o *Options, _ int) error {
		name, err := path(o)
		if err == nil {
			_, err = os.Lstat(name)
		}
		return errors.Join(err, os.RemoveAll(name))
	}
}

func TestPathsOfARunThatGo(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	testRows(t, pathRows)
}

// test does a row's deed in a run one and a half seconds after its last step began.
func (row *surrounding) test(t *testing.T, name string) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, row.file)
	o.File.Name = name
	var err error
	if o.Plan, err = plan.Compile(o.File); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(row.reason, "does not answer") { // else a busy host's ranks are taken for stopped
		o.silence = testSilence
	}
	last := fmt.Sprintf("[%d/%[1]d]", len(o.File.Steps))
	var once sync.Once
	done := make(chan error, 1)
	var hit time.Time
	victim := 0
	o.Progress = func(u Update) {
		if !strings.HasPrefix(u.Phase, last) {
			return
		}
		once.Do(func() {
			go func() {
				if err := row.await(t.Context(), o.Plan.Name); err != nil {
					done <- err
					return
				}
				hit = time.Now()
				done <- row.hit(t.Context(), &o, &victim)
			}()
		})
	}
	r, err := Run(t.Context(), o)
	ended := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	said := r.Reason
	for _, step := range r.Steps {
		said += "\n" + step.Error
	}
	if r.Fidelity != nil { // a busy host is the first cause
		said += "\n" + strings.Join(r.Fidelity.Reasons, "\n")
	}
	// A host that is busy besides, if only with another row, makes any run OVERLOADED, which overrules a
	// failure.
	fits := slices.Contains(row.verdicts, r.Verdict) ||
		r.Verdict == verdict.Overloaded && r.Fidelity.Pressure > rowsBusy
	if !fits || !strings.Contains(said, row.reason) {
		var text strings.Builder
		reporting.WriteText(&text, r, reporting.TextOptions{})
		t.Errorf("%s: %s: %q, want one of %v and %q\n%s", row.what, r.Verdict, said, row.verdicts, row.reason,
			&text)
	}
	if took := ended.Sub(hit); took > row.within {
		t.Errorf("%s: the run ended %v later, want at most %v", row.what, took, row.within)
	}
	row.wantNothingLeft(t, &o, victim)
}

// await waits until the run is under way.
func (row *surrounding) await(ctx context.Context, name string) error {
	switch row.file {
	case sending, working, bypassing:
		if _, err := awaitFrames(ctx, name, 100); err != nil {
			return err
		}
	case pausing:
		supervisor, err := supervisorOf(ctx, name)
		if err != nil {
			return err
		}
		for ctx.Err() == nil && len(below(supervisor, row.process)) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	default:
		time.Sleep(time.Second)
	}
	time.Sleep(500 * time.Millisecond)
	return nil
}

// hit does the deed.
func (row *surrounding) hit(ctx context.Context, o *Options, victim *int) error {
	pid, err := supervisorOf(ctx, o.Plan.Name)
	if err != nil {
		return err
	}
	if row.act != nil {
		return row.act(o, pid)
	}
	if *victim = pid; row.process != "" {
		found := below(pid, row.process)
		if len(found) == 0 {
			return fmt.Errorf("no process %q below the supervisor", row.process)
		}
		slices.Sort(found)
		if *victim = found[0]; row.last {
			*victim = found[len(found)-1]
		}
	}
	return row.do(*victim)
}

// wantNothingLeft looks for the victim, for the testbed's published state and for its directory.
// The next command removes what a killed supervisor cannot remove.
func (row *surrounding) wantNothingLeft(t *testing.T, o *Options, victim int) {
	t.Helper()
	if victim != 0 && !errors.Is(syscall.Kill(victim, 0), syscall.ESRCH) {
		t.Errorf("%s: process %d is still there", row.what, victim)
	}
	dir, err := rundir.Of(o.Plan.Name)
	if err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		found, _ := filepath.Glob("/run/netns/" + o.Plan.Name + "-*")
		if exists(dir.Path) {
			found = append(found, dir.Path)
		}
		return found
	}
	if found := left(); !row.swept && len(found) > 0 {
		t.Errorf("%s: left %v", row.what, found)
	}
	if _, err := rundir.Sweep(rundir.SweepOptions{Forget: true}); err != nil || len(left()) > 0 {
		t.Errorf("%s: after a sweep there are %v, %v", row.what, left(), err)
	}
}

// below are the processes below another one whose command lines have a text.
func below(parent int, text string) (found []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that ended
		}
		for child := range strings.FieldsSeq(string(children)) {
			pid := 0
			if _, err := fmt.Sscan(child, &pid); err != nil {
				continue
			}
			line, err := os.ReadFile("/proc/" + child + "/cmdline")
			if err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
				found = append(found, pid)
			}
			found = append(found, below(pid, text)...)
		}
	}
	return found
}

// supervisorOf is the process of a testbed's supervisor.
func supervisorOf(ctx context.Context, name string) (int, error) {
	tb, err := testbed.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer tb.Close()
	state, err := tb.Inspect(ctx)
	return state.PID, err
}

var update = flag.Bool("update", false, "rewrite the table in docs/explanation/surroundings.md")

// docs/explanation/surroundings.md has the rows of this file, and names tests that exist.
func TestSurroundingsShowsTheRows(t *testing.T) {
	const page, begin, end = "../../docs/explanation/surroundings.md", "<!-- surroundings -->\n",
		"<!-- end of surroundings -->"
	var table strings.Builder
	table.WriteString("| what | verdict | words | ends within | leaves |\n|---|---|---|---|---|\n")
	for _, row := range slices.Concat(processRows, pathRows, guestRows) {
		var verdicts []string
		for _, v := range row.verdicts {
			verdicts = append(verdicts, string(v))
		}
		words, leaves := "", "nothing"
		if row.reason != "" {
			words = "`" + row.reason + "`"
		}
		if row.swept {
			leaves = "swept"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %v | %s |\n", row.what, strings.Join(verdicts, " or "), words,
			row.within, leaves)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no %s and %s", page, begin, end)
	}
	if shown != table.String() {
		if !*update {
			t.Errorf("%s does not show the rows; go test -run TestSurroundingsShowsTheRows -update "+
				"./scenarios/runner writes them", page)
		} else if err := os.WriteFile(page, []byte(before+begin+table.String()+end+after),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../../cli/*_test.go", "../../internal/rundir/*_test.go",
		"../../workloads/stacks/*_test.go", "../../fabric/link/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(sources.String(), "\nfunc "+name[1]+"(") {
			t.Errorf("%s names %s, which does not exist", page, name[1])
		}
	}
}
