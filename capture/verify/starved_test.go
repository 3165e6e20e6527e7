package verify

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/testkit/verifytest"
)

func init() {
	maps.Copy(specimens, starvedSpecimens)
	maps.Copy(specimens, kernelSpecimens)
}

// everySpecimen names the checks, and further specimens of some of them.
func everySpecimen() []string {
	return append(everyCheck(), furtherSpecimens()...)
}

// starvedSpecimens are runs in which one of two pairs of nodes gets nothing.
var starvedSpecimens = map[string]func(*testing.T, bool) (*verifytest.Scene, func() evidence.Check){
	"latency, a starved pair": specimen(`latency: {to: h2, per: pair, p99: "<= 10ms"}`, twoPairs, starve),
	"rule count, a starved pair": specimen(`rule: {count: udp, at: "h2:eth0", per: pair, is: ">= 10",
		where: 'udp && frame.packet_flags_direction == 1'}`, twoPairs, starve),
	"throughput, a starved pair": specimen(`throughput: {to: h2, fairness: ">= 95%"}`, twoPairs, starve),
}

// twoPairs sends datagrams from h0 and from h1 to h2.
func twoPairs(t *testing.T) *verifytest.Scene {
	s := verifytest.SoftScene(t, verifytest.SoftFile)
	s.Sightings, s.Now, s.Step = nil, verifytest.Start, 500_000
	for n := range 200 {
		from := &s.Plan.Nodes[n%2]
		s.Send(from.Name, "eth0", verifytest.TCP{Src: netip.AddrPortFrom(verifytest.Loopback(from), 7000),
			Dst:      netip.AddrPortFrom(verifytest.Loopback(&s.Plan.Nodes[2]), 17000),
			Datagram: make([]byte, 100+n)})
	}
	s.Now += 1_000_000_000
	return s
}

// starve loses all packets of h1 behind its NIC.
func starve(s *verifytest.Scene) {
	from := verifytest.Loopback(&s.Plan.Nodes[1])
	s.Remove(func(k verifytest.Sighting) bool {
		return verifytest.SrcOf(k) == from && !strings.HasPrefix(k.Tap, "h1:")
	})
}
