package rules

import (
	"net/netip"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/verdict"
	"railbed/testkit/verifytest"
)

// ruled returns the result of a rule.
func ruled(t *testing.T, s *verifytest.Scene, text string) evidence.Result {
	t.Helper()
	results, _ := s.Run(ruleOf(t, text))
	return results[0]
}

// Groups of which no packet came to the ports of a rule are judged with 0, if the rule would have selected
// their packets.
func TestGroupsWithoutPackets(t *testing.T) {
	// h0 and h1 send to h2, 20 datagrams each. Those of h1 are lost behind its NIC. h2 answers h0.
	scene := func(t *testing.T) *verifytest.Scene {
		s := datagrams(t, 20, false, all)
		s.Now -= 1_000_000_000
		src, dst := verifytest.Loopback(&s.Plan.Nodes[1]), verifytest.Loopback(&s.Plan.Nodes[2])
		for i := range 20 {
			s.Send("h1", "eth0", verifytest.TCP{Src: netip.AddrPortFrom(src, 7000),
				Dst: netip.AddrPortFrom(dst, 17000), Datagram: make([]byte, 64+i)})
			id := s.IDs
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap != "h1:eth0" })
		}
		s.Now += 1_000_000_000
		return s
	}
	const arrive = `where: 'udp.dstport == 17000 && frame.packet_flags_direction == 1'`
	for name, c := range map[string]struct {
		rule string
		pass bool
		says string
	}{
		"pair": {`count: udp, at: h2, ` + arrive + `, per: pair, is: ">= 10"`, false,
			"packets of h1 > h2: 0, want >= 10"},
		"flow": {`count: udp, at: h2, ` + arrive + `, per: flow, is: ">= 10"`, false,
			":7000 > " + "10.0.0.5:17000 (protocol 17): 0, want >= 10"},
		"sum": {`sum: frame.len, at: h2, ` + arrive + `, per: pair, is: ">= 1KB"`, false, "of h1 > h2: 0"},
		"behind the NIC": {`count: udp, at: leaf1, ` + arrive + `, per: pair, is: ">= 10"`, false,
			"packets of h1 > h2: 0"},
		"everywhere": {`count: 'udp.dstport == 17000 && frame.packet_flags_direction == 1', per: pair, ` +
			`where: 'udp.dstport == 17000', is: ">= 10"`, false, "packets of h1 > h2: 0"},
		"at most": {`count: udp, at: h2, ` + arrive + `, per: pair, is: "<= 20"`, true, "in 1 pair"},
		"another's port": {`count: udp, at: h0, where: 'frame.packet_flags_direction == 1', per: pair, ` +
			`is: ">= 10"`, true, "in 1 pair"},
		"other packets": {`count: udp, at: h2, where: 'udp.length < 60', per: pair, is: ">= 10"`, true,
			"in 1 pair"},
		"port": {`count: udp, at: "h[12]", ` + arrive + `, per: port, is: ">= 1"`, false,
			"packets at h1:eth0: 0, want >= 1"},
		"share of a port": {`share: udp, at: "h[12]", ` + arrive + `, per: port, is: ">= 90%"`, false,
			"no packet at h1:eth0 came"},
		"small share of a port": {`share: udp, at: "h[12]", ` + arrive + `, per: port, is: "<= 100%"`, true,
			"100% of packets match"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ruled(t, scene(t), c.rule)
			want := fail
			switch {
			case c.pass:
				want = pass
			case name == "share of a port":
				want = unclear
			}
			verifytest.Wants(t, r, want, c.says)
		})
	}
}

