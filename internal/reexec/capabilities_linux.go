package reexec

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// DropBounding removes capabilities permanently from the bounding set of the calling thread
// (PR_CAPBSET_DROP of prctl(2)). Programs that the thread executes, and its children, cannot have
// them. Capabilities that the kernel does not have are no error.
func DropBounding(capabilities ...uintptr) error {
	for _, capability := range capabilities {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	return nil
}
