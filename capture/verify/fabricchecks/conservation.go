package fabricchecks

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/feed"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// generationMost bounds a generation of conservation's memory. Packets are remembered in two
// generations. The older generation is judged and dropped when the newer one is old enough or full.
const generationMost = 1 << 19 // packets and words of further ports, some 40 bytes each

// A packet may stay inside a switch as long as the plan's queues can hold it, and at least as long
// as a busy host needs to forward it. If the plan does not contain the switch, lingerUnknown
// applies.
const (
	lingerLeast   = 5 * time.Millisecond
	lingerUnknown = 50 * time.Millisecond
)

// conservation checks that a switch neither loses nor makes packets. Every packet that entered by
// one of the switch's ports left by exactly one port. Exceptions are packets addressed to the
// switch, packets whose TTL ended, and recorded drops. Every packet that left had entered, unless
// the switch itself sent it.
//
// Soft switches record each drop. Queues of kernel switches only count drops (Options.Drops), which
// explain as many missing packets. Packets that were inside the switch when the capture began or
// ended are left out. A bridge floods frames to a group address, or to an address that it has not
// learned, by every other port. The check reports the number of flooded packets.
type conservation struct {
	pattern  string
	capture  *evidence.Capture
	switches []*switchState
	byNode   map[string]*switchState
	byTap    evidence.Slots[*switchState] // by tap index; nil for none

	young, old remembered
	turned     int64 // when young began
	generation int64 // age at which a generation ends, in nanoseconds
	short      bool  // generations were shorter than packets may stay inside
}

// remembered is the memory of one generation.
type remembered struct {
	passages map[passing]passage
	// further are the ports of packets that entered or left by more than one port of a switch. Such
	// packets are few: a packet that is not flooded has its two ports in its passage.
	further map[furtherPorts]portSets
}

// passing is a packet at a switch.
type passing struct {
	id     uint64
	number int // of the switch
}

// passage holds the sightings of a packet at a switch.
type passage struct {
	first    int64
	identity uint64
	// inPort and outPort are the first ports by which the packet entered and left: the index of the
	// port's tap plus 1, or 0 for none. Other ports are among the further ones.
	inPort, outPort uint32
	in, out         uint16
	flags           passageFlags
}

// furtherPorts is a packet at a switch, and a group of 64 ports: those whose number divided by 64
// is word.
type furtherPorts struct {
	passing
	word uint32
}

// portSets are the ports of one group by which a packet entered and left, as bits.
type portSets struct{ in, out uint64 }

type passageFlags uint16

// linkReasons are the reasons of drops on a link, after the packet has left its switch.
var linkReasons = append(feed.LossReasons(), feed.LinkDown.String(), byFault)

const (
	toSwitch passageFlags = 1 << iota
	fromSwitch
	ttlEnded
	dropRecorded
	wrongHeader
	trimmed   // it left trimmed, as the head of another packet
	samePort  // it left by a port by which it entered
	twiceSame // it left twice by the same port
	several   // it has further ports
	lostOnLink
)

// generationOf returns how old a generation of remembered packets becomes. It leaves time for
// packets that may be under way for so long.
func generationOf(linger int64) int64 { return max(int64(time.Second), 2*linger) }

var _ = evidence.Register(evidence.Kind{Key: "conservation", Example: `"*"`, Timed: evidence.Never,
	Make: evidence.Of(NewConservation)})

// NewConservation makes the check for the switches whose name matches a glob.
func NewConservation(pattern string) evidence.Check { return &conservation{pattern: pattern} }

// Begin implements Check.
func (k *conservation) Begin(c *evidence.Capture) {
	k.capture = c
	k.byNode = map[string]*switchState{}
	for _, g := range []*remembered{&k.young, &k.old} {
		*g = remembered{map[passing]passage{}, map[furtherPorts]portSets{}}
	}
}

// at returns the state of the switch to which a tap belongs, or nil.
func (k *conservation) at(tap *evidence.Tap) *switchState {
	return k.byTap.Made(tap.Index, func(i int) *switchState { return k.enlist(k.capture.Taps[i]) })
}

