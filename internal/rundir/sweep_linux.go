package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Swept lists the objects that the sweep of one dead testbed removed.
type Swept struct {
	Name    string   `json:"name"`
	Removed []string `json:"removed"`
	// Kept is the directory that holds its log and report now, if they are kept.
	Kept string `json:"kept,omitempty"`
	// Left lists the objects that a sweep with Forget could not remove and has dropped from the
	// records.
	Left []string `json:"left,omitempty"`
}

// SweepOptions are the options of Sweep. The zero value keeps logs and waits for other sweeps.
type SweepOptions struct {
	// DryRun lists what would be removed and removes nothing.
	DryRun bool
	// Forget keeps no logs and reports of dead testbeds, and removes those kept earlier.
	Forget bool
	// Try leaves the work to a sweep that is already under way, instead of waiting for it.
	Try bool
	// Patience is the longest time that an engine may take for each answer. After that, its
	// containers are left to a later sweep. The default is the constant Patience.
	Patience time.Duration
}

// Patience is the longest time that an engine may take for an answer before it counts as stopped or
// hung.
const Patience = 10 * time.Second

func (o SweepOptions) patience() time.Duration { return cmp.Or(o.Patience, Patience) }

// Sweep removes what dead testbeds of the calling user left behind: only names, cgroups and files
// that their supervisors recorded as their own. It keeps their logs and reports within the bounds
// of this package. If there is nothing to do, it only checks each testbed's lock.
//
// Sweep decides which testbeds are dead, and takes them over, under the root lock, but removes them
// without it. So an engine that hangs does not keep other processes from claiming another name. If
// the sweeping process dies meanwhile, it leaves the record for the next sweep.
func Sweep(o SweepOptions) ([]Swept, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	all, err := o.sweepDirs(root)
	if err != nil {
		return all, err
	}
	return o.sweepNames(root, all)
}

// sweepDirs sweeps the run directories.
func (o SweepOptions) sweepDirs(root string) ([]Swept, error) {
	dirs, err := o.dead(root)
	if err != nil || dirs == nil {
		return nil, err
	}
	var all []Swept
	if o.DryRun {
		for _, dir := range dirs {
			all = append(all, Swept{Name: dir.Name, Removed: dir.remains(o.patience())})
		}
		return o.trim(root, all, nil)
	}
	taken, err := o.take(root, dirs)
	if o.Try && errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	away := map[string]bool{}
	for _, remains := range taken {
		swept, sweepErr := remains.finish(o, away)
		if sweepErr != nil {
			err = errors.Join(err, fmt.Errorf("sweep %s: %w", remains.dir.Name, sweepErr))
		} else {
			all = append(all, *swept)
		}
	}
	return o.trim(root, all, err)
}

// trim removes the testbeds that exceed the bounds and adds them to the swept ones.
func (o SweepOptions) trim(root string, all []Swept, failures error) ([]Swept, error) {
	release, err := lockRoot(root)
	if err != nil {
		return all, errors.Join(failures, err)
	}
	defer release()
	gone, err := trimLocked(root, o.Forget, o.DryRun)
	for _, aborted := range gone {
		all = append(all, Swept{Name: aborted.Name, Removed: []string{aborted.Dir}})
	}
	return all, errors.Join(failures, err)
}

// dead returns the directories that seem to have no holder. Until the root lock is held, a
// directory that is being claimed looks dead, too. The result is nil if there is nothing to sweep.
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

// take takes over the dead testbeds among some directories. With Forget it waits for testbeds that
// another process is sweeping; otherwise it leaves them to that process.
func (o SweepOptions) take(root string, dirs []Dir) (taken []*remains, failures error) {
	how := unix.LOCK_EX
	if o.Try {
		how |= unix.LOCK_NB
	}
	for deadline := time.Now().Add(o.patience() + time.Second); ; time.Sleep(sweptTick) {
		release, err := flockRoot(root, how)
		if err != nil {
			return taken, errors.Join(failures, err)
		}
		var others []Dir
		for _, dir := range dirs {
			one, err := dir.takeLocked()
			switch {
			case one != nil:
				taken = append(taken, one)
			case errors.Is(err, errSwept):
				others = append(others, dir)
			case err != nil && !errors.Is(err, ErrRunning):
				failures = errors.Join(failures, fmt.Errorf("sweep %s: %w", dir.Name, err))
			}
		}
		failures = errors.Join(failures, release())
		if len(others) == 0 || !o.Forget {
			return taken, failures
		}
		if time.Now().After(deadline) {
			return taken, errors.Join(failures, fmt.Errorf("sweep %s: %w", others[0].Name, errSwept))
		}
		dirs = others
	}
}

// sweptTick is the interval at which take checks whether another process's sweep is over.
const sweptTick = 20 * time.Millisecond

// errSwept reports that another process removes what a dead testbed left.
var errSwept = errors.New(
	"another railbed is removing what is left of this dead testbed, and waits for its engine")

// remains are a dead testbed's directory, the lock of the sweeping process, and the record in the
// directory.
type remains struct {
	dir    Dir
	lock   *os.File
	record Published
	// unlinked lists the links that are already removed.
	unlinked []string
}

