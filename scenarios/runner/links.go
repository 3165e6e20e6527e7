package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// linkBook knows what the steps have made of the links. Each change is kept
// until it is undone, and the link is always what the plan says with all
// standing changes on top, newest last; so changes that overlap in time can be
// undone in any order.
type linkBook struct {
	plan   *plan.Plan
	change func(context.Context, supervisor.LinkRequest) error

	mu       sync.Mutex    // held while the link changes, so that order is kept
	standing []*linkChange // oldest first
}

// linkChange is a change in force.
type linkChange struct {
	*spec.LinkChange
	links []*plan.Link
	// direction is a-to-b, b-to-a or, for both, empty.
	direction string
}

func newLinkBook(p *plan.Plan, change func(context.Context, supervisor.LinkRequest) error) *linkBook {
	return &linkBook{plan: p, change: change}
}

// Words of a direction.
const (
	aToB = "a-to-b"
	bToA = "b-to-a"
)

// apply makes a change and returns how to undo it. One that fails in part is
// undone as far as it came.
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

// realise makes the links of a change what they now must be, in what the change
// touches.
func (b *linkBook) realise(ctx context.Context, touched *linkChange) error {
	var errs []error
	for _, link := range touched.links {
		if touched.State != "" {
			errs = append(errs, b.realiseState(ctx, touched, link))
			continue
		}
		request := supervisor.LinkRequest{Where: link.Name}
		if touched.direction == "" {
			there, back := b.settings(link, aToB), b.settings(link, bToA)
			request.Set, request.Back = &there, &back
		} else {
			d := b.settings(link, touched.direction)
			request.Where, request.Set = link.Name+" "+touched.direction, &d
		}
		errs = append(errs, b.change(ctx, request))
	}
	return errors.Join(errs...)
}

// realiseState takes a link, or one direction of it, up or down. A link that comes
// up as a whole is whole, so that directions that are to stay down are taken down
// again; and of one that is down as a whole no direction can come up, which only
// matters to a step that asks for just that.
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
	for _, direction := range []string{aToB, bToA} {
		if state.of(direction) == down {
			errs = append(errs, set(direction, down))
		}
	}
	return errors.Join(errs...)
}

// Words of a state.
const (
	up   = "up"
	down = "down"
)

// linkState is what standing changes make of a link: up or down as a whole, and
// each direction by itself.
type linkState struct{ whole, aToB, bToA string }

func (s *linkState) of(direction string) string {
	if direction == aToB {
		return s.aToB
	}
	return s.bToA
}

// state is up, unless a standing change says otherwise; the newest counts. One that
// brings the whole link up does so with its directions.
func (b *linkBook) state(link *plan.Link) linkState {
	state := linkState{up, up, up}
	for _, c := range b.standing {
		switch {
		case c.State == "" || !slices.Contains(c.links, link):
		case c.direction == aToB:
			state.aToB = c.State
		case c.direction == bToA:
			state.bToA = c.State
		case c.State == up:
			state = linkState{up, up, up}
		default:
			state.whole = c.State
		}
	}
	return state
}

// settings is the plan's direction with the standing changes on top.
func (b *linkBook) settings(link *plan.Link, direction string) plan.Direction {
	d := link.AToB
	if direction == bToA {
		d = link.BToA
	}
	for _, c := range b.standing {
		if c.Set != nil && slices.Contains(c.links, link) && (c.direction == "" || c.direction == direction) {
			d = d.Change(link.MTU, *c.Set)
		}
	}
	return d
}
