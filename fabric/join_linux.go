package fabric

import (
	"context"
	"errors"
	"fmt"

	softports "railbed/fabric/port"
	"railbed/plan"
)

// Present sets the attachment's link to the link's current state.
func (f *Fabric) Present(a *Attachment) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.soft == nil {
		return
	}
	if l := f.soft.named[a.Link.Name]; l != nil {
		a.Link.AToB, a.Link.BToA, a.Down = l.AToB, l.BToA, l.isDown()
	}
}

// Join makes the soft switches use a NIC in a namespace that another program owns, by the ForeignNIC to
// it, instead of the interface that Build created for it. Join consumes the ForeignNIC, even if it fails.
func (f *Fabric) Join(ctx context.Context, end plan.End, n *ForeignNIC) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if err := f.join(ctx, end, n); err != nil {
		return errors.Join(fmt.Errorf("attach %s:%s: %w", end.Node, end.Port, err), n.Close())
	}
	return nil
}

func (f *Fabric) join(ctx context.Context, end plan.End, n *ForeignNIC) error {
	l, _, err := f.nicOf(end)
	if err != nil {
		return err
	}
	if d := n.port.Description; d.MTU != l.MTU || d.Driver == softports.Tap {
		return fmt.Errorf("port has driver %q and mtu %d, want the far end of a veth and mtu %d", d.Driver,
			d.MTU, l.MTU)
	}
	// The link may have changed while the NIC was created.
	want := f.shaping(l, l.A == end)
	was := want
	was.Direction = n.inside.Sends
	if err := n.reshape(end, want, was); err != nil {
		return err
	}
	if f.soft.named[l.Name].isDown() {
		if err := n.setCarrier(ctx, end, false); err != nil {
			return err
		}
	}
	n.port.Description.Name, n.port.Description.Reason = end.Node+":"+end.Port, ""
	port, monitor := n.port, n.monitor
	n.port, n.monitor = nil, nil
	if err := f.soft.process.ForeignPort(end, port); err != nil {
		if monitor != nil {
			err = errors.Join(err, monitor.Close())
		}
		return err
	}
	f.soft.foreign[end] = n
	if monitor == nil {
		return nil
	}
	n.watched = true
	return f.soft.process.Watch(end, n.inside.Index, monitor)
}

// Leave undoes Join.
func (f *Fabric) Leave(end plan.End) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	l, far, err := f.nicOf(end)
	if err != nil || f.soft.foreign[end] == nil {
		return err
	}
	nic := f.soft.foreign[end]
	err = f.unwatch(end, nic)
	if f.soft.nics > mostOwnPorts {
		err = errors.Join(err, f.soft.process.JoinTrunk(end))
	} else {
		h, openErr := f.openFar(end, far, l.MTU)
		if err = errors.Join(err, openErr); openErr == nil {
			err = errors.Join(err, f.soft.process.ReplacePort(end, h))
		}
	}
	delete(f.soft.foreign, end)
	if err = errors.Join(err, nic.Close()); err != nil {
		return fmt.Errorf("detach %s:%s: %w", end.Node, end.Port, err)
	}
	return nil
}

// unwatch releases the namespace of a NIC, so that it can end.
func (f *Fabric) unwatch(end plan.End, nic *ForeignNIC) error {
	if !nic.watched {
		return nil
	}
	nic.watched = false
	return f.soft.process.Unwatch(end)
}

// Gone returns the joined NICs that were deleted in their namespaces. A namespace without other
// users is released by the next call.
func (f *Fabric) Gone() ([]plan.End, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built || f.soft == nil || len(f.soft.foreign) == 0 {
		return nil, nil
	}
	var errs []error
	for end, nic := range f.soft.foreign {
		if nic.watched && !nic.home.alive() {
			errs = append(errs, f.unwatch(end, nic))
		}
	}
	gone, err := f.soft.process.ForeignGone()
	return gone, errors.Join(append(errs, err)...)
}

// nicOf returns the kernel's link of a NIC at soft switches, and the name of its far end.
func (f *Fabric) nicOf(end plan.End) (l *planLink, far string, err error) {
	if f.built && f.soft != nil {
		for _, l := range f.links {
			switch {
			case l.A.Node == SoftSide && l.B == end:
				return l, l.A.Port, nil
			case l.B.Node == SoftSide && l.A == end:
				return l, l.B.Port, nil
			}
		}
	}
	return nil, "", fmt.Errorf("no NIC %s:%s at soft switches", end.Node, end.Port)
}
