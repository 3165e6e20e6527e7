package reexec

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes every descriptor from first on that this process was
// started with by accident: shells, CI runners and editors leave theirs open,
// and a testbed that kept the end of somebody's pipe would hang the reader.
// What Go opens itself is marked close-on-exec, and that is how the others are
// told apart; so it must be called before descriptors are made for children.
func CloseInherited(first int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list own descriptors: %w", err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd < first {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // the directory that was just read, or Go's own
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close inherited descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// SocketPair is a stream for talking to a process that is about to be started:
// our end, which can have deadlines, and theirs, to be closed once it is handed
// over.
func SocketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	// Only a non-blocking descriptor gets the runtime's poller, and with it
	// deadlines.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket pair"), os.NewFile(uintptr(fds[1]), "socket pair"), nil
}