// What a step sends is expected where nothing of it was recorded.
func TestGroupsOfSteps(t *testing.T) {
	s := datagrams(t, 20, false, none)
	src, dst := verifytest.Loopback(&s.Plan.Nodes[1]), verifytest.Loopback(&s.Plan.Nodes[2])
	s.Sends = []evidence.Send{{Step: "traffic x", Pair: evidence.Pair{From: "h1", To: "h2"},
		FlowAddr: evidence.FlowAddr{Src: netip.AddrPortFrom(src, 20000), Dst: netip.AddrPortFrom(dst, 17000)},
		Size:     1000}}
	verifytest.Wants(t, ruled(t, s,
		`count: udp, at: h2, where: 'udp.dstport == 17000', per: pair, is: ">= 10"`), fail, "packets of h1 > h2: 0, want >= 10")
	verifytest.Wants(t, ruled(t, s, `count: udp, at: h2, per: flow, is: ">= 10"`), fail,
		"10.0.0.2:20000 > 10.0.0.5:17000 (traffic x): 0, want >= 10")
	verifytest.Wants(t, ruled(t, s, `count: udp, at: h2, where: 'udp.dstport != 17000 or frame.len < 500', `+
		`per: pair, is: ">= 10"`), pass, "in 1 pair")
}

// What a step sends, or what leaves right before the end of a time, may come at another time.
func TestGroupsInATime(t *testing.T) {
	const second = int64(1_000_000_000)
	s := datagrams(t, 20, false, none)
	first := s.Now - second
	src, dst := verifytest.Loopback(&s.Plan.Nodes[1]), verifytest.Loopback(&s.Plan.Nodes[2])
	h1 := func() {
		s.Send("h1", "eth0", verifytest.TCP{Src: netip.AddrPortFrom(src, 20000),
			Dst: netip.AddrPortFrom(dst, 17000), Datagram: make([]byte, 64)})
		id := s.IDs
		s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap != "h1:eth0" })
	}
	judge := func(to int64, text string, outside bool, want verdict.Verdict, says string) {
		t.Helper()
		results, _ := s.Run(evidence.Limited(ruleOf(t, text), evidence.NewTimes("f", outside,
			[]evidence.Active{{Begun: verifytest.Start, From: verifytest.Start, To: to, Ended: to}}, "")))
		verifytest.Wants(t, results[0], want, says)
	}
	const pairs = `count: udp, at: h2, per: pair, is: ">= 10"`
	s.Sends = []evidence.Send{{Step: "traffic x", Pair: evidence.Pair{From: "h1", To: "h2"},
		FlowAddr: evidence.FlowAddr{Src: netip.AddrPortFrom(src, 20000), Dst: netip.AddrPortFrom(dst, 17000)},
		Size:     1000}}
	says := "1 group, such as h1 > h2 of traffic x, had no packets in this time"
	judge(first+1, pairs, false, unclear, says)
	judge(first+1, `count: udp, at: h2, per: flow, is: ">= 10"`, false, unclear, says)
	judge(first+1, `count: udp, at: h2, per: pair, is: "<= 20"`, false, pass, "in 1 pair")
	// The step was active in the time, or it was not.
	sent := &s.Sends[0]
	sent.Begun, sent.Ended = first, first+second
	judge(first+1, pairs, false, unclear, says)
	sent.Begun = first + 1
	judge(first+1, pairs, false, pass, "in 1 pair")
	judge(first+1, `count: udp, at: h2, per: flow, is: ">= 10"`, false, pass, "in 1 flow")
	judge(first+1, `count: udp, at: h2, per: pair, is: ">= 30"`, false, fail,
		"packets of h0 > h2: 20, want >= 30")
	// The step does not show which packets other nodes send.
	s.Untapped["h1:eth0"] = true
	judge(first+1, pairs, false, unclear, "not recorded: 1 NIC of senders, such as h1:eth0")
	delete(s.Untapped, "h1:eth0")

	s.Sends = nil
	s.Now = verifytest.Start + 1_000_000
	h1()
	s.Now = first + second
	judge(first+1, pairs, false, unclear, "the packets of 1 group left right before the end of the time")
	judge(first+second, pairs, false, fail, "packets of h1 > h2: 0, want >= 10")
	judge(first+second, `count: udp, at: h2, per: pair, is: "<= 20"`, false, pass, "in 1 pair")
}
