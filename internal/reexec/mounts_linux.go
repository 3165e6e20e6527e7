package reexec

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LeaveMountTree is for a process that was started in its own mount namespace. From then on none of
// its mounts propagates to the host. An unmount on the host still propagates here, so the process
// does not keep the file system busy.
//
// In a chroot whose root is an ordinary directory, LeaveMountTree mounts this directory as the
// process's root. Mount propagation, and the view of a node below it, need a mount as root.
func LeaveMountTree() error {
	err := enslave()
	if !errors.Is(err, unix.EINVAL) { // the root is not a mount point
		return err
	}
	// A mount above the chroot is shared with the host. A mount on the chroot would appear on the
	// host, so the mounts above are made slaves first.
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
	// The path / still refers to the directory below the new mount; the descriptor refers to the
	// new mount.
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

// enslaveAbove moves the calling thread from a chroot to the root of its mount namespace. It does
// so by entering the namespace, its own: entering any mount namespace has this effect.
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
