package runner

import (
	"cmp"
	"slices"
	"strings"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/usage"
	"railbed/testbed/supervisor"
)

// kernels returns what the nodes' kernels did between the first and the last sample. It lists the nodes with
// drops or programs: those with most drops first, then those whose programs were denied most.
func (s *sampler) kernels() (nodes []report.NodeKernel) {
	before := map[string]supervisor.NodeState{}
	for _, n := range s.first.nodes {
		before[n.Name] = n
	}
	queues := map[string]uint64{}
	for i := range s.meters {
		node, _, _ := strings.Cut(s.meters[i].rate.From, ":")
		queues[node] += s.meters[i].kernelDropped()
	}
	for _, now := range s.last.nodes {
		was := before[now.Name]
		if now.Stack == nil || was.Stack == nil {
			continue
		}
		n := report.NodeKernel{Node: now.Name, Queues: queues[now.Name],
			Ran:       (now.Programs.Ran - was.Programs.Ran).Seconds(),
			Waited:    (now.Programs.Waited - was.Programs.Waited).Seconds(),
			Throttled: (now.Programs.Throttled - was.Programs.Throttled).Seconds()}
		n.Received = since(was.Stack.Received, now.Stack.Received)
		for reason, count := range now.Stack.Drops {
			if grew := since(was.Stack.Drops[reason], count); grew > 0 {
				if n.Drops == nil {
					n.Drops = map[string]uint64{}
				}
				n.Drops[reason] = grew
			}
		}
		countOnce(&n)
		if n.Ran+n.Waited > 0 || n.Dropped() > 0 {
			nodes = append(nodes, n)
		}
	}
	slices.SortStableFunc(nodes, func(x, y report.NodeKernel) int {
		return cmp.Or(cmp.Compare(y.Dropped(), x.Dropped()), cmp.Compare(y.Denied(), x.Denied()))
	})
	return nodes
}

// countOnce counts a datagram that the queue of a NIC dropped as the queue's alone. Linux counts it in IP's
// OutDiscards and UDP's SndbufErrors, too (ip_send_skb and udp_send_skb). A datagram that was dropped
// elsewhere on its way out is in both as well, and counts as udp-send-buffer.
func countOnce(n *report.NodeKernel) {
	both := min(n.Drops[usage.IPSend], n.Drops[usage.UDPSendBuffer])
	for reason, again := range map[string]uint64{usage.IPSend: both,
		usage.UDPSendBuffer: min(n.Queues, both)} {
		if left := n.Drops[reason] - again; left > 0 {
			n.Drops[reason] = left
		} else {
			delete(n.Drops, reason)
		}
	}
	if len(n.Drops) == 0 {
		n.Drops = nil
	}
}

// backlog returns how many packets were dropped on the links of kernel switches because too many waited for a
// CPU. These are at most the drops of the interfaces, and at most those of the host's CPUs. Soft switches
// count theirs.
func (s *sampler) backlog() (lost uint64) {
	if s.plan == nil || s.plan.Soft() {
		return 0
	}
	for i, l := range s.last.links {
		if i < len(s.first.links) {
			was := &s.first.links[i]
			lost += since(was.A.Counters.TxDropped, l.A.Counters.TxDropped) +
				since(was.B.Counters.TxDropped, l.B.Counters.TxDropped)
		}
	}
	return min(lost, since(s.first.backlog, s.last.backlog))
}

// deniedDegraded is the share of a node's programs' time without a processor from which packets that they did
// not read count as the host's.
const deniedDegraded = 0.03

// judgeKernels judges the packets that a node's programs did not read, and those that waited for a CPU in
// vain. What programs that had a processor whenever they wanted one did not read is their own: a server's
// kernel would have dropped it, too.
func judgeKernels(f *report.Fidelity, against func(level int, format string, args ...any)) {
	lost := func(packets, of uint64) int {
		return level(float64(packets)/float64(max(1, of)), verify.LostOverloaded)
	}
	for _, n := range f.Nodes {
		unread, denied := n.Unread(), n.Denied()
		if unread == 0 || denied <= deniedDegraded {
			continue
		}
		against(lost(unread, n.Received), "%s: its sockets had no room for %d of %d packets, and its "+
			"programs were denied a processor for %.0f%% of the time that they wanted one (limit %.0f%%)",
			n.Node, unread, n.Received, denied*100, deniedDegraded*100)
	}
	if f.Backlog == 0 {
		return
	}
	var sent uint64
	for _, l := range f.Links {
		sent += l.Packets
	}
	against(lost(f.Backlog, sent), "the host dropped %d of %d packets between interfaces: too many "+
		"waited for a CPU", f.Backlog, sent)
}