func (k *conservation) enlist(tap *evidence.Tap) *switchState {
	if !spec.Match(k.pattern, tap.Node) || tap.NIC || tap.Node == "" {
		return nil
	}
	s := k.byNode[tap.Node]
	if s == nil {
		s = &switchState{name: tap.Node, number: len(k.switches), linger: int64(lingerUnknown),
			own: map[netip.Addr]bool{}, spare: map[uint64]uint64{}, open: map[uint64]uint64{},
			altered: map[uint64]uint64{}}
		if k.capture.Plan != nil {
			s.describe(k.capture.Plan, k.capture.Dilation)
		}
		if s.plan != nil && s.plan.Soft == nil && !s.bridge {
			s.splits = newSplits[passing](k.capture)
		}
		k.byNode[tap.Node] = s
		k.switches = append(k.switches, s)
		k.generation = max(k.generation, generationOf(s.linger))
	}
	s.taps = append(s.taps, tap)
	return s
}

// Packet implements Check.
func (k *conservation) Packet(p *evidence.Packet) {
	s := k.at(p.Tap)
	if s == nil || p.Direction == evidence.Unknown || p.Control() { // ports create and consume control frames
		return
	}
	if p.Time-k.turned > k.generation || len(k.young.passages)+len(k.young.further) >= generationMost {
		k.turn(p.Time)
	}
	key := passing{p.ID, s.number}
	seen, where := k.find(key)
	if where == nil {
		if k.splitOff(p, s) {
			return
		}
		seen, where = passage{first: p.Time, identity: p.Identity()}, &k.young
	}
	if p.Direction == evidence.In {
		s.splits.begin(p, key)
	}
	seen.add(p, s)
	if port := uint32(p.Tap.Index) + 1; p.Direction == evidence.In {
		where.came(key, &seen, port)
	} else if p.Drop == "" {
		where.left(key, &seen, port)
	}
	where.passages[key] = seen
}

// find returns the passage of a packet and the generation that has it, or nil.
func (k *conservation) find(key passing) (passage, *remembered) {
	for _, g := range []*remembered{&k.young, &k.old} {
		if seen, known := g.passages[key]; known {
			return seen, g
		}
	}
	return passage{}, nil
}

// splitOff reports whether a packet leaves a router as a fragment of a packet that entered. The last fragment
// stands for that packet.
func (k *conservation) splitOff(p *evidence.Packet, s *switchState) bool {
	if p.Direction != evidence.Out || p.Drop != "" {
		return false
	}
	key, part, complete := s.splits.add(p)
	if seen, where := k.find(key); complete && where != nil {
		seen.out = min(seen.out, math.MaxUint16-1) + 1
		where.left(key, &seen, uint32(p.Tap.Index)+1)
		where.passages[key] = seen
	}
	if part {
		s.left++
	}
	if part && !complete {
		s.further++
	}
	return part
}

// Event implements Watcher. Soft switches change and copy packets that have passed their taps.
func (k *conservation) Event(p *evidence.Packet) {
	if s := k.at(p.Tap); s != nil && !k.capture.Numbered() {
		switch {
		case p.Spoiled():
			s.altered[p.Identity()]++
		case slices.Contains(copying, p.Verdict):
			s.copied++
		}
	}
}

// came adds a port by which a packet entered.
func (g *remembered) came(key passing, q *passage, port uint32) {
	further, sets, bit := g.lookUp(key, q, port)
	switch {
	case q.inPort == 0:
		q.inPort = port
	case q.inPort != port:
		sets.in |= bit
		q.flags |= several
		g.further[further] = sets
	}
	if q.outPort == port || sets.out&bit != 0 {
		q.flags |= samePort
	}
}

// left adds a port by which a packet left.
func (g *remembered) left(key passing, q *passage, port uint32) {
	further, sets, bit := g.lookUp(key, q, port)
	switch {
	case q.outPort == port || sets.out&bit != 0:
		q.flags |= twiceSame
	case q.outPort == 0:
		q.outPort = port
	default:
		sets.out |= bit
		q.flags |= several
		g.further[further] = sets
	}
	if q.inPort == port || sets.in&bit != 0 {
		q.flags |= samePort
	}
}

// lookUp returns the key and the remembered ports of the group that contains a port, and the port's
// bit in the group.
func (g *remembered) lookUp(key passing, q *passage, port uint32) (further furtherPorts, sets portSets,
	bit uint64) {
	further = furtherPorts{key, port / 64}
	if q.flags&several != 0 {
		sets = g.further[further]
	}
	return further, sets, 1 << (port % 64)
}

