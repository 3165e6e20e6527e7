package verifytest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
)

// SoftFile is a fabric of soft switches that mark, trim and pause.
const SoftFile = `
name: soft
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: soft, ecn: {kmin: 10KB, kmax: 30KB}, trim: true, pfc: {priorities: [3]}}
  links: {default: {rate: 1gbit}}
`

// SoftRing is a ring of soft switches that pause.
const SoftRing = `
name: ring
fabric:
  topology: torus
  params: {x: 3}
  switch: {kind: soft, pfc: {priorities: [3]}}
  links: {default: {rate: 1gbit}}
`

// SoftScene sends 200 packets from h0 and 200 from h1 to hosts of the other leaf. The packets are
// ECN-capable at priority 3, and the soft switches record queue lengths.
func SoftScene(t testing.TB, text string) *Scene {
	s := NewScene(t)
	s.Plan = plantest.Compile(t, text)
	for n := range 400 {
		from, to := &s.Plan.Nodes[n%2], &s.Plan.Nodes[2]
		s.Send(from.Name, "eth0", TCP{
			Src:     netip.AddrPortFrom(Loopback(from), 7000),
			Dst:     netip.AddrPortFrom(Loopback(to), 7001),
			Flow:    n % 2,
			Seq:     uint32(n),
			Payload: 1000,
		})
	}
	s.Now += 1_000_000_000
	s.Change(func(Sighting) bool { return true }, func(k *Sighting) {
		wire.IPv4(k.Frame[14:]).RewriteTOS(24<<2 | uint8(wire.ECT0))
		if k.Out && !strings.HasPrefix(k.Tap, "h") {
			k.Comment, k.Queue = "railbed depth=1000 late=0ns", 4
		}
	})
	return s
}

// Loopback returns the first loopback address of a node.
func Loopback(n *plan.Node) netip.Addr { return n.Loopbacks[0].Addr() }

// Uplinks returns the taps of a switch's ports to other switches.
func (s *Scene) Uplinks(sw string) (taps []string) {
	for _, port := range s.Plan.Switch(sw).Ports {
		if peer, _ := spec.SplitPort(port.Peer); s.Plan.Switch(peer) != nil {
			taps = append(taps, sw+":"+port.Name)
		}
	}
	return taps
}

// From edits the sightings of every second packet, from the sending of a switch on.
func (s *Scene) From(sw string, edit func(k *Sighting, here bool)) {
	left := map[uint64]int64{}
	for _, k := range s.Sightings {
		if k.Out && strings.HasPrefix(k.Tap, sw+":") && k.ID%2 == 0 {
			left[k.ID] = k.Time
		}
	}
	s.Change(func(k Sighting) bool {
		at, found := left[k.ID]
		return found && k.Time >= at
	}, func(k *Sighting) {
		edit(k, k.Out && strings.HasPrefix(k.Tap, sw+":"))
	})
}

// Mark changes every second packet as leaf1 does when it marks packets.
func (s *Scene) Mark() {
	s.From("leaf1", func(k *Sighting, here bool) {
		k.Frame = slices.Clone(k.Frame)
		wire.IPv4(k.Frame[14:]).RewriteECN(wire.CE)
		if here {
			k.Comment = "railbed verdict=mark reason=red depth=40000 late=0ns"
		}
	})
}

// Cut changes every second packet as leaf1 does when it trims packets.
func (s *Scene) Cut(dscp byte) {
	s.From("leaf1", func(k *Sighting, here bool) {
		k.Frame = slices.Clone(k.Frame[:128])
		wire.IPv4(k.Frame[14:]).RewriteTOS(dscp << 2)
		wire.IPv4(k.Frame[14:]).RewriteTotalLength(114)
		k.ID, k.Length = k.ID+1<<32, 128
		if here {
			k.Comment, k.Queue = "railbed verdict=trim reason=tail depth=60000 late=0ns", 8
		}
	})
}

// Lose drops the first packet of h0 at leaf1, with a comment if there is one.
func (s *Scene) Lose(comment string) {
	id := s.Packet("h0:eth0", true)
	at := s.Of(id, "leaf1:p0", false)
	s.Remove(func(k Sighting) bool { return k.ID == id && k.Time > at.Time })
	if comment != "" {
		at.Tap, at.Out, at.Time, at.Comment = s.Uplinks("leaf1")[0], true, at.Time+10, comment
		s.Insert(at)
	}
}

// NicOverruns makes the emulated NIC of h0 drop a packet for lack of room, and leaf1 record its
// queue length.
func NicOverruns(s *Scene) {
	id := s.Packet("h0:eth0", true)
	at := s.Of(id, "h0:eth0", true)
	s.Remove(func(k Sighting) bool { return k.ID == id && k.Time > at.Time })
	at.Time, at.Comment = at.Time+10, "railbed verdict=drop reason=nic-overrun depth=261800"
	s.Insert(at)
}

// LostBy returns a scene in which each of the taps lost a packet.
func LostBy(of func(*Scene), taps ...string) func(*Scene) {
	return func(s *Scene) {
		of(s)
		for _, sw := range s.Plan.Switches {
			for _, port := range sw.Ports {
				name := sw.Name + ":" + port.Name
				if slices.ContainsFunc(taps, func(tap string) bool { return spec.Match(tap, name) }) {
					s.Drops[name] = 1
				}
			}
		}
	}
}

// Pause sends a PFC frame from a port to the far end of its link.
func (s *Scene) Pause(tap string, at int64, quanta uint16) {
	port, _ := (&evidence.Capture{Plan: s.Plan}).Interface(spec.SplitPort(tap))
	frame := make([]byte, wire.EthernetMinLen)
	wire.EncodePFCFrame(frame, wire.MAC(port.MAC),
		&wire.PFCFields{Enable: 1 << 3, Quanta: [8]uint16{3: quanta}})
	s.IDs++
	s.Insert(
		Sighting{Tap: tap, Out: true, Time: at, ID: s.IDs, Frame: frame, Length: len(frame), Queue: 8,
			Comment: "railbed verdict=pause reason=pfc depth=9000 late=0ns"},
		Sighting{Tap: port.Peer, Time: at + 500, ID: s.IDs, Frame: frame, Length: len(frame),
			Comment: "railbed verdict=pause reason=pfc depth=5000 late=0ns"})
}

// Chain adds pauses that spread from spine1 over leaf1 to h0, after the traffic. Each pause has
// 1,000 quanta: 512 us.
func (s *Scene) Chain() {
	end := s.Now - 900_000_000
	up := s.Uplinks("leaf1")[0]
	port, _ := (&evidence.Capture{Plan: s.Plan}).Interface(spec.SplitPort(up))
	s.Pause(port.Peer, end, 1000)
	s.Pause("leaf1:p0", end+10_000, 1000)
}

// Circle makes each switch of a ring pause the switch before it, four times within the time of a
// pause.
func (s *Scene) Circle() {
	at := s.Now - 900_000_000
	for n := range 4 {
		for i := range 3 {
			sw, far := fmt.Sprintf("sw%d", i), fmt.Sprintf("sw%d", (i+1)%3)
			for _, port := range s.Plan.Switch(sw).Ports {
				if peer, _ := spec.SplitPort(port.Peer); peer == far {
					s.Pause(port.Peer, at+int64(n)*10_000_000, wire.MaxQuanta)
				}
			}
		}
	}
}
