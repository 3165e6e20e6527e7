// Package cgroup limits the processor time and memory of a node with control
// groups of either version, whichever the host has.
package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/rundir"
	"railbed/internal/units"
	"railbed/internal/verdict"
)

// root is where every distribution mounts both versions.
const root = "/sys/fs/cgroup"

// CPUPeriod is the kernel's default period of bandwidth control, in us.
const CPUPeriod = 100_000

// Limits bound a node's use of processor and memory. Zero is no limit.
type Limits struct {
	CPU    float64 // cores
	Memory units.Bytes
	// AdjustCPU is set if SetCPU may be called, and AdjustMemory if SetMemory may be called.
	AdjustCPU, AdjustMemory bool
}

func (l Limits) ofCPU() bool    { return l.CPU > 0 || l.AdjustCPU }
func (l Limits) ofMemory() bool { return l.Memory > 0 || l.AdjustMemory }

// Group is the control group of one node. A nil Group, or a Group without directories, is no limit. It is
// safe for concurrent use.
type Group struct {
	testbed, node string

	mu     sync.RWMutex // guards the next three fields
	limits Limits
	// dirs are the node's directories: one in version 2, one for each controller in version 1.
	dirs    []string
	unified *os.File // the directory in version 2, else nil

	memory adjusted
}

// Plan determines the place of the node's group, and makes nothing. Without limits the group has no
// directories until AddCPU. If the host has no controllers, the error is a *verdict.UnsupportedError.
func Plan(testbed, node string, limits Limits) (*Group, error) {
	g := &Group{testbed: testbed, node: node, limits: limits}
	if limits == (Limits{}) {
		return g, nil
	}
	var controllers []string
	if limits.ofCPU() {
		controllers = append(controllers, "cpu")
	}
	if limits.ofMemory() {
		controllers = append(controllers, "memory")
	}
	if available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		for _, controller := range controllers {
			if !slices.Contains(strings.Fields(string(available)), controller) {
				return nil, unsupported(
					fmt.Errorf("controller %s is not in %s/cgroup.controllers", controller, root))
			}
		}
		g.dirs = []string{filepath.Join(root, rundir.SharedCgroup, testbed, node)}
		return g, nil
	}
	for _, controller := range controllers {
		hierarchy := filepath.Join(root, controller)
		if _, err := os.Stat(filepath.Join(hierarchy, "tasks")); err != nil {
			return nil, unsupported(err)
		}
		g.dirs = append(g.dirs, filepath.Join(hierarchy, rundir.SharedCgroup, testbed, node))
	}
	return g, nil
}

func unsupported(err error) error {
	return &verdict.UnsupportedError{
		Feature: "cgroup limits", Reason: err.Error(),
		Remedy: "run as root on a host with the cpu and memory controllers, or leave cpu and memory of " +
			"nodes, and the faults slow and memory, out of the file",
	}
}

// Dirs returns the directories that Make makes, parents before children. The caller records them
// before it calls Make.
func (g *Group) Dirs() []string {
	var dirs []string
	for _, dir := range g.current() {
		testbed := filepath.Dir(dir)
		dirs = append(dirs, filepath.Dir(testbed), testbed, dir)
	}
	return dirs
}

// Make makes the group and sets its limits, and reads them back.
func (g *Group) Make() error {
	if len(g.current()) == 0 {
		return nil
	}
	if err := g.makeDirs(); err != nil {
		return err
	}
	if len(g.dirs) == 1 && !isV1(g.dirs[0]) {
		return g.setUnified()
	}
	for _, dir := range g.current() {
		if err := g.setV1(dir); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs makes the directories. The shared one may disappear between two calls, when another
// testbed was the last to use it.
func (g *Group) makeDirs() error {
	const attempts = 10
	var err error
	for range attempts {
		for _, dir := range g.Dirs() {
			if err = os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
				err = nil
			}
			if err != nil {
				break
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return unsupported(err)
	}
	return nil
}

func isV1(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "tasks"))
	return err == nil
}

// setUnified enables the controllers in the parents and sets the limits of version 2.
func (g *Group) setUnified() error {
	dir := g.dirs[0]
	enable := []string{}
	if g.limits.ofCPU() {
		enable = append(enable, "+cpu")
	}
	if g.limits.ofMemory() {
		enable = append(enable, "+memory")
	}
	testbed := filepath.Dir(dir)
	for _, parent := range []string{root, filepath.Dir(testbed), testbed} {
		err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"),
			[]byte(strings.Join(enable, " ")), 0)
		if err != nil {
			return unsupported(err)
		}
	}
	if g.limits.CPU > 0 {
		if err := g.SetCPU(0); err != nil {
			return err
		}
	}
	if g.limits.ofMemory() {
		if err := g.SetMemory(0); err != nil {
			return err
		}
	}
	file, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open cgroup: %w", err)
	}
	g.unified = file
	return nil
}

