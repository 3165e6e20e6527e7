package fabricchecks

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

const routerFile = `
name: router
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: router}
  links: {default: {rate: 1gbit, mtu: 4000}, "h2--*": {mtu: 1500}}
`

// fragments returns the fragments of an IPv4 frame for an MTU, as RFC 791, 3.2, makes them.
func fragments(frame []byte, mtu int) (all [][]byte) {
	const ip = wire.EthernetLen
	header, payload := frame[:ip+wire.IPv4MinLen], frame[ip+wire.IPv4MinLen:]
	room := (mtu - wire.IPv4MinLen) / 8 * 8
	before := binary.BigEndian.Uint16(header[ip+6:])
	for at := 0; at < len(payload); at += room {
		part := payload[at:min(at+room, len(payload))]
		f := append(bytes.Clone(header), part...)
		flags := before&0x2000 | (before&0x1FFF + uint16(at/8))
		if at+room < len(payload) {
			flags |= 0x2000
		}
		binary.BigEndian.PutUint16(f[ip+2:], uint16(wire.IPv4MinLen+len(part)))
		binary.BigEndian.PutUint16(f[ip+6:], flags)
		binary.BigEndian.PutUint16(f[ip+10:], 0)
		sum := uint32(0)
		for i := ip; i < ip+wire.IPv4MinLen; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(f[i:]))
		}
		for sum > 0xFFFF {
			sum = sum&0xFFFF + sum>>16
		}
		binary.BigEndian.PutUint16(f[ip+10:], ^uint16(sum))
		all = append(all, f)
	}
	return all
}

// cut replaces the sightings that match by fragments for an MTU, of which the lost ones are left out.
func cut(s *verifytest.Scene, match func(verifytest.Sighting) bool, mtu int,
	lost func(id uint64, part int) bool) {
	var all []verifytest.Sighting
	for _, k := range s.Sightings {
		if !match(k) {
			all = append(all, k)
			continue
		}
		parts := fragments(k.Frame, mtu)
		for i, frame := range parts {
			part := k
			part.Frame, part.Length = frame, len(frame)
			if len(parts) > 1 {
				part.ID = k.ID*100 + uint64(i)
			}
			if part.Time += int64(i); !lost(k.ID, i) || k.Tap == "h0:eth0" {
				all = append(all, part)
			}
		}
	}
	s.Sightings = all
}

// large sends a datagram of 3,000 bytes each millisecond from h0 to h2, in two flows.
func large(t *testing.T) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Plan, s.Step, s.Snap = plantest.Compile(t, routerFile), 1_000_000, 9000
	for n := range 100 {
		s.Send("h0", "eth0", verifytest.TCP{
			Src:      netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[0]), 7000+uint16(n%2)),
			Dst:      netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[2]), 17000),
			Datagram: make([]byte, 3000)})
	}
	s.Now += 1_000_000_000
	return s
}

// behind selects the sightings behind the router.
func behind(k verifytest.Sighting) bool { return k.Tap == "h2:eth0" || k.Tap == "leaf1:p2" }

// A router that fragments packets loses none of them. If a fragment is lost, its packet is.
func TestRoutersFragment(t *testing.T) {
	checks := func() []evidence.Check {
		return []evidence.Check{NewLossless(&spec.LosslessCheck{}), NewConservation("*"),
			NewOutage(&spec.OutageCheck{Longest: "<= 5ms"}),
			NewLatency(&spec.LatencyCheck{Max: "<= 100ms"}, nil),
			NewReordering(&spec.ReorderingCheck{Share: "== 0%"})}
	}
	none := func(uint64, int) bool { return false }
	for name, c := range map[string]struct {
		make func(*verifytest.Scene)
		want [5]string
	}{
		"by the router": {func(s *verifytest.Scene) { cut(s, behind, 1500, none) },
			[5]string{"100 packets left: 100 arrived", "100 packets crossed", "2 flows was 0s",
				"100 packets took", "0 of 0"}},
		"by the sender": {func(s *verifytest.Scene) {
			cut(s, func(verifytest.Sighting) bool { return true }, 1500, none)
		}, [5]string{"300 packets left: 300 arrived", "300 packets crossed", "2 flows was 0s",
			"300 packets took",
			"0 of 300"}},
		"by both": {func(s *verifytest.Scene) {
			cut(s, func(verifytest.Sighting) bool { return true }, 2500, none)
			cut(s, behind, 1500, none)
		}, [5]string{"200 packets left: 200 arrived", "200 packets crossed", "2 flows was 0s",
			"200 packets took",
			"0 of 100"}},
	} {
		s := large(t)
		c.make(s)
		results, _ := s.Run(checks()...)
		for i, r := range results {
			want := pass
			if i == 4 && name == "by the router" {
				want = unclear // fragments are of no flow that left
			}
			if verifytest.Wants(t, r, want, c.want[i]); t.Failed() {
				t.Fatal(name)
			}
		}
	}
	// The second fragment of 20 datagrams in a row is lost.
	lost := func(id uint64, part int) bool { return part == 1 && id > 40 && id <= 60 }
	for name, make := range map[string]func(*verifytest.Scene){
		"by the router": func(s *verifytest.Scene) { cut(s, behind, 1500, lost) },
		"by the sender": func(s *verifytest.Scene) {
			cut(s, func(verifytest.Sighting) bool { return true }, 1500, none)
			s.Remove(func(k verifytest.Sighting) bool { return behind(k) && lost(k.ID/100, int(k.ID%100)) })
		},
	} {
		s := large(t)
		make(s)
		results, _ := s.Run(checks()[:4]...)
		for i, says := range []string{"20 packets were lost", "entered and never left",
			"outage: 20ms, want <= 5ms",
			"20 did not arrive"} {
			if verifytest.Wants(t, results[i], fail, says); t.Failed() {
				t.Fatal(name)
			}
		}
	}
}