// takeLocked takes over the directory of a dead testbed, and removes its links. It needs the root
// lock. If there is no directory, it returns nil.
func (d Dir) takeLocked() (*remains, error) {
	if _, err := os.Lstat(d.Path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lock, err := lockFile(filepath.Join(d.Path, lockName), 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The supervisor died between mkdir and lock. The root lock excludes this state for live
		// testbeds.
	case errors.Is(err, errHeld):
		return nil, fmt.Errorf("%s: %w", d.Name, ErrRunning)
	case err != nil:
		return nil, err
	default:
		lock.Close() // a process that takes this lock needs the root lock, and then tries sweep.lock
	}
	r := &remains{dir: d}
	if r.lock, err = lockFile(filepath.Join(d.Path, sweepName), os.O_CREATE); errors.Is(err, errHeld) {
		return nil, errSwept
	}
	if err != nil {
		return nil, err
	}
	if r.record, err = d.Published(); err == nil {
		r.unlinked, err = r.record.unlinkLocked()
	}
	if err != nil {
		return nil, errors.Join(err, r.lock.Close())
	}
	return r, nil
}

// finish removes the remains. Away records the engines that have not answered in this sweep; they
// get no further requests.
func (r *remains) finish(o SweepOptions, away map[string]bool) (swept *Swept, err error) {
	defer func() { err = errors.Join(err, r.lock.Close()) }()
	swept = &Swept{Name: r.dir.Name, Removed: r.unlinked}
	wait := o.patience()
	if away[r.record.Containers] {
		wait = 0
	}
	removed, err := r.dir.removeSlowly(r.record, wait)
	if errors.Is(err, ErrEngineAway) {
		away[r.record.Containers] = true
		if o.Forget {
			swept.Left, err = []string{"containers of " + r.record.Containers}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	swept.Removed = append(append(swept.Removed, removed...), r.dir.Path)
	release, err := lockRoot(filepath.Dir(r.dir.Path))
	if err != nil {
		return nil, err
	}
	defer release()
	if !o.Forget {
		if swept.Kept, err = r.dir.keepLocked(); err != nil {
			return nil, err
		}
	}
	return swept, r.dir.removeFilesLocked()
}

// removeSlowly removes cgroups and containers. It may have to wait: for processes to end, and for
// engines, for each answer at most as long as given.
func (d Dir) removeSlowly(record Published, wait time.Duration) (removed []string, failures error) {
	for _, cgroup := range slices.Backward(record.Cgroups) {
		failures = errors.Join(failures, removeCgroup(cgroup))
	}
	removed = slices.Clone(record.Cgroups)
	if record.Containers != "" {
		containers, err := removeContainers(record.Containers, d.Path, wait, false)
		removed, failures = append(removed, containers...), errors.Join(failures, err)
	}
	return removed, failures
}

// remains lists what a sweep would remove.
func (d Dir) remains(wait time.Duration) []string {
	record, _ := d.Published()
	var remains []string
	for _, link := range record.Links {
		if link.ours() {
			remains = append(remains, link.Path)
		}
	}
	if record.Containers != "" {
		containers, err := removeContainers(record.Containers, d.Path, wait, true)
		if err != nil {
			containers = []string{"containers of " + record.Containers}
		}
		remains = append(remains, containers...)
	}
	return append(append(remains, record.Cgroups...), d.Path)
}

// unlinkLocked removes the links that match the record, and the directory that was created for
// them. It needs the root lock, so that it does not remove a shared directory while another testbed
// creates it.
func (p Published) unlinkLocked() (removed []string, failures error) {
	for _, link := range p.Links {
		if link.ours() {
			removed, failures = append(removed, link.Path), errors.Join(failures, os.Remove(link.Path))
		}
	}
	if p.MadeDir != "" {
		// The directory stays if it holds other programs' names by now.
		if err := unix.Rmdir(p.MadeDir); err != nil && !errors.Is(err, unix.ENOTEMPTY) &&
			!errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT) {
			failures = errors.Join(failures, fmt.Errorf("remove %s: %w", p.MadeDir, err))
		}
	}
	return removed, failures
}

// SweepGone removes the containers of a testbed whose run directory no longer exists. Meanwhile it
// recreates the directory as if a dead testbed had left it, so that the name cannot be claimed
// until the engine has answered. An existing directory is left alone, and SweepGone returns nil.
func SweepGone(d Dir, containers string, dryRun bool) (*Swept, error) {
	own, err := Of(filepath.Base(d.Path))
	if dryRun || err != nil || own.Path != d.Path { // no process claims this directory
		if _, err := os.Lstat(d.Path); !errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		removed, err := removeContainers(containers, d.Path, Patience, dryRun)
		return &Swept{Name: d.Name, Removed: removed}, err
	}
	remains, err := d.remake(Published{Containers: containers})
	if remains == nil || err != nil {
		return nil, err
	}
	swept, err := remains.finish(SweepOptions{Forget: true}, map[string]bool{})
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", d.Name, err)
	}
	swept.Removed = slices.DeleteFunc(swept.Removed, func(what string) bool { return what == d.Path })
	return swept, nil
}

// remake creates the directory of a dead testbed and takes it over. If the directory exists, remake
// returns nil.
func (d Dir) remake(record Published) (*remains, error) {
	release, err := lockRoot(filepath.Dir(d.Path))
	if err != nil {
		return nil, err
	}
	defer release()
	if err := os.Mkdir(d.Path, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := d.record(record); err != nil {
		return nil, err
	}
	return d.takeLocked()
}
