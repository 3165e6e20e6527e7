package vm

import (
	"errors"

	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes/cgroup"
)

// makeGroup makes the control group in which the node's programs start, so that the kernel counts their
// memory before a fault limits it. A guest whose kernel cannot limit memory boots all the same.
func (a *agent) makeGroup(node string) {
	group, err := cgroup.Plan("guest", node, cgroup.Limits{AdjustMemory: true})
	if err == nil {
		err = group.Make()
	}
	if err == nil {
		a.group = group
		return
	}
	var lacks *verdict.UnsupportedError
	if errors.As(err, &lacks) {
		lacks.Feature, lacks.Reason = "memory pressure", "in the guest, "+lacks.Reason
		lacks.Remedy = "use a guest kernel with CONFIG_MEMCG and without cgroup_disable=memory, such as " +
			"the kernel that scripts/vm-kernel unpacks"
	}
	a.ungrouped = err
}

// squeeze implements nodes.MemoryLimiter in the guest. The agent is outside the group: a process in the group
// could be killed before it has raised the limit.
func (a *agent) squeeze(limit *units.Bytes) (cgroup.MemoryEvents, error) {
	if a.ungrouped != nil {
		return cgroup.MemoryEvents{}, a.ungrouped
	}
	return a.group.Squeeze(limit)
}
