package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"
)

// NamesDir is the directory in which ip-netns(8) looks for names of namespaces.
const NamesDir = "/run/netns"

// nameTarget matches the target of a testbed's name, a descriptor of its supervisor. ip-netns(8)
// and container runtimes make mounts instead of links.
var nameTarget = regexp.MustCompile(`^/proc/[0-9]+/fd/[0-9]+$`)

// hostPIDs is the kernel's first PID namespace (PROC_PID_INIT_INO). Seen from another one, as in a
// container that shares /run/netns, the names of the host's testbeds dangle.
const hostPIDs = "pid:[4026531836]"

// dangling returns the names in a directory whose target descriptor no longer exists. They belong
// to testbeds that died after their run directory, and with it the record of their names, was
// removed. Names that a running testbed recorded are left out: its supervisor may be in another PID
// namespace.
func dangling(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dirs, err := List()
	if err != nil {
		return nil, err
	}
	recorded := map[string]bool{}
	for _, d := range dirs {
		if !d.Running() {
			continue
		}
		record, err := d.Published()
		if err != nil {
			return nil, err
		}
		for _, link := range record.Links {
			recorded[link.Path] = true
		}
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		target, err := os.Readlink(path)
		if err != nil || recorded[path] || !nameTarget.MatchString(target) {
			continue
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	return found, nil
}

// sweepNames removes dangling names and adds them to the swept testbeds. It takes the root lock,
// which also guards publishing, only if there is something to remove.
func (o SweepOptions) sweepNames(root string, all []Swept) ([]Swept, error) {
	if own, err := os.Readlink("/proc/self/ns/pid"); os.Getuid() != 0 || err != nil || own != hostPIDs {
		return all, nil // only root publishes names, and only the host's PID namespace shows all processes
	}
	names, err := dangling(NamesDir)
	for _, swept := range all {
		names = slices.DeleteFunc(names, func(name string) bool {
			return slices.Contains(swept.Removed, name)
		})
	}
	if len(names) == 0 || err != nil {
		return all, err
	}
	if !o.DryRun {
		how := unix.LOCK_EX
		if o.Try {
			how |= unix.LOCK_NB
		}
		release, err := flockRoot(root, how)
		if err != nil {
			return all, nil // the holder of the lock sweeps
		}
		defer release()
		if names, err = dangling(NamesDir); err != nil {
			return all, err
		}
		for _, name := range names {
			err = errors.Join(err, os.Remove(name))
		}
		if err != nil {
			return all, err
		}
	}
	return append(all, Swept{Name: "names", Removed: names}), nil
}
