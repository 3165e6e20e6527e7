package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"railbed/testbed"
	"railbed/testbed/supervisor"
)

const (
	// period is the time between two requests for the state.
	period = time.Second
	// rest bounds the work of the supervisor of a large testbed. The time to the next request is at least so
	// many times as long as the last answer took.
	rest = 4
	// eventsKept is the number of events that a new page gets.
	eventsKept = 200
)

// watch follows a testbed for all pages. It requests the state once for all pages, and only while a page is
// open. Each change has a number, and a page gets the changes since its last number. A slow page therefore
// skips states, and needs no memory here.
type watch struct {
	testbed *testbed.Testbed
	wake    chan struct{} // has an element after a page was opened

	mu      sync.Mutex
	pages   int
	changed chan struct{} // closed at the next change
	change  uint64        // the number of the latest change
	summary part
	links   []part // in the plan's order
	events  []part // the latest
	missed  uint64 // the number of the latest event that is not kept
	ended   string // the reason of the end, or ""

	before *sample // of the last state, for rates
}

// part is JSON with the number of its latest change.
type part struct {
	change uint64
	json   json.RawMessage
}

// update is a message to a page.
type update struct {
	change  uint64
	Summary json.RawMessage   `json:"summary,omitempty"`
	Links   []json.RawMessage `json:"links,omitempty"`
	Events  []json.RawMessage `json:"events,omitempty"`
	// Missed reports whether there were events before Events that the page has not got.
	Missed bool   `json:"missed,omitempty"`
	Ended  string `json:"ended,omitempty"`
}

func newWatch(tb *testbed.Testbed) *watch {
	return &watch{testbed: tb, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// run follows the testbed until it or ctx ends. It returns an error if the testbed ended otherwise than by
// being taken down.
func (w *watch) run(ctx context.Context) error {
	following, end := context.WithCancel(ctx)
	defer end()
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		w.poll(following)
	}()
	err := w.follow(ctx)
	end()
	<-polled
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		w.ended = "railbed ui was stopped. The testbed goes on."
		err = nil
	case err != nil:
		err = fmt.Errorf("testbed %s ended without being taken down: %w", w.testbed.Name(), err)
		w.ended = err.Error()
	default:
		w.ended = "The testbed was taken down."
	}
	w.announceLocked()
	return err
}

// follow passes the testbed's events on until it or ctx ends. If it was too slow, it reads the kept events
// again, and passes on those that are new.
func (w *watch) follow(ctx context.Context) error {
	var last time.Time
	for {
		err := w.testbed.Events(ctx, true, func(e supervisor.Event) error {
			if e.Kind != supervisor.EventsLost && e.Time.After(last) {
				last = e.Time
				w.addEvent(e)
			}
			return nil
		})
		if !errors.Is(err, testbed.ErrEventsLost) {
			return err
		}
	}
}

func (w *watch) addEvent(e supervisor.Event) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // an event has texts and numbers
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change++
	if len(w.events) == eventsKept {
		w.missed = w.events[0].change
		w.events = w.events[1:]
	}
	w.events = append(w.events, part{w.change, text})
	w.announceLocked()
}

// poll requests the state while a page is open, until ctx ends.
func (w *watch) poll(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		idle := w.pages == 0
		w.mu.Unlock()
		var next <-chan time.Time
		wake := w.wake
		if !idle {
			wake = nil // however many pages open, there is one request in a period
			began := time.Now()
			state, err := w.testbed.Sample(ctx)
			if ctx.Err() == nil {
				w.setState(state, err, time.Now())
			}
			next = time.After(max(period, rest*time.Since(began)))
		}
		select {
		case <-ctx.Done():
		case <-next:
		case <-wake:
		}
	}
}

// setState takes over a state, or the error in place of one.
func (w *watch) setState(state *supervisor.State, failed error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.change
	if failed != nil {
		w.replaceLocked(&w.summary, summary{Name: w.testbed.Name(), Trouble: failed.Error()})
	} else {
		taken := newSample(state, now, w.testbed.Plan().Dilation)
		w.replaceLocked(&w.summary, newSummary(state, w.testbed.Plan()))
		if w.links == nil {
			w.links = make([]part, len(state.Links))
		}
		for i := range state.Links {
			w.replaceLocked(&w.links[i], taken.row(i, w.before))
		}
		w.before = taken
	}
	if w.change != was {
		w.announceLocked()
	}
}

// replaceLocked sets a part, and gives it a new number if it changed.
func (w *watch) replaceLocked(p *part, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // rows and summaries have texts and finite numbers
	}
	if !bytes.Equal(text, p.json) {
		w.change++
		*p = part{w.change, text}
	}
}

func (w *watch) announceLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// enter counts a page until leave.
func (w *watch) enter() (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages++
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.pages--
	}
}

// since returns what changed after a number, and a channel that is closed at the next change.
func (w *watch) since(change uint64) (update, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := update{change: w.change, Ended: w.ended, Missed: w.missed > change}
	if w.summary.change > change {
		u.Summary = w.summary.json
	}
	for _, p := range w.links {
		if p.change > change {
			u.Links = append(u.Links, p.json)
		}
	}
	for _, p := range w.events {
		if p.change > change {
			u.Events = append(u.Events, p.json)
		}
	}
	return u, w.changed
}
