package verify

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestLosslessByTheSendersSwitch has two leaves that map one DSCP to two
// priorities. A packet is of the priority that the switch of its sender makes of
// it, whichever switch comes first in the plan and wherever the packet goes.
func TestLosslessByTheSendersSwitch(t *testing.T) {
	file := strings.Replace(softFile, "  links:", "  switches: {leaf2: {priorities: {24: 5}}}\n  links:", 1)
	played := func(from, to int, lose bool) *scene {
		s := softScene(t, file)
		s.sightings, s.now = nil, start
		src, dst := &s.plan.Nodes[from], &s.plan.Nodes[to]
		for n := range 10 {
			s.send(src.Name, "eth0", tcp{src: netip.AddrPortFrom(loopback(src), 7000),
				dst: netip.AddrPortFrom(loopback(dst), 7001), seq: uint32(n), payload: 1000})
		}
		s.now += 1_000_000_000
		s.change(func(sighting) bool { return true }, func(k *sighting) { k.frame[15] = 24 << 2 })
		if lose {
			id := s.packet(src.Name+":eth0", true)
			s.remove(func(k sighting) bool { return k.id == id && k.tap == dst.Name+":eth0" })
		}
		return s
	}
	lossless := func(priority int) Check { return newLossless(Selection{}, priority) }
	const leaf1, leaf2 = 0, 2 // the first host of each
	judgeScene(t, played(leaf1, leaf2, false), lossless(3), pass, "10 packets left: 10 arrived")
	judgeScene(t, played(leaf1, leaf2, true), lossless(3), fail, "10 packets left: 9 arrived, 1 were lost")
	judgeScene(t, played(leaf1, leaf2, true), lossless(5), unclear, "no packet left")
	judgeScene(t, played(leaf2, leaf1, false), lossless(5), pass, "10 packets left: 10 arrived")
	judgeScene(t, played(leaf2, leaf1, true), lossless(5), fail, "10 packets left: 9 arrived, 1 were lost")
	judgeScene(t, played(leaf2, leaf1, true), lossless(3), unclear, "no packet left")

	// A tag without a VLAN says the priority, and one with a VLAN does not.
	tagged := func(tci byte, vlan byte) *scene {
		s := played(leaf1, leaf2, false)
		s.change(func(sighting) bool { return true }, func(k *sighting) {
			k.frame = slices.Concat(k.frame[:12], []byte{0x81, 0, tci, vlan}, k.frame[12:])
			k.length += 4
		})
		return s
	}
	judgeScene(t, tagged(6<<5, 0), lossless(6), pass, "10 packets left: 10 arrived")
	judgeScene(t, tagged(6<<5, 0), lossless(3), unclear, "no packet left")
	judgeScene(t, tagged(6<<5, 9), lossless(3), pass, "10 packets left: 10 arrived")
}
