package fabricchecks

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan"
)

// switchState is a switch and the counts of the packets that passed it.
type switchState struct {
	name   string
	number int
	bridge bool
	taps   []*evidence.Tap
	plan   *plan.Switch
	own    map[netip.Addr]bool // its addresses
	linger int64               // ns that a packet may stay inside

	entered, left        uint64 // packets, by port sightings
	forwarded, flooded   uint64
	toItself, fromItself uint64
	expired, dropped     uint64
	refused              uint64 // packets with headers that no router forwards
	trimmed              uint64 // heads that left in place of whole packets
	// spare counts drop records of packets that were not missing, by identity. open counts missing
	// packets, by identity. A record explains an equal missing packet.
	spare, open map[uint64]uint64
	// altered counts records of faults that changed packets, by identity. Of these, changed packets entered
	// and left as others. copied is the number of records of copies, and copies the number of those that
	// left.
	altered        map[uint64]uint64
	changed        uint64
	copied, copies uint64
	// underWay had not left when the capture ended. before had entered before the capture began.
	underWay, before uint64
	// returned left by the port at which they entered. heads left trimmed, without having entered as such.
	returned, heads uint64
	// again are packets that faults made: they left too often, or without having entered.
	again uint64
	// splits has the packets that the switch may fragment. further are fragments besides the last of each.
	splits               splits[passing]
	further              uint64
	missing, extra, bare uint64 // bare: left without having entered
	examples             []string
}

// describe takes the switch's properties from the plan.
func (s *switchState) describe(p *plan.Plan, dilation uint64) {
	s.plan = p.Switch(s.name)
	if s.plan == nil {
		return
	}
	s.bridge = s.plan.Bridged()
	s.linger = int64(lingerLeast)
	for _, prefix := range s.plan.Loopbacks {
		s.own[prefix.Addr()] = true
	}
	for _, port := range s.plan.Ports {
		for _, prefix := range port.Addrs {
			s.own[prefix.Addr()] = true
		}
		if link := p.Link(port.Link); link != nil {
			for _, d := range []plan.Direction{link.AToB, link.BToA} {
				full := evidence.FullTime(d, dilation)
				s.linger = max(s.linger, full+full/2)
			}
		}
	}
}

// addressed reports whether the switch itself is the receiver. A router consumes packets to group
// addresses and packets that are not IP; a bridge forwards them.
func (s *switchState) addressed(p *evidence.Packet) bool {
	if p.IP == 0 || p.Flow == nil {
		return !s.bridge
	}
	dst := p.Flow.Dst.Addr()
	if !s.bridge && (p.Group || dst.IsMulticast() || dst.IsLinkLocalUnicast()) {
		return true
	}
	return s.own[dst]
}

// sends reports whether the switch itself may be the sender. The only addresses of a bridge in a
// shared subnet are those that the kernel assigns by itself.
func (s *switchState) sends(p *evidence.Packet) bool {
	if p.IP == 0 || p.Flow == nil {
		return !s.bridge
	}
	src := p.Flow.Src.Addr()
	return s.own[src] || !s.bridge && (src.IsLinkLocalUnicast() || src.IsUnspecified())
}

// judge counts one packet whose sightings are complete.
func (s *switchState) judge(q passage, id uint64, start, end int64) {
	// A packet that left and was dropped then was lost on the link. Its record explains no other packet.
	if q.flags&dropRecorded != 0 && q.in <= q.out && q.flags&lostOnLink == 0 {
		s.spare[q.identity]++
	}
	switch {
	case q.in == q.out && q.in > 0:
		if q.forwards(s.bridge) {
			s.forwarded += uint64(q.in)
			return
		}
		s.extra++
		s.returned += uint64(q.in)
		s.example(q, id, "left by the port at which it entered")
	case q.in > q.out:
		s.absent(q, id, end)
	case q.in == 0:
		switch {
		case q.flags&fromSwitch != 0:
			s.fromItself += uint64(q.out)
		case q.flags&trimmed != 0: // it entered as another packet
			s.heads += uint64(q.out)
		case q.first-start < s.linger:
			s.before += uint64(q.out)
		default:
			s.bare += uint64(q.out)
			s.example(q, id, "left without having entered")
		}
	case s.bridge && q.flags&(twiceSame|samePort) == 0: // to a group, or to an address not learned yet
		s.forwarded += uint64(q.in)
		s.flooded += uint64(q.out - q.in)
	default:
		s.forwarded += uint64(q.in)
		s.extra += uint64(q.out - q.in)
		s.example(q, id, plural.Text("entered %d times and left %d times", q.in, q.out))
	}
}

// absent counts a packet that entered more often than it left.
func (s *switchState) absent(q passage, id uint64, end int64) {
	count := uint64(q.in - q.out)
	s.forwarded += uint64(q.out)
	if altered := min(count, s.altered[q.identity]); altered > 0 {
		s.altered[q.identity] -= altered
		s.changed += altered
		if count -= altered; count == 0 {
			return
		}
	}
	switch {
	case q.flags&dropRecorded != 0:
		s.dropped += count
	case q.flags&toSwitch != 0:
		s.toItself += count
	case q.flags&ttlEnded != 0 && !s.bridge:
		s.expired += count
	case q.flags&wrongHeader != 0:
		s.refused += count
	case end-q.first < s.linger:
		s.underWay += count
	default:
		s.missing += count
		s.open[q.identity] += count
		s.example(q, id, "entered and never left")
	}
}

