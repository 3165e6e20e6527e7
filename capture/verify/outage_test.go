package verify

import (
	"net/netip"
	"strings"
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
	atLeast, err := spec.ParseBound(">= 70ms", spec.DurationBound)
	if err != nil {
		t.Fatal(err)
	}
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

	// What never came at all has an outage that is as long as anybody likes.
	short := played(never)
	src, dst := &short.plan.Nodes[0], &short.plan.Nodes[2]
	for range 2 {
		short.send(src.Name, "eth0", tcp{src: netip.AddrPortFrom(loopback(src), 7002), dst: netip.AddrPortFrom(loopback(dst), 17000), datagram: make([]byte, 100)})
		id := short.ids
		short.remove(func(k sighting) bool { return k.id == id && k.tap == dst.Name+":eth0" })
	}
	judgeScene(t, short, outage(""), unclear, ":7002 > "+loopback(dst).String()+":17000: none of 2 datagrams arrived")
	judgeScene(t, short, NewOutage(Selection{}, &atLeast), unclear, "none of 2 datagrams arrived")
	all := func(int) bool { return true }
	judgeScene(t, played(all), outage(""), fail, "took 99ms")
	judgeScene(t, played(all), NewOutage(Selection{}, &atLeast), pass, "was 99ms")
}

// An outage is in the testbed's time, and says when it began.
func TestOutageIsInVirtualTime(t *testing.T) {
	longest, err := spec.ParseBound("<= 20ms", spec.DurationBound)
	if err != nil {
		t.Fatal(err)
	}
	const millisecond = 1_000_000
	out, in := &Tap{Name: "h0:eth0", Node: "h0", NIC: true}, &Tap{Name: "h1:eth0", Node: "h1", NIC: true}
	k := NewOutage(Selection{}, &longest)
	c := &Capture{Dilation: 4, First: start, Last: start + 400*millisecond, End: start + 400*millisecond, Taps: []*Tap{out, in}}
	k.Begin(c)
	flow := &Flow{Proto: protocolUDP, Src: netip.MustParseAddrPort("10.0.0.1:7000"), Dst: netip.MustParseAddrPort("10.0.0.2:17000")}
	for n := range int64(100) {
		at := start + n*4*millisecond
		k.Packet(&Packet{Flow: flow, Tap: out, Direction: Out, Time: at})
		if n < 40 || n >= 55 {
			k.Packet(&Packet{Flow: flow, Tap: in, Direction: In, Time: at})
		}
	}
	r := k.Result()
	if r.Measured["longest"] != 0.015 || r.Measured["began"] != 0.04 || !strings.Contains(r.Summary, "was 15ms, of 10.0.0.1:7000 > 10.0.0.2:17000, from 40ms of the recording on; 15 of 100 ") || r.Verdict == fail {
		t.Errorf("%s: %s, %v", r.Verdict, r.Summary, r.Measured)
	}
}
