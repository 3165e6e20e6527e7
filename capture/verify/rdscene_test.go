package verify

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

const (
	rdPayloadBytes = 1000
	rdMessageBytes = 6500
	rdEngines      = 2
	rdPaths        = 8
)

// udpFrame is frame of a datagram.
func (s *scene) udpFrame(k tcp, ttl uint8, src, dst plan.MAC) []byte {
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr(src[:]), DstMAC: net.HardwareAddr(dst[:]),
		EthernetType: golayers.EthernetTypeIPv4}
	datagram := &golayers.UDP{SrcPort: golayers.UDPPort(k.src.Port()),
		DstPort: golayers.UDPPort(k.dst.Port())}
	stack := []gopacket.SerializableLayer{ethernet}
	if k.src.Addr().Is4() {
		ip := &golayers.IPv4{Version: 4, TTL: ttl, TOS: k.tos, Id: uint16(s.ids),
			Protocol: golayers.IPProtocolUDP, SrcIP: k.src.Addr().AsSlice(), DstIP: k.dst.Addr().AsSlice()}
		_ = datagram.SetNetworkLayerForChecksum(ip) // it accepts IP
		stack = append(stack, ip)
	} else {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip := &golayers.IPv6{Version: 6, HopLimit: ttl, TrafficClass: k.tos,
			NextHeader: golayers.IPProtocolUDP, SrcIP: k.src.Addr().AsSlice(), DstIP: k.dst.Addr().AsSlice()}
		_ = datagram.SetNetworkLayerForChecksum(ip) // it accepts IP
		stack = append(stack, ip)
	}
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, datagram, gopacket.Payload(k.datagram))...); err != nil {
		s.t.Fatal(err)
	}
	frame := bytes.Clone(buffer.Bytes())
	if k.dst.Port() == infiniband.Port {
		seal(frame)
	}
	return frame
}

// rdLife is a rank's; its PSNs wrap soon.
func rdLife(rank int) uint64 { return uint64(0xFFFFFF00+rank)<<32 | uint64(0xABCD0000+rank) }

// rdRanks makes all ranks of the plan speak rd.
func (s *scene) rdRanks(family int) {
	for i, r := range s.plan.Ranks {
		addr := r.Addr4
		if family == 6 {
			addr = r.Addr6
		}
		s.workload.Ranks = append(s.workload.Ranks, Rank{
			Rank:      i,
			Node:      r.Node,
			NIC:       r.NIC,
			Addr:      addr,
			Port:      wire.PortRD + 32,
			Transport: TransportRD,
			Engines:   rdEngines,
			Expected:  ringAllReduceBytes(len(s.plan.Ranks), size, 1),
		})
	}
	s.workload.Name = "ar"
}

// base returns the base header of a datagram from an engine of a rank to the same engine of another
// rank.
func (s *scene) base(from, to, engine int, psn uint32) wire.RDBase {
	port := uint8(s.workload.Ranks[0].Port - wire.PortRD)
	return wire.RDBase{Source: port + uint8(engine), Destination: port + uint8(engine),
		Tag: uint32(rdLife(to)), Life: rdLife(from), PSN: psn}
}

// rd sends a datagram from a rank to another by a path; a block of telemetry stands
// first.
func (s *scene) rd(from, to, way int, d wire.RD) {
	k := tcp{
		src:  addrPort(s.workload.Ranks[from], wire.PortRDPath+way),
		dst:  addrPort(s.workload.Ranks[to], wire.PortRD+int(d.Base().Destination)),
		flow: way,
	}
	fields := wire.INTFields{Hops: 1, NextPort: k.dst.Port()}
	k.datagram = make([]byte, wire.INTBlockLen(&fields), wire.INTBlockLen(&fields)+len(d))
	wire.INT(k.datagram).Encode(&fields)
	k.datagram = append(k.datagram, d...)
	if d.Type() != wire.RDData {
		k.datagram = d
	}
	s.send(s.workload.Ranks[from].Node, s.workload.Ranks[from].NIC, k)
}

// data is a packet of a message at a position.
func (s *scene) data(base wire.RDBase, message, total, position uint32) wire.RD {
	length := min(rdPayloadBytes, total-position)
	d := make(wire.RD, wire.RDDataLen+int(length))
	base.Length = uint16(length)
	d.EncodeData(base, &wire.RDDataFields{Key: 7, Message: message, Total: total, Position: position,
		Timestamp: uint32(s.now), Sum: wire.RDSum(d[wire.RDDataLen:])})
	return d
}

