// Package rundir is the directory on the host that a testbed leaves its traces
// in: the control socket, the log and the list of names that it published.
//
// A testbed owns its directory by a lock that its supervisor holds for as long
// as it lives. So whether a directory is a live testbed or the remains of a
// dead one is a question to the kernel, not to a pid file, and whoever gets the
// lock may sweep.
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning is returned by Claim when the name belongs to a live testbed.
var ErrRunning = errors.New("a testbed of this name is running")

const (
	socketName    = "control.sock"
	lockName      = "lock"
	logName       = "supervisor.log"
	publishedName = "published.json"
	// rootLockName serialises claims and sweeps under one root directory.
	rootLockName = ".lock"
)

// Dir is a testbed's run directory.
type Dir struct {
	Name string
	Path string
}

// Socket is the path of the control socket.
func (d Dir) Socket() string { return filepath.Join(d.Path, socketName) }

// Log is the path of the supervisor's log.
func (d Dir) Log() string { return filepath.Join(d.Path, logName) }

// Root is the directory that holds the calling user's testbeds:
// /run/railbed for root, $XDG_RUNTIME_DIR/railbed for others, and where there
// is no such variable /tmp/railbed-UID. It is created, mode 0700, and refused
// when it belongs to somebody else.
func Root() (string, error) {
	path := "/run/railbed"
	if uid := os.Getuid(); uid != 0 {
		path = filepath.Join(os.TempDir(), "railbed-"+strconv.Itoa(uid))
		if runtimeDir := os.Getenv("XDG_RUNTIME_DIR"); runtimeDir != "" {
			path = filepath.Join(runtimeDir, "railbed")
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("create run directory: %w", err)
	}
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return "", fmt.Errorf("look at run directory %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != os.Getuid() || stat.Mode&0o077 != 0 {
		return "", fmt.Errorf("run directory %s: want a directory of uid %d with mode 0700, have uid %d mode %04o; remove it or set XDG_RUNTIME_DIR",
			path, os.Getuid(), stat.Uid, stat.Mode&0o7777)
	}
	return path, nil
}

// Of is the run directory of a testbed, whether or not it exists.
func Of(name string) (Dir, error) {
	root, err := Root()
	if err != nil {
		return Dir{}, err
	}
	if name == "" || name != filepath.Base(name) || name[0] == '.' {
		return Dir{}, fmt.Errorf("testbed name %q: want 1 to 24 of a-z, 0-9 and -", name)
	}
	return Dir{Name: name, Path: filepath.Join(root, name)}, nil
}

// List returns every run directory of the calling user, live or dead.
func List() ([]Dir, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list run directories: %w", err)
	}
	var dirs []Dir
	for _, entry := range entries {
		if entry.IsDir() && entry.Name()[0] != '.' {
			dirs = append(dirs, Dir{Name: entry.Name(), Path: filepath.Join(root, entry.Name())})
		}
	}
	return dirs, nil
}

// Claim makes the run directory of a new testbed and returns its lock, to be
// handed to the supervisor. The remains of a dead testbed of the same name are
// swept first, and its log kept.
func Claim(name string) (Dir, *os.File, error) {
	dir, err := Of(name)
	if err != nil {
		return Dir{}, nil, err
	}
	release, err := lockRoot(filepath.Dir(dir.Path))
	if err != nil {
		return Dir{}, nil, err
	}
	defer release()
	if _, err := dir.sweepLocked(true); err != nil {
		return Dir{}, nil, fmt.Errorf("claim testbed name %s: %w", name, err)
	}
	if err := os.Mkdir(dir.Path, 0o700); err != nil {
		return Dir{}, nil, fmt.Errorf("claim testbed name %s: %w", name, err)
	}
	lock, err := dir.tryLock(os.O_CREATE)
	if err != nil {
		return Dir{}, nil, fmt.Errorf("claim testbed name %s: %w", name, err)
	}
	return dir, lock, nil
}

