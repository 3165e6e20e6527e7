package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"railbed/nodes"
)

// storeDir is the directory of the node's identity files until they are mounted.
const storeDir = "/run/.identity"

// kernelFlags are the mount flags of file systems that the kernel generates.
const kernelFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// buildView mounts the file systems that make the node a machine of its own.
func buildView(config initConfig) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("leave the host's mount tree: %w", err)
	}
	// The host's mounts stay until the node's are complete: a user namespace mounts /proc and /sys only if
	// its mount namespace has them (mount_too_revealing in fs/namespace.c).
	leaveHost, err := ownRoot()
	if err != nil {
		// This goes to the supervisor's log.
		fmt.Fprintf(os.Stderr, "give the node a root directory of its own: %v; if root of the node removes "+
			"the node's mounts, the host's /run, /tmp, /proc and /sys appear\n", err)
		leaveHost = func() error { return nil }
	}
	for _, m := range []struct {
		kind, target, data string
		flags              uintptr
	}{
		{"proc", "/proc", "", kernelFlags},
		{"sysfs", "/sys", "", kernelFlags | unix.MS_RDONLY},
		{"tmpfs", "/run", "mode=755", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/tmp", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
		{"tmpfs", "/dev/shm", "mode=1777", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		// The target may be the host's link into /run, which is the node's own and empty by now.
		if target, err := os.Readlink(m.target); err == nil && strings.HasPrefix(target, "/run/") {
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(m.kind, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	if err := unix.Sethostname([]byte(config.Hostname)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	if err := giveIdentity(config); err != nil {
		return err
	}
	if err := nodes.LinkProgram(); err != nil {
		return err
	}
	return errors.Join(maskKernel(), leaveHost())
}

// giveIdentity mounts the node's identity over the host's. UCX and NCCL take two processes with one
// boot id for neighbours on one machine, so the node has a boot id of its own as well.
func giveIdentity(config initConfig) (err error) {
	// A file system that mounts keep and no program of the node can reach.
	if err := os.Mkdir(storeDir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", storeDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", storeDir, err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(storeDir, unix.MNT_DETACH), os.Remove(storeDir)) }()
	boot := filepath.Join(storeDir, "boot_id")
	if err := os.WriteFile(boot, []byte(nodes.BootID(config.MachineID)), 0o644); err != nil {
		return err
	}
	if err := bindReadOnly(boot, "/proc/sys/kernel/random/boot_id"); err != nil {
		return err
	}
	machine := config.MachineID + "\n"
	for i, dir := range []struct {
		path  string
		files map[string]string
	}{
		{"/etc", map[string]string{
			"hosts": config.Hosts, "hostname": config.Hostname + "\n", "machine-id": machine,
			"resolv.conf": config.Resolver,
		}},
		{"/var/lib/dbus", map[string]string{"machine-id": machine}},
	} {
		path, err := filepath.EvalSymlinks(dir.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // programs cannot distinguish hosts by a directory that the host lacks
		}
		if err != nil {
			return fmt.Errorf("resolve %s: %w", dir.path, err)
		}
		store := filepath.Join(storeDir, strconv.Itoa(i))
		if err := layOver(path, store, dir.files); err != nil {
			return fmt.Errorf("mount the node's own files in %s: %w", path, err)
		}
	}
	return nil
}

// layOver mounts an overlay with the node's files over a directory of the host. The node sees the
// host's other files, and the node's writes stay in store. A mount on each file instead would not
// last. Linux removes a mount on a file as soon as the host renames another file over it (since
// Linux 3.18), and editors and package managers do so.
func layOver(dir, store string, files map[string]string) error {
	upper, work := filepath.Join(store, "upper"), filepath.Join(store, "work")
	for _, path := range []string{store, upper, work} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(upper, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	below, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	defer below.close()
	// userxattr makes overlays permitted in a user namespace (Linux 5.11).
	options := "lowerdir=" + dir + ",upperdir=" + upper + ",workdir=" + work + ",userxattr"
	if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
		// This goes to the supervisor's log.
		fmt.Fprintf(os.Stderr, "mount overlay on %s: %v; mounting the node's files one by one: if the host "+
			"replaces a file, the node then sees the host's\n", dir, err)
		return bindOver(dir, upper, files)
	}
	return below.attach(dir, files)
}

// bindOver mounts each file over the host's where an overlay is impossible. That is so on Linux
// before 5.11 in a user namespace, and for a directory in an overlay of an overlay, as the kernel
// stacks only two. It skips a file that the host does not have. It also skips a link into a
// directory that is missing in the node, because the node has its own.
func bindOver(dir, from string, files map[string]string) error {
	for name := range files {
		target, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := bind(filepath.Join(from, name), target); err != nil {
			return err
		}
	}
	return nil
}

// submounts are the mounts below a directory, in the order of the mount table: parents first.
type submounts struct {
	points []string
	trees  []int
}

// mountsBelow clones the mounts below a directory, which an overlay of the directory would not
// include.
func mountsBelow(dir string) (*submounts, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return nil, err
	}
	below := &submounts{}
	for _, info := range infos {
		inside := func(point string) bool {
			return strings.HasPrefix(info.Mountpoint, point+"/") || info.Mountpoint == point
		}
		if info.Mountpoint == dir || slices.ContainsFunc(below.points, inside) {
			continue // included in its parent mount's clone
		}
		const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE
		tree, err := unix.OpenTree(unix.AT_FDCWD, info.Mountpoint, flags)
		if err != nil {
			below.close()
			return nil, fmt.Errorf("clone the mount of %s: %w", info.Mountpoint, err)
		}
		below.points, below.trees = append(below.points, info.Mountpoint), append(below.trees, tree)
	}
	return below, nil
}

// attach mounts the clones again, except for those on the node's own files.
func (s *submounts) attach(dir string, own map[string]string) error {
	for i, point := range s.points {
		if _, is := own[strings.TrimPrefix(point, dir+"/")]; is {
			continue
		}
		if err := unix.MoveMount(s.trees[i], "", unix.AT_FDCWD, point,
			unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount %s again: %w", point, err)
		}
	}
	return nil
}

func (s *submounts) close() {
	for _, tree := range s.trees {
		unix.Close(tree)
	}
}