// rdRing plays a ring all-reduce: each rank sends messages to the next one by two
// engines, each packet by another path, and gets acknowledgements back.
func (s *scene) rdRing(family int) {
	s.rdRanks(family)
	ranks := len(s.workload.Ranks)
	share := uint32(s.workload.Ranks[0].Expected)
	sent := [rdEngines]uint32{}
	for number, at := uint32(0), uint32(0); at < share; number++ {
		total, engine := min(rdMessageBytes, share-at), int(number)%rdEngines
		packets := uint32(0)
		for position := uint32(0); position < total; position += rdPayloadBytes {
			for i := range ranks {
				base := s.base(i, (i+1)%ranks, engine, uint32(rdLife(i)>>32)+sent[engine]+packets)
				s.rd(i, (i+1)%ranks, int(packets)%rdPaths,
					s.data(base, uint32(rdLife(i))+number/rdEngines, total, position))
			}
			packets++
		}
		sent[engine] += packets
		for i := range ranks {
			s.rdAck((i+1)%ranks, i, engine, uint32(rdLife(i)>>32)+sent[engine])
		}
		at += total
	}
	for i := range ranks {
		reported := uint64(share)
		s.workload.Ranks[i].Reported = &reported
	}
}

// rdAck says that everything before a PSN has come, and what of the words behind.
func (s *scene) rdAck(from, to, engine int, psn uint32, words ...uint64) {
	d := make(wire.RD, wire.RDAckBytes(len(words), 0))
	d.EncodeAck(s.base(from, to, engine, psn), &wire.RDAckFields{Limit: psn + rdWindow, Room: 24}, words, nil)
	s.rd(from, to, 0, d)
}

