package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/internal/units"
	"railbed/internal/usage"
)

// NodeKernel counts what the kernel did with the packets and programs of a node during the run.
type NodeKernel struct {
	Node string `json:"node"` // the node
	usage.Stack
	// Queues counts the packets that the kernel's queues in front of the node's own NICs dropped.
	Queues uint64 `json:"queue_drops,omitempty"`
	// Ran and Waited are seconds of real time that the node's programs had and waited for a processor, over
	// all threads.
	Ran    float64 `json:"programs_ran"`
	Waited float64 `json:"programs_waited"` // seconds for which its programs waited for a processor
	// Throttled is the part of Waited that the node's limit of CPUs caused, in seconds, summed over the CPUs.
	Throttled float64 `json:"programs_throttled,omitempty"`
	// Asked is the time for which the file held programs back, in seconds of real time: by a limit of CPUs,
	// and by faults that stop, kill or slow programs.
	Asked float64 `json:"programs_asked,omitempty"`
	// Starved is the time that programs waited for a processor, as a share of the run's time. It is 0 if the
	// file held the programs back.
	Starved float64 `json:"starved,omitempty"`
}

// Denied is the share of the time in which the node's programs wanted a processor and had none.
func (n NodeKernel) Denied() float64 {
	if n.Waited == 0 {
		return 0
	}
	return n.Waited / (n.Ran + n.Waited)
}

// heldBack is the share of the wanted time from which on the file counts as the cause of the waiting.
const heldBack = 0.03

// HeldBack reports whether the file held the node's programs back. The kernel does not say which part of
// their waiting that was.
func (n NodeKernel) HeldBack() bool { return n.Asked > heldBack*(n.Ran+n.Waited) }

// Unread is the number of packets that a program of the node did not take in time: its socket had no room.
func (n NodeKernel) Unread() uint64 {
	return n.Drops[usage.UDPReceiveBuffer] + n.Drops[usage.TCPListenQueue] + n.Drops[usage.TCPReceiveQueue]
}

// Lost is the number of packets that the node's kernel dropped on their way to or from a program. It leaves
// out packets that no program waited for or that had no route.
func (n NodeKernel) Lost() uint64 {
	return n.Dropped() - n.Drops[usage.UDPNoSocket] - n.Drops[usage.IPNoRoute]
}

// Dropped is the number of packets that the node's kernel dropped.
func (n NodeKernel) Dropped() (total uint64) {
	for _, count := range n.Drops {
		total += count
	}
	return total + n.Queues
}

// Reasons lists the drops: "udp-receive-buffer 512, nic-queue 3".
func (n NodeKernel) Reasons() string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(n.Drops)) {
		all = append(all, fmt.Sprintf("%s %d", reason, n.Drops[reason]))
	}
	if n.Queues > 0 {
		all = append(all, fmt.Sprintf("nic-queue %d", n.Queues))
	}
	return strings.Join(all, ", ")
}

// Denial says that the programs of nodes were denied processors, in a run in which no link was the bound.
func Denial(nodes []NodeKernel) string {
	least, most := nodes[0].Denied(), nodes[0].Denied()
	var names []string
	for i, n := range nodes {
		least, most = min(least, n.Denied()), max(most, n.Denied())
		if i < NodesShown {
			names = append(names, n.Node)
		}
	}
	who := strings.Join(names, ", ")
	if more := len(nodes) - len(names); more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	share := units.Percent(most)
	if units.Percent(least) != share {
		share = units.Percent(least) + " to " + share
	}
	return fmt.Sprintf("programs of %s were denied a processor for %s of the time that they wanted one, "+
		"and no link carried 80%% of its rate: the host, and not the network, was the bound", who, share)
}

// NodesShown bounds the nodes that the terminal shows.
const NodesShown = 8
