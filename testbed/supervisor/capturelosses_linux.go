package supervisor

import (
	"context"

	"railbed/capture"
	"railbed/fabric/softswitch/live"
)

// lostBehind counts packets that the kernel and the soft switches lose from now on between NICs and
// emulated NICs. The returned function returns the counts by tap when the capture ends. Losses of a
// NIC count at the NIC's tap or, if that is not recorded, at the tap at the far end of its link.
// Without soft switches lostBehind returns nil, because the other taps are at both ends of each
// queue.
func (s *supervisor) lostBehind(taps []capture.Tap) func() []uint64 {
	if !s.plan.Soft() {
		return nil
	}
	before, err := s.softState()
	if err != nil {
		s.log.Warn("count losses behind the taps of a capture", "error", err)
		return nil
	}
	return func() []uint64 {
		after, err := s.softState()
		if err != nil {
			s.log.Warn("count losses behind the taps of a capture", "error", err)
			return nil
		}
		return behind(taps, vanished(before, after, s.nicLinks()))
	}
}

func (s *supervisor) softState() (*live.State, error) {
	_, state, err := s.fabric.State(context.Background())
	return state, err
}

// nicLinks returns the links of NICs, by "node:nic".
func (s *supervisor) nicLinks() map[string]string {
	links := map[string]string{}
	for _, n := range s.plan.Nodes {
		for _, nic := range n.NICs {
			links[n.Name+":"+nic.Name] = nic.Link
		}
	}
	return links
}

// vanished returns the losses between two states, by the link of the NIC. All NICs share a ring, so
// each NIC counts all packets for which the ring had no room.
func vanished(before, after *live.State, links map[string]string) map[string]uint64 {
	lost := map[string]uint64{}
	earlier := map[string]uint64{}
	for i := range before.NICs {
		n := &before.NICs[i]
		earlier[n.Node+":"+n.NIC] = n.Vanished()
	}
	for i := range after.NICs {
		n := &after.NICs[i]
		name := n.Node + ":" + n.NIC
		// The counter of a port that was replaced starts at zero again.
		if now := n.Vanished(); now >= earlier[name] {
			lost[links[name]] = now - earlier[name]
		} else {
			lost[links[name]] = now
		}
		lost[links[name]] += after.RingDropped - before.RingDropped
	}
	return lost
}

// behind assigns losses, by link, to the taps.
func behind(taps []capture.Tap, lost map[string]uint64) []uint64 {
	atNIC := map[string]bool{}
	for _, tap := range taps {
		atNIC[tap.Link] = atNIC[tap.Link] || tap.NIC
	}
	counts := make([]uint64, len(taps))
	for i, tap := range taps {
		if tap.NIC || !atNIC[tap.Link] {
			counts[i] = lost[tap.Link]
		}
	}
	return counts
}
