package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"railbed/scenarios/runner/measure"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/fabric"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// A step that changes links must meet packets, as a fault must. New settings meet the packets that pass the
// links, and a link that is down those that should have passed it.

// linkCounts counts the packets that the ports of some links sent and dropped.
type linkCounts struct{ sent, dropped uint64 }

// linkMeeting has what a step's change of links met. The counters of links are read when the change is in
// force and right before it ends: at the end of the timeline, if it stays in force.
type linkMeeting struct {
	links []*plan.Link
	// before has the counts since the testbed came up until the change was in force, and after those until
	// it ended. The beside ones are of the other links at the same nodes and switches.
	before, after             linkCounts
	besideBefore, besideAfter linkCounts
	// atBegin and atEnd are the states of the ends of the links. Of a step that repeats, atBegin is of the
	// last change.
	atBegin, atEnd []measure.NICState
	// tried reports whether a node had packets for a link that was down. Groups has, by NIC, the packets to
	// groups that nodes had for a link that was down.
	tried  bool
	groups map[string]uint64

	began, ended time.Time
	read         bool // all counters
	seen         *verify.Passing
}

// countLinks reads the counters of links, in one direction or in both, of their ends, and of the links beside
// them.
func (s *session) countLinks(ctx context.Context, links []*plan.Link, direction string) (c, beside linkCounts,
	ends []measure.NICState, err error) {
	state, err := s.testbed.Inspect(ctx)
	if err != nil {
		return c, beside, nil, err
	}
	stacks := measure.Outputs(state.Nodes, state.Switches)
	for i := range state.Links {
		l := &state.Links[i]
		switch {
		case slices.ContainsFunc(links, func(of *plan.Link) bool { return of.Name == l.Name }):
			if direction != plan.BToA {
				ends = append(ends, measure.NICStateOf(l.A, l.AToB, stacks))
				c.add(l.AToB, l.A)
			}
			if direction != plan.AToB {
				ends = append(ends, measure.NICStateOf(l.B, l.BToA, stacks))
				c.add(l.BToA, l.B)
			}
		case slices.ContainsFunc(links, func(of *plan.Link) bool {
			ends := []string{of.A.Node, of.B.Node}
			return slices.Contains(ends, l.A.Node) || slices.Contains(ends, l.B.Node)
		}):
			beside.add(l.AToB, l.A)
			beside.add(l.BToA, l.B)
		}
	}
	return c, beside, ends, nil
}

// add adds the packets of a direction.
func (c *linkCounts) add(d fabric.DirectionState, sender fabric.EndState) {
	measure.SoftCounts(&d, sender)
	c.sent += d.Shaper.Packets
	if sender.Soft != nil {
		c.dropped += sender.Soft.Drops.Total()
	} else {
		c.dropped += d.Shaper.Drops
	}
}

// begin notes that the change is in force. A step that repeats has one span, from its first change to its
// last.
func (l *linkStep) begin(ctx context.Context, s *session) {
	if l.meeting != nil {
		l.again(ctx)
		return
	}
	m := &linkMeeting{began: time.Now(), groups: map[string]uint64{}}
	name, direction := l.spec.Target()
	for i := range s.plan.Links {
		if link := &s.plan.Links[i]; spec.Match(name, link.Name) && changes(l.spec, link) {
			m.links = append(m.links, link)
		}
	}
	l.session = s
	if len(m.links) == 0 {
		return
	}
	var err error
	m.before, m.besideBefore, m.atBegin, err = s.countLinks(ctx, m.links, direction)
	m.read, l.meeting = err == nil, m
}

// again notes that a step that repeats has made its change again.
func (l *linkStep) again(ctx context.Context) {
	_, direction := l.spec.Target()
	var err error
	_, _, l.meeting.atBegin, err = l.session.countLinks(ctx, l.meeting.links, direction)
	l.meeting.read = l.meeting.read && err == nil
}

// end notes that the change has ended.
func (l *linkStep) end(ctx context.Context) {
	m := l.meeting
	if m == nil {
		return
	}
	_, direction := l.spec.Target()
	var err error
	m.after, m.besideAfter, m.atEnd, err = l.session.countLinks(ctx, m.links, direction)
	m.read = m.read && err == nil
	m.addGroups(l.session.plan, direction == "" && l.spec.State == down)
}

// addGroups adds the packets to groups since the last change. Whole reports whether the change takes whole
// links down. The packets of a virtual machine, and of a container of another runtime, are not counted: its
// kernel is not asked for the packets that it sends by itself.
func (m *linkMeeting) addGroups(p *plan.Plan, whole bool) {
	for i := range min(len(m.atBegin), len(m.atEnd)) {
		before, now := m.atBegin[i], m.atEnd[i]
		groups := now.Groups(before)
		m.groups[now.End.Node+":"+now.End.Port] += groups
		if lost, exact := now.Lost(p, before, groups, true); whole && exact && lost > 0 &&
			p.Node(now.End.Node) != nil {
			m.tried = true
		}
	}
}

