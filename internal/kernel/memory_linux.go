package kernel

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SealedMemory returns the descriptor of new memory for two processes to map, rounded up to whole pages.
// Seals keep either of them from changing its size, which would kill the other with SIGBUS
// (memfd_create(2)).
func SealedMemory(name string, size int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err = unix.Ftruncate(fd, int64(size+4095)&^4095); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make memory: %w", err), file.Close())
	}
	return file, nil
}
