package ranks

import (
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/testkit/verifytest"
)

// overQUIC is a ring of ranks whose datagrams cannot be read: each rank sends its expected bytes to the
// next, and a little more.
func overQUIC(t *testing.T) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Ring(4)
	s.Sightings = nil
	ranks := s.Workload.Ranks
	for i := range ranks {
		ranks[i].Transport = evidence.TransportQUIC
	}
	for range int(ranks[0].Expected)/verifytest.Segment + 10 {
		for i := range ranks {
			from, to := ranks[i], ranks[(i+1)%len(ranks)]
			s.Send(from.Node, from.NIC, verifytest.TCP{Src: verifytest.AddrPort(from, verifytest.Service),
				Dst: verifytest.AddrPort(to, verifytest.Service), Datagram: make([]byte, verifytest.Segment)})
		}
	}
	return s
}

// TestQUIC: addresses and ports show whose the packets are, and nothing shows what they carry.
func TestQUIC(t *testing.T) {
	s := overQUIC(t)
	verifytest.Judge(t, s, NewBytesPerRank(s.Workload, units.Ratio{}), unclear, "QUIC encrypts its packets")
	verifytest.Judge(t, s, NewCrossed(CrossingOf(s.Workload)), unclear, "QUIC encrypts its packets")
	verifytest.Judge(t, s, NewRankNIC(s.Workload), pass, "0 passed elsewhere")
	verifytest.Judge(t, s, NewRailLocal(s.Workload), fail, "towards another switch")

	// A packet of rank 1 leaves by the NIC of rank 0.
	id := s.Packet("h1:eth0", true)
	astray := s.Of(id, "h1:eth0", true)
	astray.Tap, astray.ID = "h0:eth0", 1<<40
	s.Insert(astray)
	verifytest.Judge(t, s, NewRankNIC(s.Workload), fail, "rank 1 (h1:eth0) sent 1 packet at h0:eth0")

	// One rank sent nothing. That is no matter of which bytes are payload.
	s = overQUIC(t)
	s.Remove(func(k verifytest.Sighting) bool { return k.Tap == "h1:eth0" && k.Out })
	verifytest.Judge(t, s, NewCrossed(CrossingOf(s.Workload)), fail, "rank 1 (h1:eth0): 0 bytes")
}
