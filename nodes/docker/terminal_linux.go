package docker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const (
	// sizeTick is how often the size of the supervisor's terminal is read. The kernel signals a
	// change only to the terminal's own processes, and those have the container's terminal.
	sizeTick = 200 * time.Millisecond
	// lastWords is how long the last output may take to reach the supervisor's terminal.
	lastWords = 300 * time.Millisecond
)

// terminal is a terminal of the container, so that programs find it in their /dev. It carries input
// and output between the container's and the supervisor's terminal.
type terminal struct {
	outer, screen, inner *os.File
	shown                chan struct{} // closed when no more output will be shown
	over                 chan struct{}
	sized                chan struct{} // closed when the size is no longer passed on
}

// openTerminal opens a terminal that is connected to outer, which stays the caller's.
func openTerminal(outer *os.File) (t *terminal, err error) {
	fd, err := unix.FcntlInt(outer.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if _, err := term.MakeRaw(fd); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	if err := unix.SetNonblock(fd, true); err != nil { // Close then ends a Read
		return nil, errors.Join(err, unix.Close(fd))
	}
	t = &terminal{outer: os.NewFile(uintptr(fd), "terminal"), shown: make(chan struct{}),
		over: make(chan struct{}), sized: make(chan struct{})}
	if t.screen, t.inner, err = pty.Open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open terminal: %w", err), t.outer.Close())
	}
	if err := pty.InheritSize(t.outer, t.screen); err != nil {
		t.abandon()
		return nil, err
	}
	return t, nil
}

// abandon closes a terminal that carries nothing.
func (t *terminal) abandon() { closeAll([]*os.File{t.outer, t.screen, t.inner}) }

// carry begins to carry input and output, once a process has the inner end.
func (t *terminal) carry() {
	t.inner.Close()
	go func() {
		defer close(t.shown)
		_, _ = io.Copy(t.outer, t.screen) // EIO when no process has it
	}()
	go func() { _, _ = io.Copy(t.screen, t.outer) }()
	go func() {
		defer close(t.sized)
		tick := time.NewTicker(sizeTick)
		defer tick.Stop()
		for {
			select {
			case <-t.over:
				return
			case <-tick.C:
				_ = pty.InheritSize(t.outer, t.screen) // the kernel signals processes on a change
			}
		}
	}()
}

// end waits for the last output after the command's end.
func (t *terminal) end() {
	select {
	case <-t.shown:
	case <-time.After(lastWords):
	}
	close(t.over)
	<-t.sized // it uses the descriptors by number: after closeAll it could set another terminal's size
	closeAll([]*os.File{t.outer, t.screen})
}
