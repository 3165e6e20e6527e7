package reexec

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LeaveMountTree is for a process that was started in a mount namespace of its
// own: from then on nothing that it mounts reaches the host, and what the host
// unmounts goes here, too, instead of being kept busy.
//
// In a chroot whose root is an ordinary folder the process gets a mount of that
// folder as its root: settings like this one, and a node's view below it, need
// one to start from.
func LeaveMountTree() error {
	err := enslave()
	if !errors.Is(err, unix.EINVAL) { // the root is no mount
		return err
	}
	// Somewhere above lies a mount that the host shares with this namespace. A
	// mount on it would appear on the host, so it comes first.
	if err := OnLastThread(enslaveAbove); err != nil {
		return err
	}
	root, err := unix.OpenTree(unix.AT_FDCWD, "/",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("clone the mounts below the root directory: %w", err)
	}
	defer unix.Close(root)
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the root directory on itself: %w", err)
	}
	// The path / still means the folder below the new mount; its descriptor
	// leads there.
	if err := unix.Fchdir(root); err != nil {
		return fmt.Errorf("enter the mounted root directory: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("enter the mounted root directory: %w", err)
	}
	return enslave()
}

func enslave() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("leave the host's mount tree: %w", err)
	}
	return nil
}

// enslaveAbove moves the calling thread from a chroot to the root of its mount
// namespace, which is what entering a mount namespace does, even the own one.
func enslaveAbove() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare thread's root directory: %w", err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leave the chroot: %w", err)
	}
	return enslave()
}