func (g *Group) setV1(dir string) error {
	if dir == g.dirOf("memory") {
		return g.SetMemory(0)
	}
	if err := set(dir, "cpu.cfs_period_us", strconv.Itoa(CPUPeriod)); err != nil {
		return err
	}
	return g.SetCPU(0)
}

// SetCPU limits the group's processor time from now on to a number of cores. 0 restores the limit that the
// group was made with.
func (g *Group) SetCPU(cores float64) error {
	dir := g.dirOf("cpu")
	if dir == "" {
		return errors.New("the node has no control group for processor time")
	}
	cores = cmp.Or(cores, g.limits.CPU)
	quota := int64(cores * CPUPeriod)
	switch {
	case isV1(dir) && cores == 0:
		return set(dir, "cpu.cfs_quota_us", "-1")
	case isV1(dir):
		return set(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
	case cores == 0:
		return set(dir, "cpu.max", fmt.Sprintf("max %d", CPUPeriod))
	}
	return set(dir, "cpu.max", fmt.Sprintf("%d %d", quota, CPUPeriod))
}

// pages rounds down to whole pages, as the kernel does.
func pages(b units.Bytes) string {
	page := uint64(os.Getpagesize())
	return strconv.FormatUint(uint64(b)/page*page, 10)
}

// set writes a control file, reads it back and compares.
func set(dir, file, value string) error {
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("set %s to %s: %w", path, value, err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read back %s: %w", path, err)
	}
	if have := strings.TrimSpace(string(got)); have != value {
		return fmt.Errorf("set %s: kernel has %s, want %s", path, have, value)
	}
	return nil
}

// Enter moves the calling thread, which must be locked to its goroutine, into the group. Processes that
// it clones later start there. With version 2 of cgroups, or a nil group, Enter does nothing: the caller
// clones into Descriptor.
func (g *Group) Enter() error {
	if _, use := g.Descriptor(); use {
		return nil
	}
	for _, dir := range g.current() {
		// 0 is the writing thread.
		if err := os.WriteFile(filepath.Join(dir, "tasks"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// Descriptor returns the group's directory for clone3 with CLONE_INTO_CGROUP, and whether there is
// one.
func (g *Group) Descriptor() (fd int, use bool) {
	if g == nil {
		return 0, false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.unified == nil {
		return 0, false
	}
	return int(g.unified.Fd()), true
}

// Throttled returns the time in which the limit of processor time held the node's programs back, summed over
// the processors.
func (g *Group) Throttled() (time.Duration, error) {
	dir := g.dirOf("cpu")
	if dir == "" {
		return 0, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("read the throttled time: %w", err)
	}
	for field := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(field), " ")
		unit, known := map[string]time.Duration{"throttled_usec": time.Microsecond, "throttled_time": 1}[name]
		if known {
			count, err := strconv.ParseInt(value, 10, 64)
			return time.Duration(count) * unit, err
		}
	}
	return 0, fmt.Errorf("%s/cpu.stat has no throttled time", dir)
}

// Close removes the group, which must be empty of processes. It is idempotent.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var failures error
	if g.unified != nil {
		failures = g.unified.Close()
		g.unified = nil
	}
	for _, dir := range g.dirs {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			failures = errors.Join(failures, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return failures
}