// rdMutations are runs that are broken on purpose, with the verdicts of bytes-per-rank and
// rank-nic.
var rdMutations = []rdMutation{
	{"nothing", func(*scene) {}, [2]verdict.Verdict{pass, pass}, "0 bytes retransmitted"},
	{"lives that are the ranks'", func(s *scene) {
		for i := range s.workload.Ranks {
			s.workload.Ranks[i].Life = rdLife(i)
		}
	}, [2]verdict.Verdict{pass, pass}, "0 bytes retransmitted"},
	{"another workload's life at a rank's ports", func(s *scene) {
		for i := range s.workload.Ranks {
			s.workload.Ranks[i].Life = rdLife(i)
		}
		base := s.base(0, 1, 0, 0xFFFFFF00)
		base.Life++
		s.rd(0, 1, 3, s.data(base, uint32(rdLife(0)), rdMessageBytes, 0))
	}, [2]verdict.Verdict{pass, pass}, "0 bytes retransmitted"},
	{"packets of no life of the ranks'", func(s *scene) {
		for i := range s.workload.Ranks {
			s.workload.Ranks[i].Life = 7
		}
	}, [2]verdict.Verdict{verdict.Inconclusive, verdict.Inconclusive}, "no packet of the workload"},
	{"packets sent again", func(s *scene) {
		for n := range uint32(5) {
			base := s.base(0, 1, 0, 0xFFFFFF00+n)
			base.Flags = wire.RDRepeat
			s.rd(0, 1, 3, s.data(base, uint32(rdLife(0)), rdMessageBytes, n*rdPayloadBytes))
		}
	}, [2]verdict.Verdict{pass, pass}, "5000 bytes retransmitted"},
	{"a repeat of what was never sent", func(s *scene) {
		base := s.base(0, 1, 0, 400)
		base.Flags = wire.RDRepeat
		s.rd(0, 1, 3, s.data(base, 1, rdMessageBytes, 0))
	}, [2]verdict.Verdict{unclear, pass},
		"1000 bytes of its flows passed its tap only when they were sent again"},
	{"packets of which only the repeats are seen", func(s *scene) {
		first := s.sightings[0].id
		for n := range uint32(5) {
			s.remove(func(k sighting) bool { return k.id == first+uint64(n)*4 })
			base := s.base(0, 1, 0, 0xFFFFFF00+n)
			base.Flags = wire.RDRepeat
			s.rd(0, 1, 3, s.data(base, uint32(rdLife(0)), rdMessageBytes, n*rdPayloadBytes))
		}
	}, [2]verdict.Verdict{pass, pass},
		"4 ranks sent 2880000 bytes, each at most " +
			"+0.00% off what the algorithm sends; 0 bytes retransmitted"},
	{"messages that nobody asked for", func(s *scene) {
		for n := range uint32(20) {
			s.rd(0, 1, 3, s.data(s.base(0, 1, 0, 1000+n), 99, 20*rdPayloadBytes, n*rdPayloadBytes))
		}
	}, [2]verdict.Verdict{fail, pass}, "sent 740000 bytes, the algorithm sends 720000"},
	{"the same PSNs to a receiver that started again", func(s *scene) {
		for n := range uint32(20) {
			base := s.base(0, 1, 0, 0xFFFFFF00+n)
			base.Tag++
			s.rd(0, 1, 3, s.data(base, 99, 20*rdPayloadBytes, n*rdPayloadBytes))
		}
	}, [2]verdict.Verdict{fail, pass}, "sent 740000 bytes"},
	{"bytes that were given up", func(s *scene) {
		for n := range uint32(20) {
			base := s.base(0, 1, 0, 1000+n)
			base.Flags = wire.RDDroppable
			s.rd(0, 1, 3, s.data(base, 99, 20*rdPayloadBytes, n*rdPayloadBytes))
			for range 2 { // the second skip counts no more
				skip := make(wire.RD, wire.RDSkipLen)
				skip.EncodeSkip(base, &wire.RDSkipFields{Count: 1, Message: 99, Total: 20 * rdPayloadBytes,
					Bytes: rdPayloadBytes})
				s.rd(0, 1, 3, skip)
			}
		}
		*s.workload.Ranks[0].Reported += 20 * rdPayloadBytes
	}, [2]verdict.Verdict{pass, pass}, "720000 bytes"},
	{"bytes of the algorithm that were given up", func(s *scene) { // more than the tolerance
		for n := range uint32(20) {
			base := s.base(0, 1, 0, 0xFFFFFF00+n)
			base.Flags = wire.RDDroppable
			skip := make(wire.RD, wire.RDSkipLen)
			skip.EncodeSkip(base, &wire.RDSkipFields{Count: 1, Message: uint32(rdLife(0)),
				Total: rdMessageBytes, Bytes: rdPayloadBytes})
			s.rd(0, 1, 3, skip)
		}
	}, [2]verdict.Verdict{pass, pass}, "each at most +0.00% off"},
	{"a worker counts other bytes than the packets", func(s *scene) { *s.workload.Ranks[2].Reported += 8000 },
		[2]verdict.Verdict{fail, pass}, "the worker counted 728000"},
	{"a rank sends through another NIC", func(s *scene) {
		rank := s.workload.Ranks[1].Addr
		s.change(func(k sighting) bool {
			return k.tap == "h1:eth0" && k.out && isData(k) && k.time > s.now-10_000_000 && srcOf(k) == rank
		}, func(k *sighting) { k.tap = "h0:eth0" })
	}, [2]verdict.Verdict{fail, fail}, "packets at h0:eth0"},
	{"a rank uses another address", func(s *scene) {
		s.workload.Ranks = append(s.workload.Ranks, s.workload.Ranks[0])
		s.workload.Ranks[4].Addr = netip.MustParseAddr("10.0.0.1")
		s.rd(4, 1, 0, s.data(s.base(0, 1, 0, 7), 1, 100, 0))
		s.workload.Ranks = s.workload.Ranks[:4]
	}, [2]verdict.Verdict{pass, fail}, "which is no rank's address"},
	{"datagrams are damaged", func(s *scene) {
		s.change(func(k sighting) bool { return k.id == s.ids/2*2 }, func(k *sighting) {
			k.frame = bytes.Clone(k.frame)
			k.frame[42+9] ^= 1
		})
	}, [2]verdict.Verdict{unclear, pass}, "1 datagrams cannot be read"},
	{"the capture is too short for the headers", func(s *scene) { s.snap = 120 },
		[2]verdict.Verdict{unclear, pass}, "datagrams cannot be read"},
	{"two ranks share a NIC", func(s *scene) {
		s.sightings, s.workload.Ranks, s.now, s.ids = nil, nil, start, 0
		rdShared(s)
	}, [2]verdict.Verdict{pass, pass}, "rank 2 (h0:eth0): 30000 bytes"},
}

