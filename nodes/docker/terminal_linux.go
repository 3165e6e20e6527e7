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
	// sizeTick is how often the supervisor's terminal is asked for its size: the kernel
	// tells only the terminal's own processes, and those have the container's.
	sizeTick = 200 * time.Millisecond
	// lastWords is how long a terminal's last words may take to its other side.
	lastWords = 300 * time.Millisecond
)

// terminal is one of the container's own, so that programs find it in their /dev,
// and carries what is typed and shown at the supervisor's.
type terminal struct {
	outer, screen, inner *os.File
	shown                chan struct{} // closed when nothing more is to be shown
	over                 chan struct{}
	sized                chan struct{} // closed when the size is passed on no more
}

// openTerminal opens one that goes on where outer, which stays the caller's, ends.
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

// carry begins to carry, once a process has the inner end.
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
				_ = pty.InheritSize(t.outer, t.screen) // which tells processes of a change
			}
		}
	}()
}

// end waits for the last words after the command's end.
func (t *terminal) end() {
	select {
	case <-t.shown:
	case <-time.After(lastWords):
	}
	close(t.over)
	<-t.sized // it uses the descriptors by number, and beside closeAll would set another terminal's size
	closeAll([]*os.File{t.outer, t.screen})
}