// add counts a sighting of the packet.
func (q *passage) add(p *evidence.Packet, s *switchState) {
	if p.Direction == evidence.In {
		s.entered++
		q.in = min(q.in, math.MaxUint16-1) + 1
		if p.TTL <= 1 && p.IP != 0 {
			q.flags |= ttlEnded
		}
		if s.addressed(p) {
			q.flags |= toSwitch
		}
		if !s.bridge && p.Unsound() {
			q.flags |= wrongHeader
		}
	} else if p.Drop == "" {
		s.left++
		q.out = min(q.out, math.MaxUint16-1) + 1
		if s.sends(p) {
			q.flags |= fromSwitch
		}
		if p.Verdict == "trim" {
			q.flags |= trimmed
			s.trimmed++
		}
	}
	if p.Drop != "" {
		q.flags |= dropRecorded
	}
	if slices.Contains(linkReasons, p.Drop) {
		q.flags |= lostOnLink
	}
}

// turn judges the older generation and begins a new one.
func (k *conservation) turn(now int64) {
	for key, q := range k.old.passages {
		s := k.switches[key.number]
		if now-q.first < s.linger {
			k.short = true
		}
		s.judge(q, key.id, k.capture.First, now)
	}
	clear(k.old.passages)
	clear(k.old.further)
	k.old, k.young = k.young, k.old
	k.turned = now
}

// forwards reports false for a frame that a bridge sent back by the port by which it entered. A
// router may do so: the sender chose a wrong first hop.
func (q passage) forwards(bridge bool) bool { return !bridge || q.flags&samePort == 0 }

// finish judges the packets that are still remembered, when the capture has been read.
func (k *conservation) finish() {
	for _, tap := range k.capture.Taps {
		k.at(tap) // ports without packets count as captured too
	}
	for _, generation := range []map[passing]passage{k.old.passages, k.young.passages} {
		for key, q := range generation {
			k.switches[key.number].judge(q, key.id, k.capture.First, k.capture.End)
		}
	}
	for _, s := range k.switches {
		s.reconcile()
	}
}

// Result implements Check.
func (k *conservation) Result() evidence.Result {
	r := evidence.Result{Name: "conservation " + k.pattern, Measured: map[string]float64{}}
	k.finish()
	var f evidence.Finding
	var forwarded, missing, odd, counted, changed, copied uint64
	for _, s := range k.switches {
		missing += s.untrimmed()
		odd, changed, copied = odd+s.extra+s.bare, changed+s.changed, copied+s.copies
		counted += s.judgeAll(&f, k.capture)
		forwarded += s.forwarded
		r.Details = append(r.Details, s.line())
	}
	switch {
	case len(k.switches) == 0:
		f.Unclear = append(f.Unclear, fmt.Sprintf("no port of a switch %q was captured", k.pattern))
	case forwarded == 0:
		f.Unclear = append(f.Unclear, "no packet crossed a switch")
	}
	if k.short {
		f.Unclear, f.Absent = append(append(f.Unclear, "more packets at once than the check can remember"),
			f.Absent...), nil
	}
	r.Measured["forwarded"], r.Measured["missing"], r.Measured["extra"] = float64(forwarded),
		float64(missing), float64(odd)
	r.Summary = plural.Text("%d packets crossed %d switches", forwarded, len(k.switches))
	if missing+odd == 0 {
		r.Summary += ", and none was lost or added"
	} else {
		r.Summary += fmt.Sprintf(", %d entered and never left, %d left without having entered or too often",
			missing, odd)
	}
	if counted > 0 {
		r.Summary += fmt.Sprintf("; queues of kernel switches counted %d of the missing as dropped", counted)
	}
	if changed+copied > 0 {
		r.Summary += fmt.Sprintf("; not counting %d that faults changed, and %d copies of faults", changed,
			copied)
	}
	ports := k.capture.Ports(func(t *evidence.Tap) bool { return !t.NIC && spec.Match(k.pattern, t.Node) })
	k.capture.Conclude(&r, evidence.Need{Ports: ports, AnyOrder: true}, f)
	return r
}
