package fabricchecks

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// TestFlows counts the flows of a scene. Three go from h0 to h2, one from h1 to h2, and one from h0 to h1.
func TestFlows(t *testing.T) {
	play := func() *verifytest.Scene {
		s := verifytest.SoftScene(t, verifytest.SoftFile)
		s.Sightings, s.Now, s.Step = nil, verifytest.Start, 1_000_000
		for _, flow := range []struct {
			from, to int
			port     uint16
		}{{0, 2, 7000}, {0, 2, 7001}, {0, 2, 7002}, {1, 2, 7000}, {0, 1, 7000}} {
			src, dst := &s.Plan.Nodes[flow.from], &s.Plan.Nodes[flow.to]
			for range 3 {
				s.Send(src.Name, "eth0", verifytest.TCP{
					Src:      netip.AddrPortFrom(verifytest.Loopback(src), flow.port),
					Dst:      netip.AddrPortFrom(verifytest.Loopback(dst), 17000),
					Datagram: make([]byte, 100)})
			}
		}
		s.Now += 1_000_000_000
		return s
	}
	for _, c := range []struct {
		keys  spec.FlowsCheck
		alter func(*verifytest.Scene)
		want  verdict.Verdict
		text  string
	}{
		{spec.FlowsCheck{Count: "== 5"}, nil, verdict.Pass, "5 flows"},
		{spec.FlowsCheck{Count: "<= 4"}, nil, verdict.Fail, "flows: 5, want <= 4"},
		{spec.FlowsCheck{At: "h2", Count: "== 4"}, nil, verdict.Pass, "4 flows passed h2:eth0"},
		{spec.FlowsCheck{From: "h0", To: "h2", Count: ">= 3"}, nil, verdict.Pass, "3 flows"},
		{spec.FlowsCheck{From: "h0", To: "h2", Count: ">= 4"}, nil, verdict.Fail, "flows: 3, want >= 4"},
		{spec.FlowsCheck{From: "h3", Count: "== 0"}, nil, verdict.Pass, "0 flows passed no port"},
		// Packets that are not recorded may be of further flows, and prove no fewer.
		{spec.FlowsCheck{At: "h2", Count: "<= 4"}, func(s *verifytest.Scene) { s.Drops["h2:eth0"] = 1 },
			verdict.Inconclusive, ""},
		{spec.FlowsCheck{At: "h2", Count: "<= 3"}, func(s *verifytest.Scene) { s.Drops["h2:eth0"] = 1 },
			verdict.Fail, ""},
		{spec.FlowsCheck{Count: ">= 6"}, func(s *verifytest.Scene) { s.Untapped["h2:eth0"] = true },
			verdict.Inconclusive, ""},
		{spec.FlowsCheck{Count: ">= 5"}, func(s *verifytest.Scene) { s.Untapped["h2:eth0"] = true },
			verdict.Pass, ""},
		{spec.FlowsCheck{At: "h2", Count: "<= 4"}, fragment, verdict.Inconclusive, "1 fragment"},
		{spec.FlowsCheck{At: "h3", Count: "== 0"}, nil, verdict.Inconclusive, "no packet at the"},
		{spec.FlowsCheck{At: "h3", Count: ">= 1"}, nil, verdict.Inconclusive, "no packet at the"},
	} {
		s := play()
		if c.alter != nil {
			c.alter(s)
		}
		verifytest.Judge(t, s, NewFlows(&c.keys, nil), c.want, c.text)
	}
}

// fragment makes the last datagram to h2 the last fragment of one: RFC 791 has the offset in bytes 6 and 7 of
// the header.
func fragment(s *verifytest.Scene) {
	last := len(s.Sightings) - 1
	for ; !strings.HasPrefix(s.Sightings[last].Tap, "h2:"); last-- {
	}
	frame := append([]byte(nil), s.Sightings[last].Frame...)
	const header = 14
	frame[header+7] = 100
	s.Sightings[last].Frame = frame
}
