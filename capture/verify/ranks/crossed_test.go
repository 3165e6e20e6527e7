package ranks

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// The bytes of a run crossed its ranks' links, or the check says whose did not.
func TestCrossed(t *testing.T) {
	fromH1 := func(k verifytest.Sighting) bool { return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k) }
	for _, test := range []struct {
		name  string
		spoil func(*verifytest.Scene, *evidence.Crossing)
		want  verdict.Verdict
		says  string
	}{
		{"nothing", func(*verifytest.Scene, *evidence.Crossing) {}, pass, ""},
		{"a rank's bytes went another way", func(s *verifytest.Scene, _ *evidence.Crossing) {
			s.Remove(fromH1)
		}, fail, "rank 1 (h1:eth0): 0 bytes of payload left"},
		{"one packet went another way", func(s *verifytest.Scene, _ *evidence.Crossing) {
			id := s.Packet("h1:eth0", true)
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id })
		}, fail, "rank 1 (h1:eth0)"},
		{"one packet was sent twice in another one's place", func(s *verifytest.Scene, _ *evidence.Crossing) {
			id := s.Packet("h1:eth0", true)
			again := s.Of(id, "h1:eth0", true)
			gone := 0
			s.Remove(func(k verifytest.Sighting) bool {
				if gone == 0 && fromH1(k) && k.ID != id && k.Length == again.Length {
					gone++
					return true
				}
				return false
			})
			again.Time++
			s.Insert(again)
		}, fail, "rank 1 (h1:eth0)"},
		{"the rank's tap lost packets", func(s *verifytest.Scene, _ *evidence.Crossing) {
			s.Remove(fromH1)
			s.Drops["h1:eth0"] = 3
		}, unclear, "rank 1 (h1:eth0): 0 bytes"},
		{"the capture began within", func(s *verifytest.Scene, _ *evidence.Crossing) { s.Begin(2) }, unclear,
			"bytes of payload left, want at least"},
		{"the rank is bound to another NIC", func(_ *verifytest.Scene, c *evidence.Crossing) {
			c.Ranks[1].NIC = "eth1"
		}, fail, "h1:eth0: "},
		{"the bytes left after the run", func(_ *verifytest.Scene, c *evidence.Crossing) {
			c.To = verifytest.Start
		}, fail, "0 bytes of payload left"},
		{"the bytes left before the run", func(s *verifytest.Scene, c *evidence.Crossing) {
			c.From = s.Now + 1
		}, fail, "0 bytes of payload left"},
		{"a NIC without a tap", func(s *verifytest.Scene, _ *evidence.Crossing) {
			s.Untapped["h2:eth0"] = true
		}, unclear, "no NIC was captured of 1 of 4 ranks"},
		{"an unknown amount", func(_ *verifytest.Scene, c *evidence.Crossing) {
			for i := range c.Ranks {
				c.Ranks[i].Sends = 0
			}
		}, unclear, "not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := verifytest.NewScene(t)
			s.Ring(4)
			c := CrossingOf(s.Workload)
			test.spoil(s, &c)
			results, _ := s.Run(NewCrossed(c))
			if r := results[0]; r.Verdict != test.want || !strings.Contains(verifytest.Text(r), test.says) {
				t.Errorf("want %s and %q, got %v", test.want, test.says, r)
			}
		})
	}
}

