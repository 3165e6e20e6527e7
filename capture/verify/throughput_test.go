package verify

import (
	"net/netip"
	"testing"

	"railbed/plan/spec"
)

// Two senders share a receiver unequally: what each pair gets, and Jain's index of both, by hand.
func TestThroughputOfPairs(t *testing.T) {
	s := softScene(t, softFile)
	s.sightings, s.now = nil, start
	to := &s.plan.Nodes[2]
	for n := range 300 {
		from := &s.plan.Nodes[n%3/2] // two frames of h0 for each of h1
		s.step = 1_000_000
		s.send(from.Name, "eth0", tcp{src: netip.AddrPortFrom(loopback(from), 7000),
			dst: netip.AddrPortFrom(loopback(to), 17000), datagram: make([]byte, 958)})
	}
	s.now += 1_000_000_000
	rate := func(text string) *spec.Bound { return bounded(t, text, spec.RateBound) }
	fairness := func(text string) *spec.Bound { return bounded(t, text, spec.ShareBound) }
	// A frame has 1,000 bytes: h0 sends 199 of them in 298 ms behind its first, h1 99 in 297 ms.
	judgeScene(t, s, newThroughput(Selection{To: "h2"}, rate(">= 2.66mbit"), nil), pass,
		"2 pairs of nodes had 2.667 Mbit/s to 5.342 Mbit/s; fairness 90%")
	judgeScene(t, s, newThroughput(Selection{To: "h2"}, rate(">= 2.67mbit"), nil), fail,
		"throughput h1 > h2: 2.667 Mbit/s, want >= 2.67mbit")
	judgeScene(t, s, newThroughput(Selection{From: "h0"}, rate(">= 5.34mbit"), nil), pass, "1 pairs of nodes")
	judgeScene(t, s, newThroughput(Selection{From: "h0"}, rate("<= 5.34mbit"), nil), fail, "5.342 Mbit/s")
	judgeScene(t, s, newThroughput(Selection{}, nil, fairness(">= 89%")), pass, "fairness 90%")
	judgeScene(t, s, newThroughput(Selection{}, nil, fairness(">= 91%")), fail, "fairness: 90%, want >= 91%")
	judgeScene(t, s, newThroughput(Selection{From: "h2"}, rate(">= 1mbit"), nil), unclear,
		"no two packets of a pair of nodes arrived")
}
