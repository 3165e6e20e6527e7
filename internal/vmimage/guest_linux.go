package vmimage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Functions for the first process of a guest that was booted from an archive of this package.

// Load loads a module from its open file. A module that is already loaded is no error.
func Load(file *os.File) error {
	if err := unix.FinitModule(int(file.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load module %s: %w", strings.TrimSuffix(filepath.Base(file.Name()), ".ko"), err)
	}
	return nil
}

// Enter makes a directory, on which a file system is mounted, the root of all processes, as
// switch_root(8) does.
func Enter(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to /: %w", dir, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the root directory: %w", err)
	}
	return unix.Chdir("/")
}
