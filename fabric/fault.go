package fabric

import (
	"context"
	"errors"
	"fmt"

	"railbed/fabric/softswitch"
	"railbed/plan"
	"railbed/plan/spec"
)

// AddFault begins a fault at the ports that it names. Soft switches and emulated NICs make faults themselves.
// At kernel links and switches eBPF programs do, except for reboots. There the error is a
// *verdict.UnsupportedError if the kernel does not let this process load programs, and a *bpf.VerifierError
// if it refuses this one.
func (f *Fabric) AddFault(ctx context.Context, p *plan.Plan, of spec.Fault) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built {
		return fmt.Errorf("add fault %s: %w", of.Name, errClosed)
	}
	if f.soft != nil {
		return f.addSoftFault(ctx, p, of)
	}
	if err := f.addKernelFault(ctx, p, &of); err != nil {
		return fmt.Errorf("add fault %s: %w", of.Name, err)
	}
	return nil
}

func (f *Fabric) addSoftFault(ctx context.Context, p *plan.Plan, of spec.Fault) error {
	if err := f.soft.process.AddFault(of, p.FaultPlaces(&of)); err != nil || !of.Reboot {
		return err
	}
	if err := f.beginReboot(ctx, p, &of); err != nil {
		_, failed := f.soft.process.ClearFaults(of.Name)
		return errors.Join(fmt.Errorf("add fault %s: %w", of.Name, err), failed)
	}
	return nil
}

// ClearFaults ends faults by their names, or all without names, and returns what they did.
func (f *Fabric) ClearFaults(names ...string) ([]softswitch.FaultState, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	switch {
	case !f.built:
		return nil, fmt.Errorf("clear faults: %w", errClosed)
	case f.soft == nil:
		return f.clearKernelFaults(names)
	}
	ended, err := f.soft.process.ClearFaults(names...)
	for i := range ended {
		err = errors.Join(err, f.endReboot(context.Background(), ended[i].Name))
	}
	return ended, err
}

// errClosed is the error of changes after Close.
var errClosed = errors.New("the fabric is closed")

// KernelFaults returns the faults at kernel links and switches that were added and not cleared, in the order
// in which they began. The faults of soft switches are in their state.
func (f *Fabric) KernelFaults() ([]softswitch.FaultState, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	var all []softswitch.FaultState
	for _, one := range f.faults {
		state, err := one.state()
		if err != nil {
			return nil, err
		}
		all = append(all, state)
	}
	return all, nil
}
