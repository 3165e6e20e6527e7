package testbed

import (
	"context"
	"net/http"

	"railbed/fabric/softswitch"
	"railbed/plan/spec"
	"railbed/testbed/supervisor"
)

// AddFault begins a fault. A fault of the same name must not be in force.
func (t *Testbed) AddFault(ctx context.Context, f spec.Fault) error {
	return t.call(ctx, http.MethodPost, "/v1/fault", supervisor.FaultRequest{Add: &f}, nil)
}

// ClearFaults ends faults by their names, or all without names, and returns what they did.
func (t *Testbed) ClearFaults(ctx context.Context, names ...string) ([]softswitch.FaultState, error) {
	var answer supervisor.FaultAnswer
	if names == nil {
		names = []string{}
	}
	err := t.call(ctx, http.MethodPost, "/v1/fault", supervisor.FaultRequest{Clear: &names}, &answer)
	return answer.Cleared, err
}

// Faults returns the faults in force, and those whose time has ended: first those of packets, then those of
// nodes.
func (t *Testbed) Faults(ctx context.Context) ([]softswitch.FaultState, error) {
	state, err := t.Inspect(ctx)
	switch {
	case err != nil:
		return nil, err
	case state.Soft != nil:
		return append(state.Soft.Faults, state.NodeFaults...), nil
	}
	return append(state.Faults, state.NodeFaults...), nil
}
