package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"railbed/fabric"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// ChangeLink changes a link's state or settings during the run.
func (t *Testbed) ChangeLink(ctx context.Context, change supervisor.LinkRequest) error {
	return t.call(ctx, http.MethodPost, "/v1/link", change, nil)
}

// LinksAt returns the links at a place as plan.Plan.LinksAt does. The error wraps ErrNoSuchObject.
func (t *Testbed) LinksAt(where string) ([]plan.LinkPlace, error) {
	places, err := t.plan.LinksAt(where)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSuchObject, err)
	}
	return places, nil
}

// SetLinkState takes the links at a place, as in plan.Plan.LinksAt, "up" or "down".
func (t *Testbed) SetLinkState(ctx context.Context, where, state string) error {
	places, err := t.LinksAt(where)
	errs := []error{err}
	for _, place := range places {
		errs = append(errs, t.ChangeLink(ctx, supervisor.LinkRequest{Where: place.Where(), State: state}))
	}
	return errors.Join(errs...)
}

// SetLink applies settings to the present settings of the links at a place, as in plan.Plan.LinksAt. It does
// so separately for each direction, so directions that differ keep their differences in other settings.
// Settings that contradict each other on one of the links are spec.Problems, and change no link. If the
// testbed refuses to change a link, the links before it get their earlier settings back.
func (t *Testbed) SetLink(ctx context.Context, where string, sets ...spec.Direction) error {
	places, err := t.LinksAt(where)
	if err != nil {
		return err
	}
	state, err := t.Inspect(ctx)
	if err != nil {
		return err
	}
	now := make(map[string]*fabric.LinkState, len(state.Links))
	for i := range state.Links {
		now[state.Links[i].Name] = &state.Links[i]
	}
	var change, undo []supervisor.LinkRequest
	for _, place := range places {
		link := now[place.Name]
		there, back := link.AToB.Change(link.MTU, sets...), link.BToA.Change(link.MTU, sets...)
		change = append(change, linkRequest(place, there, back))
		undo = append(undo, linkRequest(place, link.AToB.Direction, link.BToA.Direction))
		for _, wanted := range []*plan.Direction{change[len(change)-1].Set, change[len(change)-1].Back} {
			if wanted == nil {
				continue
			}
			if err := wanted.Check(link.MTU); err != nil {
				return ofPlace(place, err)
			}
		}
	}
	for i := range change {
		if err := t.ChangeLink(ctx, change[i]); err != nil {
			errs := []error{fmt.Errorf("change %s: %w", change[i].Where, err)}
			for _, earlier := range undo[:i] {
				errs = append(errs, t.ChangeLink(context.WithoutCancel(ctx), earlier))
			}
			return errors.Join(errs...)
		}
	}
	return nil
}

// ofPlace puts the place before each of the problems.
func ofPlace(place plan.LinkPlace, err error) error {
	problems, ok := errors.AsType[spec.Problems](err)
	if !ok {
		return err
	}
	for i := range problems {
		problems[i].What = place.Where() + ": " + problems[i].What
	}
	return problems
}

// linkRequest returns the request that gives a link the settings of the directions a-to-b and b-to-a, or of
// the one direction of the place.
func linkRequest(place plan.LinkPlace, there, back plan.Direction) supervisor.LinkRequest {
	request := supervisor.LinkRequest{Where: place.Where(), Set: &there, Back: &back}
	switch place.Direction {
	case plan.AToB:
		request.Back = nil
	case plan.BToA:
		request.Set, request.Back = &back, nil
	}
	return request
}
