package ranks

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/testkit/verifytest"
)

// rdMutations are runs that are broken on purpose, with the verdicts of bytes-per-rank and
// rank-nic.
var rdMutations = []struct {
	name   string
	mutate func(*verifytest.Scene)
	want   [2]verdict.Verdict
	says   string
}{
	{"nothing", func(*verifytest.Scene) {}, [2]verdict.Verdict{pass, pass}, "0 bytes retransmitted"},
	{"lives that are the ranks'", func(s *verifytest.Scene) {
		for i := range s.Workload.Ranks {
			s.Workload.Ranks[i].Life = verifytest.RDLife(i)
		}
	}, [2]verdict.Verdict{pass, pass}, "0 bytes retransmitted"},
	{"another workload's life at a rank's ports", func(s *verifytest.Scene) {
		for i := range s.Workload.Ranks {
			s.Workload.Ranks[i].Life = verifytest.RDLife(i)
		}
		base := s.Base(0, 1, 0, 0xFFFFFF00)
		base.Life++
		s.RD(0, 1, 3, s.Data(base, uint32(verifytest.RDLife(0)), verifytest.RDMessageBytes, 0))
	}, [2]verdict.Verdict{pass, pass}, "0 bytes retransmitted"},
	{"another workload's engine to a rank's port", func(s *verifytest.Scene) {
		for n := range uint32(20) {
			base := s.Base(0, 1, 0, 1000+n)
			base.Source, base.Life = base.Source+16, base.Life+1
			s.RD(0, 1, 3, s.Data(base, 99, 20*verifytest.RDPayloadBytes, n*verifytest.RDPayloadBytes))
		}
	}, [2]verdict.Verdict{pass, pass}, "sent 0 again; largest deviation from the algorithm: +0.00%"},
	{"packets of no life of the ranks'", func(s *verifytest.Scene) {
		for i := range s.Workload.Ranks {
			s.Workload.Ranks[i].Life = 7
		}
	}, [2]verdict.Verdict{verdict.Inconclusive, verdict.Inconclusive}, "no packet of the workload"},
	{"packets sent again", func(s *verifytest.Scene) {
		for n := range uint32(5) {
			base := s.Base(0, 1, 0, 0xFFFFFF00+n)
			base.Flags = wire.RDRepeat
			s.RD(0, 1, 3, s.Data(base, uint32(verifytest.RDLife(0)), verifytest.RDMessageBytes,
				n*verifytest.RDPayloadBytes))
		}
	}, [2]verdict.Verdict{pass, pass}, "5000 bytes retransmitted"},
	{"a repeat of what was never sent", func(s *verifytest.Scene) {
		base := s.Base(0, 1, 0, 400)
		base.Flags = wire.RDRepeat
		s.RD(0, 1, 3, s.Data(base, 1, verifytest.RDMessageBytes, 0))
	}, [2]verdict.Verdict{unclear, pass},
		"1000 bytes of its flows passed its tap only when they were sent again"},
	{"packets of which only the repeats are seen", func(s *verifytest.Scene) {
		first := s.Sightings[0].ID
		for n := range uint32(5) {
			s.Remove(func(k verifytest.Sighting) bool { return k.ID == first+uint64(n)*4 })
			base := s.Base(0, 1, 0, 0xFFFFFF00+n)
			base.Flags = wire.RDRepeat
			s.RD(0, 1, 3, s.Data(base, uint32(verifytest.RDLife(0)), verifytest.RDMessageBytes,
				n*verifytest.RDPayloadBytes))
		}
	}, [2]verdict.Verdict{pass, pass},
		"4 ranks sent 2880000 bytes, and sent 0 again; largest deviation from the algorithm: +0.00% of a " +
			"rank's bytes"},
	{"messages that nobody asked for", func(s *verifytest.Scene) {
		for n := range uint32(20) {
			s.RD(0, 1, 3, s.Data(s.Base(0, 1, 0, 1000+n), 99, 20*verifytest.RDPayloadBytes,
				n*verifytest.RDPayloadBytes))
		}
	}, [2]verdict.Verdict{fail, pass}, "sent 740000 bytes, the algorithm sends 720000"},
	{"the same PSNs to a receiver that started again", func(s *verifytest.Scene) {
		for n := range uint32(20) {
			base := s.Base(0, 1, 0, 0xFFFFFF00+n)
			base.Tag++
			s.RD(0, 1, 3, s.Data(base, 99, 20*verifytest.RDPayloadBytes, n*verifytest.RDPayloadBytes))
		}
	}, [2]verdict.Verdict{fail, pass}, "sent 740000 bytes"},
	{"bytes that were given up", func(s *verifytest.Scene) {
		for n := range uint32(20) {
			base := s.Base(0, 1, 0, 1000+n)
			base.Flags = wire.RDDroppable
			s.RD(0, 1, 3, s.Data(base, 99, 20*verifytest.RDPayloadBytes, n*verifytest.RDPayloadBytes))
			for range 2 { // the second skip counts no more
				skip := make(wire.RD, wire.RDSkipLen)
				skip.EncodeSkip(base, &wire.RDSkipFields{Count: 1, Message: 99,
					Total: 20 * verifytest.RDPayloadBytes, Bytes: verifytest.RDPayloadBytes})
				s.RD(0, 1, 3, skip)
			}
		}
		*s.Workload.Ranks[0].Reported += 20 * verifytest.RDPayloadBytes
	}, [2]verdict.Verdict{pass, pass}, "720000 bytes"},
	{"bytes of the algorithm that were given up", func(s *verifytest.Scene) { // more than the tolerance
		for n := range uint32(20) {
			base := s.Base(0, 1, 0, 0xFFFFFF00+n)
			base.Flags = wire.RDDroppable
			skip := make(wire.RD, wire.RDSkipLen)
			skip.EncodeSkip(base, &wire.RDSkipFields{Count: 1, Message: uint32(verifytest.RDLife(0)),
				Total: verifytest.RDMessageBytes, Bytes: verifytest.RDPayloadBytes})
			s.RD(0, 1, 3, skip)
		}
	}, [2]verdict.Verdict{pass, pass}, "largest deviation from the algorithm: +0.00% of a rank's bytes"},
	{"a worker counts other bytes than the packets", func(s *verifytest.Scene) {
		*s.Workload.Ranks[2].Reported += 8000
	},
		[2]verdict.Verdict{fail, pass}, "the worker counted 728000"},
	{"a rank sends through another NIC", func(s *verifytest.Scene) {
		rank := s.Workload.Ranks[1].Addr
		s.Change(func(k verifytest.Sighting) bool {
			return k.Tap == "h1:eth0" && k.Out && verifytest.IsData(k) && k.Time > s.Now-10_000_000 &&
				verifytest.SrcOf(k) == rank
		}, func(k *verifytest.Sighting) { k.Tap = "h0:eth0" })
	}, [2]verdict.Verdict{fail, fail}, "packets at h0:eth0"},
	{"a rank uses another address", func(s *verifytest.Scene) {
		s.Workload.Ranks = append(s.Workload.Ranks, s.Workload.Ranks[0])
		s.Workload.Ranks[4].Addr = netip.MustParseAddr("10.0.0.1")
		s.RD(4, 1, 0, s.Data(s.Base(0, 1, 0, 7), 1, 100, 0))
		s.Workload.Ranks = s.Workload.Ranks[:4]
	}, [2]verdict.Verdict{pass, fail}, "which is no rank's address"},
	{"datagrams are damaged", func(s *verifytest.Scene) {
		s.Change(func(k verifytest.Sighting) bool { return k.ID == s.IDs/2*2 }, func(k *verifytest.Sighting) {
			k.Frame = bytes.Clone(k.Frame)
			k.Frame[42+9] ^= 1
		})
	}, [2]verdict.Verdict{unclear, pass}, "1 datagram cannot be read"},
	{"the capture is too short for the headers", func(s *verifytest.Scene) { s.Snap = 120 },
		[2]verdict.Verdict{unclear, pass}, "datagrams cannot be read"},
	{"two ranks share a NIC", func(s *verifytest.Scene) {
		s.Sightings, s.Workload.Ranks, s.Now, s.IDs = nil, nil, verifytest.Start, 0
		rdShared(s)
	}, [2]verdict.Verdict{pass, pass}, "rank 2 (h0:eth0): 30000 bytes"},
}

