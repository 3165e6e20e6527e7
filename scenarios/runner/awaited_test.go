package runner

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// TestAwaitedCommandIsNotEndedWithTheRun: the run, too, awaits the end of a command that "wait" or "after"
// names. It ends a command that no step names.
func TestAwaitedCommandIsNotEndedWithTheRun(t *testing.T) {
	for key, waits := range map[string]spec.Step{"wait": {Wait: []string{"client"}},
		"after": {After: []string{"client"}, Workload: &spec.Workload{Name: "next"}}} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{takes: map[string]time.Duration{"server": time.Hour, "client": 3 * time.Second}}
			events, steps, err := play(t, s, t.Context(),
				spec.Step{Exec: &spec.Exec{Name: "server", Background: true}},
				spec.Step{Exec: &spec.Exec{Name: "client", Background: true}}, waits)
			want := []string{"0s client starts", "0s server starts", "3s client ends"}
			if key == "after" {
				want = append(want, "3s next ends", "3s next starts")
			}
			want = append(want, "3s server is cancelled: the run has ended")
			slices.Sort(events)
			if d := cmp.Diff(want, events); d != "" || err != nil || states(steps) != "passed passed passed" {
				t.Error(key, d, err, states(steps))
			}
			if steps[1].End != 3 || key == "after" && steps[2].Start != 3 {
				t.Errorf("%s: %+v, want the client's end at 3, and the next step from then on", key, steps)
			}
		})
	}
}

// TestAwaitedCommandThatFailsEndsTheRun: the step that waits for it does not pass, nor start.
func TestAwaitedCommandThatFailsEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exit := errors.New("exit code 3")
		s := &script{takes: map[string]time.Duration{"client": time.Second, "fg": time.Hour},
			fails: map[string]error{"client": exit}}
		_, steps, err := play(t, s, t.Context(),
			spec.Step{Exec: &spec.Exec{Name: "client", Background: true}},
			spec.Step{Wait: []string{"client"}},
			spec.Step{After: []string{"client"}, Workload: &spec.Workload{Name: "next"}})
		if !errors.Is(err, exit) || stepVerdict(err) != verdict.Fail ||
			states(steps) != "failed cancelled skipped" {
			t.Errorf("error %v, %s, want the client's, failed cancelled skipped", err, states(steps))
		}
	})
}

// TestAwaitedCommands runs commands in the background for whose ends other steps wait.
func TestAwaitedCommands(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const next = `{name: next, nodes: [h0], command: [cat, /tmp/done]}`
	client := func(script, more string) string {
		return `  - exec: {name: client, nodes: [h0], command: [sh, -c, "` + script +
			`"], background: true` + more + "}\n"
	}
	const server = "  - exec: {name: server, nodes: [h1], command: [sleep, \"600\"], background: true}\n"
	const started = "  - {exec: " + next + ", retry: {times: 100, every: 100ms}}\n"
	const crash = "  - fault: {where: h0, crash: true, for: 1s}\n"
	for name, test := range map[string]struct {
		steps, states string // states begin so
		is            verdict.Verdict
		says          []string // in the reason
	}{
		"wait": {steps: server + client("sleep 0.5; echo 1 >/tmp/done", "") + "  - wait: [client]\n" +
			"  - exec: " + next, states: "passed passed passed passed", is: verdict.Pass},
		"after": {steps: server + client("sleep 0.5; echo 1 >/tmp/done", "") +
			"  - after: [client]\n    exec: " +
			next, states: "passed passed passed", is: verdict.Pass},
		"exit code that the file names": {steps: client("sleep 0.2; exit 3", ", expect: 3") +
			"  - wait: [client]", states: "passed passed", is: verdict.Pass},
		"exit code": {steps: client("sleep 0.2; exit 3", "") + "  - wait: [client]\n  - exec: " + next,
			states: "failed cancelled skipped", is: verdict.Fail, says: []string{"client", "exit code 3"}},
		"exit code, after": {steps: client("sleep 0.2; exit 3", "") +
			"  - after: [client]\n    exec: " + next,
			states: "failed skipped", is: verdict.Fail, says: []string{"client", "exit code 3"}},
		"exit code 0 where the file names another": {steps: client("exit 0", ", expect: 3") +
			"  - wait: [client]", states: "failed cancelled", is: verdict.Fail,
			says: []string{"exit code 0, want 3"}},
		"a command that never ends": {steps: client("exec sleep 600", ", timeout: 1s") + "  - wait: [client]",
			states: "failed cancelled", is: verdict.Fail, says: []string{"exec client", "limit of 1s",
				":8:12 waits for the end of client", "if it is a server, remove", "longer timeout"}},
		"a command that never ends, after": {steps: client("exec sleep 600", ", timeout: 1s") +
			"  - after: [client]\n    exec: " + next, states: "failed skipped", is: verdict.Fail,
			says: []string{"limit of 1s", ":8:13 waits for the end of client"}},
		"a crash": {steps: client("echo 1 >/tmp/done; exec sleep 600", "") + started + crash +
			"  - wait: [client]", states: "failed passed ", is: verdict.Fail,
			says: []string{"client", "signal 9"}},
		"a crash of a command that no step names": {steps: client("echo 1 >/tmp/done; exec sleep 600", "") +
			started + crash, states: "passed passed passed", is: verdict.Pass},
	} {
		t.Run(name, func(t *testing.T) {
			r := runAll(t, t.Context(), options(t, twoHosts+"steps:\n"+test.steps+"\n"))
			want(t, r, test.is)
			if got := states(r.Steps); !strings.HasPrefix(got, test.states) {
				t.Errorf("states %s, want %s", got, test.states)
			}
			for _, part := range test.says {
				if !strings.Contains(r.Reason, part) {
					t.Errorf("reason %q, want %q in it", r.Reason, part)
				}
			}
		})
	}
}

// TestAwaitedCommandHasTheDefaultTimeout: without a timeout in the file, a command has none, unless a step
// waits for its end.
func TestAwaitedCommandHasTheDefaultTimeout(t *testing.T) {
	for steps, limit := range map[string]time.Duration{"": 0, "  - wait: [s]\n": time.Minute,
		"  - {after: [s], sleep: 1s}\n": time.Minute} {
		o := options(t, twoHosts+"steps:\n  - exec: {name: s, nodes: [h0], command: [sleep, \"9\"], "+
			"background: true}\n"+steps)
		p := &preparation{findings: &findings{o: &o}}
		if got := p.steps()[0].(*execStep).limit(1); got != limit {
			t.Errorf("%q: a limit of %v, want %v", steps, got, limit)
		}
	}
}
