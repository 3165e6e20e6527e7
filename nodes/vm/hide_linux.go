package vm

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

	"railbed/internal/reexec"
)

// PrivateEnv names the environment variable with the directories of the testbed's user that guests do not
// see, separated as in PATH.
const PrivateEnv = "RAILBED_PRIVATE"

// Places in QEMU's view of the host: what the guest sees of its files, and an
// empty file to hide others behind.
const (
	shareDir  = "/run/share"
	emptyFile = "/run/empty"
)

// ofKernel are directories of which a guest has its own.
var ofKernel = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/var/lock"}

// shared are file systems with files, as opposed to those that the kernel or a user's process answers for,
// which are hidden wherever they are mounted: they show processes, settings and sessions.
func shared(kind string) bool {
	return (kind == "fuseblk" || !strings.HasPrefix(kind, "fuse")) && !slices.Contains([]string{
		"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "hugetlbfs", "cgroup", "cgroup2", "debugfs",
		"tracefs",
		"securityfs", "selinuxfs",
		"configfs", "bpf", "pstore", "efivarfs", "binfmt_misc", "rpc_pipefs", "nsfs", "autofs",
	}, kind)
}

// private are directories that belong to people; QEMU itself does not see them either.
var private = []string{"/root", "/home", "/tmp", "/var/tmp", "/lost+found"}

// secrets match files and directories that belong to the host's administrator, as patterns. Other users
// cannot read them, but QEMU may be the root of a container.
var secrets = []string{
	"/etc/*shadow*", "/var/backups/*shadow*", "/etc/security/opasswd*", "/etc/ssh/*_key",
	"/etc/ssl/private", "/etc/pki/tls/private",
	"/etc/sudoers*", "/etc/krb5.keytab", "/etc/wireguard", "/etc/NetworkManager/system-connections",
}

// needed are directories that programs cannot do without; nobody's home hides one.
var needed = []string{
	"/etc", "/opt", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local",
	"/usr/share", "/var/lib", "/bin", "/sbin", "/lib", "/lib64",
}

// place is a file or directory by what holds it, so that it is found wherever it is mounted.
type place struct {
	device string // major:minor of the file system
	path   string // within the file system
	// guest says that only guests do not see it.
	guest bool
}

// hideHost makes QEMU's view of the host's files, and below it the guest's, which
// is read-only. The user's own directories are private.
func hideHost(own []string) error {
	if err := reexec.LeaveMountTree(); err != nil {
		return err
	}
	hidden, err := hiddenPlaces(own)
	if err != nil {
		return err
	}
	share, err := unix.OpenTree(unix.AT_FDCWD, "/",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("clone the host's mounts: %w", err)
	}
	defer unix.Close(share)
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		"mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount tmpfs on /run: %w", err)
	}
	if err := errors.Join(os.Mkdir(shareDir, 0o755), os.WriteFile(emptyFile, nil, 0o444)); err != nil {
		return err
	}
	if err := unix.MoveMount(share, "", unix.AT_FDCWD, shareDir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount the host's files on %s: %w", shareDir, err)
	}
	if err := hideEverywhere(hidden); err != nil {
		return err
	}
	// What the host mounts from now on is not seen.
	attributes := &unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, shareDir, unix.AT_RECURSIVE, attributes); err != nil {
		return fmt.Errorf("make %s read-only: %w", shareDir, err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("mount /proc of QEMU: %w", err)
	}
	return nil
}

// hiddenPlaces resolves what is hidden: links are followed, and homes are where the host's database of
// users has them.
func hiddenPlaces(own []string) ([]place, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	homes, err := homesOfPeople()
	if err != nil {
		return nil, err
	}
	// A home may be /dev/null, or a directory with everybody's programs.
	homes = slices.DeleteFunc(slices.Concat(homes, own), func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.IsDir() || programsNeed(path)
	})
	all := slices.Concat(private, homes)
	for _, pattern := range secrets {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, matches...)
	}
	var found []place
	for i, path := range slices.Concat(ofKernel, all) {
		// What this process does not reach, QEMU with fewer rights does not either.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			continue
		}
		at, err := placeOf(path, mounts)
		if err != nil {
			return nil, err
		}
		if at.guest = i < len(ofKernel); !slices.Contains(found, at) {
			found = append(found, at)
		}
	}
	return found, nil
}

// programsNeed reports whether a directory is or holds one that programs cannot do without.
func programsNeed(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	return err == nil && slices.ContainsFunc(needed, func(dir string) bool { return within(dir, path) })
}

// homesOfPeople are the home directories of root and of the users that people log in as
// (UID_MIN of login.defs(5), nobody left out). Those of daemons are where programs keep their data.
func homesOfPeople() ([]string, error) {
	const firstUser, nobody = 1000, 65534
	text, err := os.ReadFile("/etc/passwd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var homes []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":") // passwd(5)
		if len(fields) != 7 || !filepath.IsAbs(fields[5]) {
			continue
		}
		if id, err := strconv.Atoi(fields[2]); err == nil && (id == 0 || id >= firstUser && id != nobody) {
			homes = append(homes, fields[5])
		}
	}
	return homes, nil
}

// placeOf finds the place of a path without links.
func placeOf(path string, mounts []*mountinfo.Info) (place, error) {
	// The last mount of a point is on top of the others.
	var at *mountinfo.Info
	for _, m := range mounts {
		if within(path, m.Mountpoint) && (at == nil || len(m.Mountpoint) >= len(at.Mountpoint)) {
			at = m
		}
	}
	if at == nil {
		return place{}, fmt.Errorf("find the mount of %s: no mount of the table holds it", path)
	}
	return place{device: device(at), path: filepath.Join(at.Root, relative(path, at.Mountpoint))}, nil
}

func device(m *mountinfo.Info) string { return fmt.Sprintf("%d:%d", m.Major, m.Minor) }

// within reports whether a path is a directory or lies in it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// relative is a path's part below a directory that it is within.
func relative(path, dir string) string { return strings.TrimPrefix(path, dir) }

// hideEverywhere hides places wherever a mount shows them, and file systems that hold no files.
func hideEverywhere(hidden []place) error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	for _, m := range mounts {
		guest := within(m.Mountpoint, shareDir)
		if guest && m.Mountpoint != shareDir && !shared(m.FSType) {
			if err := hide(m.Mountpoint); err != nil {
				return err
			}
			continue
		}
		for _, h := range hidden {
			if device(m) != h.device || h.guest && !guest {
				continue
			}
			path := m.Mountpoint
			switch {
			case within(h.path, m.Root):
				path = filepath.Join(path, relative(h.path, m.Root))
			case !within(m.Root, h.path):
				continue
			}
			if err := hide(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// hide puts an empty folder or file in the place of one.
func hide(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // below another mount
		return nil
	case err != nil:
		return err
	case info.IsDir():
		err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			"mode=755,size=4k")
	default:
		err = unix.Mount(emptyFile, path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}
