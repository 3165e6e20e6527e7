package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// script plays steps by virtual time and notes what happened when.
type script struct {
	mu     sync.Mutex
	epoch  time.Time
	events []string
	// takes is how long the workload or command of a name runs. A workload or command without an
	// entry ends at once. fails is its error.
	takes map[string]time.Duration
	fails map[string]error
	// failures is how many of the first workloads and commands may fail. 0 is no bound. done counts them.
	failures, done int
	// stopped is the command whose process a signal has stopped when it is ended.
	stopped string
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%v ", time.Since(s.epoch))+fmt.Sprintf(format, args...))
}

func (s *script) play(ctx context.Context, name string) error {
	s.note("%s starts", name)
	if !clock.Sleep(ctx, s.takes[name]) {
		s.note("%s is cancelled: %v", name, context.Cause(ctx))
		if s.stopped == name {
			return &stoppedError{command: name, ended: context.Cause(ctx)}
		}
		return context.Cause(ctx)
	}
	s.note("%s ends", name)
	s.done++
	if s.failures > 0 && s.done > s.failures {
		return nil
	}
	return s.fails[name]
}

// played is a step of a script.
type played struct {
	stepFrame
	script *script
	of     spec.Step
}

func (p *played) object() string {
	switch {
	case p.of.Capture != nil:
		return "capture " + p.of.Capture.File
	case p.of.Link != nil:
		return p.of.Link.Where
	}
	return p.Name
}

func (p *played) limit(by clock.Dilation) time.Duration {
	if p.Serves {
		return 0
	}
	return p.stepFrame.limit(by)
}

func (p *played) do(ctx context.Context, _ *session) error {
	if p.of.Link != nil {
		p.script.note("%s %s", p.object(), p.of.Link.State)
		return p.script.fails[p.object()]
	}
	return p.script.play(ctx, p.object())
}

func (p *played) lasts() time.Duration {
	if p.of.Link == nil {
		return 0
	}
	return time.Duration(p.of.Link.For)
}

func (p *played) undo(context.Context) error {
	p.script.note("%s undone", p.object())
	return p.script.fails["undo "+p.object()]
}

func at(d time.Duration) *units.Duration { return (*units.Duration)(&d) }

func work(name string) spec.Step { return spec.Step{Workload: &spec.Workload{Name: name}} }

// play runs steps in virtual time and returns what the script noted, sorted by
// time, the steps' records and the error.
func play(t *testing.T, s *script, ctx context.Context, steps ...spec.Step) ([]string, []report.Step, error) {
	t.Helper()
	s.epoch = time.Now()
	file := &spec.Testbed{Steps: steps}
	file.SetDefaults()
	var prepared []step
	for i, of := range file.Steps {
		f := frameOf(file, i)
		switch {
		case of.Sleep != nil:
			prepared = append(prepared, &sleepStep{f, *of.Sleep})
		case of.Wait != nil:
			prepared = append(prepared, &waitStep{f, of.Wait})
		default:
			prepared = append(prepared, &played{f, s, of})
		}
	}
	line := newTimeline(file, prepared, &session{plan: &plan.Plan{}}, func(int, report.Step) {})
	err := line.run(ctx)
	return s.events, line.report(), err
}

func states(steps []report.Step) string {
	var words []string
	for _, s := range steps {
		words = append(words, string(s.State))
	}
	return strings.Join(words, " ")
}

func TestStepsRunOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"one": time.Second, "two": 2 * time.Second}}
		events, steps, err := play(t, s, t.Context(), work("one"),
			spec.Step{Sleep: at(500 * time.Millisecond)}, work("two"))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"0s one starts", "1s one ends", "1.5s two starts", "3.5s two ends"}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
		if steps[1].Start != 1 || steps[1].End != 1.5 || steps[2].End != 3.5 {
			t.Errorf("records %+v, want the sleep from 1 to 1.5 and the end at 3.5", steps)
		}
	})
}

func TestAtCountsFromTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"long": 3 * time.Second, "after": time.Second}}
		events, _, err := play(t, s, t.Context(),
			spec.Step{Capture: &spec.Capture{File: "c"}},
			work("long"),
			spec.Step{At: at(500 * time.Millisecond), Link: &spec.LinkChange{Where: "l", State: "down"}},
			work("after"), // follows the link change, not the long workload
			spec.Step{At: at(200 * time.Millisecond), Exec: &spec.Exec{Name: "early"}},
		)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"0s capture c starts", "0s capture c ends", "0s long starts", "200ms early starts",
			"200ms early ends",
			"500ms l down", "500ms after starts", "1.5s after ends", "3s long ends",
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
	})
}

func TestBackgroundWorkloadIsWaitedForAndCommandIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"server": time.Hour, "bg": 2 * time.Second,
			"fg": time.Second}}
		background := work("bg")
		background.Workload.Background = true
		events, steps, err := play(t, s, t.Context(),
			spec.Step{Exec: &spec.Exec{Name: "server", Background: true}}, background, work("fg"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(events[:3]) // three goroutines start at once
		want := []string{"0s bg starts", "0s fg starts", "0s server starts", "1s fg ends", "2s bg ends",
			"2s server is cancelled: the run has ended"}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
		if got := states(steps); got != "passed passed passed" {
			t.Errorf("states %s, want all passed", got)
		}
	})
}

func TestBackgroundCommandThatFailsEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crash := errors.New("exit code 1")
		s := &script{takes: map[string]time.Duration{"server": time.Second, "fg": time.Hour},
			fails: map[string]error{"server": crash}}
		_, steps, err := play(t, s, t.Context(),
			spec.Step{Exec: &spec.Exec{Name: "server", Background: true}}, work("fg"), work("never"))
		if !errors.Is(err, crash) || stepVerdict(err) != verdict.Fail {
			t.Errorf("error %v (%s), want the server's, FAIL", err, stepVerdict(err))
		}
		if got := states(steps); got != "failed cancelled skipped" {
			t.Errorf("states %s, want failed cancelled skipped", got)
		}
	})
}

// TestStoppedServerFails checks that a background command whose process was stopped fails in the end.
func TestStoppedServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"server": time.Hour}, stopped: "server"}
		server := spec.Step{Exec: &spec.Exec{Name: "server", Background: true}}
		_, steps, err := play(t, s, t.Context(), server, work("fg"))
		if got := states(steps); got != "failed passed" || stepVerdict(err) != verdict.Fail {
			t.Errorf("states %s, error %v, want failed passed, FAIL", got, err)
		}
	})
}

func TestLinkChangeIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"w": 100 * time.Millisecond}}
		events, steps, err := play(t, s, t.Context(),
			spec.Step{Link: &spec.LinkChange{Where: "l", State: "down", For: units.Duration(time.Second)}},
			work("w"))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"0s l down", "0s w starts", "100ms w ends", "1s l undone"}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
		if steps[0].End != 1 {
			t.Errorf("link step ended at %v, want 1", steps[0].End)
		}
	})
}

func TestFailingUndoFailsItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{fails: map[string]error{"undo l": errors.New("no such link")}}
		_, steps, err := play(t, s, t.Context(),
			spec.Step{Link: &spec.LinkChange{Where: "l", State: "down", For: units.Duration(time.Second)}})
		if err == nil || steps[0].State != report.Failed || steps[0].Error != "undo after 1s: no such link" {
			t.Errorf("error %v, step %+v, want the undo's failure", err, steps[0])
		}
	})
}

// TestStepsThatRepeat: a change is made and undone a number of times, or in each period until a
// time, or until the other steps have ended.
func TestStepsThatRepeat(t *testing.T) {
	flap := func(times int, until time.Duration) spec.Step {
		return spec.Step{Link: &spec.LinkChange{Where: "l", State: "down", For: units.Duration(time.Second)},
			Every: units.Duration(4 * time.Second), Times: times, Until: units.Duration(until)}
	}
	for name, step := range map[string]spec.Step{"times": flap(2, 0), "until": flap(0, 5*time.Second),
		"the end": flap(0, 0)} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{takes: map[string]time.Duration{"w": 7 * time.Second}}
			events, steps, err := play(t, s, t.Context(), step, work("w"))
			if err != nil || states(steps) != "passed passed" || steps[0].Times != 2 {
				t.Fatalf("%s: %v, %+v", name, err, steps)
			}
			want := []string{"0s l down", "0s w starts", "1s l undone", "4s l down", "5s l undone",
				"7s w ends"}
			slices.Sort(events)
			if diff := cmp.Diff(want, events); diff != "" {
				t.Error(name, diff)
			}
		})
	}
}

// TestRepetitionEndsWithItsEffectUndone: the run ends within the effect's time.
func TestRepetitionEndsWithItsEffectUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"w": 4500 * time.Millisecond}}
		events, steps, err := play(t, s, t.Context(),
			spec.Step{Link: &spec.LinkChange{Where: "l", State: "down", For: units.Duration(time.Second)},
				Every: units.Duration(4 * time.Second)}, work("w"))
		want := []string{"0s l down", "0s w starts", "1s l undone", "4.5s l undone", "4.5s w ends",
			"4s l down"}
		slices.Sort(events)
		if diff := cmp.Diff(want, events); diff != "" || err != nil || states(steps) != "passed passed" {
			t.Error(diff, err, steps)
		}
	})
}

// TestStepsAfterOthers: a step starts when all that it names have ended, and the steps after it follow it.
func TestStepsAfterOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"short": time.Second, "long": 3 * time.Second}}
		long, both := work("long"), work("both")
		long.Workload.Background, both.After = true, []string{"short", "long"}
		events, steps, err := play(t, s, t.Context(), long, work("short"), both, work("last"))
		want := []string{"0s long starts", "0s short starts", "1s short ends", "3s both ends",
			"3s both starts", "3s last ends", "3s last starts", "3s long ends"}
		slices.Sort(events)
		if diff := cmp.Diff(want, events); diff != "" || err != nil ||
			states(steps) != "passed passed passed passed" {
			t.Error(diff, err, steps)
		}
	})
}

