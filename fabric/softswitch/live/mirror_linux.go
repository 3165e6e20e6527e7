package live

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"railbed/plan"
)

// mirror is a tap device in a node. It shows the frames that programs exchange with a NIC past the node's
// kernel.
type mirror struct{ fd int }

// Mirror shows the frames that programs send and receive by a NIC past the kernel at a tap device. The file
// is the device's, and remains the caller's.
func (s *Process) Mirror(end plan.End, tap *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hand(tap); err != nil {
		return fmt.Errorf("hand the mirror of %s:%s to the soft switches: %w", end.Node, end.Port, err)
	}
	_, err := s.askLocked(request{Mirror: &end})
	return err
}

// openMirror begins a mirror, in place of the NIC's previous one. The tap's descriptor comes through the
// socket for descriptors.
func (l *loop) openMirror(end plan.End) error {
	var message [1]byte
	fd, err := receiveDescriptor(descriptorsFd, message[:])
	if err != nil {
		return err
	}
	number := l.find(end)
	if number < 0 {
		unix.Close(fd)
		return fmt.Errorf("mirror %s:%s: no NIC at a soft switch", end.Node, end.Port)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return err
	}
	m := &mirror{fd: fd}
	l.do(func() {
		l.nics[number].mirror, m = m, l.nics[number].mirror
		l.taps.observe()
	})
	if m != nil {
		unix.Close(m.fd) // here, because the kernel takes long to delete the device
	}
	return nil
}

// show passes a frame to the mirror of a NIC that has one. An interface that is down takes none.
func (l *loop) show(number int, frame []byte) {
	m := l.nics[number].mirror
	if m == nil {
		return
	}
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(m.fd), uintptr(unsafe.Pointer(&frame[0])),
		uintptr(len(frame)))
	if errno != 0 {
		l.nics[number].bypassed.MirrorFailed++
	}
}