// changes reports whether a step makes a link other than the plan has it. Other steps undo earlier ones.
func changes(l *spec.LinkChange, link *plan.Link) bool {
	if l.Set == nil {
		return l.State == down
	}
	_, direction := l.Target()
	differs := func(d plan.Direction) bool {
		set := d.Change(link.MTU, *l.Set)
		return set.Rate != d.Rate || set.Queue != d.Queue || !slices.Equal(set.Effects(), d.Effects())
	}
	return direction != plan.BToA && differs(link.AToB) || direction != plan.AToB && differs(link.BToA)
}

// endLinks notes the end of changes that stay in force. It returns the packets to groups that nodes had for
// links that steps took down, by NIC.
func (r *run) endLinks(ctx context.Context) map[string]uint64 {
	groups := map[string]uint64{}
	for _, step := range r.prepared {
		l, is := step.(*linkStep)
		if !is || l.meeting == nil {
			continue
		}
		if l.meeting.ended.IsZero() {
			l.end(ctx)
		}
		if l.spec.State != down {
			continue
		}
		for nic, count := range l.meeting.groups {
			groups[nic] += count
		}
	}
	return groups
}

// watchLinks returns what looks for the packets of link steps in the recording.
func watchLinks(p *plan.Plan, prepared []step) (all []*verify.Passing) {
	for _, step := range prepared {
		l, is := step.(*linkStep)
		if !is || l.meeting == nil {
			continue
		}
		m := l.meeting
		_, direction := l.spec.Target()
		m.seen = &verify.Passing{From: m.began.UnixNano()}
		if !m.ended.IsZero() {
			m.seen.To = m.ended.UnixNano()
		}
		for _, link := range m.links {
			if direction != plan.BToA {
				m.seen.Ports = append(m.seen.Ports, link.A.Name())
			}
			if direction != plan.AToB {
				m.seen.Ports = append(m.seen.Ports, link.B.Name())
			}
			m.seen.Beside = append(m.seen.Beside, besides(p, link)...)
			for _, end := range []plan.End{link.A, link.B} {
				if p.Node(end.Node) != nil {
					m.seen.Nodes = append(m.seen.Nodes, end.Node)
				}
			}
		}
		all = append(all, m.seen)
	}
	return all
}

// besides returns the ports of the links that may take the packets of a link: of the same node or, between
// switches, of both.
func besides(p *plan.Plan, link *plan.Link) (ports []string) {
	between := p.Switch(link.A.Node) != nil && p.Switch(link.B.Node) != nil
	for _, end := range []plan.End{link.A, link.B} {
		if !between && p.Switch(end.Node) != nil {
			continue
		}
		for i := range p.Links {
			for _, other := range []plan.End{p.Links[i].A, p.Links[i].B} {
				if other.Node == end.Node && p.Links[i].Name != link.Name {
					ports = append(ports, other.Name())
				}
			}
		}
	}
	return ports
}

// inUse is how long before and after a change packets passed the links if they were in use.
const inUse = time.Second

// met reports whether the change met packets. The recording tells, if it has the ports of the links. A
// link that is down has also met packets if it was in use right before, or if others took its packets. It
// has, too, if a node had packets for it: the node's kernel drops these before any tap.
func (m *linkMeeting) met(goesDown bool, by clock.Dilation) bool {
	if m.tried {
		return true
	}
	if s := m.seen; s != nil && s.Known {
		used := s.Before > 0 && s.From-s.Before < int64(by.Wait(inUse))
		groups := uint64(0) // which the change may have dropped
		for _, count := range m.groups {
			groups += count
		}
		return s.During > 0 || m.read && measure.Since(m.before.dropped, m.after.dropped) > groups ||
			goesDown && (used && (s.To == 0 || s.After > 0) || s.DuringBeside > 0)
	}
	return !m.read || m.after != m.before || goesDown && m.besideAfter != m.besideBefore
}

// idleLink returns a reason for INCONCLUSIVE if a step changed links and no packet met the change, or "".
func (r *run) idleLink() string {
	for _, step := range r.prepared {
		l, is := step.(*linkStep)
		if !is || l.meeting == nil || r.report.Steps[l.index].State != report.Passed ||
			l.meeting.met(l.spec.State == down, clock.Dilation(r.Plan.Dilation)) {
			continue
		}
		row := &r.report.Steps[l.index]
		span := fmt.Sprintf("from %s on", seconds(row.Start))
		if l.spec.For > 0 {
			span = fmt.Sprintf("from %s to %s", seconds(row.Start), seconds(row.Start+l.lasts().Seconds()))
		}
		return fmt.Sprintf("%s: %s met no packet %s", row.Where, row.Name, span)
	}
	return ""
}
