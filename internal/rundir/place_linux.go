package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Root returns the directory that holds the calling user's testbeds. It is /run/railbed for root,
// $XDG_RUNTIME_DIR/railbed for others, and /tmp/railbed-UID without that variable. Root creates it
// with mode 0700. In /tmp, any other user may have created that path first. Then Root takes the
// first free path of PATH.1, PATH.2, ..., and Elsewhere reports it.
func Root() (string, error) {
	path, _, err := root()
	return path, err
}

// Elsewhere returns the directory that Root has passed over, with the reason, or "" if there is
// none.
func Elsewhere() string {
	_, passed, err := root()
	if err != nil {
		return ""
	}
	return passed
}

// mostPlaces is the number of other users' directories that Root passes over before it fails.
const mostPlaces = 100

func root() (path, passed string, err error) {
	base, uid := "/run/railbed", os.Getuid()
	if uid != 0 {
		base = filepath.Join(os.TempDir(), "railbed-"+strconv.Itoa(uid))
		if runtimeDir := os.Getenv("XDG_RUNTIME_DIR"); runtimeDir != "" {
			base = filepath.Join(runtimeDir, "railbed")
		}
		if err := trustedAncestors(filepath.Dir(base), uid); err != nil {
			return "", "", fmt.Errorf("run directory %s: %w; set XDG_RUNTIME_DIR to a directory of your own",
				base, err)
		}
	}
	// An existing directory of ours comes before a free path: directories that other users made and
	// removed must not hide running testbeds.
	for _, take := range []func(path string) (bool, error){ours, makeOurs} {
		passed = ""
		for n := range mostPlaces {
			path = base
			if n > 0 {
				path += "." + strconv.Itoa(n)
			}
			taken, err := take(path)
			if err != nil {
				return "", "", err
			}
			if taken {
				return path, passed, nil
			}
			if n == 0 {
				passed = fmt.Sprintf("%s is not a directory of user %d", base, uid)
			}
		}
	}
	remedy := "set XDG_RUNTIME_DIR to a directory of your own"
	if uid == 0 {
		remedy = "remove one of them"
	}
	return "", "", fmt.Errorf(
		"run directory: %s and %[1]s.1 to %[1]s.%d exist and are not directories of user %d; %s",
		base, mostPlaces-1, uid, remedy)
}

// ours reports whether a path is a directory of the calling user. Its error has no details of
// another user's file, which that user may change at any time.
func ours(path string) (bool, error) {
	var stat unix.Stat_t
	err := unix.Lstat(path, &stat)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at run directory %s: %w", path, err)
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != os.Getuid():
		return false, nil
	case stat.Mode&0o077 != 0:
		return false, fmt.Errorf("run directory %s: mode is %04o, so that other users can enter it; want "+
			"0700 (chmod 700 %[1]s)", path, stat.Mode&0o7777)
	}
	return true, nil
}

// makeOurs creates the directory if the path is free.
func makeOurs(path string) (bool, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("create run directory: %w", err)
	}
	return ours(path)
}

// CheckPrivate refuses a run directory that users other than the owners and root could have
// created, or could replace. A missing directory is no error.
func (d Dir) CheckPrivate(owners ...int) error {
	path, err := filepath.EvalSymlinks(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at run directory %s: %w", d.Path, err)
	}
	for _, path := range []string{path, filepath.Dir(path)} {
		// the testbed's directory and that of all testbeds of its user
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			return fmt.Errorf("look at run directory %s: %w", path, err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR || !slices.Contains(owners, int(stat.Uid)) ||
			stat.Mode&0o077 != 0 {
			return fmt.Errorf("run directory %s: %s belongs to user %d with mode %04o; want a directory of "+
				"user %s with mode 0700",
				d.Path, path, stat.Uid, stat.Mode&0o7777, users(owners))
		}
	}
	if err := trustedAncestors(filepath.Dir(filepath.Dir(path)), owners...); err != nil {
		return fmt.Errorf("run directory %s: %w", d.Path, err)
	}
	return nil
}

// trustedAncestors refuses a directory in which users other than the given ones and root could
// replace other users' entries. The owner of a directory can do that, and so can every user who may
// write to a directory that is not sticky (inode(7)).
func trustedAncestors(dir string, owners ...int) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	trusted := append([]int{0}, owners...)
	if id, nested := unmappedUser(); nested {
		trusted = append(trusted, id) // the host's root, as a rule
	}
	for ; ; dir = filepath.Dir(dir) {
		var stat unix.Stat_t
		if err := unix.Lstat(dir, &stat); err != nil {
			return fmt.Errorf("look at %s: %w", dir, err)
		}
		switch {
		case !slices.Contains(trusted, int(stat.Uid)):
			return fmt.Errorf("%s belongs to user %d, who can replace what is in it; want a directory of "+
				"root or of user %s", dir, stat.Uid, users(owners))
		case stat.Mode&0o022 != 0 && stat.Mode&unix.S_ISVTX == 0:
			return fmt.Errorf("%s has mode %04o, so that other users can replace what is in it; want a "+
				"directory that is sticky or that only its owner can write to", dir, stat.Mode&0o7777)
		case dir == filepath.Dir(dir):
			return nil
		}
	}
}

// unmappedUser returns the user ID that a user namespace shows for all users that it does not map.
func unmappedUser() (id int, nested bool) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(text)); err != nil ||
		len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295" {
		return 0, false
	}
	text, err = os.ReadFile("/proc/sys/kernel/overflowuid")
	id, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	return id, err == nil && bad == nil
}

func users(ids []int) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(id)
	}
	return strings.Join(words, " or ")
}