// TestCrossedBesideOthers: packets of other senders during a run do not count as packets of the
// run.
func TestCrossedBesideOthers(t *testing.T) {
	const port = 17000
	for _, test := range []struct {
		name  string
		to    func(p *plan.Plan) netip.Addr
		spoil func(*evidence.Crossing)
		want  verdict.Verdict
		says  string
	}{
		{"of the run, for all that is known", nil, func(*evidence.Crossing) {}, pass, ""},
		{"a step of traffic", nil, func(c *evidence.Crossing) {
			c.Datagrams = []uint16{port}
		}, fail, "rank 1 (h1:eth0): 0 bytes"},
		{"to a switch", func(p *plan.Plan) netip.Addr {
			return p.Switches[0].Loopbacks[0].Addr()
		}, func(*evidence.Crossing) {}, fail, "rank 1 (h1:eth0): 0 bytes"},
		{"to a node without ranks", nil, func(c *evidence.Crossing) {
			c.Ranks = c.Ranks[:2]
		}, fail, "rank 1 (h1:eth0): 0 bytes"},
		{"a program", nil, func(c *evidence.Crossing) {
			c.Beside = []string{"exec x"}
		}, unclear, "may belong to exec x"},
		{"a program, and the run too little", nil, func(c *evidence.Crossing) {
			c.Beside, c.Datagrams = []string{"exec x"}, []uint16{port}
		}, fail, "rank 1 (h1:eth0): 0 bytes"},
		{"a program, by a NIC of no rank", nil, func(c *evidence.Crossing) {
			c.Beside, c.Ranks[1].NIC = []string{"exec x"}, "eth1"
		}, unclear, "which belongs to no rank"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := verifytest.NewScene(t)
			s.Ring(4)
			s.Remove(func(k verifytest.Sighting) bool {
				return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k)
			})
			from, to := s.Workload.Ranks[1], s.Workload.Ranks[2].Addr
			if test.to != nil {
				to = test.to(s.Plan)
			}
			for range int(from.Expected)/verifytest.Segment + 1 {
				s.Send(from.Node, from.NIC, verifytest.TCP{Src: verifytest.AddrPort(from, 20000),
					Dst: netip.AddrPortFrom(to, port), Datagram: make([]byte, verifytest.Segment)})
			}
			c := CrossingOf(s.Workload)
			test.spoil(&c)
			results, _ := s.Run(NewCrossed(c))
			if r := results[0]; r.Verdict != test.want || !strings.Contains(verifytest.Text(r), test.says) {
				t.Errorf("want %s and %q, got %v", test.want, test.says, r)
			}
		})
	}
	s := verifytest.NewScene(t)
	s.Ring(4)
	c := CrossingOf(s.Workload)
	c.Others = []evidence.Workload{s.Workload} // its packets are another's
	verifytest.Judge(t, s, NewCrossed(c), fail, "0 bytes of payload left")
}

// Without the cluster it is not known which addresses belong to other nodes.
func TestCrossedWithoutThePlan(t *testing.T) {
	p := plantest.Compile(t, verifytest.ClusterFile)
	tap := &evidence.Tap{Name: "h1:eth0", Node: "h1", Port: "eth0", NIC: true}
	c := evidence.Crossing{To: verifytest.Start,
		Ranks: []evidence.CrossingRank{{Node: "h1", NIC: "eth0", Sends: 900}}}
	sent := &evidence.Packet{Flow: &evidence.Flow{Proto: evidence.ProtoUDP,
		Src: verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[1].Addr4}, 1),
		Dst: verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[2].Addr4}, 2)}, Tap: tap,
		Direction: evidence.Out, Time: verifytest.Start, Payload: 1000}
	for sends, want := range map[int]verdict.Verdict{900: unclear, 1100: fail} {
		c.Ranks[0].Sends = units.Bytes(sends)
		k := NewCrossed(c)
		k.Begin(&evidence.Capture{Taps: []*evidence.Tap{tap}})
		k.Packet(sent)
		if r := k.Result(); r.Verdict != want {
			t.Errorf("1,000 bytes of %d: %v", sends, r)
		}
	}
}

