package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// reboot is a reboot of switches. It holds the links of the switches down, so that nodes lose their carrier
// as at a real switch.
type reboot struct {
	links []*planLink // of the kernel
	soft  []*planLink // of the soft switches
	end   *time.Timer
}

// isDown reports whether SetLinkState has taken the link down, or a reboot holds it down.
func (l *planLink) isDown() bool { return l.down || l.reboots > 0 }

// beginReboot takes the carrier of the NICs at the switches of a fault. Soft switches have lost their links
// already. They end the reboot by their own clock, and the carriers come back right after that.
func (f *Fabric) beginReboot(ctx context.Context, p *plan.Plan, of *spec.Fault) error {
	lasts := clock.Dilation(p.Dilation).Wait(time.Duration(of.For))
	began := time.Now()
	if err := f.endReboot(ctx, of.Name); err != nil { // its time is over, and it begins again
		return err
	}
	r := f.rebootAt(p.FaultPlaces(of))
	f.reboots[of.Name] = r
	if err := f.hold(ctx, r, 1); err != nil {
		return errors.Join(fmt.Errorf("take the carrier of nodes: %w", err), f.endReboot(ctx, of.Name))
	}
	r.end = time.AfterFunc(time.Until(began.Add(lasts)), func() { f.expireReboot(of.Name, r) })
	return nil
}

// rebootAt returns the reboot of the switches with the given ports.
func (f *Fabric) rebootAt(ports []plan.End) *reboot {
	at := func(l *planLink) bool { return slices.Contains(ports, l.A) || slices.Contains(ports, l.B) }
	if f.soft == nil {
		return &reboot{links: linksThat(f.links, at)}
	}
	r := &reboot{soft: linksThat(f.soft.links, at)}
	for _, l := range r.soft {
		if side := f.named[l.Name]; side != nil { // the others are between soft switches
			r.links = append(r.links, side)
		}
	}
	return r
}

func linksThat(all []*planLink, match func(*planLink) bool) (found []*planLink) {
	for _, l := range all {
		if match(l) {
			found = append(found, l)
		}
	}
	return found
}

// portsUp returns the ports as a reboot's places. It hits those whose link is up.
func (f *Fabric) portsUp(ports []plan.End) (places []softswitch.FaultPlaceState) {
	for _, end := range ports {
		at := softswitch.FaultPlaceState{Port: end.Name(), Matched: 1}
		if slices.ContainsFunc(f.links, func(l *planLink) bool {
			return (l.A == end || l.B == end) && !l.isDown()
		}) {
			at.Hit = 1
		}
		places = append(places, at)
	}
	return places
}

// expireReboot ends a reboot when its time is over. Verify reports the carriers that do not come back.
func (f *Fabric) expireReboot(name string, r *reboot) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.built && f.reboots[name] == r {
		_ = f.endReboot(context.Background(), name)
	}
}

// endReboot gives nodes their carrier back. A reboot that is over changes nothing.
func (f *Fabric) endReboot(ctx context.Context, name string) error {
	r := f.reboots[name]
	if r == nil {
		return nil
	}
	delete(f.reboots, name)
	if r.end != nil {
		r.end.Stop()
	}
	return f.hold(ctx, r, -1)
}

// closeReboots stops the timers of reboots.
func (f *Fabric) closeReboots() {
	for _, r := range f.reboots {
		if r.end != nil {
			r.end.Stop()
		}
	}
	clear(f.reboots)
}

// hold adds to the number of reboots that hold each link down, and lets the kernel follow.
func (f *Fabric) hold(ctx context.Context, r *reboot, more int) error {
	var errs []error
	for _, l := range r.soft {
		was := l.isDown()
		l.reboots += more
		if l.isDown() != was {
			errs = append(errs, f.setForeignCarriers(ctx, l))
		}
	}
	for _, l := range r.links {
		l.reboots += more
	}
	return errors.Join(append(errs, f.applyStates(ctx, r.links))...)
}
