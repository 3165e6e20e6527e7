package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/bpf"
	"railbed/fabric/softswitch"
	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/plan/spec"
)

// kernelFault is a fault at ports of kernel links and switches.
type kernelFault struct {
	spec.Fault
	until  uint64      // on the kernel's monotonic clock in nanoseconds, 0 without an end
	end    *time.Timer // which takes the fault out of the programs, nil without an end
	places []faultPlace
	took   []softswitch.FaultPlaceState // the ports of a reboot
	// earlier are its counts when it was in force before.
	earlier softswitch.FaultState
}

// faultPlace is a kernelFault at a port.
type faultPlace struct {
	link *planLink
	atA  bool
	port string // NODE:PORT
	*bpf.Loaded
}

// harmedEnd has the faults at the end of a link that sends, in the order in which they began.
type harmedEnd struct {
	// ready is set if the end has the discipline for programs. It keeps the discipline, because the kernel
	// empties the queue when it changes.
	ready   bool
	faults  []*bpf.Loaded
	program *bpf.Program // nil without faults
}

func (l *planLink) harmed(atA bool) *harmedEnd {
	if atA {
		return &l.harmedA
	}
	return &l.harmedB
}

// monotonic returns the time of the clock that programs read.
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// addKernelFault compiles, loads and attaches the programs of a fault. If one of them fails, the ports have
// the programs that they had before. A reboot needs no programs.
func (f *Fabric) addKernelFault(ctx context.Context, p *plan.Plan, of *spec.Fault) error {
	made := &kernelFault{Fault: *of}
	if at := slices.IndexFunc(f.faults, func(one *kernelFault) bool { return one.Name == of.Name }); at >= 0 {
		earlier, err := f.faults[at].state()
		if err != nil {
			return err
		}
		if err := earlier.MayRepeat(of); err != nil {
			return err
		}
		if _, err := f.clearKernelFaults([]string{of.Name}); err != nil { // it begins again
			return err
		}
		made.earlier = earlier
	}
	lasts := clock.Dilation(p.Dilation).Wait(time.Duration(of.For))
	if of.For > 0 {
		now, err := monotonic()
		if err != nil {
			return err
		}
		made.until = now + uint64(lasts)
	}
	if of.Reboot {
		made.took = f.portsUp(p.FaultPlaces(of))
		if err := f.beginReboot(ctx, p, of); err != nil {
			return err
		}
	} else if err := f.harm(made, p); err != nil {
		return errors.Join(err, f.heal(made), f.free(made))
	}
	f.faults = append(f.faults, made)
	if of.For > 0 {
		made.end = time.AfterFunc(lasts, func() { f.expire(made) })
	}
	return nil
}

// harm puts the fault into the programs of its ports.
func (f *Fabric) harm(of *kernelFault, p *plan.Plan) error {
	for _, end := range p.FaultPlaces(&of.Fault) {
		compiled, err := bpf.New(p, &of.Fault, end, of.until)
		if err != nil {
			return err
		}
		loaded, err := f.hits.load(compiled, end)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(f.links, func(l *planLink) bool { return l.A == end || l.B == end })
		at := faultPlace{f.links[i], f.links[i].A == end, end.Name(), loaded}
		of.places = append(of.places, at)
		if err := f.setFaults(at, append(slices.Clone(at.link.harmed(at.atA).faults), loaded)); err != nil {
			return fmt.Errorf("at %s: %w", at.port, err)
		}
	}
	return nil
}

// heal takes the fault out of the programs of its ports.
func (f *Fabric) heal(of *kernelFault) error {
	var errs []error
	for _, at := range of.places {
		left := slices.DeleteFunc(slices.Clone(at.link.harmed(at.atA).faults), func(one *bpf.Loaded) bool {
			return one == at.Loaded
		})
		if len(left) == len(at.link.harmed(at.atA).faults) {
			continue
		}
		if err := f.setFaults(at, left); err != nil {
			errs = append(errs, fmt.Errorf("at %s: %w", at.port, err))
		}
	}
	return errors.Join(errs...)
}

// setFaults replaces the program of a port by one with these faults, or removes it if there are none.
func (f *Fabric) setFaults(at faultPlace, faults []*bpf.Loaded) error {
	var program *bpf.Program
	if len(faults) > 0 {
		var err error
		if program, err = bpf.NewProgram(faults, f.hits.reports); err != nil {
			return err
		}
	}
	harmed := at.link.harmed(at.atA)
	err := f.makeReady(at)
	if err == nil {
		h, p := at.link.end(at.atA)
		err = f.attach(h, p, program)
	}
	if err != nil {
		return errors.Join(err, (&harmedEnd{program: program}).close())
	}
	err = harmed.close()
	harmed.faults, harmed.program = faults, program
	return err
}

