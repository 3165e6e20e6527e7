package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// controlTimeout limits requests that the supervisor carries out itself: the start of a capture and
// a link change. Both take milliseconds. A host that needs longer cannot run the scenario.
const controlTimeout = 30 * time.Second

// actions are the operations of steps. A method returns when the step has ended, or, for captures
// and link changes, when it is in force. The index is the step's index in the file. Methods are
// called from several goroutines at once.
type actions interface {
	capture(ctx context.Context, index int, c *spec.Capture) error
	workload(ctx context.Context, index int, w *spec.Workload) error
	training(ctx context.Context, index int, t *spec.Training) error
	messages(ctx context.Context, index int, m *spec.Messages) error
	traffic(ctx context.Context, index int, t *spec.Traffic) error
	stack(ctx context.Context, index int, s *spec.Stack) error
	exec(ctx context.Context, index int, e *spec.Exec) error
	// link returns a function that undoes the change.
	link(ctx context.Context, index int, l *spec.LinkChange) (undo func(context.Context) error, err error)
}

// errRunEnded is the cause with which a background command's context ends when all other steps have
// ended.
var errRunEnded = errors.New("the run has ended")

// stepError is the failure of a step. It ends the run.
type stepError struct {
	index int
	err   error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// timeline runs steps.
//
// A step without "at" starts when the step before it in the file has ended. A step with "at" starts
// that long after the first step, whatever runs then, and begins a new sequence: the steps after it
// follow it. So a file may contain several sequences in parallel.
//
// For the next step, a background step has "ended" as soon as it has started, and a capture or a
// link change as soon as it is in force. The timeline itself ends when every step has ended,
// including background workloads and the undoing of link changes with "for". It then ends the
// background commands that still run, which is no failure: they are the servers of a scenario.
type timeline struct {
	steps  []spec.Step
	source *spec.Source
	do     actions
	// changed is called for each step that started or ended, by one goroutine at a time.
	changed func(index int, step report.Step)

	dilation uint64
	clock    *clock.Clock // its epoch is the start of the first step
	fail     context.CancelCauseFunc
	// sequences are the steps' own goroutines. lasting are the goroutines that last longer than a
	// step of a sequence: background workloads, and link changes that are to be undone.
	sequences, lasting sync.WaitGroup
	// servants are background commands. Their context ends with the run.
	servants   sync.WaitGroup
	servantCtx context.Context

	// lasts are closed when background steps end, by their names.
	lasts map[string]chan struct{}

	mu      sync.Mutex
	records []report.Step
}

func newTimeline(file *spec.Testbed, do actions, changed func(int, report.Step)) *timeline {
	t := &timeline{steps: file.Steps, source: file.Source, dilation: file.Dilation, do: do, changed: changed,
		lasts: map[string]chan struct{}{}}
	for i, step := range file.Steps {
		if name := step.Lasts(); name != "" {
			t.lasts[name] = make(chan struct{})
		}
		t.records = append(t.records, report.Step{
			Name: stepName(step), Where: file.Source.Pos(fmt.Sprintf("steps[%d]", i)).String(),
			State: report.Skipped, Background: isBackground(step),
		})
	}
	return t
}

// run runs the steps to their end. Its error is the first failure, a *stepError, or the cause of
// ctx's end. When it returns, no goroutine of the timeline runs any more.
func (t *timeline) run(ctx context.Context) error {
	ctx, t.fail = context.WithCancelCause(ctx)
	defer t.fail(nil)
	servantCtx, endServants := context.WithCancelCause(ctx)
	t.servantCtx = servantCtx
	t.clock = clock.New(t.dilation)
	for _, sequence := range sequences(t.steps) {
		t.sequences.Go(func() { t.runSequence(ctx, sequence) })
	}
	t.sequences.Wait()
	t.lasting.Wait()
	endServants(errRunEnded)
	t.servants.Wait()
	return context.Cause(ctx)
}

// sequences splits the indices of steps before each step with "at".
func sequences(steps []spec.Step) [][]int {
	var found [][]int
	for i, step := range steps {
		if i == 0 || step.At != nil {
			found = append(found, nil)
		}
		last := &found[len(found)-1]
		*last = append(*last, i)
	}
	return found
}

func (t *timeline) runSequence(ctx context.Context, indices []int) {
	if at := t.steps[indices[0]].At; at != nil && !sleep(ctx, time.Until(t.clock.Real(clock.Time(*at)))) {
		return
	}
	for _, i := range indices {
		if ctx.Err() != nil || !t.runStep(ctx, i) {
			return
		}
	}
}

// runStep runs a step as far as the next step has to wait for it, and reports whether the sequence
// continues.
func (t *timeline) runStep(ctx context.Context, i int) bool {
	t.update(i, func(s *report.Step) { s.State, s.Start = running, t.now() })
	step := t.steps[i]
	switch {
	case step.Sleep != nil:
		var err error
		if !sleep(ctx, t.clock.Wait(time.Duration(*step.Sleep))) {
			err = context.Cause(ctx)
		}
		return t.end(ctx, i, err)
	case step.Wait != nil:
		return t.end(ctx, i, t.await(ctx, step.Wait))
	case step.Capture != nil:
		return t.end(ctx, i, t.bounded(ctx, controlTimeout, func(ctx context.Context) error {
			return t.do.capture(ctx, i, step.Capture)
		}))
	case step.Link != nil:
		return t.runLink(ctx, i, step.Link)
	case step.Workload != nil:
		return t.runLoad(ctx, i, step.Workload.Background, t.clock.Wait(time.Duration(step.Workload.Timeout)),
			func(ctx context.Context) error {
				return t.do.workload(ctx, i, step.Workload)
			})
	case step.Training != nil:
		return t.runLoad(ctx, i, step.Training.Background, t.clock.Wait(time.Duration(step.Training.Timeout)),
			func(ctx context.Context) error {
				return t.do.training(ctx, i, step.Training)
			})
	case step.Messages != nil:
		return t.runLoad(ctx, i, step.Messages.Background, t.clock.Wait(time.Duration(step.Messages.Timeout)),
			func(ctx context.Context) error {
				return t.do.messages(ctx, i, step.Messages)
			})
	case step.Traffic != nil:
		return t.runLoad(ctx, i, step.Traffic.Background,
			t.clock.Wait(time.Duration(step.Traffic.For))+controlTimeout, func(ctx context.Context) error {
				return t.do.traffic(ctx, i, step.Traffic)
			})
	case step.Stack != nil:
		return t.runLoad(ctx, i, false, t.clock.Wait(time.Duration(step.Stack.Timeout)),
			func(ctx context.Context) error {
				return t.do.stack(ctx, i, step.Stack)
			})
	case step.Exec != nil:
		return t.runExec(ctx, i, step.Exec)
	}
	return t.end(ctx, i, errors.New("the step does nothing"))
}

// await waits for background steps.
func (t *timeline) await(ctx context.Context, names []string) error {
	for _, name := range names {
		select {
		case <-t.lasts[name]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// runLoad runs a step with a time limit, which may run in the background: a workload, a training
// job, messages, traffic or a stack.
func (t *timeline) runLoad(ctx context.Context, i int, background bool, limit time.Duration,
	do func(context.Context) error) bool {
	run := func() bool { return t.end(ctx, i, t.bounded(ctx, limit, do)) }
	if background {
		t.lasting.Go(func() {
			run()
			close(t.lasts[t.steps[i].Lasts()])
		})
		return true
	}
	return run()
}

func (t *timeline) runExec(ctx context.Context, i int, e *spec.Exec) bool {
	if !e.Background {
		return t.end(ctx, i, t.bounded(ctx, t.clock.Wait(time.Duration(e.Timeout)),
			func(ctx context.Context) error {
				return t.do.exec(ctx, i, e)
			}))
	}
	t.servants.Go(func() {
		// A server has no natural limit, so the default limit does not apply to it. A limit in the
		// file does.
		var limit time.Duration
		if t.source.Has(fmt.Sprintf("steps[%d].exec.timeout", i)) {
			limit = t.clock.Wait(time.Duration(e.Timeout))
		}
		err := t.bounded(t.servantCtx, limit, func(ctx context.Context) error {
			return t.do.exec(ctx, i, e)
		})
		if context.Cause(t.servantCtx) == errRunEnded && !errors.As(err, new(*stoppedError)) {
			err = nil
		}
		t.end(ctx, i, err)
	})
	return true
}

func (t *timeline) runLink(ctx context.Context, i int, l *spec.LinkChange) bool {
	var undo func(context.Context) error
	err := t.bounded(ctx, controlTimeout, func(ctx context.Context) (err error) {
		undo, err = t.do.link(ctx, i, l)
		return err
	})
	if err != nil || l.For == 0 {
		return t.end(ctx, i, err)
	}
	t.lasting.Go(func() {
		// A run that ends early takes the testbed down, so there is nothing to undo.
		if !sleep(ctx, t.clock.Wait(time.Duration(l.For))) {
			t.end(ctx, i, context.Cause(ctx))
			return
		}
		if err := t.bounded(ctx, controlTimeout, undo); err != nil {
			t.end(ctx, i, fmt.Errorf("undo after %v: %w", l.For, err))
			return
		}
		t.end(ctx, i, nil)
	})
	return true
}

// bounded calls do with a time limit; zero means no limit.
func (t *timeline) bounded(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	if limit == 0 {
		return do(ctx)
	}
	late := fmt.Errorf("not done within its limit of %v", limit)
	bounded, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && !errors.Is(err, late) {
		return fmt.Errorf("%w: %w", late, err)
	}
	return err
}

// end records how a step ended, and ends the run if the step failed.
func (t *timeline) end(ctx context.Context, i int, err error) bool {
	state, text := report.Passed, ""
	switch {
	case err == nil:
	case ctx.Err() != nil:
		state = report.Cancelled
	default:
		state, text = report.Failed, err.Error()
	}
	t.update(i, func(s *report.Step) { s.State, s.Error, s.End = state, text, t.now() })
	if state == report.Failed {
		t.fail(&stepError{index: i, err: err})
	}
	return state == report.Passed
}

// running is the state of a step that runs. No report contains it, because a run ends only when its
// steps have ended.
const running report.State = "running"

func (t *timeline) update(i int, change func(*report.Step)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.records[i])
	t.changed(i, t.records[i])
}

// logged records a file that a step wrote.
func (t *timeline) logged(i int, files ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records[i].Logs = append(t.records[i].Logs, files...)
	slices.Sort(t.records[i].Logs)
}

// report returns the record of each step.
func (t *timeline) report() []report.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]report.Step{}, t.records...)
}

