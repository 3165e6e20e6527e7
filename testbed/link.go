package testbed

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"railbed/fabric"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// ChangeLink changes a link's state or settings during the run.
func (t *Testbed) ChangeLink(ctx context.Context, change supervisor.LinkRequest) error {
	return t.call(ctx, http.MethodPost, "/v1/link", change, nil)
}

// SetLink applies settings to the present settings of a link, or of one direction as in LinkRequest.Where.
// It does so separately in each direction, so directions that differ keep their differences in other
// settings. Settings that contradict each other are spec.Problems.
func (t *Testbed) SetLink(ctx context.Context, where string, sets ...spec.Direction) error {
	state, err := t.Inspect(ctx)
	if err != nil {
		return err
	}
	name, only, _ := strings.Cut(where, " ")
	i := slices.IndexFunc(state.Links, func(l fabric.LinkState) bool { return l.Name == name })
	if i < 0 {
		return fmt.Errorf("link %q: %w; railbed link show lists them", name, ErrNoSuchObject)
	}
	link := &state.Links[i]
	there, back := link.AToB.Change(link.MTU, sets...), link.BToA.Change(link.MTU, sets...)
	request := supervisor.LinkRequest{Where: where, Set: &there, Back: &back}
	switch only {
	case "a-to-b":
		request.Back = nil
	case "b-to-a":
		request.Set, request.Back = &back, nil
	}
	for _, wanted := range []*plan.Direction{request.Set, request.Back} {
		if wanted == nil {
			continue
		}
		if err := wanted.Check(link.MTU); err != nil {
			return fmt.Errorf("change %s: %w", where, err)
		}
	}
	if err := t.ChangeLink(ctx, request); err != nil {
		return fmt.Errorf("change %s: %w", where, err)
	}
	return nil
}
