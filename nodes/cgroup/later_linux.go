package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// current returns the group's directories.
func (g *Group) current() []string {
	if g == nil {
		return nil
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.dirs
}

// AddCPU makes SetCPU possible for a group that was made without it, and moves the node's processes into the
// group. Processes that start later are there from their start. record records the directories before they
// are made. members returns the process numbers.
func (g *Group) AddCPU(record func(dirs []string) error, members func() ([]int, error)) error {
	if g == nil {
		return errors.New("the node has no control group")
	}
	if g.dirOf("cpu") == "" {
		made, err := Plan(g.testbed, g.node, Limits{AdjustCPU: true})
		if err == nil {
			err = record(made.Dirs())
		}
		if err == nil {
			err = made.Make()
		}
		if err != nil {
			return err
		}
		g.mu.Lock()
		g.limits.AdjustCPU = true
		for _, dir := range made.dirs {
			if !slices.Contains(g.dirs, dir) {
				g.dirs = append(g.dirs, dir)
			}
		}
		if g.unified == nil {
			g.unified, made.unified = made.unified, nil
		}
		g.mu.Unlock()
		if made.unified != nil {
			if err := made.unified.Close(); err != nil {
				return err
			}
		}
	}
	return g.moveIn(g.dirOf("cpu"), members)
}

// moveIn moves processes into a directory until all are there. A process may clone another one while it is
// moved.
func (g *Group) moveIn(dir string, members func() ([]int, error)) error {
	const attempts = 100
	for range attempts {
		all, err := members()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return err
		}
		there, moved := strings.Fields(string(text)), 0
		for _, pid := range all {
			if slices.Contains(there, strconv.Itoa(pid)) {
				continue
			}
			moved++
			err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d to %s: %w", pid, dir, err)
			}
		}
		if moved == 0 {
			return nil
		}
	}
	return fmt.Errorf("move processes to %s: new ones start faster than they are moved", dir)
}
