package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
	"railbed/internal/reexec"
	"railbed/internal/units"
	"railbed/internal/usage"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/cgroup"
	"railbed/plan"
	"railbed/plan/spec"
)

// addNodeFault begins a fault of nodes, and ends it after its time.
func (s *supervisor) addNodeFault(ctx context.Context, p *plan.Plan, f spec.Fault) error {
	end, err := s.nodeFaults.Add(ctx, p, f, faultHost{s})
	if err != nil || f.For == 0 {
		return err
	}
	lasts := clock.Dilation(max(p.Dilation, 1)).Wait(time.Duration(f.For))
	time.AfterFunc(lasts, func() {
		if s.ending.Err() != nil {
			return
		}
		if err := end(s.ending); err != nil {
			s.log.Error("fault did not end", "fault", f.Name, "error", err)
		}
	})
	return nil
}

// faultHost implements nodefault.Host.
type faultHost struct{ *supervisor }

// partPrints bounds what a part prints.
const partPrints = 64 << 10

// Run implements nodefault.Host.
func (s faultHost) Run(ctx context.Context, name, part string, args ...string) (int64, error) {
	node, known := s.nodes[name]
	if !known {
		return 0, s.noNode(name)
	}
	printed, out, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer printed.Close()
	process, err := node.Start(ctx, nodes.Command{Args: reexec.Argv(part, args...), Self: true,
		Unlimited: true, Stdout: out, Stderr: out})
	out.Close()
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { terminate(process) })
	defer stop()
	text, readErr := io.ReadAll(io.LimitReader(printed, partPrints))
	exit, err := process.Wait()
	text = bytes.TrimSpace(text)
	switch {
	case errors.Join(err, readErr) != nil:
		return 0, errors.Join(err, readErr)
	case exit.Code != 0 || exit.Signal != 0:
		return 0, fmt.Errorf("exit code %d, signal %d: %s", exit.Code, exit.Signal, text)
	}
	return strconv.ParseInt(string(text), 10, 64)
}

// groupOf returns the control group of a node.
func (s *supervisor) groupOf(node string) (*cgroup.Group, error) {
	p, _ := s.running()
	at := slices.IndexFunc(p.Nodes, func(n plan.Node) bool { return n.Name == node })
	if at < 0 {
		return nil, fmt.Errorf("node %q: %w", node, ErrNoSuchObject)
	}
	return s.groups[at], nil
}

// Slow implements nodefault.Host.
func (s faultHost) Slow(node string, cores float64) (err error) {
	limiter, own := s.nodes[node].(nodes.CPULimiter)
	if !own {
		var group *cgroup.Group
		if group, err = s.groupOf(node); err == nil && cores > 0 {
			err = group.AddCPU(s.recordGroup, func() ([]int, error) { return s.programsOf(node) })
		}
		limiter = group
	}
	if err == nil {
		err = limiter.SetCPU(cores)
	}
	if err != nil {
		return fmt.Errorf("slow node %s: %w", node, err)
	}
	return nil
}

// recordGroup records the directories of a control group that is made while the testbed runs.
func (s *supervisor) recordGroup(dirs []string) error {
	record := s.recorded
	record.Cgroups = slices.Clone(record.Cgroups)
	for _, dir := range dirs {
		if !slices.Contains(record.Cgroups, dir) {
			record.Cgroups = append(record.Cgroups, dir)
		}
	}
	_, err := s.record(record) // its links are there already
	return err
}

// programsOf returns the processes that a control group of a node has: its programs or, of a virtual machine,
// QEMU. The init of a node is not one of them.
func (s *supervisor) programsOf(node string) ([]int, error) {
	space := s.namespaces[node]
	if space == nil {
		return nil, fmt.Errorf("node %q: %w", node, ErrNoSuchObject)
	}
	var facts unix.Stat_t
	if err := unix.Fstat(space.Fd(), &facts); err != nil {
		return nil, fmt.Errorf("read the namespace of %s: %w", node, err)
	}
	return usage.Members(facts.Ino, s.plan.Node(node).Runtime == spec.VM)
}

// Squeeze implements nodefault.Host.
func (s faultHost) Squeeze(node string, limit *units.Bytes) (cgroup.MemoryEvents, error) {
	limiter, own := s.nodes[node].(nodes.MemoryLimiter)
	if !own {
		group, err := s.groupOf(node)
		if err != nil {
			return cgroup.MemoryEvents{}, err
		}
		limiter = group
	}
	before, err := limiter.Squeeze(limit)
	if errors.Is(err, cgroup.ErrNoMemory) {
		err = &verdict.UnsupportedError{Feature: "memory pressure",
			Reason: "the node has no control group for memory, and the memory that its programs have now " +
				"would not count in a new one",
			Remedy: "give the node a limit in the file, such as memory: 4GiB, before railbed up"}
	}
	if err != nil {
		return before, fmt.Errorf("limit the memory of %s: %w", node, err)
	}
	return before, nil
}

// Unplug implements nodefault.Host.
func (s faultHost) Unplug(ctx context.Context, node string) (func(context.Context) error, error) {
	states, err := s.fabric.Links(ctx)
	if err != nil {
		return nil, err
	}
	var unplugged []string
	plug := func(ctx context.Context) error {
		var failures []error
		for _, name := range unplugged {
			failures = append(failures, s.changeLink(ctx, LinkRequest{Where: name, State: "up"}))
		}
		return errors.Join(failures...)
	}
	for _, l := range states {
		if !l.Up || l.A.Node != node && l.B.Node != node {
			continue
		}
		if err := s.changeLink(ctx, LinkRequest{Where: l.Name, State: "down"}); err != nil {
			return nil, errors.Join(err, plug(ctx))
		}
		unplugged = append(unplugged, l.Name)
	}
	return plug, nil
}
