package measure

import (
	"iter"
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/fabric/softswitch"
	"railbed/internal/usage"
	"railbed/plan/spec"
)

// What the file asks for is not the emulator's deviation from the file. This part of the sampler finds what
// is left out of the fidelity: the time for which the file holds programs back, and NICs that programs take
// down. plan.Altered has the directions of links whose rates the file changes.

// asked returns the time for which the file keeps the programs of a node from running, in seconds of real
// time. Throttled is the time for which the node's limit of CPUs did so; a fault of kind slow sets that
// limit.
func (s *Sampler) asked(node string, throttled float64) float64 {
	total := throttled
	if s.file == nil || s.plan == nil {
		return total
	}
	for f := range s.holding(node) {
		lasts := s.length()
		if f.For > 0 {
			lasts = min(lasts, s.dilation().Wait(time.Duration(f.For)))
		}
		total += lasts.Seconds()
	}
	return total
}

// holding returns the faults of the file that keep programs of a node from running.
func (s *Sampler) holding(node string) iter.Seq[*spec.Fault] {
	return func(yield func(*spec.Fault) bool) {
		for _, step := range s.file.Steps {
			f := step.Fault
			if f == nil || !f.OfNodes() || !s.plan.FaultNode(f, node) {
				continue
			}
			if (f.Crash || f.Hang || f.Memory != nil || f.Slow != nil) && !yield(f) {
				return
			}
		}
	}
}

// leaveOut finds effects that the file asked for. It looks at sources that the host seems to have held up, at
// ranks that did not read their packets, and at the emulator's losses.
func (s *Sampler) leaveOut(f *report.Fidelity) {
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
	if f.Timing != nil {
		f.Timing.Lost -= min(f.Timing.Lost, s.full)
	}
}

// watchQueues counts frames that found a program's queue full (nic-path: bypass) since the last sample. They
// are those at nodes whose programs a fault of the file held back at that sample or at this one. The emulator
// did not lose them: a full socket loses packets, too. A limit of CPUs excuses no loss. It lasts for the
// whole run, and programs read in spite of it.
func (s *Sampler) watchQueues(now *State) {
	was := &s.last
	if s.file == nil || s.plan == nil || was.Soft == nil || now.Soft == nil ||
		len(was.NodeFaults)+len(now.NodeFaults) == 0 {
		return
	}
	for i := range min(len(was.Soft.NICs), len(now.Soft.NICs)) {
		before, after := &was.Soft.NICs[i], &now.Soft.NICs[i]
		if lost := Since(before.Bypass.Overrun, after.Bypass.Overrun); lost > 0 &&
			(s.held(after.Node, was.NodeFaults) || s.held(after.Node, now.NodeFaults)) {
			s.full += lost
		}
	}
}

// held reports whether a fault of the file that acts keeps programs of a node from running.
func (s *Sampler) held(node string, act []softswitch.FaultState) bool {
	for f := range s.holding(node) {
		acts := func(a softswitch.FaultState) bool { return a.Name == f.Name && !a.Over }
		if slices.ContainsFunc(act, acts) {
			return true
		}
	}
	return false
}

// throttled reports whether limits of CPUs held programs back. The kernel's pressure counts such programs as
// waiting for a CPU.
func throttled(nodes []report.NodeKernel) bool {
	return slices.ContainsFunc(nodes, func(n report.NodeKernel) bool { return n.Throttled > 0 })
}

// downs returns the NICs that lost their carrier although no step and no fault of the file takes their links
// down. A step that runs a command may have done so, or a program in the node.
func (s *Sampler) downs() (found []report.NICDown) {
	if s.plan == nil {
		return nil
	}
	for i, l := range s.last.Links {
		if i >= len(s.first.Links) || s.file != nil && s.file.MayTakeDown(l.Name) {
			continue
		}
		was := s.first.Links[i]
		for _, end := range []struct {
			node, port    string
			before, after uint64
		}{{l.A.Node, l.A.Port, was.A.Downs, l.A.Downs}, {l.B.Node, l.B.Port, was.B.Downs, l.B.Downs}} {
			if times := Since(end.before, end.after); times > 0 && s.plan.Node(end.node) != nil {
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
func (s *Sampler) failedAt(node, port string) uint64 {
	if s.first.Soft == nil || s.last.Soft == nil {
		return 0
	}
	for i := range min(len(s.first.Soft.NICs), len(s.last.Soft.NICs)) {
		if n := &s.last.Soft.NICs[i]; n.Node == node && n.NIC == port {
			return Since(s.first.Soft.NICs[i].Port.SendFailed, n.Port.SendFailed)
		}
	}
	return 0
}

// Interrupted are the links that lost their carrier at an end. Kernel switches count no packet for such a
// port.
func (s *Sampler) Interrupted() map[string]bool {
	links := map[string]bool{}
	for i, l := range s.last.Links {
		if i < len(s.first.Links) {
			was := s.first.Links[i]
			if Since(was.A.Downs, l.A.Downs)+Since(was.B.Downs, l.B.Downs) > 0 {
				links[l.Name] = true
			}
		}
	}
	return links
}

// Losses returns the packets that were lost at NICs, kernel links and switches outside of queues. By port
// it has the packets that an interface could not pass to the other end of its link, or that met a link
// without a carrier. By the name of a router it has the packets that the router's stack dropped. If the
// host dropped packets between interfaces, the ports are left out: such packets count against the
// fidelity.
func (s *Sampler) Losses() map[string]uint64 {
	lost := map[string]uint64{}
	if s.plan == nil {
		return lost
	}
	interrupted := s.Interrupted()
	before, now := Outputs(s.first.Nodes, s.first.Switches), Outputs(s.last.Nodes, s.last.Switches)
	for i, l := range s.last.Links {
		down := interrupted[l.Name]
		if i >= len(s.first.Links) || s.backlog() > 0 || s.plan.Soft() && s.last.Backlog > s.first.Backlog {
			continue
		}
		was := s.first.Links[i]
		for _, end := range [][2]NICState{
			{NICStateOf(was.A, was.AToB, before), NICStateOf(l.A, l.AToB, now)},
			{NICStateOf(was.B, was.BToA, before), NICStateOf(l.B, l.BToA, now)},
		} {
			nic := end[1].End.Node + ":" + end[1].End.Port
			if s.plan.Soft() && (!down || s.plan.Node(end[1].End.Node) == nil) {
				continue
			}
			groups, known := s.groups[nic]
			if !known {
				groups = end[1].Groups(end[0])
			}
			lost[nic], _ = end[1].Lost(s.plan, end[0], groups, down)
		}
	}
	for i, now := range s.last.Switches {
		if s.plan.Soft() || i >= len(s.first.Switches) {
			break
		}
		if now.Stack != nil && s.first.Switches[i].Stack != nil {
			for _, reason := range usage.Forwarding {
				lost[now.Name] += Since(s.first.Switches[i].Stack.Drops[reason], now.Stack.Drops[reason])
			}
		}
	}
	return lost
}
