package testbed

import (
	"fmt"

	"golang.org/x/sys/unix"

	"railbed/fabric"
	"railbed/internal/verdict"
	"railbed/nodes/cni"
	"railbed/plan"
)

// Numbers of descriptors that the processes of a testbed keep open. The supervisor has a namespace
// for each node and kernel switch, and the namespaces and channels of the init of each node in
// which a program runs. A rank has channels and logs. Each recorded port has a socket in the
// recording's process. The process of the soft switches has fewer: a socket for each node, and a
// few for all NICs.
const (
	descriptorsPerNode = 8
	descriptorsPerRank = 4
	descriptorsBeside  = 128 // sockets, logs, clients, the Go runtime's
)

// descriptorBudget returns the largest number of descriptors that one process of a testbed has
// open.
func descriptorBudget(p *plan.Plan) int {
	budget := descriptorsBeside + len(fabric.Namespaces(p)) + descriptorsPerNode*len(p.Nodes) +
		descriptorsPerRank*len(p.Ranks)
	for i := range p.Nodes {
		budget += len(p.Nodes[i].NICs)
	}
	return budget
}

// checkDescriptors returns an error if a plan needs more descriptors than a process may have.
// Processes raise their soft limit to the hard limit.
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

// descriptorLimit returns the host's hard limit.
func descriptorLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read limit of descriptors: %w", err)
	}
	return limit.Max, nil
}
