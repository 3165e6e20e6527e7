package measure

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/testbed/supervisor"
)

// kernels returns what the nodes' kernels did between the first and the last sample. It lists the nodes with
// drops or programs: those with most drops first, then those whose programs were denied most.
func (s *Sampler) kernels() (nodes []report.NodeKernel) {
	before := map[string]supervisor.NodeState{}
	for _, n := range s.first.Nodes {
		before[n.Name] = n
	}
	queues := map[string]uint64{}
	for i := range s.meters {
		node, _, _ := strings.Cut(s.meters[i].rate.From, ":")
		queues[node] += s.meters[i].kernelDropped()
	}
	for _, now := range s.last.Nodes {
		was := before[now.Name]
		if now.Stack == nil || was.Stack == nil {
			continue
		}
		n := report.NodeKernel{Node: now.Name, Queues: queues[now.Name],
			Ran:       (now.Programs.Ran - was.Programs.Ran).Seconds(),
			Waited:    (now.Programs.Waited - was.Programs.Waited).Seconds(),
			Throttled: (now.Programs.Throttled - was.Programs.Throttled).Seconds()}
		n.Received = Since(was.Stack.Received, now.Stack.Received)
		for reason, count := range now.Stack.Drops {
			if grew := Since(was.Stack.Drops[reason], count); grew > 0 {
				if n.Drops == nil {
					n.Drops = map[string]uint64{}
				}
				n.Drops[reason] = grew
			}
		}
		n.Asked = s.asked(n.Node, n.Throttled)
		n.Starved = s.starved(&n)
		if n.Ran+n.Waited > 0 || n.Dropped() > 0 {
			nodes = append(nodes, n)
		}
	}
	slices.SortStableFunc(nodes, func(x, y report.NodeKernel) int {
		return cmp.Or(cmp.Compare(y.Dropped(), x.Dropped()), cmp.Compare(y.Denied(), x.Denied()))
	})
	return nodes
}

// backlog returns how many packets were dropped on the links of kernel switches because too many waited for a
// CPU. These are at most the drops of the interfaces, and at most those of the host's CPUs. Soft switches
// count theirs.
func (s *Sampler) backlog() (lost uint64) {
	if s.plan == nil || s.plan.Soft() {
		return 0
	}
	for i, l := range s.last.Links {
		if i < len(s.first.Links) {
			was := &s.first.Links[i]
			lost += Since(was.A.Counters.TxDropped, l.A.Counters.TxDropped) +
				Since(was.B.Counters.TxDropped, l.B.Counters.TxDropped)
		}
	}
	return min(lost, Since(s.first.Backlog, s.last.Backlog))
}

// deniedDegraded is the share of a node's programs' time without a processor from which packets that they did
// not read count as the host's.
const deniedDegraded = 0.03

// starvedDegraded is the share of the run's time for which the programs of a node may wait for a processor
// while no link is busy. Beyond it the host, and not the emulated network, bounds the programs.
const starvedDegraded = 0.10

// linkBound is the share of its rate from which on a link bounds what programs do.
const linkBound = 0.80

// starved returns the share of the run's time for which the programs of a node waited for a processor. It is
// 0 if the file held them back.
func (s *Sampler) starved(n *report.NodeKernel) float64 {
	if length := s.length().Seconds(); !n.HeldBack() && length > 0 {
		return max(0, n.Waited-n.Asked) / length
	}
	return 0
}

// length is the real time from the first to the last sample.
func (s *Sampler) length() time.Duration { return s.ended.Sub(s.began) }

// judgeStarved names the nodes whose programs the host denied processors while no link was the bound. Their
// packets crossed the network as they should have, but they were fewer than the programs would have sent.
func judgeStarved(f *report.Fidelity, against func(level int, format string, args ...any)) {
	if slices.ContainsFunc(f.Links, func(l report.LinkRate) bool {
		return l.Asked > 0 && float64(l.Peak) >= linkBound*float64(l.Asked)
	}) {
		return
	}
	var nodes []report.NodeKernel
	for _, n := range f.Nodes {
		if n.Starved > starvedDegraded {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) > 0 {
		against(degraded, "%s", report.Denial(nodes))
	}
}

// judgeKernels judges the packets that a node's programs did not read, and those that waited for a CPU in
// vain. What programs that had a processor whenever they wanted one did not read is their own: a server's
// kernel would have dropped it, too.
func judgeKernels(f *report.Fidelity, against func(level int, format string, args ...any)) {
	lost := func(packets, of uint64) int {
		return level(float64(packets)/float64(max(1, of)), verify.LostOverloaded)
	}
	judgeStarved(f, against)
	for _, n := range f.Nodes {
		unread, denied := n.Unread(), n.Denied()
		if unread == 0 || denied <= deniedDegraded || n.HeldBack() {
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
