package fabricchecks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// TestOutage plays a stream of a datagram each millisecond on two flows and has one of
// them miss some, or end.
func TestOutage(t *testing.T) {
	const longest = "<= 20ms"
	const millisecond = 1_000_000
	const atLeast = ">= 70ms"
	played := func(missing func(n int) bool) *verifytest.Scene {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		s.Sightings, s.Now = nil, verifytest.Start
		src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
		for n := range 100 {
			for port := range uint16(2) {
				s.Now = verifytest.Start + int64(n)*millisecond
				s.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src),
					7000+port),
					Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 17000), Datagram: make([]byte, 100)})
				if id := s.IDs; port == 1 && missing(n) {
					s.Remove(func(k verifytest.Sighting) bool {
						return k.ID == id && k.Tap == dst.Name+":eth0"
					})
				}
			}
		}
		return s
	}
	outage := func(from string) evidence.Check {
		return NewOutage(&spec.OutageCheck{From: from, Longest: longest})
	}
	never := func(int) bool { return false }
	verifytest.Judge(t, played(never), outage(""), pass, "the longest outage of 2 flows was 0s")
	verifytest.Judge(t, played(func(n int) bool {
		return n >= 40 && n < 55
	}), outage(""), pass, "15 of 200 datagrams did not arrive")
	verifytest.Judge(t, played(func(n int) bool {
		return n >= 40 && n < 65
	}), outage(""), fail, "the longest outage: 25ms, want <= 20ms")
	verifytest.Judge(t, played(func(n int) bool { return n < 30 }), outage("h0"), fail, "outage: 30ms")
	// What never comes again is cut off until the sender ends.
	verifytest.Judge(t, played(func(n int) bool { return n >= 60 }), outage(""), fail, "outage: 39ms")
	verifytest.Judge(t, played(never), outage("h1"), unclear, "no datagram")

	// What never came at all has an outage that is as long as anybody likes.
	short := played(never)
	src, dst := &short.Plan.Nodes[0], &short.Plan.Nodes[2]
	for range 2 {
		short.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src), 7002),
			Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 17000), Datagram: make([]byte, 100)})
		id := short.IDs
		short.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == dst.Name+":eth0" })
	}
	verifytest.Judge(t, short, outage(""), unclear,
		":7002 > "+verifytest.Loopback(dst).String()+":17000: none of 2 datagrams arrived")
	verifytest.Judge(t, short, NewOutage(&spec.OutageCheck{Longest: atLeast}), unclear,
		"none of 2 datagrams arrived")
	all := func(int) bool { return true }
	verifytest.Judge(t, played(all), outage(""), fail, "outage: 99ms")
	verifytest.Judge(t, played(all), NewOutage(&spec.OutageCheck{Longest: atLeast}), pass, "was 99ms")
}

// An outage is in the testbed's time, and says when it began.
func TestOutageIsInVirtualTime(t *testing.T) {
	const longest = "<= 20ms"
	const millisecond = 1_000_000
	out, in := &evidence.Tap{Name: "h0:eth0", Node: "h0", NIC: true}, &evidence.Tap{Name: "h1:eth0",
		Node: "h1", NIC: true}
	k := NewOutage(&spec.OutageCheck{Longest: longest})
	c := &evidence.Capture{Dilation: 4, First: verifytest.Start, Last: verifytest.Start + 400*millisecond,
		End: verifytest.Start + 400*millisecond, Taps: []*evidence.Tap{out, in}}
	k.Begin(c)
	flow := &evidence.Flow{Proto: protocolUDP, Src: netip.MustParseAddrPort("10.0.0.1:7000"),
		Dst: netip.MustParseAddrPort("10.0.0.2:17000")}
	for n := range int64(100) {
		at := verifytest.Start + n*4*millisecond
		k.Packet(&evidence.Packet{Flow: flow, Tap: out, Direction: evidence.Out, Time: at})
		if n < 40 || n >= 55 {
			k.Packet(&evidence.Packet{Flow: flow, Tap: in, Direction: evidence.In, Time: at})
		}
	}
	r := k.Result()
	if r.Measured["longest"] != 0.015 || r.Measured["began"] != 0.04 ||
		!strings.Contains(r.Summary, "was 15ms, of 10.0.0.1:7000 > 10.0.0.2:17000, from 40ms of the "+
			"recording on; 15 of 100 ") || r.Verdict == fail {
		t.Errorf("%s: %s, %v", r.Verdict, r.Summary, r.Measured)
	}
}

