package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
)

// Memory returns the descriptor of new memory without a size, for processes to share (memfd_create(2)). If
// the kernel or a seccomp profile forbids the call, the error is a *verdict.UnsupportedError.
func Memory(name string, flags int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil, &verdict.UnsupportedError{
			Feature: "memfd_create",
			Reason:  fmt.Sprintf("make memory by memfd_create: %v", err),
			Remedy: "use a kernel with CONFIG_MEMFD_CREATE; in a container: a seccomp profile that allows " +
				"memfd_create",
		}
	case err != nil:
		return nil, fmt.Errorf("make memory %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// SealedMemory returns the descriptor of new memory for two processes to map, rounded up to whole pages.
// Seals keep either of them from changing its size, which would kill the other with SIGBUS. Errors are as of
// Memory.
func SealedMemory(name string, size int) (*os.File, error) {
	file, err := Memory(name, unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	if err = file.Truncate(int64(size+4095) &^ 4095); err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make memory %s: %w", name, err), file.Close())
	}
	return file, nil
}
