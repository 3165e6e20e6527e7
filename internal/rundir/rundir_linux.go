// Package rundir manages the directory on the host in which a testbed leaves its traces: the
// control socket, the log and the list of names that it published.
//
// A testbed's supervisor holds a lock on its directory for as long as it lives. So the kernel, not
// a PID file, shows whether a directory is a live testbed or the remains of a dead one. A process
// that gets the lock may sweep the directory.
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
)

// ErrRunning is returned by Claim when the name belongs to a live testbed.
var ErrRunning = errors.New("a testbed of this name is running")

const (
	socketName    = "control.sock"
	lockName      = "lock"
	logName       = "supervisor.log"
	publishedName = "published.json"
	// sweepName is the lock file of the process that removes what a dead testbed left.
	sweepName = "sweep.lock"
	// rootLockName serialises claims and the decisions of sweeps under one root directory. A
	// process that holds it waits only for files.
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

// Of returns the run directory of a testbed, whether or not it exists.
func Of(name string) (Dir, error) {
	root, err := Root()
	if err != nil {
		return Dir{}, err
	}
	if name == "" || name != filepath.Base(name) || name[0] == '.' {
		return Dir{}, fmt.Errorf("testbed name %q: want a directory name without / that does not begin "+
			"with a dot", name)
	}
	return Dir{Name: name, Path: filepath.Join(root, name)}, nil
}

// List returns every run directory of the calling user, live or dead.
func List() ([]Dir, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return list(root)
}

func list(root string) ([]Dir, error) {
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

// Claim creates the run directory of a new testbed and returns its lock, which the caller hands to
// the supervisor. It first sweeps the remains of a dead testbed of the same name and keeps its log.
// If another process is already sweeping them, Claim waits for it.
func Claim(name string) (Dir, *os.File, error) {
	dir, err := Of(name)
	if err != nil {
		return Dir{}, nil, err
	}
	for deadline := time.Now().Add(Patience + time.Second); ; {
		lock, remains, err := dir.claim()
		switch {
		case errors.Is(err, errSwept) && time.Now().Before(deadline):
			time.Sleep(sweptTick)
			continue
		case err == nil && remains != nil:
			_, err = remains.finish(SweepOptions{}, map[string]bool{})
		}
		if errors.Is(err, errSwept) || errors.Is(err, ErrEngineAway) {
			return Dir{}, nil, &verdict.UnsupportedError{
				Feature: "testbed name " + name,
				Reason:  err.Error(),
				Remedy:  "run railbed gc, which drops what is left of the testbed, or choose another --name",
			}
		}
		if err != nil {
			return Dir{}, nil, fmt.Errorf("claim testbed name %s: %w", name, err)
		}
		if lock != nil {
			return dir, lock, nil
		}
	}
}

// claim creates the directory, or takes over the remains of a dead testbed.
func (d Dir) claim() (lock *os.File, remains *remains, err error) {
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return nil, nil, err
	}
	defer release()
	if remains, err = d.takeLocked(); remains != nil || err != nil {
		return nil, remains, err
	}
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err = lockFile(filepath.Join(d.Path, lockName), os.O_CREATE)
	return lock, nil, err
}

// Running reports whether a supervisor holds the directory.
func (d Dir) Running() bool {
	file, err := os.OpenFile(filepath.Join(d.Path, lockName), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	// The lock is only queried, not taken: two processes that query must not see each other's lock.
	lock := wholeFile()
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}

// wholeFile returns an exclusive lock of a whole file.
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

// lockFile takes an open file description lock of a file. It lives until the last process that
// inherited the file closes it (fcntl(2), Linux 3.15).
func lockFile(path string, create int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|create, 0o600)
	if err != nil {
		return nil, err
	}
	lock := wholeFile()
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = errHeld
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// errHeld reports that another process has a lock.
var errHeld = errors.New("another process holds the lock")

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

// Remove removes everything that the testbed recorded and then the directory. If something could
// not be removed, the directory stays, with the record. The caller holds the directory's lock.
func (d Dir) Remove() error {
	record, err := d.Published()
	if err != nil {
		return err
	}
	return d.RemoveRecorded(record)
}

// Owned reports whether the directory exists with the lock that the caller holds. The directory may
// have been removed, and its name claimed again.
func (d Dir) Owned(lock uintptr) bool {
	var held, there unix.Stat_t
	return unix.Fstat(int(lock), &held) == nil && unix.Stat(filepath.Join(d.Path, lockName), &there) == nil &&
		held.Dev == there.Dev && held.Ino == there.Ino
}

// RemoveLost removes the links and cgroups of a testbed whose directory was removed, using the
// supervisor's copy of the record. It leaves the containers to SweepGone, because another testbed
// may have the name by now.
func (d Dir) RemoveLost(record Published) error {
	record.Containers = ""
	_, failures := d.removeSlowly(record, 0)
	release, err := lockRoot(filepath.Dir(d.Path))
	if errors.Is(err, fs.ErrNotExist) {
		release, err = func() error { return nil }, nil // the directory of all testbeds was removed, too
	}
	if err != nil {
		return errors.Join(failures, err)
	}
	_, err = record.unlinkLocked()
	return errors.Join(failures, err, release())
}

// RemoveRecorded removes what record lists, and then the directory. The caller holds the directory's
// lock. Unlike Remove, it does not read the record from the disk.
func (d Dir) RemoveRecorded(record Published) error {
	if _, err := d.removeSlowly(record, Patience); err != nil {
		return err
	}
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return err
	}
	defer release()
	if _, err := record.unlinkLocked(); err != nil {
		return err
	}
	return d.removeFilesLocked()
}

// removeFilesLocked removes the directory and its files, the lock last. Remaining files without a
// lock therefore mean that something could not be removed.
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

// SharedCgroup is the directory below each cgroup hierarchy that all testbeds
// share.
const SharedCgroup = "railbed"

// Published lists the objects that a testbed creates outside its run directory. It is recorded
// before the creation.
type Published struct {
	Links []Link `json:"links,omitempty"`
	// MadeDir is the directory of the links if it was created for them, or for the links of another
	// testbed, which may end first. The last testbed removes it.
	MadeDir string `json:"made_dir,omitempty"`
	// Containers is the engine that has containers of the testbed, in the format of DOCKER_HOST; ""
	// is none.
	Containers string `json:"containers,omitempty"`
	// Cgroups lists directories, parents before children.
	Cgroups []string `json:"cgroups,omitempty"`
}

// Link is a symbolic link on the host.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// ours reports whether the link exists and has the recorded target.
func (l Link) ours() bool {
	target, err := os.Readlink(l.Path)
	return err == nil && target == l.Target
}

// Publish records the links and creates them. A name that exists belongs to another program and
// stays as it is; taken lists such names.
func (d Dir) Publish(record Published) (taken []string, err error) {
	root := filepath.Dir(d.Path)
	release, err := lockRoot(root)
	if err != nil {
		return nil, err
	}
	defer release()
	made, err := madeDirs(root)
	if err != nil {
		return nil, err
	}
	for _, link := range record.Links {
		if parent := filepath.Dir(link.Path); record.MadeDir == "" {
			if _, err := os.Stat(parent); errors.Is(err, fs.ErrNotExist) || made[parent] {
				record.MadeDir = parent
			}
		}
	}
	if err := d.record(record); err != nil {
		return nil, err
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

// madeDirs returns the directories that the testbeds below a directory created for their links. The
// process may run in another user namespace than the owner of the directory, so Root does not apply
// here.
func madeDirs(root string) (map[string]bool, error) {
	dirs, err := list(root)
	if err != nil {
		return nil, err
	}
	made := map[string]bool{}
	for _, dir := range dirs {
		if record, err := dir.Published(); err == nil { // what cannot be read is for the sweep
			made[record.MadeDir] = true
		}
	}
	return made, nil
}

func (d Dir) record(record Published) error {
	text, err := json.Marshal(record)
	if err == nil {
		err = writeWhole(filepath.Join(d.Path, publishedName), text)
	}
	if err != nil {
		return fmt.Errorf("record published names: %w", err)
	}
	return nil
}

// Published returns the testbed's record.
func (d Dir) Published() (Published, error) {
	var record Published
	text, err := os.ReadFile(filepath.Join(d.Path, publishedName))
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err != nil {
		return record, fmt.Errorf("read published names: %w", err)
	}
	if err := json.Unmarshal(text, &record); err != nil {
		// A crash interrupted the writing: nothing was created after it.
		return Published{}, nil
	}
	return record, nil
}
