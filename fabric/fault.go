package fabric

import (
	"context"
	"errors"

	"railbed/fabric/softswitch"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// AddFault begins a fault at the ports that it names. Kernel switches have no faults: the error is a
// *verdict.UnsupportedError.
func (f *Fabric) AddFault(_ context.Context, p *plan.Plan, of spec.Fault) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if err := f.faults(); err != nil {
		return err
	}
	return f.soft.process.AddFault(of, p.FaultPlaces(&of))
}

// ClearFaults ends faults by their names, or all without names, and returns what they did.
func (f *Fabric) ClearFaults(names ...string) ([]softswitch.FaultState, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if err := f.faults(); err != nil {
		return nil, err
	}
	return f.soft.process.ClearFaults(names...)
}

// faults says why there can be no faults, or nil.
func (f *Fabric) faults() error {
	switch {
	case !f.built:
		return errors.New("add or clear a fault: the fabric is closed")
	case f.soft == nil:
		return &verdict.UnsupportedError{Feature: "faults", Reason: "the switches are the kernel's",
			Remedy: "take fabric: {switch: {kind: soft}}"}
	}
	return nil
}
