package supervisor

import (
	"context"

	"railbed/capture"
	"railbed/fabric/softswitch/live"
)

// lostBehind counts what the kernel and the soft switches lose, from now on, between
// NICs and emulated NICs, and returns the counts by tap when the capture ends. A NIC's
// losses are those of its own tap, or, where that is not recorded, of the tap at the far
// end of its link. It is nil without soft switches: the taps of others are at both ends
// of each queue.
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

// nicLinks are the links of NICs, by "node:nic".
func (s *supervisor) nicLinks() map[string]string {
	links := map[string]string{}
	for _, n := range s.plan.Nodes {
		for _, nic := range n.NICs {
			links[n.Name+":"+nic.Name] = nic.Link
		}
	}
	return links
}

// vanished is what was lost between two states, by the link of the NIC. What the ring
// that all NICs share had no room for may be of each of them.
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
		// A port that was replaced counts from zero again.
		if now := n.Vanished(); now >= earlier[name] {
			lost[links[name]] = now - earlier[name]
		} else {
			lost[links[name]] = now
		}
		lost[links[name]] += after.RingDropped - before.RingDropped
	}
	return lost
}

// behind spreads losses, by link, over the taps.
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
