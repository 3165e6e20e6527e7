package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan/spec"
)

// controlTimeout limits requests that the supervisor carries out itself: the start of a capture and
// a link change. Both take milliseconds. A host that needs longer cannot run the scenario.
const controlTimeout = 30 * time.Second

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
// A step starts when the step before it in the file has ended, unless it has "at", "when" or "after". A step
// with "at" starts that long after the first step, whatever runs then, one with "when" at an event, and one
// with "after" when other steps have ended. Each begins a new sequence: the steps after it follow it. So a
// file may contain several sequences in parallel.
//
// For the next step, a background step has "ended" as soon as it has started, and a capture or a
// link change as soon as it is in force. The timeline itself ends when every step has ended,
// including background workloads and the undoing of link changes with "for". It then ends the
// background commands that still run, which is no failure: they are the servers of a scenario. It also
// ends the repetitions of steps with "every", and does not start steps whose event did not happen.
type timeline struct {
	steps   []step
	file    *spec.Testbed
	session *session
	// changed is called for each step that started or ended, by one goroutine at a time.
	changed func(index int, step report.Step)

	clock *clock.Clock // its epoch is the start of the first step
	fail  context.CancelCauseFunc
	// sequences are the steps' own goroutines. lasting are the goroutines that last longer than a
	// step of a sequence: background workloads, and link changes that are to be undone. waiting are the
	// sequences that wait for an event or for other steps.
	sequences, lasting, waiting sync.WaitGroup
	turns                       turns
	// background are background commands and repeated steps. Their context ends with the run.
	background    sync.WaitGroup
	backgroundCtx context.Context

	mu      sync.Mutex
	records []report.Step
}

// newTimeline makes a timeline of a file's steps, which act on a session.
func newTimeline(file *spec.Testbed, steps []step, s *session, changed func(int, report.Step)) *timeline {
	t := &timeline{steps: steps, file: file, session: s, changed: changed, records: records(file, steps)}
	s.ended = map[string]chan struct{}{}
	for i := range file.Steps {
		if name := file.Steps[i].Traits().Name; name != "" {
			s.ended[name] = make(chan struct{})
		}
	}
	return t
}

// records returns the records of steps that have not run.
func records(file *spec.Testbed, steps []step) (all []report.Step) {
	for i, s := range steps {
		all = append(all, report.Step{
			Name: title(s), Where: file.Source.Pos(fmt.Sprintf("steps[%d]", i)).String(),
			State: report.Skipped, Background: s.frame().Background, Called: called(&file.Steps[i]),
		})
	}
	return all
}

// called returns the name of a step, or of its fault.
func called(s *spec.Step) string {
	if s.Fault != nil {
		return s.Fault.Name
	}
	return s.Traits().Name
}

// run runs the steps to their end. Its error is the first failure, a *stepError, or the cause of
// ctx's end. When it returns, no goroutine of the timeline runs any more.
func (t *timeline) run(ctx context.Context) error {
	ctx, t.fail = context.WithCancelCause(ctx)
	defer t.fail(nil)
	backgroundCtx, endBackground := context.WithCancelCause(ctx)
	defer endBackground(nil)
	t.backgroundCtx = backgroundCtx
	waitCtx, endWaits := context.WithCancel(ctx)
	defer endWaits()
	t.turns = turns{active: 1, quiet: endWaits}
	events, err := t.events(waitCtx)
	if err != nil {
		return err
	}
	t.clock = clock.New(t.file.Dilation)
	for _, sequence := range sequences(t.file.Steps) {
		first := sequence[0]
		if t.file.Steps[first].Waits() {
			waiter := t.waits(first, events[first])
			t.waiting.Go(func() {
				if t.await(waitCtx, waiter) {
					defer t.leave()
					t.runSequence(ctx, sequence)
				}
			})
			continue
		}
		t.enter()
		t.sequences.Go(func() {
			defer t.leave()
			t.runSequence(ctx, sequence)
		})
	}
	t.leave()
	t.sequences.Wait()
	t.waiting.Wait()
	t.lasting.Wait()
	endBackground(errRunEnded)
	t.background.Wait()
	return context.Cause(ctx)
}

// events starts to watch for the events with which steps start, by the steps' indices.
func (t *timeline) events(ctx context.Context) (map[int]<-chan struct{}, error) {
	all := map[int]<-chan struct{}{}
	for i := range t.file.Steps {
		if event := t.file.Steps[i].When; event != "" {
			happened, err := t.session.watch(ctx, event)
			if err != nil {
				return nil, &stepError{index: i, err: err}
			}
			all[i] = happened
		}
	}
	return all, nil
}

// last runs a goroutine that may last longer than its sequence.
func (t *timeline) last(do func()) {
	t.enter()
	t.lasting.Go(func() {
		defer t.leave()
		do()
	})
}

// sequences splits the indices of steps before each step that begins a sequence.
func sequences(steps []spec.Step) [][]int {
	var found [][]int
	for i, step := range steps {
		if i == 0 || step.Begins() {
			found = append(found, nil)
		}
		last := &found[len(found)-1]
		*last = append(*last, i)
	}
	return found
}

