package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
}

// Denied is the share of the time in which the node's programs wanted a processor and had none.
func (n NodeKernel) Denied() float64 {
	if n.Waited == 0 {
		return 0
	}
	return n.Waited / (n.Ran + n.Waited)
}

// Unread is the number of packets that a program of the node did not take in time: its socket had no room.
func (n NodeKernel) Unread() uint64 {
	return n.Drops[usage.UDPReceiveBuffer] + n.Drops[usage.TCPListenQueue] + n.Drops[usage.TCPReceiveQueue]
}

// Lost is the number of packets that the node's kernel dropped on their way to or from a program. It leaves
// out packets that no program waited for or that had no route.
func (n NodeKernel) Lost() uint64 {
	return n.Dropped() - n.Drops[usage.UDPNoSocket] - n.Drops[usage.IPSend]
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

// nodesShown bounds the nodes that the terminal shows.
const nodesShown = 8

// kernels prints the nodes whose kernels lost packets. report.json and the page have all nodes.
func (t *textWriter) kernels(nodes []NodeKernel) {
	var times []float64
	for _, n := range nodes {
		times = append(times, n.Ran, n.Waited)
	}
	in := durations.of(times...)
	rows := newRows("node", "packets in", "dropped by its kernel", in.head("programs ran"), in.head("waited"),
		"denied")
	rightAligned(rows, 2, 4, 5, 6)
	lost := 0
	for _, n := range nodes {
		if n.Lost() == 0 {
			continue
		}
		if lost++; lost <= nodesShown {
			rows.AppendRow([]any{n.Node, n.Received, n.Reasons(), in.text(n.Ran), in.text(n.Waited),
				percent(n.Denied())})
		}
	}
	if lost > nodesShown {
		rows.AppendRow([]any{fmt.Sprintf("(%d more in report.json)", lost-nodesShown)})
	}
	if lost > 0 {
		t.table(rows)
	}
}
