package verify

import (
	"net/netip"
	"testing"

	"railbed/testbed/spec"
)

// TestOutage plays a stream of a datagram each millisecond on two flows and has one of
// them miss some, or end.
func TestOutage(t *testing.T) {
	longest, err := spec.ParseBound("<= 20ms", spec.DurationBound)
	if err != nil {
		t.Fatal(err)
	}
	const millisecond = 1_000_000
	played := func(missing func(n int) bool) *scene {
		s := softScene(t, softFile)
		s.sightings, s.now = nil, start
		src, dst := &s.plan.Nodes[0], &s.plan.Nodes[2]
		for n := range 100 {
			for port := range uint16(2) {
				s.now = start + int64(n)*millisecond
				s.send(src.Name, "eth0", tcp{src: netip.AddrPortFrom(loopback(src), 7000+port), dst: netip.AddrPortFrom(loopback(dst), 17000), datagram: make([]byte, 100)})
				if id := s.ids; port == 1 && missing(n) {
					s.remove(func(k sighting) bool { return k.id == id && k.tap == dst.Name+":eth0" })
				}
			}
		}
		return s
	}
	outage := func(from string) Check { return NewOutage(Selection{From: from}, &longest) }
	never := func(int) bool { return false }
	judgeScene(t, played(never), outage(""), pass, "the longest outage of 2 flows was 0s")
	judgeScene(t, played(func(n int) bool { return n >= 40 && n < 55 }), outage(""), pass, "15 of 200 datagrams did not arrive")
	judgeScene(t, played(func(n int) bool { return n >= 40 && n < 65 }), outage(""), fail, "the longest outage took 25ms, want <= 20ms")
	judgeScene(t, played(func(n int) bool { return n < 30 }), outage("h0"), fail, "took 30ms")
	// What never comes again is cut off until the sender ends.
	judgeScene(t, played(func(n int) bool { return n >= 60 }), outage(""), fail, "took 39ms")
	judgeScene(t, played(never), outage("h1"), unclear, "no datagram")
}