func (t *timeline) runSequence(ctx context.Context, indices []int) {
	at := t.file.Steps[indices[0]].At
	if at != nil && !clock.Sleep(ctx, time.Until(t.clock.Real(clock.Time(*at)))) {
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
	switch f := t.steps[i].frame(); {
	case t.file.Steps[i].Every > 0:
		t.background.Go(func() { t.repeat(ctx, i) })
		return true
	case f.Serves:
		t.background.Go(func() { t.serve(ctx, i) })
		return true
	case f.Background:
		t.last(func() { t.complete(ctx, i) })
		return true
	}
	return t.complete(ctx, i)
}

// do does a step within its limit.
func (t *timeline) do(ctx context.Context, s step) error {
	began := time.Now()
	err := t.bounded(ctx, s.limit(clock.Dilation(t.clock.Dilation())), func(ctx context.Context) error {
		return s.do(ctx, t.session)
	})
	// A fault does not fail because of faults. Those in the session include itself.
	if _, fault := s.(*faultStep); err != nil && ctx.Err() == nil && !fault {
		return t.session.withFaults(err, began)
	}
	return err
}

// complete does a step, and undoes what is temporary later.
func (t *timeline) complete(ctx context.Context, i int) bool {
	began := t.now()
	err := t.attempts(ctx, i)
	effect, is := t.steps[i].(temporary)
	if is && err == nil {
		t.inForce(i, began, effect.lasts())
	}
	if err != nil || !is || effect.lasts() == 0 {
		return t.end(ctx, i, err)
	}
	t.last(func() {
		t.end(ctx, i, t.undo(ctx, i, effect, ctx))
	})
	return true
}

// inForce records that the change of a step is in force. The step began to make it at the given time. If it
// lasts for a time, it may end this time after that.
func (t *timeline) inForce(i int, began float64, lasts time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := report.Active{Begun: began, From: t.now()}
	if lasts > 0 {
		a.To = began + lasts.Seconds()
	}
	t.records[i].Active = append(t.records[i].Active, a)
}

// outOfForce records that the change of a step has been undone, from a time on.
func (t *timeline) outOfForce(i int, from float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.records[i].Active
	last := &all[len(all)-1]
	if last.Ended = t.now(); last.To == 0 || from < last.To {
		last.To = from
	}
}

// undo undoes the effect of a step after its time, or when the context ends ends. A run that ends early takes
// the testbed down, so there is nothing to undo.
func (t *timeline) undo(ctx context.Context, i int, effect temporary, ends context.Context) error {
	clock.Sleep(ends, t.clock.Wait(effect.lasts()))
	from := t.now()
	defer func() { t.outOfForce(i, from) }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := t.bounded(ctx, controlTimeout, effect.undo); err != nil {
		return fmt.Errorf("undo after %v: %w", units.Duration(effect.lasts()), err)
	}
	return nil
}

// serve does a step that ends with the run. ctx is the run's.
func (t *timeline) serve(ctx context.Context, i int) {
	err := t.do(t.backgroundCtx, t.steps[i])
	if errors.Is(err, errRunEnded) && !errors.As(err, new(*stoppedError)) {
		err = nil
	}
	t.end(ctx, i, err)
}

// errLate ends a step that takes longer than its limit.
var errLate = errors.New("not done within its limit")

// bounded calls do with a time limit; zero means no limit.
func (t *timeline) bounded(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	if limit == 0 {
		return do(ctx)
	}
	late := fmt.Errorf("%w of %v", errLate, limit)
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
	if closeErr := t.session.closeLogs(i); err == nil {
		err = closeErr
	}
	state, text := report.Passed, ""
	failed := err != nil && !errors.Is(err, errLate) && !errors.Is(err, verdict.ErrUnsupported) &&
		!errors.As(err, new(*missingError))
	switch fails := t.file.Steps[i].Fails; {
	case err == nil && fails:
		err = errors.New("it passed; with fails: true it has to fail")
		state, text = report.Failed, err.Error()
	case err == nil:
	case fails && failed && ctx.Err() == nil:
		text = err.Error()
	case ctx.Err() != nil:
		state = report.Cancelled
	default:
		state, text = report.Failed, err.Error()
	}
	t.update(i, func(s *report.Step) {
		s.State, s.Error, s.End = state, text, t.now()
		s.Late = state == report.Failed && errors.Is(err, errLate)
	})
	if state == report.Failed {
		t.fail(&stepError{index: i, err: err})
	}
	if name := t.steps[i].frame().Name; name != "" && state == report.Passed {
		close(t.session.ended[name])
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

// waitStep waits for background steps.
type waitStep struct {
	stepFrame
	names []string
}

var _ = makes((*preparation).wait)

func (p *preparation) wait(f stepFrame, names spec.Wait) step {
	for _, name := range names {
		maps.DeleteFunc(p.taken, func(_ int, job string) bool { return job == name })
	}
	return &waitStep{f, names}
}

func (w *waitStep) object() string { return strings.Join(w.names, " ") }

func (w *waitStep) do(ctx context.Context, s *session) error {
	for _, name := range w.names {
		select {
		case <-s.ended[name]:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// sleepStep waits for time to pass.
type sleepStep struct {
	stepFrame
	time units.Duration
}

var _ = makes(func(_ *preparation, f stepFrame, t spec.Sleep) step {
	return &sleepStep{f, units.Duration(t)}
})

func (p *sleepStep) object() string { return p.time.String() }

func (p *sleepStep) do(ctx context.Context, s *session) error {
	if !clock.Sleep(ctx, s.dilation().Wait(time.Duration(p.time))) {
		return context.Cause(ctx)
	}
	return nil
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
	case errors.As(err, new(*verdict.MistakeError)):
		return verdict.Fail
	case errors.As(err, &failed), errors.As(err, &ended), errors.As(err, &daemon):
		return verdict.Fail
	}
	return verdict.Aborted
}