// Each reason for which an outage is not what it seems, and what is none.
func TestOutageOfWhatWasSeen(t *testing.T) {
	const upTo, atLeast = "<= 20ms", ">= 20ms"
	p := plantest.Compile(t, verifytest.ClusterFile)
	const millisecond = 1_000_000
	router := p.Switches[0].Loopbacks[0].Addr()
	flow := func(index, from, to int) *evidence.Flow {
		return &evidence.Flow{Index: index, Proto: protocolUDP,
			Src: verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[from].Addr4}, 7000),
			Dst: verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[to].Addr4}, 7001)}
	}
	tap := func(index, rank int) *evidence.Tap {
		return &evidence.Tap{Index: index, Name: p.Ranks[rank].Node + ":eth0", Node: p.Ranks[rank].Node,
			Port: "eth0", NIC: true}
	}
	withoutCarrier := func(c *evidence.Capture, _ *evidence.Packet) bool {
		c.Lost = map[string]uint64{"h0:eth0": 9}
		return true
	}
	// A datagram each millisecond from h0 to h1 and to h2, all of which arrive but those from
	// the 40th on to h2.
	for name, c := range map[string]struct {
		bound string
		spoil func(c *evidence.Capture, p *evidence.Packet) (left bool)
		want  verdict.Verdict
		says  string
	}{
		"nothing":              {upTo, nil, fail, "outage: 59ms, want <= 20ms"},
		"the bound is another": {atLeast, nil, pass, "was 59ms"},
		"a tap lost packets": {upTo, func(c *evidence.Capture, _ *evidence.Packet) bool {
			c.Taps[2].Lost = 1
			return true
		}, unclear, "outage: 59ms"},
		"it is cut off": {upTo, func(c *evidence.Capture, _ *evidence.Packet) bool {
			c.Truncated = true
			return true
		}, unclear, "outage: 59ms"},
		"it is lossy but enough": {atLeast, func(c *evidence.Capture, _ *evidence.Packet) bool {
			c.Taps[2].Lost = 1
			return true
		}, unclear, "lost 1 packet"},
		"an upper bound, and a NIC without a carrier": {"<= 100ms", withoutCarrier, unclear,
			"h0:eth0 lost 9 packets"},
		"a lower bound that holds, and a NIC without a carrier": {atLeast, withoutCarrier, pass, "was 59ms"},
		"a lower bound that fails, and a NIC without a carrier": {">= 70ms", withoutCarrier, unclear,
			"h0:eth0 lost 9 packets"},
		"arrivals of another kind": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			p.Flow.Proto = evidence.ProtoTCP
			return true
		}, unclear, "no datagram"},
		"all arrivals are drops": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			if p.Direction == evidence.In {
				p.Drop = "tail"
			}
			return true
		}, unclear, "no datagram"},
		"the sender was not seen": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			return p.Direction == evidence.In
		}, unclear, "no datagram"},
		"a receiver was not seen": {upTo, func(c *evidence.Capture, p *evidence.Packet) bool {
			c.Taps = c.Taps[:2]
			return p.Tap.Index < 2
		}, unclear, "not recorded: "},
		"a receiver has another NIC": {upTo, func(c *evidence.Capture, _ *evidence.Packet) bool {
			twoNICs := *p
			twoNICs.Nodes = slices.Clone(p.Nodes)
			twoNICs.Nodes[2].NICs = append(slices.Clone(p.Nodes[2].NICs), plan.Interface{Name: "eth1"})
			c.Plan = &twoNICs
			return true
		}, unclear, "not recorded: h2:eth1"},
		"one flow came from afar": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			return p.Flow.Index == 0 || p.Direction == evidence.In
		}, pass, "of 1 flow was 0s"},
		"at switches": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			p.Tap.NIC = false
			return true
		}, unclear, "no datagram"},
		"packets to an address without a NIC": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			if p.Flow.Index == 1 {
				p.Flow.Dst = netip.MustParseAddrPort("192.0.2.1:7001")
			}
			return p.Flow.Index == 0 || p.Direction == evidence.Out
		}, pass, "of 1 flow was 0s"},
		"packets to a group": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			p.Group = p.Flow.Index == 1
			return p.Flow.Index == 0 || p.Direction == evidence.Out
		}, pass, "of 1 flow was 0s"},
		"packets to the router": {upTo, func(_ *evidence.Capture, p *evidence.Packet) bool {
			if p.Flow.Index == 1 {
				p.Flow.Dst = netip.AddrPortFrom(router, 7001)
			}
			return p.Flow.Index == 0 || p.Direction == evidence.Out
		}, pass, "of 1 flow was 0s"},
	} {
		flows := []*evidence.Flow{flow(0, 0, 1), flow(1, 0, 2)}
		capture := &evidence.Capture{Plan: p, Taps: []*evidence.Tap{tap(0, 0), tap(1, 1), tap(2, 2),
			tap(3, 3)}, First: verifytest.Start,
			Last: verifytest.Start + 100*millisecond, End: verifytest.Start + 100*millisecond}
		taps := capture.Taps
		k := NewOutage(&spec.OutageCheck{Longest: c.bound})
		var all []*evidence.Packet
		for n := range int64(100) {
			for to, f := range flows {
				all = append(all, &evidence.Packet{Flow: f, Tap: taps[0], Direction: evidence.Out,
					Time: verifytest.Start + n*millisecond})
				if to == 0 || n < 40 {
					all = append(all, &evidence.Packet{Flow: f, Tap: taps[1+to], Direction: evidence.In,
						Time: verifytest.Start + n*millisecond})
				}
			}
		}
		if c.spoil != nil {
			all = slices.DeleteFunc(all, func(p *evidence.Packet) bool { return !c.spoil(capture, p) })
		}
		k.Begin(capture)
		for _, p := range all {
			k.Packet(p)
		}
		if r := k.Result(); r.Verdict != c.want || !strings.Contains(verifytest.Text(r), c.says) {
			t.Errorf("%s: want %s and %q, got %v", name, c.want, c.says, r)
		}
	}
}

