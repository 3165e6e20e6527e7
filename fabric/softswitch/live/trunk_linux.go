package live

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/testbed/plan"
)

// trunk is the port of all NICs: its port i is NIC i.
type trunk struct {
	*port.Trunk
	from [batch]int // NICs of the frames received
}

// receiveTrunk takes frames from the trunk.
func (l *loop) receiveTrunk(events uint32) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		_ = l.trunk.Recover() // an interface went down, from which it comes back by itself
	}
	for range rounds {
		for i := range l.frames {
			l.frames[i].Data = l.scratch[i].Data
		}
		count, err := l.trunk.Receive(l.frames[:], l.trunk.from[:])
		for i, number := range l.trunk.from[:count] {
			l.handIn(number, i)
		}
		if err != nil || count < batch {
			return
		}
	}
}

// way reads the state of the way to a NIC, by its number.
func (l *loop) way(number int, s *NICState) (err error) {
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

// replacePort has a NIC use another port, whose descriptors come by the socket
// of descriptors.
type replacePort struct {
	End         plan.End         `json:"end"`
	Description port.Description `json:"description"`
	Files       int              `json:"files"`
}

// ReplacePort gives a NIC another port, after its interface was made anew. The
// handle is used up, whatever comes of it.
func (s *Process) ReplacePort(end plan.End, h *port.Handle) error {
	defer h.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, file := range h.Files {
		if err := unix.Sendmsg(int(s.descriptors.Fd()), []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0); err != nil {
			return fmt.Errorf("hand port %s:%s to the soft switches: %w", end.Node, end.Port, err)
		}
	}
	_, err := s.askLocked(request{ReplacePort: &replacePort{end, h.Description, len(h.Files)}})
	return err
}

// replace does it.
func (l *loop) replace(r *replacePort) error {
	handle := &port.Handle{Description: r.Description}
	for range r.Files {
		file, err := receiveFile(descriptorsFd)
		if err != nil {
			return errors.Join(err, handle.Close())
		}
		handle.Files = append(handle.Files, file)
	}
	fresh, err := handle.Port()
	if err != nil {
		return err
	}
	err = fmt.Errorf("replace port %s:%s: %w", r.End.Node, r.End.Port, os.ErrNotExist)
	old := fresh
	l.do(func() {
		for i := range l.nics {
			if one := &l.nics[i]; one.end == r.End && one.port != nil {
				if !one.gone {
					l.lose(one)
				}
				old, one.port, one.gone = one.port, fresh, false
				err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fresh.Fd(), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
			}
		}
	})
	return errors.Join(err, old.Close()) // which waits for processors, and not on the thread
}
