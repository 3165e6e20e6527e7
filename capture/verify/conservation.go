package verify

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"railbed/plan/spec"
)

// Memory of Conservation. Packets are remembered in two generations; the older
// one is judged and dropped when the newer one is old enough or full.
const generationMost = 1 << 19 // packets and words of further ports, some 40 bytes each

// A packet may be inside a switch for as long as its queues can hold it, by the
// plan, and at least for what a busy host needs to forward it. Where the plan
// does not know the switch, lingerUnknown holds. A path has no more than pathLinks links.
const (
	lingerLeast   = 5 * time.Millisecond
	lingerUnknown = 50 * time.Millisecond
	lingerMost    = 10 * time.Minute
	pathLinks     = 8
)

// Conservation holds that a switch neither loses nor makes packets: every
// packet that entered one of its ports left it by exactly one port, unless it
// was addressed to the switch, its TTL ended, or a drop was recorded; and
// every packet that left had entered, unless the switch itself sent it.
// Soft switches record each drop. Queues of kernel switches count drops
// (Options.Drops); as many missing packets are explained.
// Packets that were inside when the capture began or ended are left out.
// A bridge floods frames to a group, or to an address that it has not learned,
// by every other port; the count of these is reported.
type Conservation struct {
	pattern  string
	capture  *Capture
	switches []*switchState
	byNode   map[string]*switchState
	byTap    []*switchState // by tap index; nil is none

	young, old remembered
	turned     int64 // when young was begun
	generation int64 // how old it becomes
	short      bool  // generations were shorter than packets may be under way
}

// remembered is what one generation remembers.
type remembered struct {
	passages map[passing]passage
	// further are the ports of packets that came by more than one port of a switch,
	// or left by more than one. There are few of these: a packet that is not
	// flooded has its two ports in its passage.
	further map[furtherPorts]portSets
}

// passing is a packet at a switch.
type passing struct {
	id     uint64
	number int // of the switch
}

// passage is what was seen of it.
type passage struct {
	first    int64
	identity uint64
	// inPort and outPort are the first port by which it came and by which it left,
	// by the index of its tap and one; 0 is none. Others are among the further ones.
	inPort, outPort uint32
	in, out         uint16
	flags           passageFlags
}

// furtherPorts are those of a packet at a switch whose number, divided by 64, is
// word.
type furtherPorts struct {
	passing
	word uint32
}

// portSets are the ports of a word by which a packet came and by which it left.
type portSets struct{ in, out uint64 }

type passageFlags uint8

const (
	toSwitch passageFlags = 1 << iota
	fromSwitch
	ttlEnded
	dropRecorded
	trimmed   // it left as the head of another packet
	samePort  // it left by a port by which it came
	twiceSame // it left twice by one port
	several   // it has further ports
)

// NewConservation makes the check for the switches whose name matches a glob.
func NewConservation(pattern string) *Conservation { return &Conservation{pattern: pattern} }

// Begin implements Check.
func (k *Conservation) Begin(c *Capture) {
	k.capture = c
	k.byNode = map[string]*switchState{}
	for _, g := range []*remembered{&k.young, &k.old} {
		*g = remembered{map[passing]passage{}, map[furtherPorts]portSets{}}
	}
}

// at is the state of the switch that a tap is on, or nil.
func (k *Conservation) at(tap *Tap) *switchState {
	for len(k.byTap) <= tap.Index {
		k.byTap = append(k.byTap, k.enlist(k.capture.Taps[len(k.byTap)]))
	}
	return k.byTap[tap.Index]
}

func (k *Conservation) enlist(tap *Tap) *switchState {
	if !spec.Match(k.pattern, tap.Node) || tap.NIC || tap.Node == "" {
		return nil
	}
	s := k.byNode[tap.Node]
	if s == nil {
		s = &switchState{name: tap.Node, number: len(k.switches), linger: int64(lingerUnknown),
			own: map[netip.Addr]bool{}, spare: map[uint64]uint64{}, open: map[uint64]uint64{}}
		if k.capture.Plan != nil {
			s.describe(k.capture.Plan, k.capture.Dilation)
		}
		k.byNode[tap.Node] = s
		k.switches = append(k.switches, s)
		k.generation = max(k.generation, generationOf(s.linger))
	}
	s.taps = append(s.taps, tap)
	return s
}

