package fabricchecks

import (
	"net/netip"
	"testing"

	"railbed/plan/spec"
	"railbed/testkit/verifytest"
)

// Two senders share a receiver unequally: what each pair gets, and Jain's index of both, by hand.
func TestThroughputOfPairs(t *testing.T) {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now = nil, verifytest.Start
	to := &s.Plan.Nodes[2]
	for n := range 300 {
		from := &s.Plan.Nodes[n%3/2] // two frames of h0 for each of h1
		s.Step = 1_000_000
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst: netip.AddrPortFrom(verifytest.Loopback(to), 17000), Datagram: make([]byte, 958)})
	}
	s.Now += 1_000_000_000
	// A frame has 1,000 bytes: h0 sends 199 of them in 298 ms behind its first, h1 99 in 297 ms.
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{To: "h2", Rate: ">= 2.66mbit"}, nil), pass,
		"2 pairs of nodes had 2.667 Mbit/s to 5.342 Mbit/s; fairness 90%")
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{To: "h2", Rate: ">= 2.67mbit"}, nil), fail,
		"throughput h1 > h2: 2.667 Mbit/s, want >= 2.67mbit")
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{From: "h0", Rate: ">= 5.34mbit"}, nil), pass,
		"1 pair of nodes")
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{From: "h0", Rate: "<= 5.34mbit"}, nil), fail,
		"5.342 Mbit/s")
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{Fairness: ">= 89%"}, nil), pass,
		"fairness 90%")
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{Fairness: ">= 91%"}, nil), fail,
		"fairness: 90%, want >= 91%")
	verifytest.Judge(t, s, NewThroughput(&spec.ThroughputCheck{From: "h2", Rate: ">= 1mbit"}, nil), unclear,
		"no two packets of a pair of nodes arrived")
}