// TestRetryOfARepeatedStep: each repetition has its attempts.
func TestRetryOfARepeatedStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{fails: map[string]error{"probe": errors.New("no answer")}, failures: 3,
			takes: map[string]time.Duration{"w": 20 * time.Second}}
		_, steps, err := play(t, s, t.Context(), spec.Step{Exec: &spec.Exec{Name: "probe"}, Times: 2,
			Every: units.Duration(10 * time.Second), Retry: &spec.Retry{Times: 4}}, work("w"))
		if err != nil || states(steps) != "passed passed" || steps[0].Times != 2 || steps[0].End != 10 {
			t.Errorf("%v, %+v", err, steps)
		}
	})
}

// TestRetry: a command that fails is repeated, and the step fails after its last attempt.
func TestRetry(t *testing.T) {
	for tries, want := range map[int]string{2: "failed", 3: "passed"} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{fails: map[string]error{"probe": errors.New("no answer")}, failures: 3}
			_, steps, err := play(t, s, t.Context(), spec.Step{Exec: &spec.Exec{Name: "probe"},
				Retry: &spec.Retry{Times: tries}})
			if states(steps) != want || steps[0].Times != tries+1 || steps[0].End != float64(tries) {
				t.Errorf("%d tries: %v, %+v", tries, err, steps)
			}
			if want == "failed" && steps[0].Error != "after 3 attempts: no answer" {
				t.Errorf("%+v", steps[0])
			}
		})
	}
}

// TestStepThatHasToFail: with fails, a step passes with the error that its ranks had. It fails if they
// succeed, do not end in time, or if the host lacks a program.
func TestStepThatHasToFail(t *testing.T) {
	lacks := &verdict.UnsupportedError{Feature: "f", Reason: "not there"}
	for name, row := range map[string]struct {
		script *script
		want   string
		text   string
	}{
		"fails": {&script{fails: map[string]error{"w": errors.New("rank 2 ended")}}, "passed passed",
			"rank 2 ended"},
		"succeeds": {&script{}, "failed skipped", "it passed; with fails: true it has to fail"},
		"lasts": {&script{takes: map[string]time.Duration{"w": time.Hour}}, "failed skipped",
			"not done within its limit of 3s"},
		"lacks a program": {&script{fails: map[string]error{"w": lacks}}, "failed skipped", lacks.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			step := work("w")
			step.Fails, step.Workload.Timeout = true, units.Duration(3*time.Second)
			_, steps, err := play(t, row.script, t.Context(), step, work("last"))
			if states(steps) != row.want || steps[0].Error != row.text ||
				(err == nil) != (row.want == "passed passed") {
				t.Errorf("%s: %v, %+v", name, err, steps)
			}
		})
	}
}

func TestStepTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"w": time.Hour, "e": time.Hour}}
		slow := work("w")
		slow.Workload.Timeout = units.Duration(3 * time.Second)
		_, steps, err := play(t, s, t.Context(), slow, work("never"))
		if steps[0].Error != "not done within its limit of 3s" || steps[0].End != 3 ||
			stepVerdict(err) != verdict.Fail {
			t.Errorf("step %+v, error %v, want a failure after 3s", steps[0], err)
		}
		_, steps, _ = play(t, &script{takes: s.takes}, t.Context(), spec.Step{Exec: &spec.Exec{Name: "e"}})
		if steps[0].End != 60 || steps[0].State != report.Failed {
			t.Errorf("step %+v, want the default limit of a command", steps[0])
		}
	})
}

func TestInterruptCancelsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{takes: map[string]time.Duration{"w": time.Hour}}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { cancel(errors.New("interrupted")) })
		events, steps, err := play(t, s, ctx,
			spec.Step{Link: &spec.LinkChange{Where: "l", State: "down", For: units.Duration(time.Minute)}},
			work("w"), work("never"))
		if err == nil || err.Error() != "interrupted" || stepVerdict(err) != verdict.Aborted {
			t.Errorf("error %v (%s), want interrupted, ABORTED", err, stepVerdict(err))
		}
		if got := states(steps); got != "cancelled cancelled skipped" {
			t.Errorf("states %s, want cancelled cancelled skipped", got)
		}
		if last := events[len(events)-1]; last != "2s w is cancelled: interrupted" {
			t.Errorf("last event %q, want the cancelled workload at 2s", last)
		}
	})
}

func TestUnsupportedStep(t *testing.T) {
	s := &script{fails: map[string]error{"l": &verdict.UnsupportedError{Feature: "netem", Reason: "none"}}}
	_, _, err := play(t, s, t.Context(), spec.Step{Link: &spec.LinkChange{Where: "l"}})
	if stepVerdict(err) != verdict.Unsupported {
		t.Errorf("verdict %s of %v, want UNSUPPORTED", stepVerdict(err), err)
	}
}