// Packet implements Check.
func (k *Conservation) Packet(p *Packet) {
	s := k.at(p.Tap)
	if s == nil || p.Direction == Unknown || p.control() { // ports make and take control frames
		return
	}
	if p.Time-k.turned > k.generation || len(k.young.passages)+len(k.young.further) >= generationMost {
		k.turn(p.Time)
	}
	key := passing{p.ID, s.number}
	seen, where := passage{first: p.Time, identity: p.Identity()}, &k.young
	if young, known := k.young.passages[key]; known {
		seen = young
	} else if old, known := k.old.passages[key]; known {
		seen, where = old, &k.old
	}
	seen.add(p, s)
	if port := uint32(p.Tap.Index) + 1; p.Direction == In {
		where.came(key, &seen, port)
	} else if p.Drop == "" {
		where.left(key, &seen, port)
	}
	where.passages[key] = seen
}

// came adds a port by which a packet came.
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

// lookUp is what is remembered of a packet's further ports in the word of one, and
// the port's bit there.
func (g *remembered) lookUp(key passing, q *passage, port uint32) (further furtherPorts, sets portSets,
	bit uint64) {
	further = furtherPorts{key, port / 64}
	if q.flags&several != 0 {
		sets = g.further[further]
	}
	return further, sets, 1 << (port % 64)
}

// add counts a sighting of the packet.
func (q *passage) add(p *Packet, s *switchState) {
	if p.Direction == In {
		s.entered++
		q.in = min(q.in, math.MaxUint16-1) + 1
		if p.TTL <= 1 && p.IP != 0 {
			q.flags |= ttlEnded
		}
		if s.addressed(p) {
			q.flags |= toSwitch
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
}

// turn judges the older generation and begins a new one.
func (k *Conservation) turn(now int64) {
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

// forwards is false for a frame that a bridge sent back where it came from. A
// router may: the sender chose a wrong first hop.
func (q passage) forwards(bridge bool) bool { return !bridge || q.flags&samePort == 0 }

// Result implements Check.
func (k *Conservation) Result() Result {
	r := Result{Name: "conservation " + k.pattern, Measured: map[string]float64{}}
	for _, tap := range k.capture.Taps {
		k.at(tap) // ports that carried nothing count as captured too
	}
	for _, generation := range []map[passing]passage{k.old.passages, k.young.passages} {
		for key, q := range generation {
			k.switches[key.number].judge(q, key.id, k.capture.First, k.capture.End)
		}
	}
	var f finding
	var forwarded, missing, odd, counted uint64
	for _, s := range k.switches {
		s.reconcile()
		s.judgeAll(&f, k.capture)
		forwarded += s.forwarded
		untrimmed := s.missing - min(s.missing, s.trimmed)
		missing += untrimmed
		queues, _ := s.counted(k.capture)
		counted += min(queues, untrimmed)
		odd += s.extra + s.bare
		r.Details = append(r.Details, s.line())
	}
	switch {
	case len(k.switches) == 0:
		f.unclear = append(f.unclear, fmt.Sprintf("no port of a switch %q was captured", k.pattern))
	case forwarded == 0:
		f.unclear = append(f.unclear, "no packet crossed")
	}
	if k.short {
		f.unclear, f.absent = append(append(f.unclear, "more packets at once than are remembered"),
			f.absent...), nil
	}
	r.Measured["forwarded"], r.Measured["missing"], r.Measured["extra"] = float64(forwarded),
		float64(missing), float64(odd)
	r.Summary = fmt.Sprintf("%d packets crossed %d switches, %d entered and never left, %d left without "+
		"having entered or too often",
		forwarded, len(k.switches), missing, odd)
	if counted > 0 {
		r.Summary += fmt.Sprintf("; queues of kernel switches counted %d of the missing as dropped", counted)
	}
	ports := k.capture.portsOf(func(t *Tap) bool { return !t.NIC && spec.Match(k.pattern, t.Node) })
	k.capture.conclude(&r, Need{Ports: ports, AnyOrder: true}, f)
	return r
}