// Datagrams that say that they are the same again count once.
func TestCrossedCountsOnce(t *testing.T) {
	p := plantest.Compile(t, verifytest.ClusterFile)
	tap := &evidence.Tap{Name: "h1:eth0", Node: "h1", Port: "eth0", NIC: true}
	k := NewCrossed(evidence.Crossing{To: verifytest.Start,
		Ranks: []evidence.CrossingRank{{Node: "h1", NIC: "eth0", Sends: 1}, {Node: "h2"}}})
	k.Begin(&evidence.Capture{Plan: p, Taps: []*evidence.Tap{tap}})
	packet := func(port uint16) *evidence.Packet {
		return &evidence.Packet{Flow: &evidence.Flow{Proto: evidence.ProtoUDP,
			Src: verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[1].Addr4}, 1),
			Dst: verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[2].Addr4}, int(port))}, Tap: tap,
			Direction: evidence.Out, Time: verifytest.Start,
			Payload: 100}
	}
	for _, psn := range []uint32{0xFFFFFF, 0, 1, 0xFFFFFF, 0, 1, 2} { // four
		roce := packet(infiniband.Port)
		roce.RoCE = &evidence.RoCE{Payload: 80}
		roce.RoCE.BTH.Opcode, roce.RoCE.BTH.PSN = infiniband.WriteMiddle, infiniband.PSN(psn)
		k.Packet(roce)
	}
	for _, psn := range []uint32{7, 8, 7, 9, 8} { // three
		rd := packet(wire.PortRD)
		rd.RD = &evidence.RD{RDBase: wire.RDBase{Type: wire.RDData, PSN: psn}}
		k.Packet(rd)
	}
	answer := func(qp infiniband.QPN, psn uint32) {
		roce := packet(infiniband.Port)
		roce.RoCE = &evidence.RoCE{Payload: 80}
		roce.RoCE.BTH.Opcode, roce.RoCE.BTH.PSN, roce.RoCE.BTH.DestQP = infiniband.ReadResponseMiddle,
			infiniband.PSN(psn), qp
		k.Packet(roce)
	}
	for _, psn := range []uint32{0xFFFFFE, 0xFFFFFF, 0, 1, 0xFFFFFF, 0, 1, 2, 0xFFFFFE} { // five
		answer(17, psn)
	}
	answer(18, 1)                                 // another one's
	for _, psn := range []uint32{500_000, 2, 2} { // two of other lives
		answer(17, psn)
	}
	if r := k.Result(); r.Measured["h1:eth0 bytes"] != 1500 {
		t.Errorf("%v bytes, want 1500", r.Measured)
	}
}

