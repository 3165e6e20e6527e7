package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	containerapi "github.com/docker/docker/api/types/container"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes/cgroup"
)

// limitTime bounds a change of a limit. The first process answers late if its container is slow: after 4 s if
// it shares a hundredth of a core with eight busy programs.
const limitTime = 30 * time.Second

// noMemoryLimit is set for no limit, in bytes: engines cannot remove a limit, nor set it to the kernel's
// largest number with as much swap.
const noMemoryLimit = 1 << 61

// memoryEvents add up the events of all runs of a container, whose control group ends with the run.
type memoryEvents struct {
	run             chan struct{} // the run's gone
	earlier, latest cgroup.MemoryEvents
	reached         uint64 // the number of times that a new limit was below the use
}

func (m *memoryEvents) sum() cgroup.MemoryEvents {
	return cgroup.MemoryEvents{Reached: m.earlier.Reached + m.latest.Reached + m.reached,
		Killed: m.earlier.Killed + m.latest.Killed}
}

// quota is a number of cores in us of each cgroup.CPUPeriod.
func quota(cores float64) int64 { return int64(cores * cgroup.CPUPeriod) }

// SetCPU implements nodes.CPULimiter.
func (c *container) SetCPU(cores float64) error {
	c.limiting.Lock()
	defer c.limiting.Unlock()
	ctx, cancel := context.WithTimeout(c.life, limitTime)
	defer cancel()
	restore := cores == 0
	if restore {
		cores = c.config.Node.CPU
	} else if !c.runs() {
		return errDied
	}
	to, want := int64(-1), "max" // -1 is no limit
	if cores > 0 {
		to = quota(cores)
		want = fmt.Sprint(to)
	}
	err := c.update(ctx, containerapi.Resources{CPUPeriod: cgroup.CPUPeriod, CPUQuota: to})
	if err != nil {
		return err
	}
	now, err := c.group(ctx, groupRead)
	switch want = fmt.Sprintf("%s %d", want, cgroup.CPUPeriod); {
	case restore && errors.Is(err, errDied): // it has the limit when it runs again
		return nil
	case err == nil && now.CPU != want:
		err = fmt.Errorf("set processor time: kernel has %s, want %s", now.CPU, want)
	}
	return err
}

// Squeeze implements nodes.MemoryLimiter.
func (c *container) Squeeze(limit *units.Bytes) (before cgroup.MemoryEvents, err error) {
	if before, err = c.memoryEvents(); err == nil && limit != nil {
		err = c.limitMemory(*limit)
	}
	return before, err
}

// limitMemory limits the memory, or restores the limit of the file if limit is 0.
func (c *container) limitMemory(limit units.Bytes) error {
	c.limiting.Lock()
	defer c.limiting.Unlock()
	ctx, cancel := context.WithTimeout(c.life, limitTime)
	defer cancel()
	page := int64(os.Getpagesize())
	to := containerapi.Resources{Memory: int64(min(limit, noMemoryLimit)) / page * page}
	// There is one page of swap. With equal limits the kernel reaches the limit of memory and swap first.
	// With version 1 of control groups Linux 6.18 does not count this.
	to.MemorySwap = to.Memory + page
	after := groupRead
	if limit == 0 {
		after = groupRestore
		to.Memory, to.MemorySwap = noMemoryLimit, 2*noMemoryLimit
		if file := int64(c.config.Node.Memory); file > 0 {
			to.Memory, to.MemorySwap = file, file
		}
	} else {
		before, err := c.group(ctx, groupExpose)
		if err != nil {
			return err
		}
		if before.Used > uint64(to.Memory) {
			c.mu.Lock()
			c.memory.reached++
			c.mu.Unlock()
		}
	}
	if err := c.setMemory(ctx, to); err != nil {
		if !c.squeezed.Load() {
			_, restoreErr := c.group(ctx, groupRestore)
			err = errors.Join(err, restoreErr)
		}
		return err
	}
	c.squeezed.Store(limit > 0)
	now, err := c.group(ctx, after)
	switch pages := uint64(to.Memory / page * page); {
	case limit == 0 && errors.Is(err, errDied):
		return nil
	case err != nil:
		return err
	case now.Memory != pages:
		return fmt.Errorf("set memory: kernel has %d, want %d", now.Memory, pages)
	case now.Sum != 0 && now.Sum/uint64(page) != uint64(to.MemorySwap/page):
		return fmt.Errorf("set memory with swap: kernel has %d, want %d", now.Sum, to.MemorySwap)
	}
	return nil
}

// setMemory has the engine set limits of memory. The kernel kills programs that have too much, except with
// version 1 of control groups, which refuses the limit.
func (c *container) setMemory(ctx context.Context, to containerapi.Resources) error {
	for {
		err := c.update(ctx, to)
		if !errdefs.IsInternal(err) {
			return err
		}
		now, readErr := c.group(ctx, groupRead)
		if readErr != nil || now.Version != 1 || now.Used <= uint64(to.Memory) {
			return err
		}
		if _, err := c.group(ctx, groupKill); err != nil {
			return err
		}
	}
}

// update changes limits of the container. An engine refuses that for a moment after the container's end.
func (c *container) update(ctx context.Context, to containerapi.Resources) error {
	engine := c.runtime.client
	_, err := engine.ContainerUpdate(ctx, c.id, containerapi.UpdateConfig{Resources: to})
	for errdefs.IsInternal(err) && !c.runs() && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		_, err = engine.ContainerUpdate(ctx, c.id, containerapi.UpdateConfig{Resources: to})
	}
	if errdefs.IsInvalidArgument(err) {
		return c.refused(err)
	}
	if !errdefs.IsNotFound(err) {
		return err
	}
	if _, gone := engine.ContainerInspect(ctx, c.id); gone != nil {
		return err
	}
	return &verdict.UnsupportedError{Feature: "limits of a running container",
		Reason: "the engine at " + c.runtime.Host() + " has no request for them",
		Remedy: "use Docker, or Podman from 5.1"}
}

// runs reports whether the first process runs.
func (c *container) runs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channel != nil
}

// group sends a request about the control group, and adds up the events.
func (c *container) group(ctx context.Context, asked groupRequest) (now cgroup.Reading, err error) {
	var id uint64
	answers, run, err := c.send(&request{Group: asked}, &id)
	if err != nil {
		return now, err
	}
	defer c.forget(id)
	said, err := c.await(ctx, answers, run)
	if err == nil && said.Group == nil {
		err = errors.New("the container's first process does not answer")
	}
	if err != nil {
		return now, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.memory
	if m.run != run {
		m.run = run
		m.earlier.Reached += m.latest.Reached
		m.earlier.Killed += m.latest.Killed
	}
	m.latest = said.Group.Events
	return *said.Group, nil
}

// memoryEvents returns what limits of the memory have done so far.
func (c *container) memoryEvents() (cgroup.MemoryEvents, error) {
	ctx, cancel := context.WithTimeout(c.life, limitTime)
	defer cancel()
	_, err := c.group(ctx, groupRead)
	if errors.Is(err, errDied) {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memory.sum(), err
}
