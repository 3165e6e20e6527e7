package verify

import (
	"net/netip"
	"slices"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// writtenCheck makes a check from the text of a file.
func writtenCheck(t *testing.T, text string) func() evidence.Check {
	return func() evidence.Check {
		asked, _, err := spec.ParsePacketsCheck("check", text)
		if err != nil {
			t.Fatal(err)
		}
		check, err := New(asked, Sources{})
		if err != nil {
			t.Fatal(err)
		}
		return check
	}
}

// ruleSpecimen is a specimen of a rule.
func ruleSpecimen(rule string, scene func(*testing.T) *verifytest.Scene,
	spoil func(*verifytest.Scene)) func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check) {
	return specimen("rule: {"+rule+"}", scene, spoil)
}

// specimen is a check of a scene that passes it, and a change that breaks it.
func specimen(check string, scene func(*testing.T) *verifytest.Scene,
	spoil func(*verifytest.Scene)) func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check) {
	return func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check) {
		s := scene(t)
		if broken {
			spoil(s)
		}
		return s, writtenCheck(t, check)
	}
}

func softRun(t *testing.T) *verifytest.Scene { return verifytest.SoftScene(t, verifytest.SoftFile) }

// ruleSpecimens has two runs for each kind of rule, and for checks of latencies and links.
var ruleSpecimens = map[string]func(t *testing.T, broken bool) (*verifytest.Scene, func() evidence.Check){
	"latency": specimen(`latency: {from: h0, per: flow, p99: "<= 1ms"}`, datagrams,
		func(s *verifytest.Scene) {
			n := 0
			s.Change(func(k verifytest.Sighting) bool {
				return k.Tap == "h2:eth0" && !k.Out
			}, func(k *verifytest.Sighting) {
				if n++; n%20 == 7 {
					k.Time += 3_500_000
				}
			})
		}),
	"link-bytes": specimen(`link-bytes: {link: "h0--leaf1 a-to-b", is: "<= 15KB"}`, datagrams,
		func(s *verifytest.Scene) { more(s, 30) }),
	"rule never": ruleSpecimen(`never: 'railbed.verdict == "drop"'`, softRun, func(s *verifytest.Scene) {
		s.Lose("railbed verdict=drop reason=tail depth=40320")
	}),
	"rule always": ruleSpecimen(`always: 'ip.dsfield.dscp == 24', where: tcp`, softRun,
		func(s *verifytest.Scene) {
			s.From("leaf1", func(k *verifytest.Sighting, _ bool) {
				k.Frame = slices.Clone(k.Frame)
				k.Frame[15] = 10<<2 | k.Frame[15]&3
			})
		}),
	"rule count": ruleSpecimen(`count: 'udp.dstport == 17000', at: "h2:eth0", per: flow, is: "<= 100"`,
		datagrams, func(s *verifytest.Scene) { more(s, 30) }),
	"rule count in a window": ruleSpecimen(`count: 'udp.dstport == 17000', at: h2, is: "<= 2", window: 2ms`,
		datagrams, func(s *verifytest.Scene) { more(s, 30) }),
	"rule share": ruleSpecimen(`share: 'ip.dsfield.ecn == 3', where: ip, is: "<= 1%", at: all`, softRun,
		func(s *verifytest.Scene) { s.Mark() }),
	"rule after": ruleSpecimen(`after: 'udp.dstport == 17000', expect: 'udp.srcport == 17000', within: 5ms,
		same: [ip.src=ip.dst, udp.srcport=udp.dstport], at: "h0:eth0"`, answers, func(s *verifytest.Scene) {
		s.Remove(func(k verifytest.Sighting) bool { return k.ID > 100 && k.ID < 121 && k.ID%2 == 0 })
	}),
	"rule in-order": ruleSpecimen(`in-order: tcp.seq_raw, at: "h2:eth0"`, softRun, func(s *verifytest.Scene) {
		n := 0
		s.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h2:eth0" && !k.Out
		}, func(k *verifytest.Sighting) {
			if n++; n%10 < 4 { // behind two that left later
				k.Time += 3*2*s.Step + 1000
			}
		})
	}),
	"rule sum": ruleSpecimen(`sum: frame.len, where: udp, at: "h2:eth0", is: "<= 14200"`, datagrams,
		func(s *verifytest.Scene) { more(s, 30) }),
}

// more sends further datagrams from h0 to h2 at the beginning.
func more(s *verifytest.Scene, n int) {
	now := s.Now
	s.Now, s.Step = verifytest.Start+10_000_000, 10_000
	src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for range n {
		s.Send(src.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 17000), Datagram: make([]byte, 100)})
	}
	s.Now = now
}

// answers sends a datagram each millisecond from h0 to h2, from a port of its own, and another one back.
func answers(t *testing.T) *verifytest.Scene {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step, s.IDs = nil, verifytest.Start, 500_000, 0
	src, dst := &s.Plan.Nodes[0], &s.Plan.Nodes[2]
	for i := range 100 {
		ask := verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(src), uint16(7000+i)),
			Dst: netip.AddrPortFrom(verifytest.Loopback(dst), 17000), Datagram: make([]byte, 100)}
		s.Send(src.Name, "eth0", ask)
		s.Send(dst.Name, "eth0", verifytest.TCP{Src: ask.Dst, Dst: ask.Src, Datagram: make([]byte, 20)})
	}
	s.Now += 1_000_000_000
	return s
}