// Each packet that is not what a rank had to send, or is.
func TestCrossedTakes(t *testing.T) {
	p := plantest.Compile(t, verifytest.ClusterFile)
	to := func(rank int) netip.AddrPort {
		return verifytest.AddrPort(evidence.Rank{Addr: p.Ranks[rank].Addr4}, 7001)
	}
	for name, c := range map[string]struct {
		change func(*evidence.Packet)
		want   float64
		says   string
	}{
		"a datagram": {func(*evidence.Packet) {}, 100,
			"rank 1, 3 (h1:eth0): 100 bytes of payload left, want at least 2"},
		"an arriving packet": {func(p *evidence.Packet) { p.Direction = evidence.In }, 0,
			"rank 1, 3 (h1:eth0): 0 bytes"},
		"a dropped packet": {func(p *evidence.Packet) {
			p.Drop = "nic-overrun"
		}, 0, "rank 1, 3 (h1:eth0): 0 bytes"},
		"one of no flow": {func(p *evidence.Packet) { p.Flow = nil }, 0,
			"rank 1, 3 (h1:eth0): 0 bytes"},
		"one in ESP": {func(p *evidence.Packet) { p.Flow.Proto, p.Payload = 50, 0 }, 0,
			"1 packet may carry more in a form that is not read"},
		"one without payload": {func(p *evidence.Packet) { p.Payload = 0 }, 0,
			"rank 1, 3 (h1:eth0): 0 bytes"},
		"one before": {func(p *evidence.Packet) {
			p.Time = verifytest.Start - 11
		}, 0, "rank 1, 3 (h1:eth0): 0 bytes"},
		"one at the begin": {func(p *evidence.Packet) { p.Time = verifytest.Start - 10 }, 100, ""},
		"one at the end":   {func(p *evidence.Packet) { p.Time = verifytest.Start + 10 }, 100, ""},
		"one behind": {func(p *evidence.Packet) {
			p.Time = verifytest.Start + 11
		}, 0, "rank 1, 3 (h1:eth0): 0 bytes"},
		"one for the same node": {func(p *evidence.Packet) {
			p.Flow.Dst = to(1)
		}, 0, "rank 1, 3 (h1:eth0): 0 bytes"},
		"one for a node without a rank": {func(p *evidence.Packet) {
			p.Flow.Dst = to(3)
		}, 0, "rank 1, 3 (h1:eth0): 0 bytes"},
		"one that a switch adds up": {func(p *evidence.Packet) {
			p.Flow.Dst, p.Aggregation = to(3), wire.Aggregation{}
		}, 100, ""},
		"one of a step of traffic": {func(p *evidence.Packet) {
			p.Flow.Dst = netip.AddrPortFrom(to(2).Addr(), 17000)
		}, 0, "rank 1, 3 (h1:eth0): 0 bytes"},
		"TCP to the port of a step": {func(p *evidence.Packet) {
			p.Flow.Dst, p.Flow.Proto = netip.AddrPortFrom(to(2).Addr(), 17000), evidence.ProtoTCP
		}, 100, ""},
		"one at a port of a switch": {func(p *evidence.Packet) { p.Tap.NIC = false }, 0,
			"no NIC was captured of 2 of 4 ranks"},
		"one at a node without a rank": {func(p *evidence.Packet) { p.Tap.Node = "h3" }, 0,
			"no NIC was captured of 2 of 4 ranks"},
		"one in ESP by a NIC that is no rank's": {func(p *evidence.Packet) {
			p.Tap.Port, p.Flow.Proto, p.Payload = "eth1", 50, 0
		}, 0, "h1:eth0: 0 bytes left by this NIC, which belongs to no rank; 1 packet may carry more"},
		"one by a NIC that is no rank's": {func(p *evidence.Packet) {
			p.Tap.Port = "eth1"
		}, 100, "h1:eth0: 100 bytes left by this NIC, which belongs to no rank"},
	} {
		t.Run(name, func(t *testing.T) {
			taps := []*evidence.Tap{{Name: "h1:eth0", Node: "h1", Port: "eth0", NIC: true},
				{Index: 1, Name: "h2:eth0", Node: "h2", Port: "eth0", NIC: true}}
			k := NewCrossed(evidence.Crossing{Name: "x",
				From: verifytest.Start - 10, To: verifytest.Start + 10,
				Datagrams: []uint16{17000},
				Ranks: []evidence.CrossingRank{
					{Rank: 0, Node: "h2", NIC: "eth0"}, {Rank: 1, Node: "h1", NIC: "eth0", Sends: 1},
					{Rank: 2, Node: "h2", NIC: "eth0"}, {Rank: 3, Node: "h1", NIC: "eth0", Sends: 1},
				}})
			k.Begin(&evidence.Capture{Plan: p, Taps: taps})
			k.Packet(&evidence.Packet{Flow: &evidence.Flow{Index: 1, Proto: evidence.ProtoUDP, Src: to(2),
				Dst: to(1)}, Tap: taps[1], Direction: evidence.Out, Time: verifytest.Start, Payload: 1})
			packet := &evidence.Packet{Flow: &evidence.Flow{Proto: evidence.ProtoUDP, Src: to(1), Dst: to(2)},
				Tap: taps[0], Direction: evidence.Out, Time: verifytest.Start, Payload: 100}
			c.change(packet)
			k.Packet(packet)
			r := k.Result()
			if got := r.Measured["h1:eth0 bytes"]; got != c.want || !strings.Contains(verifytest.Text(r),
				c.says) ||
				(c.want > 0) != (r.Verdict == pass) && !strings.Contains(c.says, "NIC") {
				t.Errorf("%v bytes, want %v and %q: %v", got, c.want, c.says, r)
			}
		})
	}
}

// Where bytes for ranks of the same node are counted, it is not known how many leave.
func TestCrossingOfRanksOfOneNode(t *testing.T) {
	w := evidence.Workload{Ranks: []evidence.Rank{{Node: "h0", Expected: 9}, {Node: "h0", Expected: 9},
		{Node: "h1", Expected: 9}}}
	for across, want := range map[bool]units.Bytes{true: 9, false: 0} {
		w.Across = across
		if got := CrossingOf(w).Ranks[0].Sends; got != want {
			t.Errorf("across %v: %d bytes, want %d", across, got, want)
		}
	}
}