// Copies of equal datagrams that arrived before do not stand for those that a cut link drops.
func TestOutageBehindCopies(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now = nil, verifytest.Start
	src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for n := range 100 {
		s.Now = verifytest.Start + int64(n)*1_000_000
		s.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(src.Loopbacks[1].Addr(), 7000),
			Dst: netip.AddrPortFrom(dst.Loopbacks[1].Addr(), 17000), Datagram: make([]byte, 100)})
		arrived := s.Of(s.IDs, dst.Name+":eth0", false)
		switch {
		case n < 40:
			arrived.Time += 1000
			s.Insert(arrived)
		case n < 70:
			id := s.IDs
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == dst.Name+":eth0" })
		}
	}
	verifytest.Judge(t, s, NewOutage(&spec.OutageCheck{Longest: "<= 20ms"}), fail, "want <= 20ms")
}

// TestProbesOfRoutes: traceroute sends datagrams whose TTL ends on the way. They are expected not to arrive.
// Other datagrams are not: their TTL ends on a longer path, such as a loop, or a bridge loses them.
func TestProbesOfRoutes(t *testing.T) {
	const most = "<= 1h"
	for _, c := range []struct {
		kind   string
		ttl    uint8 // of the probes, which do not arrive; three routers are on the way
		outage verdict.Verdict
		less   verdict.Verdict
	}{
		{"router", 1, pass, pass}, {"router", 3, pass, pass}, {"router", 4, unclear, fail},
		{"router", 64, unclear, fail}, {"soft", 3, pass, pass}, {"soft", 4, unclear, fail},
	} {
		s := verifytest.NewScene(t)
		s.Plan = plantest.Compile(t, strings.Replace(verifytest.ClusterFile, "topology:",
			"switch: {kind: "+c.kind+"}\n  topology:", 1))
		src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
		send := func(port uint16, ttl uint8) {
			s.Now += 1_000_000
			s.Send(src.Name, "eth0", verifytest.TCP{Datagram: make([]byte, 60), TTL: ttl,
				Src: netip.AddrPortFrom(verifytest.Loopback(src), port),
				Dst: netip.AddrPortFrom(verifytest.Loopback(dst), port)})
		}
		for n := range uint16(10) {
			send(17000, 64)
			send(33434+n, c.ttl)
			id := s.IDs
			s.Sightings = slices.DeleteFunc(s.Sightings, func(k verifytest.Sighting) bool {
				return k.ID == id && k.Tap == dst.Name+":eth0"
			})
		}
		s.Now += 1_000_000_000
		t.Run(fmt.Sprintf("%s %d", c.kind, c.ttl), func(t *testing.T) {
			says := "10 datagrams are left out"
			if c.outage != pass {
				says = "none of 1 datagram arrived"
			}
			verifytest.Judge(t, s, NewOutage(&spec.OutageCheck{Longest: most}), c.outage, says)
			verifytest.Judge(t, s, NewLossless(&spec.LosslessCheck{}), c.less, "")
		})
	}
	bridged := &evidence.Capture{Plan: plantest.Compile(t, "name: t\nfabric: {topology: single-switch, "+
		"params: {hosts: 2}, switch: {kind: bridge}}\n")}
	if bridged.Expires(&evidence.Packet{IP: 4, TTL: 1}, evidence.Pair{From: "h0", To: "h1"}) {
		t.Error("a bridge decrements no TTL")
	}
}
