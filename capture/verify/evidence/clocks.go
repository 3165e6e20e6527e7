package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"railbed/internal/plural"
)

// clocks compares the times of the two ends of links. It looks at a tap's first packets, a sample
// of the others, and all control frames. The ends have different clocks if a packet is received
// before it was sent, or if no packet is received within the time that queues explain.
type clocks struct {
	capture *Capture
	seen    map[sighted]passed
	links   map[[2]int]*crossing // by the taps at the two ends
	// ends are the crossings from NIC to NIC, in recordings of other programs.
	ends map[[2]int]*crossing
}

// sighted is a packet on a link. The link is part of the key because a tap whose clock is behind
// shows a packet before earlier links do.
type sighted struct {
	id   uint64
	link string
}

// passed is the first sighting of a packet on a link.
type passed struct {
	at  int64
	tap *Tap
	in  bool
}

// crossing holds the shortest time that a packet took from one tap to another.
type crossing struct {
	from, to *Tap
	least    int64
	count    int
}

const (
	clockFirst  = 64      // number of first packets of a tap that are compared
	clockSample = 16      // one of so many other packets is compared
	clockSeen   = 1 << 14 // packets that are remembered
	clockLeast  = 4       // least number of packets, all of them late
	// StampSlack is the possible difference between timestamps of the kernel and of a switch.
	StampSlack = 5 * time.Millisecond
)

func newClocks(c *Capture) *clocks {
	return &clocks{capture: c, seen: map[sighted]passed{}, links: map[[2]int]*crossing{},
		ends: map[[2]int]*crossing{}}
}

// take compares a packet with the other sighting of it on its link.
func (k *clocks) take(p *Packet) {
	looked := p.Tap.Packets <= clockFirst || p.ID%clockSample == 0 || p.Control()
	if !looked || p.Drop != "" || p.Direction == Unknown {
		return
	}
	if p.Tap.Link != "" {
		k.sight(p, p.Tap.Link, k.links)
	}
	if p.Tap.NIC && !k.capture.Railbed {
		k.sight(p, "", k.ends)
	}
}

// sight looks for the other sighting of a packet on a link, or on its way from NIC to NIC.
func (k *clocks) sight(p *Packet, link string, among map[[2]int]*crossing) {
	now := passed{p.Time, p.Tap, p.Direction == In}
	key := sighted{p.ID, link}
	first, known := k.seen[key]
	if !known || first.tap == p.Tap || first.in == now.in {
		if len(k.seen) >= clockSeen {
			clear(k.seen)
		}
		k.seen[key] = now
		return
	}
	delete(k.seen, key)
	if now.in {
		crossed(among, first.tap, p.Tap, p.Time-first.at)
	} else {
		crossed(among, p.Tap, first.tap, first.at-p.Time)
	}
}

func crossed(among map[[2]int]*crossing, from, to *Tap, took int64) {
	key := [2]int{from.Index, to.Index}
	c := among[key]
	if c == nil {
		c = &crossing{from: from, to: to, least: math.MaxInt64}
		among[key] = c
	}
	c.least = min(c.least, took)
	c.count++
}

// disagreements lists links whose two ends have different clocks.
func (k *clocks) disagreements() (lines []string) {
	if k == nil {
		return nil
	}
	for _, c := range slices.AppendSeq(slices.Collect(maps.Values(k.links)), maps.Values(k.ends)) {
		early, late := k.differ(c)
		switch {
		case early:
			lines = append(lines, plural.Text("clocks differ: of %d packets from %s to %s one arrived %v "+
				"before it left", c.count, c.from.Name, c.to.Name, time.Duration(-c.least)))
		case late:
			lines = append(lines, plural.Text("clocks differ: of %d packets from %s to %s none took less "+
				"than %v", c.count, c.from.Name, c.to.Name, time.Duration(c.least)))
		}
	}
	slices.Sort(lines)
	return lines
}

// differ reports whether the clocks of two taps differ: a packet arrived before it left, or all packets
// arrived later than queues explain.
func (k *clocks) differ(c *crossing) (early, late bool) {
	most, slack := k.capture.Linger()+int64(StampSlack), int64(StampSlack)
	if !k.capture.Railbed { // no switch made time stamps
		slack = 0
	}
	return c.least < -slack, c.least > most && c.count >= clockLeast
}

// ClocksDiffer reports whether packets from a tap to the tap at the other end of its link show that the two
// have different clocks.
func (c *Capture) ClocksDiffer(from, to *Tap) bool {
	crossed := c.clocks.links[[2]int{from.Index, to.Index}]
	if crossed == nil {
		return false
	}
	early, late := c.clocks.differ(crossed)
	return early || late
}

// clocksAgree is the greatest difference of two clocks that may remain unknown. The difference is at most the
// shortest time from one to the other, and at least minus the shortest time back.
const clocksAgree = time.Millisecond

// unshown reports taps of other programs' recordings whose clocks are not known to be equal. All taps of a
// recording by Railbed have one machine's clock. Other recordings may be merged from several machines. Only
// packets in both directions then show that a late arrival is not a clock that is ahead.
func (k *clocks) unshown(taps []*Tap) []string {
	if k == nil || k.capture.Railbed {
		return nil
	}
	of := map[string]string{} // union-find over the names of nodes
	var root func(name string) string
	root = func(name string) string {
		if up, is := of[name]; is {
			return root(up)
		}
		return name
	}
	for _, among := range []map[[2]int]*crossing{k.links, k.ends} {
		for key, c := range among {
			back := among[[2]int{key[1], key[0]}]
			if back == nil || min(c.least, back.least) < 0 || max(c.least, back.least) > int64(clocksAgree) {
				continue
			}
			if a, b := root(c.from.clock()), root(c.to.clock()); a != b {
				of[a] = b
			}
		}
	}
	taps = slices.DeleteFunc(slices.Clone(taps), func(t *Tap) bool { return t.Packets == 0 })
	for _, tap := range taps {
		if root(tap.clock()) != root(taps[0].clock()) {
			return []string{fmt.Sprintf("the recording is not Railbed's, and no packets in both directions "+
				"show that the clocks at %s and %s agree within %v", taps[0].Name, tap.Name, clocksAgree)}
		}
	}
	return nil
}

// clock names the clock of a tap: all taps of a node have the same.
func (t *Tap) clock() string { return cmp.Or(t.Node, t.Name) }
