package reexec

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes every descriptor from first on that this process inherited by accident.
// Shells, CI runners and editors leave descriptors open, and if a testbed kept the end of a pipe,
// the pipe's reader would hang. Descriptors that Go opens are marked close-on-exec; inherited
// descriptors are not. So CloseInherited must be called before descriptors are created for
// children.
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

// SocketPair returns a stream for talking to a process that is about to be started. Our end
// supports deadlines; theirs must be closed once it is handed over.
func SocketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	// The runtime's poller, and with it deadlines, needs a non-blocking descriptor.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("create socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socket pair"), os.NewFile(uintptr(fds[1]), "socket pair"), nil
}
