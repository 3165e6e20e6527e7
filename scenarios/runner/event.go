package runner

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"railbed/capture/keep"
	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/testbed/supervisor"
)

// eventSnapLen is how much of each packet the filters of events see.
const eventSnapLen = 576

// event checks the event with which a step starts.
func (p *preparation) event(index int) {
	if when := p.o.File.Steps[index].When; when != "" {
		_, err := keep.ParseTrigger(when)
		p.wrong(ErrWord, fmt.Sprintf("steps[%d].when", index), err)
	}
}

// watch looks at all taps until an event happens, which closes the channel, or ctx ends.
func (s *session) watch(ctx context.Context, event string) (<-chan struct{}, error) {
	trigger, err := keep.ParseTriggers([]string{event})
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(ctx)
	happened := make(chan struct{})
	in, out := io.Pipe()
	o := keep.Options{LastBytes: 1, Start: trigger.Dilated(time.Duration(max(s.plan.Dilation, 1))),
		Began:    func() { close(happened); end() },
		Counters: func(series string) (float64, error) { return s.testbed.Counter(life, series) }}
	go func() {
		_, err := keep.Copy(in, func(int) (io.WriteCloser, error) { return discarded{io.Discard}, nil }, o)
		in.CloseWithError(err)
	}()
	started, err := s.testbed.Capture(life, supervisor.CaptureRequest{At: []string{"all"},
		SnapLen: eventSnapLen}, out)
	if err != nil {
		end()
		out.CloseWithError(err)
		return nil, fmt.Errorf("watch for %s: %w", event, err)
	}
	go func() {
		<-started.Done()
		out.Close()
		end()
	}()
	return happened, nil
}

// idle returns a reason for INCONCLUSIVE if a fault hit nothing, a change of links met nothing, or a step
// waited for an event that did not happen. Otherwise it returns "".
func (r *run) idle() string {
	for i, step := range r.report.Steps {
		if of := &r.File.Steps[i]; of.When != "" && step.State == report.Skipped {
			return fmt.Sprintf("%s: step %s waited for an event that did not happen: %s", step.Where,
				step.Name, of.When)
		}
	}
	return cmp.Or(r.idleFault(), r.idleLink())
}

// discarded is the file of a recording that is not kept.
type discarded struct{ io.Writer }

// Close implements io.Closer.
func (discarded) Close() error { return nil }

// turns counts what may still start steps. A run without any of it ends. The timeline's mutex protects it.
type turns struct {
	active  int
	quiet   func() // ends what waits for events
	over    bool
	waiting []*waiter
}

// waiter is a sequence that waits for an event or for steps: until all channels are closed.
type waiter struct {
	channels []<-chan struct{}
	started  bool
}

func (w *waiter) ready() bool {
	for _, one := range w.channels {
		select {
		case <-one:
		default:
			return false
		}
	}
	return !w.started
}

// enter counts one more.
func (t *timeline) enter() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns.active++
}

func (t *timeline) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turns.active--; t.turns.active == 0 && !slices.ContainsFunc(t.turns.waiting, (*waiter).ready) {
		t.turns.over = true
		t.turns.quiet()
	}
}

// waits adds a sequence that waits for the event or the steps of its first step.
func (t *timeline) waits(i int, event <-chan struct{}) *waiter {
	w := new(waiter)
	if event != nil {
		w.channels = append(w.channels, event)
	}
	for _, name := range t.file.Steps[i].After {
		w.channels = append(w.channels, t.session.ended[name])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns.waiting = append(t.turns.waiting, w)
	return w
}

// await waits until the sequence starts, which then counts. It reports whether the sequence starts.
func (t *timeline) await(ctx context.Context, w *waiter) bool {
	for _, one := range w.channels {
		select {
		case <-one:
		case <-ctx.Done():
			return false
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turns.over {
		return false
	}
	w.started = true
	t.turns.active++
	return true
}

// repeat does a step again and again. Its context ends when all steps without every have ended.
func (t *timeline) repeat(ctx context.Context, i int) {
	step := &t.file.Steps[i]
	began := t.clock.Now()
	var err error
	for n := 1; ; n++ {
		if err = t.once(ctx, i); err != nil {
			break
		}
		t.update(i, func(s *report.Step) { s.Times = n })
		next := began.Add(time.Duration(step.Every) * time.Duration(n))
		if n == step.Times || step.Until > 0 && next.Sub(0) > time.Duration(step.Until) ||
			!clock.Sleep(t.backgroundCtx, time.Until(t.clock.Real(next))) {
			break
		}
	}
	t.end(ctx, i, err)
}

// once does a step, and undoes its effect after its time, or when the run ends.
func (t *timeline) once(ctx context.Context, i int) error {
	began := t.now()
	err := t.attempts(ctx, i)
	if effect, is := t.steps[i].(temporary); is && err == nil {
		t.inForce(i, began, effect.lasts())
		err = t.undo(ctx, i, effect, t.backgroundCtx)
	}
	return err
}

// attempts does a step, and repeats it as often as its retry allows while it fails.
func (t *timeline) attempts(ctx context.Context, i int) error {
	retry := t.file.Steps[i].Retry
	for n := 1; ; n++ {
		err := t.do(ctx, t.steps[i])
		if retry == nil || ctx.Err() != nil {
			return err
		}
		t.update(i, func(s *report.Step) { s.Times = n })
		if err == nil {
			return nil
		}
		if n > retry.Times {
			return fmt.Errorf("after %d attempts: %w", n, err)
		}
		if !clock.Sleep(ctx, t.clock.Wait(time.Duration(retry.Every))) {
			return context.Cause(ctx)
		}
	}
}
