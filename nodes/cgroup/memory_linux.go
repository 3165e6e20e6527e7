package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/units"
)

// MemoryEvents counts what a limit of memory did since the group was made.
type MemoryEvents struct {
	// Reached is the number of times that the programs needed more than the limit. The kernel then took
	// memory of files back, moved memory to swap, or killed a program.
	Reached uint64 `json:"reached"`
	// Killed is the number of processes that were killed because of it.
	Killed uint64 `json:"killed"`
}

// adjusted counts the effects of SetMemory that the kernel does not count.
type adjusted struct {
	mu    sync.Mutex // held while the limit changes; guards the events
	count MemoryEvents
}

// freePatience bounds the time in which killed processes return their memory. A process that swaps or writes
// to a slow disk returns it late.
const freePatience = 10 * time.Second

// ErrNoMemory is the error of a group that does not limit memory.
var ErrNoMemory = errors.New("the node has no control group for memory")

// SetMemory limits the group's memory from now on. 0 restores the limit that the group was made with. If the
// programs use more, the kernel first takes back memory of files. If that is too little, the OOM killer ends
// programs, the largest first. Version 1 of control groups has no such killing when a limit changes, so
// SetMemory does it there.
func (g *Group) SetMemory(limit units.Bytes) error {
	dir := g.dirOf("memory")
	if dir == "" {
		return ErrNoMemory
	}
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	file, usage, value := "memory.max", "memory.current", "max"
	if isV1(dir) {
		// The kernel's largest limit is no limit.
		file, usage, value = "memory.limit_in_bytes", "memory.usage_in_bytes", pages(math.MaxInt64)
	}
	if limit = cmp.Or(limit, g.limits.Memory); limit > 0 {
		value = pages(limit)
	}
	used, err := readNumber(filepath.Join(dir, usage))
	if err != nil {
		return err
	}
	if limit > 0 && used > uint64(limit) {
		g.memory.count.Reached++
	}
	for end := time.Now().Add(freePatience); ; time.Sleep(10 * time.Millisecond) {
		err := set(dir, file, value)
		if !errors.Is(err, unix.EBUSY) || !isV1(dir) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w; the programs that were killed did not return their memory within %v", err,
				freePatience)
		}
		if err := g.killLargest(dir); err != nil {
			return err
		}
	}
}

// Squeeze limits the group's memory as SetMemory does, or changes nothing if limit is nil. It returns what
// limits of the memory did before.
func (g *Group) Squeeze(limit *units.Bytes) (before MemoryEvents, err error) {
	if before, err = g.MemoryEvents(); err == nil && limit != nil {
		err = g.SetMemory(*limit)
	}
	return before, err
}

// killLargest kills the process of the group with the most resident memory, and waits for its end. The caller
// must hold memory.mu.
func (g *Group) killLargest(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	largest, most := 0, uint64(0)
	for _, word := range strings.Fields(string(text)) {
		statm, _ := os.ReadFile("/proc/" + word + "/statm") // it may have ended
		fields := strings.Fields(string(statm))
		if len(fields) < 2 {
			continue
		}
		pid, _ := strconv.Atoi(word)
		if pid == os.Getpid() {
			continue
		}
		if resident, err := strconv.ParseUint(fields[1], 10, 64); err == nil && resident > most {
			largest, most = pid, resident
		}
	}
	if largest == 0 {
		return nil // what is left belongs to files, or to processes that end
	}
	process, err := unix.PidfdOpen(largest, 0)
	if err == nil {
		defer unix.Close(process)
		err = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0)
	}
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return fmt.Errorf("kill process %d, which has the most memory: %w", largest, err)
	}
	g.memory.count.Killed++
	// A process returns its memory before its end.
	ended := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		_, err = unix.Poll(ended, int(freePatience/time.Millisecond))
	}
	return err
}

// MemoryEvents returns what the limit of memory has done so far.
func (g *Group) MemoryEvents() (events MemoryEvents, err error) {
	dir := g.dirOf("memory")
	if dir == "" {
		return events, ErrNoMemory
	}
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	events = g.memory.count
	from, kills := "memory.events", "oom_kill"
	if isV1(dir) {
		from = "memory.oom_control"
		failed, err := readNumber(filepath.Join(dir, "memory.failcnt"))
		if err != nil {
			return events, err
		}
		events.Reached += failed
	}
	text, err := os.ReadFile(filepath.Join(dir, from))
	if err != nil {
		return events, fmt.Errorf("read the events of memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		count, err := strconv.ParseUint(value, 10, 64)
		switch {
		case err != nil:
		case name == "max":
			events.Reached += count
		case name == kills:
			events.Killed += count
		}
	}
	return events, nil
}

// dirOf returns the group's directory of a controller, or "".
func (g *Group) dirOf(controller string) string {
	if g == nil {
		return ""
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if controller == "cpu" && !g.limits.ofCPU() || controller == "memory" && !g.limits.ofMemory() {
		return ""
	}
	for _, dir := range g.dirs {
		if !isV1(dir) || strings.HasPrefix(dir+"/", filepath.Join(root, controller)+"/") {
			return dir
		}
	}
	return ""
}
