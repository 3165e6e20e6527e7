package live

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/plan"
)

// trunk is the port of all NICs: its port i is NIC i.
type trunk struct {
	*port.Trunk
	from [batch]int // NICs of the frames received
}

// receiveTrunk receives frames from the trunk.
func (l *loop) receiveTrunk(events uint32) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		_ = l.trunk.Recover() // an interface went down; it may come up again by itself
	}
	for range rounds {
		for i := range l.frames {
			l.frames[i].Data = l.scratch[i].Data
		}
		count, err := l.trunk.Receive(l.frames[:], l.trunk.from[:])
		for i, number := range l.trunk.from[:count] {
			if l.nics[number].port == nil { // otherwise its interface is not in use
				l.handIn(number, i)
			}
		}
		if err != nil || count < batch {
			return
		}
	}
}

// portState reads the state of a NIC's port, by the NIC's number.
func (l *loop) portState(number int, s *NICState) (err error) {
	one := &l.nics[number]
	if one.port == nil {
		s.Port, s.Description = l.trunk.Stats(number), l.trunk.Description(number)
		return nil
	}
	s.Description = one.port.Description()
	if s.Port, err = one.port.Stats(); errors.Is(err, port.ErrGone) {
		err = nil
	}
	return err
}

// replacePort is a request to use another port for a NIC. The port's descriptors come through the
// socket for descriptors. Without descriptors the NIC uses the trunk again.
type replacePort struct {
	End         plan.End         `json:"end"`
	Description port.Description `json:"description"`
	Files       int              `json:"files"`
	Foreign     bool             `json:"foreign,omitempty"`
}

// ReplacePort gives a NIC a new port after its interface was recreated. It consumes the handle,
// even if it fails.
func (s *Process) ReplacePort(end plan.End, h *port.Handle) error {
	return s.replacePort(replacePort{End: end, Description: h.Description}, h)
}

// ForeignPort gives a NIC a port in a namespace that another program owns. Arrivals there are not
// measured until Watch. It consumes the handle, even if it fails.
func (s *Process) ForeignPort(end plan.End, h *port.Handle) error {
	return s.replacePort(replacePort{End: end, Description: h.Description, Foreign: true}, h)
}

// JoinTrunk moves a NIC back to the trunk.
func (s *Process) JoinTrunk(end plan.End) error {
	return s.replacePort(replacePort{End: end}, &port.Handle{})
}

func (s *Process) replacePort(order replacePort, h *port.Handle) error {
	defer h.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	order.Files = len(h.Files)
	for _, file := range h.Files {
		if err := s.hand(file); err != nil {
			return fmt.Errorf("hand port %s:%s to the soft switches: %w", order.End.Node, order.End.Port, err)
		}
	}
	_, err := s.askLocked(request{ReplacePort: &order})
	return err
}

// ForeignGone returns the NICs whose ports in other namespaces have ended because their interfaces
// were deleted.
func (s *Process) ForeignGone() ([]plan.End, error) {
	a, err := s.ask(request{ForeignGone: true})
	return a.Gone, err
}

// watch is a request to measure arrivals at a NIC in a namespace of another program. The packet
// socket comes through the socket for descriptors and sees the interface Index. With index 0 it is
// a request to stop.
type watch struct {
	End   plan.End `json:"end"`
	Index int      `json:"index,omitempty"`
}

// Watch starts measuring arrivals at a NIC that has a ForeignPort, with a packet socket from
// OpenMonitor. It consumes the file, even if it fails. The packet socket keeps its namespace alive
// until Unwatch.
func (s *Process) Watch(end plan.End, index int, monitor *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sendNumbered(s.descriptors, 0, monitor); err != nil {
		return err
	}
	_, err := s.askLocked(request{Watch: &watch{End: end, Index: index}})
	return err
}

// Unwatch closes the packet socket that measures a NIC with a ForeignPort.
func (s *Process) Unwatch(end plan.End) error {
	_, err := s.ask(request{Watch: &watch{End: end}})
	return err
}

// watchForeign carries out a watch request.
func (l *loop) watchForeign(r *watch) error {
	at := l.find(r.End)
	if at < 0 || l.arrived == nil {
		err := fmt.Errorf("watch %s:%s: %w", r.End.Node, r.End.Port, os.ErrNotExist)
		if r.Index != 0 {
			err = discardDescriptor(err)
		}
		return err
	}
	if r.Index == 0 {
		l.do(func() { l.nics[at].watched = false })
		return l.arrived.monitorThreads.give(at)
	}
	err := l.arrived.monitorThreads.take(at, r.Index)
	l.do(func() { l.nics[at].watched = err == nil && l.nics[at].foreign })
	return err
}

// MeasureAgain measures arrivals at a node with another packet socket from OpenMonitor, after the node's
// namespace has become another one. Ports.Monitor has opened the first. It consumes the file, even if it
// fails.
func (s *Process) MeasureAgain(node int, monitor *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := sendNumbered(s.descriptors, node, monitor); err != nil {
		return err
	}
	_, err := s.askLocked(request{Measure: &node})
	return err
}

// foreignGone returns the NICs whose interfaces are gone. It checks by itself: if an interface goes
// down and is deleted, the kernel only reports the first of the two.
func (l *loop) foreignGone() (gone []plan.End) {
	l.do(func() {
		for i := range l.nics {
			one := &l.nics[i]
			if one.foreign && !one.gone && one.port.Recover() != nil {
				l.lose(one)
			}
			if one.foreign && one.gone {
				gone = append(gone, one.end)
			}
		}
	})
	return gone
}

// replace carries out a replacePort request.
func (l *loop) replace(r *replacePort) error {
	var fresh port.Port // nil means the trunk
	if r.Files > 0 {
		var err error
		if fresh, err = l.receivePort(r); err != nil {
			return err
		}
	}
	err := fmt.Errorf("replace port %s:%s: %w", r.End.Node, r.End.Port, os.ErrNotExist)
	old := fresh
	l.do(func() {
		for i := range l.nics {
			one := &l.nics[i]
			if one.end != r.End || l.trunk == nil && fresh == nil {
				continue
			}
			if one.port != nil && !one.gone {
				l.lose(one)
			}
			old, one.port, one.gone, err = one.port, fresh, false, nil
			one.foreign, one.watched = r.Foreign, false
			if fresh != nil {
				err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fresh.Fd(),
					&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
			}
		}
	})
	if old != nil {
		err = errors.Join(err, old.Close()) // closing waits for CPUs, but does not block the thread
	}
	return err
}

// receivePort makes a port from the descriptors that are sent for it.
func (l *loop) receivePort(r *replacePort) (port.Port, error) {
	handle := &port.Handle{Description: r.Description}
	for range r.Files {
		file, err := receiveFile(descriptorsFd)
		if err != nil {
			return nil, errors.Join(err, handle.Close())
		}
		handle.Files = append(handle.Files, file)
	}
	if room, most := r.Description.Room(), l.engine.Pool().Cell(); room > most {
		return nil, errors.Join(fmt.Errorf("replace port %s:%s: a frame needs %d bytes, packets "+
			"hold %d", r.End.Node, r.End.Port, room, most), handle.Close())
	}
	return handle.Port()
}
