package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// linkBook records the changes that steps have made to the links. It keeps each change until the
// change is undone. The state of a link is always the plan's, with all changes in force applied on
// top, the newest last. So changes that overlap in time can be undone in any order.
type linkBook struct {
	plan   *plan.Plan
	change func(context.Context, supervisor.LinkRequest) error

	mu       sync.Mutex    // held while a link changes, to keep the order
	standing []*linkChange // oldest first
}

// linkChange is a change in force.
type linkChange struct {
	*spec.LinkChange
	links []*plan.Link
	// direction is a-to-b, b-to-a, or empty for both.
	direction string
}

func newLinkBook(p *plan.Plan, change func(context.Context, supervisor.LinkRequest) error) *linkBook {
	return &linkBook{plan: p, change: change}
}

// apply makes a change and returns a function that undoes it. If the change fails in part, apply
// undoes the part that was made.
func (b *linkBook) apply(ctx context.Context, l *spec.LinkChange) (undo func(context.Context) error,
	err error) {
	name, direction := l.Target()
	change := &linkChange{LinkChange: l, direction: direction}
	for i := range b.plan.Links {
		if spec.Match(name, b.plan.Links[i].Name) {
			change.links = append(change.links, &b.plan.Links[i])
		}
	}
	if len(change.links) == 0 {
		return nil, fmt.Errorf("change link %q: no such link in the plan", name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.standing = append(b.standing, change)
	if err := b.realise(ctx, change); err != nil {
		b.forget(change)
		return nil, errors.Join(err, b.realise(ctx, change))
	}
	return func(ctx context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.forget(change)
		return b.realise(ctx, change)
	}, nil
}

func (b *linkBook) forget(change *linkChange) {
	b.standing = slices.DeleteFunc(b.standing, func(c *linkChange) bool { return c == change })
}

// realise gives the links of a change the state that follows from the changes in force, as far as
// the change touches that state.
func (b *linkBook) realise(ctx context.Context, touched *linkChange) error {
	var errs []error
	for _, link := range touched.links {
		if touched.State != "" {
			errs = append(errs, b.realiseState(ctx, touched, link))
			continue
		}
		request := supervisor.LinkRequest{Where: link.Name}
		if touched.direction == "" {
			there, back := b.settings(link, plan.AToB), b.settings(link, plan.BToA)
			request.Set, request.Back = &there, &back
		} else {
			d := b.settings(link, touched.direction)
			request.Where, request.Set = link.Name+" "+touched.direction, &d
		}
		errs = append(errs, b.change(ctx, request))
	}
	return errors.Join(errs...)
}

// realiseState brings a link, or one direction of it, up or down. Bringing a whole link up brings
// up both directions, so realiseState then takes down the directions that are to stay down. While
// the whole link is down, no direction can come up. That matters only to a step that asks for one
// direction.
func (b *linkBook) realiseState(ctx context.Context, touched *linkChange, link *plan.Link) error {
	state := b.state(link)
	set := func(direction, word string) error {
		return b.change(ctx, supervisor.LinkRequest{Where: strings.TrimSpace(link.Name + " " + direction),
			State: word})
	}
	if direction := touched.direction; direction != "" {
		word := state.of(direction)
		if word == up && state.whole == down && !slices.Contains(b.standing, touched) {
			return nil
		}
		return set(direction, word)
	}
	if err := set("", state.whole); err != nil || state.whole == down {
		return err
	}
	var errs []error
	for _, direction := range []string{plan.AToB, plan.BToA} {
		if state.of(direction) == down {
			errs = append(errs, set(direction, down))
		}
	}
	return errors.Join(errs...)
}

// The names of the states.
const (
	up   = "up"
	down = "down"
)

// linkState is the state of a link with the changes in force: of the link as a whole, and of each
// direction alone.
type linkState struct{ whole, aToB, bToA string }

func (s *linkState) of(direction string) string {
	if direction == plan.AToB {
		return s.aToB
	}
	return s.bToA
}

// state returns the state of a link: up, unless a change in force says otherwise. The newest change
// wins. A change that brings the whole link up also brings up both directions.
func (b *linkBook) state(link *plan.Link) linkState {
	state := linkState{up, up, up}
	for _, c := range b.standing {
		switch {
		case c.State == "" || !slices.Contains(c.links, link):
		case c.direction == plan.AToB:
			state.aToB = c.State
		case c.direction == plan.BToA:
			state.bToA = c.State
		case c.State == up:
			state = linkState{up, up, up}
		default:
			state.whole = c.State
		}
	}
	return state
}

// settings returns the plan's settings of a direction with the changes in force on top.
func (b *linkBook) settings(link *plan.Link, direction string) plan.Direction {
	d := link.AToB
	if direction == plan.BToA {
		d = link.BToA
	}
	for _, c := range b.standing {
		if c.Set != nil && slices.Contains(c.links, link) && (c.direction == "" || c.direction == direction) {
			d = d.Change(link.MTU, *c.Set)
		}
	}
	return d
}

// linkStep changes a link while it runs.
type linkStep struct {
	stepFrame
	spec    *spec.LinkChange
	restore func(context.Context) error
	session *session
	meeting *linkMeeting // nil before the change, and for changes back to the plan
}

var _ = makes(func(_ *preparation, f stepFrame, a *spec.LinkChange) step {
	return &linkStep{stepFrame: f, spec: a}
})

func (l *linkStep) object() string { return l.spec.Where + " " + linkText(l.spec) }

func (l *linkStep) limit(clock.Dilation) time.Duration { return controlTimeout }

func (l *linkStep) do(ctx context.Context, s *session) (err error) {
	if l.restore, err = s.links.apply(ctx, l.spec); err == nil {
		l.begin(ctx, s)
	}
	return err
}

// lasts implements temporary.
func (l *linkStep) lasts() time.Duration { return time.Duration(l.spec.For) }

// undo implements temporary.
func (l *linkStep) undo(ctx context.Context) error {
	l.end(ctx) // before the packets pass again, and a queue that drops them goes with its counters
	if l.meeting != nil {
		l.meeting.ended = time.Now()
	}
	return l.restore(ctx)
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