// now returns the virtual seconds since the start of the first step.
func (t *timeline) now() float64 { return t.seconds(time.Now()) }

// seconds converts a real time into virtual seconds since the start of the first step.
func (t *timeline) seconds(real time.Time) float64 { return t.clock.Of(real).Sub(0).Seconds() }

// sleep waits for d or until ctx ends. It reports whether the whole time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func isBackground(step spec.Step) bool {
	return step.Workload != nil && step.Workload.Background ||
		step.Training != nil && step.Training.Background ||
		step.Messages != nil && step.Messages.Background || step.Traffic != nil && step.Traffic.Background ||
		step.Exec != nil && step.Exec.Background
}

// stepName returns the kind and the object of a step, for people.
func stepName(step spec.Step) string {
	switch {
	case step.Capture != nil:
		return "capture " + step.Capture.File
	case step.Workload != nil:
		return "workload " + step.Workload.Name
	case step.Training != nil:
		return "training " + step.Training.Name
	case step.Messages != nil:
		return "messages " + step.Messages.Name
	case step.Traffic != nil:
		return "traffic " + step.Traffic.Name
	case step.Stack != nil:
		return "stack " + step.Stack.Name
	case step.Exec != nil:
		if step.Exec.Name != "" {
			return "exec " + step.Exec.Name
		}
		return "exec " + strings.Join(step.Exec.Command, " ")
	case step.Link != nil:
		return "link " + step.Link.Where + " " + linkText(step.Link)
	case step.Wait != nil:
		return "wait " + strings.Join(step.Wait, " ")
	case step.Sleep != nil:
		return "sleep " + step.Sleep.String()
	}
	return "nothing"
}

// linkText returns the text of a link change, in the file's words.
func linkText(l *spec.LinkChange) string {
	if l.Set == nil {
		return l.State
	}
	d := plan.Direction{}.With(*l.Set)
	words := []string{"set"}
	if d.Rate != 0 {
		words = append(words, "rate "+d.Rate.String())
	}
	words = append(words, d.Effects()...)
	if d.Queue != 0 {
		words = append(words, "queue "+d.Queue.String())
	}
	return strings.Join(words, " ")
}

// stepVerdict returns the run's verdict from the error that ended its steps.
func stepVerdict(err error) verdict.Verdict {
	var failed *stepError
	var ended *containerError
	var daemon *daemonError
	switch {
	case err == nil:
		return verdict.Pass
	case errors.Is(err, verdict.ErrUnsupported):
		return verdict.Unsupported
	case errors.As(err, new(*lostError)):
		return verdict.Aborted
	case errors.As(err, &failed), errors.As(err, &ended), errors.As(err, &daemon):
		return verdict.Fail
	}
	return verdict.Aborted
}