// makeReady prepares a port for programs. Build has prepared the ports of the file's faults.
func (f *Fabric) makeReady(at faultPlace) error {
	harmed, was := at.link.harmed(at.atA), f.shaping(at.link, at.atA)
	if harmed.ready {
		return nil
	}
	h, p := at.link.end(at.atA)
	batch := kernel.NewBatch(h.name, f.options.Trace)
	if !h.guest { // a guest's port has the discipline, for the frames that it passes on
		batch.AddClsact(p.Name, p.index)
	}
	if err := doIn(h, batch); err != nil {
		return err
	}
	harmed.ready = true
	return f.reshape(at.link, at.atA, was)
}

// attach attaches a program to a port, or detaches the port's program if there is none.
func (f *Fabric) attach(h *host, p port, program *bpf.Program) error {
	line := kernel.UnprogramLine(h.name, p.Name)
	if program != nil {
		line = kernel.ProgramLine(h.name, p.Name, program.ID())
	}
	if f.options.Trace != nil {
		f.options.Trace(line)
	}
	if program == nil {
		return kernel.DetachProgram(h.ns, p.index)
	}
	return kernel.AttachProgram(h.ns, p.index, program.FD(), program.ID())
}

// reattach prepares an end of a link that has lost its discipline for programs, and attaches its program.
func (f *Fabric) reattach(l *planLink, atA bool) error {
	h, p := l.end(atA)
	batch := kernel.NewBatch(h.name, f.options.Trace)
	batch.AddClsact(p.Name, p.index)
	err := doIn(h, batch)
	if program := l.harmed(atA).program; err == nil && program != nil {
		err = f.attach(h, p, program)
	}
	return err
}

func (e *harmedEnd) close() error {
	if e.program == nil {
		return nil
	}
	return e.program.Close()
}

// expire takes a fault out of the programs when its time has ended. The programs have ended it themselves, to
// the nanosecond, so that a failure changes nothing.
func (f *Fabric) expire(of *kernelFault) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.built && slices.Contains(f.faults, of) {
		_ = f.heal(of)
	}
}

func (f *Fabric) clearKernelFaults(names []string) (ended []softswitch.FaultState, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(f.faults, func(one *kernelFault) bool { return one.Name == name }) {
			return nil, fmt.Errorf("clear fault %s: no fault of this name is in force", name)
		}
	}
	for _, one := range slices.Clone(f.faults) {
		if len(names) > 0 && !slices.Contains(names, one.Name) {
			continue
		}
		if err := errors.Join(f.heal(one), f.endReboot(context.Background(), one.Name)); err != nil {
			return ended, fmt.Errorf("clear fault %s: %w", one.Name, err)
		}
		state, err := one.state() // nothing changes it any more
		if err != nil {
			return ended, err
		}
		ended = append(ended, state)
		f.faults = slices.DeleteFunc(f.faults, func(of *kernelFault) bool { return of == one })
		if err := f.free(one); err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// free frees the counters and the timer of a fault.
func (f *Fabric) free(k *kernelFault) error {
	if k.end != nil {
		k.end.Stop()
	}
	var errs []error
	for _, at := range k.places {
		errs = append(errs, f.hits.free(at.Loaded))
	}
	return errors.Join(errs...)
}

// closeFaults frees what faults have besides the links, which the kernel takes their programs with.
func (f *Fabric) closeFaults() {
	for _, one := range f.faults {
		for _, at := range one.places {
			_ = at.link.harmed(at.atA).close() // of descriptors that nothing uses any more
			*at.link.harmed(at.atA) = harmedEnd{}
		}
		_ = f.free(one)
	}
	f.faults = nil
	_ = f.hits.close()
}

func (k *kernelFault) state() (softswitch.FaultState, error) {
	s := k.earlier
	s.Fault, s.Over, s.Places = k.Fault, false, append([]softswitch.FaultPlaceState{}, s.Places...)
	if k.until > 0 {
		now, err := monotonic()
		if err != nil {
			return s, err
		}
		s.Over = now >= k.until
	}
	for _, at := range k.took {
		s.Add(at)
	}
	for _, at := range k.places {
		counts, err := at.Counts()
		if err != nil {
			return s, err
		}
		s.Add(softswitch.FaultPlaceState{Port: at.port, Matched: counts.Matched, Hit: counts.Hit})
		s.Joined, s.Refused = s.Joined+counts.Joined, s.Refused+counts.Refused
	}
	return s, nil
}
