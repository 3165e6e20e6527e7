package measure

import (
	"railbed/fabric"
	"railbed/internal/usage"
	"railbed/plan"
	"railbed/testbed/supervisor"
)

// A NIC without a carrier has a queue that drops each packet (noop_enqueue), before any tap. Newer kernels
// count these packets in the interface's tx_dropped. With older ones they are the packets that the node's
// stack had to send and that no interface sent.

// NICState has the counts of kernels at one end of a link.
type NICState struct {
	End    fabric.EndState
	queue  uint64        // packets that the queue in front of the NIC dropped
	output *usage.Output // of the node; nil if it is not known
}

// NICStateOf returns the state of the end that sends in a direction.
func NICStateOf(end fabric.EndState, d fabric.DirectionState, outputs map[string]*usage.Output) NICState {
	return NICState{end, d.Shaper.Drops, outputs[end.Node]}
}

// Outputs returns what the stacks of nodes and routers had to send.
func Outputs(nodes []supervisor.NodeState, switches []supervisor.SwitchState) map[string]*usage.Output {
	all := map[string]*usage.Output{}
	for i := range nodes {
		all[nodes[i].Name] = nodes[i].Output
	}
	for i := range switches {
		all[switches[i].Name] = switches[i].Output
	}
	return all
}

// Groups returns the packets to groups that the node had to send since before. Kernels send some of them by
// themselves.
func (n NICState) Groups(before NICState) uint64 {
	if n.output == nil || before.output == nil {
		return 0
	}
	return Since(before.output.Groups, n.output.Groups)
}

// Lost returns the packets to single hosts that the node's kernel could not pass to the NIC since before.
// Groups is how many packets to groups the NIC lost. Down reports whether the NIC was without a carrier for a
// time. The second result is false if it is not known what the stack had to send.
func (n NICState) Lost(p *plan.Plan, before NICState, groups uint64, down bool) (packets uint64, exact bool) {
	dropped := Since(before.End.Counters.TxDropped, n.End.Counters.TxDropped)
	packets = dropped - min(dropped, groups)
	if n.output == nil || before.output == nil {
		return packets, false
	}
	// Other interfaces of the node may have lost packets, too.
	if node := p.Node(n.End.Node); down && node != nil && len(node.NICs) == 1 && node.Management == nil {
		unsent := n.output.Unsent(*before.output)
		packets = max(packets, unsent-min(unsent, groups+Since(before.queue, n.queue)))
	}
	return packets, true
}