// rdShared is ranks 0 and 2 at one NIC, and 1 and 3 at another.
func rdShared(s *verifytest.Scene) {
	s.RDRanks(4)
	r := s.Workload.Ranks
	for i := range r {
		at := s.Plan.Ranks[i%2*2]
		r[i].Node, r[i].NIC, r[i].Addr, r[i].Port = at.Node, at.NIC, at.Addr4, uint16(wire.PortRD+32+i/2*16)
		r[i].Expected = units.Bytes(20000 + 10000*(i/2))
	}
	for i := range r {
		to := (i + 1) % 4
		for n := range uint32(r[i].Expected / verifytest.RDPayloadBytes) {
			base := s.Base(i, to, 0, n)
			base.Source, base.Destination = uint8(r[i].Port-wire.PortRD), uint8(r[to].Port-wire.PortRD)
			s.RD(i, to, int(n)%verifytest.RDPaths, s.Data(base, 1, 30000, n*verifytest.RDPayloadBytes))
		}
	}
}

func TestRDAgainstMutations(t *testing.T) {
	for _, m := range rdMutations {
		t.Run(m.name, func(t *testing.T) {
			verifytest.JudgeRing(t, m.mutate, 0, m.want[:], m.says,
				func(s *verifytest.Scene) []evidence.Check {
					return []evidence.Check{NewBytesPerRank(s.Workload, units.Ratio{Num: 2, Den: 100}),
						NewRankNIC(s.Workload)}
				})
		})
	}
}

// TestRDStreamAgainstMap compares the window with a map of every PSN, on packets
// that are sent in order with repeats, within a window of each other.
func TestRDStreamAgainstMap(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		first := uint32(random.Uint64())
		if seed%2 == 0 {
			first = 0xFFFFFF00 // wraps
		}
		var s rdStream
		seen := map[uint32]bool{}
		var fresh, repeated uint64
		var again uint64
		highest := 0
		for range 5000 {
			at := highest + random.IntN(4) - random.IntN(2)*random.IntN(evidence.RDWindow-4)
			at = max(at, 0)
			highest = max(highest, at)
			d := &evidence.RD{RDBase: wire.RDBase{PSN: first + uint32(at), Length: uint16(random.IntN(2000))}}
			if random.IntN(3) == 0 {
				d.Flags = wire.RDRepeat
			}
			switch {
			case seen[d.PSN]:
				repeated += uint64(d.Length)
			default:
				fresh += uint64(d.Length)
				if d.Flags != 0 {
					again += uint64(d.Length)
				}
			}
			seen[d.PSN] = true
			s.data(d)
		}
		if s.fresh != fresh || s.repeated != repeated || s.again != again {
			t.Fatalf("seed %d: %d, %d and %d, want %d, %d and %d", seed, s.fresh, s.repeated, s.again, fresh,
				repeated, again)
		}
	}
}