// reconcile lets records of drops explain missing packets that are equal to the dropped ones. The
// order of equal packets does not tell which of them was dropped. Packets that faults changed or copied
// explain packets that left without having entered, or too often.
func (s *switchState) reconcile() {
	for identity, count := range s.open {
		explained := min(count, s.spare[identity])
		s.missing, s.dropped = s.missing-explained, s.dropped+explained
	}
	made := s.extra + s.bare
	s.bare -= min(s.bare, s.changed)
	s.copies = min(s.copied, s.extra+s.bare) // equal packets have ids by their order
	extra := min(s.extra, s.copies)
	s.extra, s.bare = s.extra-extra, s.bare-(s.copies-extra)
	s.again = made - s.extra - s.bare
}

func (s *switchState) example(q passage, id uint64, what string) {
	if len(s.examples) < evidence.MaxDetails {
		s.examples = append(s.examples,
			fmt.Sprintf("%s: packet %#x of %s %s", s.name, id,
				time.Unix(0, q.first).UTC().Format("15:04:05.000000000"), what))
	}
}

// untrimmed returns the number of missing packets beside those that were trimmed.
func (s *switchState) untrimmed() uint64 { return s.missing - min(s.missing, s.trimmed) }

// judgeAll adds the violations at a switch. Each of them may come from packets that the capture
// lacks. It returns how many missing packets the switch's queues counted as dropped.
func (s *switchState) judgeAll(f *evidence.Finding, c *evidence.Capture) (explained uint64) {
	// Without the addresses of the switch, the switch itself may be the receiver or the sender.
	lines := &f.Absent
	if s.plan == nil {
		lines = &f.Unclear
	}
	doubts, problems := len(f.Unclear), len(f.Absent)
	counted, known := s.counted(c)
	explained = min(counted, s.untrimmed())
	if unexplained := s.untrimmed() - explained; unexplained > 0 {
		line := plural.Text("%s: %d packets entered and never left", s.name, unexplained)
		if s.trimmed > 0 {
			line += fmt.Sprintf(", not counting %d that were trimmed", s.trimmed)
		}
		if counted > 0 {
			line += fmt.Sprintf(", not counting %d that its queues dropped", counted)
		}
		if known {
			*lines = append(*lines, line)
		} else {
			f.Unclear = append(f.Unclear, line+"; how many its queues dropped is not known")
		}
	}
	if s.bare > 0 {
		*lines = append(*lines, plural.Text("%s: %d packets left without having entered", s.name, s.bare))
	}
	if s.extra > 0 {
		*lines = append(*lines, plural.Text("%s: %d packets left more often than entered",
			s.name, s.extra))
	}
	switch {
	case len(f.Absent) > problems:
		f.Absent = append(f.Absent, s.examples...)
	case len(f.Unclear) > doubts:
		f.Unclear = append(f.Unclear, s.examples...)
	}
	return explained
}

// counted returns the packets that the switch's own queues counted as dropped. The number is not known for a
// kernel switch whose counters were not read. Drops of a soft switch, and those of faults, are records of the
// capture, and are not counted here.
func (s *switchState) counted(c *evidence.Capture) (total uint64, known bool) {
	if s.plan == nil || s.plan.Soft != nil {
		return 0, true
	}
	for _, port := range s.ports() {
		total += c.QueueDrops[port]
	}
	// A router counts packets whose TTL ended, and damaged ones, too.
	stack := c.Lost[s.name]
	return total + stack - min(stack, s.expired+s.refused), c.QueueDrops != nil
}

// ports returns the switch's ports as NODE:PORT, if the plan is known.
func (s *switchState) ports() []string {
	if s.plan == nil {
		return nil
	}
	return s.plan.PortNames()
}

// line accounts for each packet that entered, and for each that left.
func (s *switchState) line() string {
	trimmed := s.missing - s.untrimmed()
	in := account{{s.forwarded, "forwarded"}, {s.returned, "sent back"}, {s.toItself, "to itself"},
		{s.expired, "expired"}, {s.refused, "with a wrong header"}, {s.dropped, "dropped as recorded"},
		{trimmed, "trimmed"}, {s.changed, "changed by faults"}, {s.underWay, "under way at the end"},
		{s.untrimmed(), "missing"}}
	out := account{{s.forwarded, "forwarded"}, {s.returned, "sent back"}, {s.flooded, "flooded"},
		{s.fromItself, "from itself"}, {s.heads, "trimmed"}, {s.further, "further fragments"},
		{s.again, "made by faults"},
		{s.before, "under way at the start"}, {s.extra - min(s.extra, s.returned), "too often"},
		{s.bare, "without having entered"}}
	return plural.Text("%s: %d in on %d ports: %s; %d out: %s", s.name, s.entered, len(s.taps), in, s.left,
		out)
}

// account is the parts of a sum.
type account []struct {
	count uint64
	what  string
}

// String lists the parts that are not 0.
func (a account) String() string {
	var parts []string
	for _, part := range a {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.what))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
