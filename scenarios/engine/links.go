package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"railbed/testbed/plan"
	"railbed/testbed/spec"
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
func (b *linkBook) apply(ctx context.Context, l *spec.LinkChange) (undo func(context.Context) error, err error) {
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
			errs = append(errs, b.change(ctx, supervisor.LinkRequest{Where: link.Name, State: b.state(link)}))
			continue
		}
		for _, direction := range []string{aToB, bToA} {
			if touched.direction == "" || touched.direction == direction {
				d := b.settings(link, direction)
				errs = append(errs, b.change(ctx, supervisor.LinkRequest{Where: link.Name + " " + direction, Set: &d}))
			}
		}
	}
	return errors.Join(errs...)
}

// state is up, unless a standing change says otherwise; the newest counts.
func (b *linkBook) state(link *plan.Link) string {
	state := "up"
	for _, c := range b.standing {
		if c.State != "" && slices.Contains(c.links, link) {
			state = c.State
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
			d = d.With(*c.Set)
		}
	}
	return d
}
