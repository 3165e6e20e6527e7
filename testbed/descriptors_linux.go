package testbed

import (
	"fmt"

	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/internal/verdict"
	"railbed/nodes/cni"
	"railbed/plan"
)

// What the processes of a testbed keep open: the supervisor a namespace for each
// node and kernel switch, and for a node in which something runs its init's
// namespaces and channels; for a rank its channels and logs; and for each port
// that is recorded a socket in the recording's process. The soft switches' process
// has less: a socket for each node, and few for all NICs.
const (
	descriptorsPerNode = 8
	descriptorsPerRank = 4
	descriptorsBeside  = 128 // sockets, logs, clients, the runtime's
)

// descriptorBudget is the most descriptors that one process of a testbed has open.
func descriptorBudget(p *plan.Plan) int {
	budget := descriptorsBeside + len(fabric.Namespaces(p)) + descriptorsPerNode*len(p.Nodes) +
		descriptorsPerRank*len(p.Ranks)
	for i := range p.Nodes {
		budget += len(p.Nodes[i].NICs)
	}
	return budget
}

// checkDescriptors refuses a plan that needs more descriptors than a process may
// have. Processes raise their soft limit to the hard one.
func checkDescriptors(p *plan.Plan, limit uint64) error {
	budget := uint64(descriptorBudget(p))
	if budget <= limit-cni.PortDescriptors(p, limit) {
		return nil
	}
	budget += cni.PortDescriptors(p, budget*4/3)
	return &verdict.UnsupportedError{
		Feature: "descriptors",
		Reason: fmt.Sprintf("%d nodes take up to %d descriptors in one process, and the limit is %d",
			len(p.Nodes), budget, limit),
		Remedy: fmt.Sprintf("ulimit -Hn %d as root, or LimitNOFILE of the service; or fewer nodes", budget),
	}
}

// descriptorLimit is the host's.
func descriptorLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read limit of descriptors: %w", err)
	}
	return limit.Max, nil
}
