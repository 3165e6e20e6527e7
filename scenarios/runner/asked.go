package runner

import (
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/internal/usage"
)

// What the file asks for is not the emulator's deviation from the file. This part of the sampler finds what
// is left out of the fidelity: the time for which the file holds programs back, and NICs that programs take
// down. plan.Altered has the directions of links whose rates the file changes.

// asked returns the time for which the file keeps the programs of a node from running, in seconds of real
// time. Throttled is the time for which the node's limit of CPUs did so; a fault of kind slow sets that
// limit.
func (s *sampler) asked(node string, throttled float64) float64 {
	total := throttled
	if s.file == nil || s.plan == nil {
		return total
	}
	for _, step := range s.file.Steps {
		f := step.Fault
		if f == nil || !f.OfNodes() || !s.plan.FaultNode(f, node) {
			continue
		}
		if f.Crash || f.Hang || f.Memory != nil || f.Slow != nil {
			lasts := s.length()
			if f.For > 0 {
				lasts = min(lasts, s.dilation().Wait(time.Duration(f.For)))
			}
			total += lasts.Seconds()
		}
	}
	return total
}

// leaveOut marks what the file asked for in the sources that the host seems to have held up, and in the ranks
// that did not read their packets.
func (s *sampler) leaveOut(f *report.Fidelity) {
	length := s.length().Seconds()
	of := func(node string) float64 {
		throttled := 0.0
		for _, n := range f.Nodes {
			if n.Node == node {
				throttled = n.Throttled
			}
		}
		return s.asked(node, throttled)
	}
	for i := range f.HeldUp {
		if h := &f.HeldUp[i]; h.For > 0 {
			h.Asked = min(h.Share, of(h.Node)/h.For)
		}
	}
	for i := range f.Overruns {
		f.Overruns[i].Asked = of(f.Overruns[i].Node) > 0.01*length
	}
}

// throttled reports whether limits of CPUs held programs back. The kernel's pressure counts such programs as
// waiting for a CPU.
func throttled(nodes []report.NodeKernel) bool {
	return slices.ContainsFunc(nodes, func(n report.NodeKernel) bool { return n.Throttled > 0 })
}

// downs returns the NICs that lost their carrier although no step and no fault of the file takes their links
// down. A step that runs a command may have done so, or a program in the node.
func (s *sampler) downs() (found []report.NICDown) {
	if s.plan == nil {
		return nil
	}
	for i, l := range s.last.links {
		if i >= len(s.first.links) || s.file != nil && s.file.MayTakeDown(l.Name) {
			continue
		}
		was := s.first.links[i]
		for _, end := range []struct {
			node, port    string
			before, after uint64
		}{{l.A.Node, l.A.Port, was.A.Downs, l.A.Downs}, {l.B.Node, l.B.Port, was.B.Downs, l.B.Downs}} {
			if times := since(end.before, end.after); times > 0 && s.plan.Node(end.node) != nil {
				nic := report.NICDown{NIC: end.node + ":" + end.port, Times: times}
				nic.Spans = s.downSpans[nic.NIC]
				nic.Lost = s.failedAt(end.node, end.port)
				found = append(found, nic)
			}
		}
	}
	return found
}

// leaveOutDowns leaves packets that met a NIC that was down out of the emulator's losses, and out of the
// frames whose lateness should be known.
func leaveOutDowns(f *report.Fidelity) {
	if f.Timing == nil {
		return
	}
	for _, down := range f.Downs {
		f.Timing.Lost -= min(f.Timing.Lost, down.Lost)
		f.Timing.Unmatched -= min(f.Timing.Unmatched, down.Lost)
	}
}

// failedAt returns how many packets a soft switch had for a NIC and could not send to it.
func (s *sampler) failedAt(node, port string) uint64 {
	if s.first.soft == nil || s.last.soft == nil {
		return 0
	}
	for i := range min(len(s.first.soft.NICs), len(s.last.soft.NICs)) {
		if n := &s.last.soft.NICs[i]; n.Node == node && n.NIC == port {
			return since(s.first.soft.NICs[i].Port.SendFailed, n.Port.SendFailed)
		}
	}
	return 0
}

// interrupted are the links that lost their carrier at an end. Kernel switches count no packet for such a
// port.
func (s *sampler) interrupted() map[string]bool {
	links := map[string]bool{}
	for i, l := range s.last.links {
		if i < len(s.first.links) {
			was := s.first.links[i]
			if since(was.A.Downs, l.A.Downs)+since(was.B.Downs, l.B.Downs) > 0 {
				links[l.Name] = true
			}
		}
	}
	return links
}

// losses returns the packets that were lost at NICs, kernel links and switches outside of queues. By port
// it has the packets that an interface could not pass to the other end of its link, or that met a link
// without a carrier. By the name of a router it has the packets that the router's stack dropped. If the
// host dropped packets between interfaces, the ports are left out: such packets count against the
// fidelity.
func (s *sampler) losses() map[string]uint64 {
	lost := map[string]uint64{}
	if s.plan == nil {
		return lost
	}
	interrupted := s.interrupted()
	before, now := outputs(s.first.nodes, s.first.switches), outputs(s.last.nodes, s.last.switches)
	for i, l := range s.last.links {
		down := interrupted[l.Name]
		if i >= len(s.first.links) || s.backlog() > 0 || s.plan.Soft() && s.last.backlog > s.first.backlog {
			continue
		}
		was := s.first.links[i]
		for _, end := range [][2]nicState{
			{nicStateOf(was.A, was.AToB, before), nicStateOf(l.A, l.AToB, now)},
			{nicStateOf(was.B, was.BToA, before), nicStateOf(l.B, l.BToA, now)},
		} {
			nic := end[1].end.Node + ":" + end[1].end.Port
			if s.plan.Soft() && (!down || s.plan.Node(end[1].end.Node) == nil) {
				continue
			}
			groups, known := s.groups[nic]
			if !known {
				groups = end[1].groups(end[0])
			}
			lost[nic], _ = end[1].lost(s.plan, end[0], groups, down)
		}
	}
	for i, now := range s.last.switches {
		if s.plan.Soft() || i >= len(s.first.switches) {
			break
		}
		if now.Stack != nil && s.first.switches[i].Stack != nil {
			for _, reason := range usage.Forwarding {
				lost[now.Name] += since(s.first.switches[i].Stack.Drops[reason], now.Stack.Drops[reason])
			}
		}
	}
	return lost
}
