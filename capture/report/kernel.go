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
	Node string `json:"node"`
	usage.Stack
	// Queues counts the packets that the queues of the node's own NICs dropped.
	Queues uint64 `json:"queue_drops,omitempty"`
	// Ran and Waited are seconds of real time that the node's programs had and waited for a processor, over
	// all threads.
	Ran    float64 `json:"programs_ran"`
	Waited float64 `json:"programs_waited"`
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

// kernels prints what the nodes' kernels dropped, and the programs that were denied processors.
func (t *textWriter) kernels(f *Fidelity) {
	if len(f.Nodes) == 0 {
		return
	}
	rows := newRows("node", "packets in", "dropped by its kernel", "programs ran", "waited", "denied")
	rightAligned(rows, 2, 4, 5, 6)
	for i, n := range f.Nodes {
		if i == nodesShown {
			rows.AppendRow([]any{fmt.Sprintf("(%d more in report.json)", len(f.Nodes)-i)})
			break
		}
		dropped := n.Reasons()
		if dropped == "" {
			dropped = "0"
		}
		rows.AppendRow([]any{n.Node, n.Received, dropped, seconds(n.Ran), seconds(n.Waited),
			percent(n.Denied())})
	}
	t.table(rows)
}