// Running reports whether a supervisor holds the directory.
func (d Dir) Running() bool {
	file, err := os.OpenFile(filepath.Join(d.Path, lockName), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	// Asked for and not taken: two that ask must not see each other.
	lock := wholeFile()
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}

// wholeFile is an exclusive lock of a whole file.
func wholeFile() unix.Flock_t { return unix.Flock_t{Type: unix.F_WRLCK} }

// WaitGone waits until no supervisor holds the directory, at most for timeout.
func (d Dir) WaitGone(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for d.Running() {
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for the end of testbed %s: still running after %v", d.Name, timeout)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// tryLock takes the directory's lock, an open file description lock: it lives
// as long as the last process that inherited the file (fcntl(2), Linux 3.15).
func (d Dir) tryLock(create int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(d.Path, lockName), os.O_RDWR|create, 0o600)
	if err != nil {
		return nil, err
	}
	lock := wholeFile()
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%s: %w", d.Name, ErrRunning)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// lockRoot waits for the root lock.
func lockRoot(root string) (release func() error, err error) { return flockRoot(root, unix.LOCK_EX) }

func flockRoot(root string, how int) (release func() error, err error) {
	file, err := os.OpenFile(filepath.Join(root, rootLockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock run directories: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock run directories: %w", err)
	}
	return file.Close, nil
}

// Swept is what the sweep of one dead testbed removed.
type Swept struct {
	Name    string   `json:"name"`
	Removed []string `json:"removed"`
	// Kept is the directory in which its log and report are now, if they are
	// kept.
	Kept string `json:"kept,omitempty"`
}

// SweepOptions are the options of Sweep. The zero value keeps logs and waits
// for others that sweep.
type SweepOptions struct {
	// DryRun only tells.
	DryRun bool
	// Forget keeps nothing of dead testbeds, nor what was kept of earlier ones.
	Forget bool
	// Try leaves the work to whoever is at it, instead of waiting.
	Try bool
}

// Sweep removes what dead testbeds of the calling user left behind: only
// names, cgroups and files that their supervisors recorded as their own. Their
// logs and reports are kept, within the bounds of this package. Where nothing
// is to be done it costs a look at each testbed's lock.
func Sweep(o SweepOptions) ([]Swept, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dirs, err := o.dead(root)
	if err != nil || dirs == nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if o.Try {
		how |= unix.LOCK_NB
	}
	release, err := flockRoot(root, how)
	if o.Try && errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer release()
	var all []Swept
	var failures error
	for _, dir := range dirs {
		if o.DryRun {
			all = append(all, Swept{Name: dir.Name, Removed: dir.remains()})
			continue
		}
		swept, err := dir.sweepLocked(!o.Forget)
		if err != nil && !errors.Is(err, ErrRunning) {
			failures = errors.Join(failures, fmt.Errorf("sweep %s: %w", dir.Name, err))
		}
		if err == nil && swept != nil {
			all = append(all, *swept)
		}
	}
	gone, err := trimLocked(root, o.Forget, o.DryRun)
	for _, aborted := range gone {
		all = append(all, Swept{Name: aborted.Name, Removed: []string{aborted.Dir}})
	}
	return all, errors.Join(failures, err)
}

// dead are the directories that nobody seems to hold: one that is being claimed
// looks like it, too, until the root lock is held. It is nil when a sweep has
// nothing to do.
func (o SweepOptions) dead(root string) ([]Dir, error) {
	dirs, err := List()
	if err != nil {
		return nil, err
	}
	kept, err := listAborted(root)
	if err != nil {
		return nil, err
	}
	var dead []Dir
	for _, dir := range dirs {
		if !dir.Running() {
			dead = append(dead, dir)
		}
	}
	if dead == nil && (o.Forget && len(kept) > 0 || len(beyondBounds(kept, time.Now())) > 0) {
		dead = []Dir{}
	}
	return dead, nil
}

// sweepLocked removes the directory of a dead testbed and what it published;
// with keep its log and report are kept elsewhere. It needs the root lock. No
// directory is no error.
func (d Dir) sweepLocked(keep bool) (*Swept, error) {
	if _, err := os.Lstat(d.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lock, err := d.tryLock(0)
	switch {
	case errors.Is(err, fs.ErrNotExist): // died between mkdir and lock, which the root lock excludes for the living
	case err != nil:
		return nil, err
	default:
		defer lock.Close()
	}
	swept := &Swept{Name: d.Name, Removed: d.remains()}
	if err := d.unpublish(!keep); err != nil {
		return nil, err
	}
	if keep {
		if swept.Kept, err = d.keepLocked(); err != nil {
			return nil, err
		}
	}
	return swept, d.removeFilesLocked()
}

// Remove removes everything that the testbed recorded and then the directory
// itself, which stays, with the record, when something could not be removed.
// The caller holds the directory's lock.
func (d Dir) Remove() error {
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return err
	}
	defer release()
	return d.removeLocked()
}

// removeLocked needs the root lock: what testbeds share, one of them must not
// remove while another one makes it.
func (d Dir) removeLocked() error {
	if err := d.unpublish(false); err != nil {
		return err
	}
	return d.removeFilesLocked()
}

// removeFilesLocked removes the directory, the lock last: who sees no lock
// concludes from what else is there that something could not be removed.
func (d Dir) removeFilesLocked() error {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.Path, entry.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(d.Path)
}

func (d Dir) remains() []string {
	record, _ := d.published()
	var remains []string
	for _, link := range record.Links {
		if link.ours() {
			remains = append(remains, link.Path)
		}
	}
	if record.Containers != "" {
		containers, err := removeContainers(record.Containers, d.Path, true)
		if err != nil {
			containers = []string{"containers of " + record.Containers}
		}
		remains = append(remains, containers...)
	}
	return append(append(remains, record.Cgroups...), d.Path)
}

// SharedCgroup is the directory below each cgroup hierarchy that all testbeds
// share.
const SharedCgroup = "railbed"

// Published is what a testbed made outside its run directory, recorded before
// it is made.
type Published struct {
	Links []Link `json:"links,omitempty"`
	// MadeDir is set when the directory of the links was made for them.
	MadeDir string `json:"made_dir,omitempty"`
	// Containers is the engine that has containers of the testbed, as DOCKER_HOST
	// names it; "" is none.
	Containers string `json:"containers,omitempty"`
	// Cgroups are directories, parents before children.
	Cgroups []string `json:"cgroups,omitempty"`
}

// Link is a symbolic link on the host.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// ours reports whether the link is there and is the one that was recorded.
func (l Link) ours() bool {
	target, err := os.Readlink(l.Path)
	return err == nil && target == l.Target
}

// Publish records the links and makes them. A name that exists is somebody
// else's and stays as it is; taken lists those.
func (d Dir) Publish(record Published) (taken []string, err error) {
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return nil, err
	}
	defer release()
	for _, link := range record.Links {
		if parent := filepath.Dir(link.Path); record.MadeDir == "" {
			if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
				record.MadeDir = parent
			}
		}
	}
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	if err := writeWhole(filepath.Join(d.Path, publishedName), text); err != nil {
		return nil, fmt.Errorf("record published names: %w", err)
	}
	if record.MadeDir != "" {
		if err := os.MkdirAll(record.MadeDir, 0o755); err != nil {
			return nil, fmt.Errorf("publish names: %w", err)
		}
	}
	for _, link := range record.Links {
		err := os.Symlink(link.Target, link.Path)
		if errors.Is(err, fs.ErrExist) {
			taken = append(taken, link.Path)
			continue
		}
		if err != nil {
			return taken, fmt.Errorf("publish %s: %w", link.Path, err)
		}
	}
	return taken, nil
}

func (d Dir) published() (Published, error) {
	var record Published
	text, err := os.ReadFile(filepath.Join(d.Path, publishedName))
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err != nil {
		return record, fmt.Errorf("read published names: %w", err)
	}
	if err := json.Unmarshal(text, &record); err != nil {
		// Torn by a crash while it was written: nothing was made after it.
		return Published{}, nil
	}
	return record, nil
}

// unpublish removes what was recorded; with forget without containers whose engine
// is away.
func (d Dir) unpublish(forget bool) error {
	record, failures := d.published()
	for _, link := range record.Links {
		if link.ours() {
			failures = errors.Join(failures, os.Remove(link.Path))
		}
	}
	if record.Containers != "" {
		_, err := removeContainers(record.Containers, d.Path, false)
		if forget && errors.Is(err, ErrEngineAway) {
			err = nil
		}
		failures = errors.Join(failures, err)
	}
	for _, cgroup := range slices.Backward(record.Cgroups) {
		failures = errors.Join(failures, removeCgroup(cgroup))
	}
	if record.MadeDir != "" {
		// Somebody else's names may be in it by now; then it stays.
		if err := unix.Rmdir(record.MadeDir); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
			failures = errors.Join(failures, fmt.Errorf("remove %s: %w", record.MadeDir, err))
		}
	}
	return failures
}