// rdShared is ranks 0 and 2 at one NIC, and 1 and 3 at another.
func rdShared(s *scene) {
	s.rdRanks(4)
	r := s.workload.Ranks
	for i := range r {
		at := s.plan.Ranks[i%2*2]
		r[i].Node, r[i].NIC, r[i].Addr, r[i].Port = at.Node, at.NIC, at.Addr4, uint16(wire.PortRD+32+i/2*16)
		r[i].Expected = units.Bytes(20000 + 10000*(i/2))
	}
	for i := range r {
		to := (i + 1) % 4
		for n := range uint32(r[i].Expected / rdPayloadBytes) {
			base := s.base(i, to, 0, n)
			base.Source, base.Destination = uint8(r[i].Port-wire.PortRD), uint8(r[to].Port-wire.PortRD)
			s.rd(i, to, int(n)%rdPaths, s.data(base, 1, 30000, n*rdPayloadBytes))
		}
	}
}

// rdMutation is a change of the ring over rd, what two checks are to say of it, and
// words that one of them says.
type rdMutation struct {
	name   string
	mutate func(*scene)
	want   [2]verdict.Verdict
	says   string
}

// mutate holds two checks against mutations of the ring, some time after its end.
func mutate(t *testing.T, mutations []rdMutation, after int64, checks func(*scene) []Check) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			s := newScene(t)
			s.rdRing(4)
			m.mutate(s)
			s.now += after
			results, _ := s.run(checks(s)...)
			found := false
			for i, result := range results {
				if result.Verdict != m.want[i] {
					t.Errorf("want %s:\n%v", m.want[i], result)
				}
				found = found || strings.Contains(strings.Join(append(result.Details, result.Summary), "\n"),
					m.says)
			}
			if !found {
				t.Errorf("nothing says %q: %v", m.says, results)
			}
		})
	}
}

func TestRDAgainstMutations(t *testing.T) {
	mutate(t, rdMutations, 0, func(s *scene) []Check {
		return []Check{NewBytesPerRank(s.workload, units.Ratio{Num: 2, Den: 100}), NewRankNIC(s.workload)}
	})
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
			at := highest + random.IntN(4) - random.IntN(2)*random.IntN(rdWindow-4)
			at = max(at, 0)
			highest = max(highest, at)
			d := &RD{RDBase: wire.RDBase{PSN: first + uint32(at), Length: uint16(random.IntN(2000))}}
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

// The paths of an engine are separate flows for a switch that hashes them, and one flow for a check
// of packets out of order.
func TestRDFlows(t *testing.T) {
	for uplinks, want := range map[int]verdict.Verdict{2: pass, 1: fail} {
		s := newScene(t)
		s.uplink = func(flow, paths int) int { return flow % uplinks }
		s.rdRing(4)
		results, _ := s.run(NewPathSpread("leaf*", units.Ratio{Num: 1, Den: 2},
			SpreadOptions{Flows: OnePath}))
		if results[0].Verdict != want {
			t.Errorf("%d uplinks used, want %s: %v", uplinks, want, results[0])
		}
	}
	for late, want := range map[uint32]verdict.Verdict{0: pass, 3: fail} {
		s := newScene(t)
		s.rdRing(4)
		for psn := range late {
			id, left := s.first(psn)
			s.change(func(k sighting) bool {
				return k.id == id && k.time > left
			}, func(k *sighting) { k.time += 400_000 })
		}
		results, _ := s.run(newReordering(Selection{}, bounded(t, "== 0%", spec.ShareBound)))
		if results[0].Verdict != want || results[0].Measured["late"] != float64(late) {
			t.Errorf("%d late packets, want %s: %v", late, want, results[0])
		}
	}
}

// The capture says how many datagrams could not be read.
func TestRDFaultsAreCounted(t *testing.T) {
	for snap, cut := range map[int]bool{0: false, 120: true} {
		s := newScene(t)
		s.rdRing(4)
		s.snap = snap
		id, left := s.first(8)
		s.change(func(k sighting) bool { return k.id == id && k.time > left+1000 }, func(k *sighting) {
			k.frame = bytes.Clone(k.frame)
			k.frame[42] = 0x50 // neither a block nor a datagram
		})
		_, summary := s.run(NewMTU(0))
		if summary.RDDamaged == 0 || summary.RDDamaged > 8 || summary.RDCut > 0 != cut {
			t.Errorf("snap length %d: %d damaged, %d cut off", snap, summary.RDDamaged, summary.RDCut)
		}
	}
}
