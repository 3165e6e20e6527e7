package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// rootPlace is where the node's root directory is built, and hostPlace the directory in it of the
	// host's root directory, until the host's mounts are removed.
	rootPlace = "/tmp"
	hostPlace = "/.host"
)

// ownDirs are the directories of the root directory that a node does not share with the host.
var ownDirs = []string{"proc", "sys", "run", "tmp"}

// ownRoot makes a root directory with the host's directories except ownDirs, which are empty. So root of the
// node, who may remove the node's mounts, finds nothing of the host below them. leaveHost removes the host's
// root directory. With an error, nothing has changed. pivot_root fails in a chroot and in an initramfs.
func ownRoot() (leaveHost func() error, err error) {
	if err := unix.Mount("tmpfs", rootPlace, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount tmpfs on %s: %w", rootPlace, err)
	}
	err = fillRoot()
	if err == nil {
		if err = unix.PivotRoot(rootPlace, rootPlace+hostPlace); err != nil {
			err = fmt.Errorf("change the root directory: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, unix.Unmount(rootPlace, unix.MNT_DETACH))
	}
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	// Mounts that a user namespace inherited cannot be removed alone; then the host's stay below.
	for unix.Unmount("/dev/shm", unix.MNT_DETACH) == nil {
	}
	return func() error {
		if err := unix.Unmount(hostPlace, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("remove the host's mounts: %w", err)
		}
		return os.Remove(hostPlace)
	}, nil
}

func fillRoot() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return fmt.Errorf("list /: %w", err)
	}
	for _, name := range append([]string{hostPlace[1:]}, ownDirs...) {
		if err := os.Mkdir(filepath.Join(rootPlace, name), 0o755); err != nil {
			return err
		}
	}
	for _, entry := range entries {
		from, to := filepath.Join("/", entry.Name()), filepath.Join(rootPlace, entry.Name())
		if slices.Contains(ownDirs, entry.Name()) {
			continue
		}
		if err := shareEntry(from, to, entry.Type()); err != nil {
			return err
		}
	}
	return nil
}

// shareEntry shows an entry of the host's root directory, of some type, in the node's.
func shareEntry(from, to string, kind os.FileMode) error {
	switch {
	case kind&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case kind.IsDir():
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	default:
		if err := os.WriteFile(to, nil, 0o644); err != nil {
			return err
		}
	}
	return bind(from, to)
}
