package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Reading has values of a group that were read from the kernel.
type Reading struct {
	// Version is 1 or 2, the version of control groups. Version 1 refuses a limit below the use.
	Version int `json:"version"`
	// CPU is the quota and the period in us, in the format of cpu.max. The quota max is no limit.
	CPU string `json:"cpu"`
	// Memory and Used are in bytes: the limit of memory and the use of it. Sum is the limit of memory and
	// swap together. It is 0 if the kernel does not count swap.
	Memory uint64       `json:"memory"`
	Used   uint64       `json:"used"`
	Sum    uint64       `json:"sum,omitempty"`
	Events MemoryEvents `json:"events"`
}

// Own returns the group of the container in which the calling process runs. The container's engine sets the
// limits: the process can only read them.
func Own() *Group {
	g := &Group{limits: Limits{AdjustCPU: true, AdjustMemory: true}, dirs: []string{root}}
	if memory := filepath.Join(root, "memory"); isV1(memory) {
		g.dirs = []string{filepath.Join(root, "cpu"), memory}
	}
	return g
}

// KillLargest kills the process of the group with the most resident memory, except for the caller.
func (g *Group) KillLargest() error {
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	return g.killLargest(g.dirOf("memory"))
}

// Read reads the values of the group.
func (g *Group) Read() (r Reading, err error) {
	cpu, memory := g.dirOf("cpu"), g.dirOf("memory")
	if r.Events, err = g.MemoryEvents(); err != nil {
		return r, err
	}
	limit, used, sum := "memory.max", "memory.current", "memory.swap.max"
	if r.Version = 2; isV1(memory) {
		r.Version, limit, used = 1, "memory.limit_in_bytes", "memory.usage_in_bytes"
		sum = "memory.memsw.limit_in_bytes"
	}
	var failures [4]error
	r.CPU, failures[0] = readQuota(cpu)
	r.Memory, failures[1] = readNumber(filepath.Join(memory, limit))
	r.Used, failures[2] = readNumber(filepath.Join(memory, used))
	r.Sum, failures[3] = readNumber(filepath.Join(memory, sum))
	switch {
	case errors.Is(failures[3], fs.ErrNotExist):
		failures[3] = nil
	case r.Version == 2 && failures[3] == nil:
		r.Sum += r.Memory
	}
	if err := errors.Join(failures[:]...); err != nil {
		return r, fmt.Errorf("read the control group: %w", err)
	}
	return r, nil
}

// readQuota reads the limit of processor time in the format of cpu.max.
func readQuota(dir string) (string, error) {
	if !isV1(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		return strings.TrimSpace(string(text)), err
	}
	quota, err := os.ReadFile(filepath.Join(dir, "cpu.cfs_quota_us"))
	period, periodErr := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us"))
	if text := strings.TrimSpace(string(quota)); text != "-1" {
		return text + " " + strings.TrimSpace(string(period)), cmp.Or(err, periodErr)
	}
	return "max " + strings.TrimSpace(string(period)), cmp.Or(err, periodErr)
}

// readNumber reads a file with a number, or with max, which is the kernel's largest number.
func readNumber(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if word := strings.TrimSpace(string(text)); word != "max" {
		return strconv.ParseUint(word, 10, 64)
	}
	return math.MaxInt64, nil
}
