package fabricchecks

import (
	"fmt"

	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/internal/wire"
)

// unseen finds drops of kernel switches that no counter of the kernel counts. A bridge frees frames that are
// larger than the MTU of the port by which they would leave (is_skb_forwardable, in br_dev_queue_push_xmit).
// A router frees packets to a neighbour that does not answer (neigh_invalidate), and a port without a carrier
// sends to noop_qdisc. A capture of all ports of the switch shows that such packets entered and never left.
type unseen struct {
	capture  *evidence.Capture
	crossing *conservation
	large    map[string]uint64 // frames larger than the smallest MTU of a bridge's ports, by switch
}

// vlanTag is the length of a tag.
const vlanTag = 4

func newUnseen(c *evidence.Capture) *unseen {
	u := &unseen{capture: c, crossing: NewConservation("*").(*conservation), large: map[string]uint64{}}
	u.crossing.Begin(c)
	return u
}

// packet takes a packet at any port.
func (u *unseen) packet(p *evidence.Packet) {
	u.crossing.Packet(p)
	if p.Direction != evidence.In || p.Tap.NIC {
		return
	}
	sw := u.capture.Plan.Switch(p.Tap.Node)
	if sw == nil || !sw.Bridged() {
		return
	}
	least := 0
	for _, port := range sw.Ports {
		if least == 0 || port.MTU < least {
			least = port.MTU
		}
	}
	// The kernel leaves room for a VLAN tag.
	if p.Length > least+wire.EthernetLen+vlanTag {
		u.large[sw.Name]++
	}
}

// lines says what was lost at some switches without being counted.
func (u *unseen) lines(switches []string) (lines []string) {
	u.crossing.finish()
	for _, name := range switches {
		if n := u.large[name]; n > 0 {
			lines = append(lines, plural.Text("%d frames at "+name+" are larger than the MTU of one of "+
				"its ports, and bridges do not count those that they drop for their size", n))
			continue
		}
		s := u.crossing.byNode[name]
		if s == nil || u.crossing.short || !u.whole(s) {
			continue
		}
		counted := u.capture.Lost[name] + u.capture.HarmAt(s.ports()...).Dropped
		for _, port := range s.ports() {
			counted += u.capture.QueueDrops[port]
		}
		if gone := s.untrimmed() + s.expired + s.refused; gone > counted {
			lines = append(lines, fmt.Sprintf("%s: %d packets entered and never left, and its counters show "+
				"only %d drops", name, gone, counted))
		}
	}
	return lines
}

// whole reports whether the capture has all packets at all ports of a switch.
func (u *unseen) whole(s *switchState) bool {
	if len(s.taps) < len(s.plan.Ports) {
		return false
	}
	for _, tap := range s.taps {
		if !tap.Whole() {
			return false
		}
	}
	return true
}
