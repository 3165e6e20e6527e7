package verifytest

import (
	"bytes"
	"net"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/plan"
)

// Properties of the reliable datagrams of a Scene.
const (
	RDPayloadBytes = 1000
	RDMessageBytes = 6500
	RDEngines      = 2
	RDPaths        = 8
)

// UDPFrame returns the Ethernet frame of a UDP datagram.
func (s *Scene) UDPFrame(k TCP, ttl uint8, src, dst plan.MAC) []byte {
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr(src[:]), DstMAC: net.HardwareAddr(dst[:]),
		EthernetType: golayers.EthernetTypeIPv4}
	datagram := &golayers.UDP{SrcPort: golayers.UDPPort(k.Src.Port()),
		DstPort: golayers.UDPPort(k.Dst.Port())}
	stack := []gopacket.SerializableLayer{ethernet}
	if k.Src.Addr().Is4() {
		ip := &golayers.IPv4{Version: 4, TTL: ttl, TOS: k.TOS, Id: uint16(s.IDs),
			Protocol: golayers.IPProtocolUDP, SrcIP: k.Src.Addr().AsSlice(), DstIP: k.Dst.Addr().AsSlice()}
		_ = datagram.SetNetworkLayerForChecksum(ip) // it accepts IP
		stack = append(stack, ip)
	} else {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip := &golayers.IPv6{Version: 6, HopLimit: ttl, TrafficClass: k.TOS,
			NextHeader: golayers.IPProtocolUDP, SrcIP: k.Src.Addr().AsSlice(), DstIP: k.Dst.Addr().AsSlice()}
		_ = datagram.SetNetworkLayerForChecksum(ip) // it accepts IP
		stack = append(stack, ip)
	}
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer,
		gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append(stack, datagram, gopacket.Payload(k.Datagram))...); err != nil {
		s.T.Fatal(err)
	}
	frame := bytes.Clone(buffer.Bytes())
	if k.Dst.Port() == infiniband.Port {
		Seal(frame)
	}
	return frame
}

// RDLife returns the life of a rank's endpoint. The rank's PSNs soon wrap.
func RDLife(rank int) uint64 { return uint64(0xFFFFFF00+rank)<<32 | uint64(0xABCD0000+rank) }

// RDRanks makes rd the transport of all ranks of the plan.
func (s *Scene) RDRanks(family int) {
	for i, r := range s.Plan.Ranks {
		addr := r.Addr4
		if family == 6 {
			addr = r.Addr6
		}
		s.Workload.Ranks = append(s.Workload.Ranks, evidence.Rank{
			Rank:      i,
			Node:      r.Node,
			NIC:       r.NIC,
			Addr:      addr,
			Port:      wire.PortRD + 32,
			Transport: evidence.TransportRD,
			Engines:   RDEngines,
			Expected:  RingAllReduceBytes(len(s.Plan.Ranks), size, 1),
		})
	}
	s.Workload.Name = "ar"
}

// Base returns the base header of a datagram from an engine of a rank to the same engine of another
// rank.
func (s *Scene) Base(from, to, engine int, psn uint32) wire.RDBase {
	port := uint8(s.Workload.Ranks[0].Port - wire.PortRD)
	return wire.RDBase{Source: port + uint8(engine), Destination: port + uint8(engine),
		Tag: uint32(RDLife(to)), Life: RDLife(from), PSN: psn}
}

// RD sends a datagram from a rank to another by a path, with a block of telemetry before it.
func (s *Scene) RD(from, to, way int, d wire.RD) {
	d = s.seal(from, to, d)
	k := TCP{
		Src:  AddrPort(s.Workload.Ranks[from], wire.PortRDPath+way),
		Dst:  AddrPort(s.Workload.Ranks[to], wire.PortRD+int(d.Base().Destination)),
		Flow: way,
	}
	fields := wire.INTFields{Hops: 1, NextPort: k.Dst.Port()}
	k.Datagram = make([]byte, wire.INTBlockLen(&fields), wire.INTBlockLen(&fields)+len(d))
	wire.INT(k.Datagram).Encode(&fields)
	k.Datagram = append(k.Datagram, d...)
	if d.Type() != wire.RDData {
		k.Datagram = d
	}
	s.Send(s.Workload.Ranks[from].Node, s.Workload.Ranks[from].NIC, k)
}

// Data returns a data packet of a message, with the payload at a position.
func (s *Scene) Data(base wire.RDBase, message, total, position uint32) wire.RD {
	length := min(RDPayloadBytes, total-position)
	d := make(wire.RD, wire.RDDataLen+int(length))
	base.Length = uint16(length)
	d.EncodeData(base, &wire.RDDataFields{Key: 7, Message: message, Total: total, Position: position,
		Timestamp: uint32(s.Now), Sum: wire.RDSum(d[wire.RDDataLen:])})
	return d
}

// RDRing adds the packets of a ring all-reduce. Each rank sends messages to the next rank by two
// engines, each packet by another path, and gets acknowledgements back.
func (s *Scene) RDRing(family int) {
	s.RDRanks(family)
	ranks := len(s.Workload.Ranks)
	share := uint32(s.Workload.Ranks[0].Expected)
	sent := [RDEngines]uint32{}
	for number, at := uint32(0), uint32(0); at < share; number++ {
		total, engine := min(RDMessageBytes, share-at), int(number)%RDEngines
		packets := uint32(0)
		for position := uint32(0); position < total; position += RDPayloadBytes {
			for i := range ranks {
				base := s.Base(i, (i+1)%ranks, engine, uint32(RDLife(i)>>32)+sent[engine]+packets)
				s.RD(i, (i+1)%ranks, int(packets)%RDPaths,
					s.Data(base, uint32(RDLife(i))+number/RDEngines, total, position))
			}
			packets++
		}
		sent[engine] += packets
		for i := range ranks {
			s.RDAck((i+1)%ranks, i, engine, uint32(RDLife(i)>>32)+sent[engine])
		}
		at += total
	}
	for i := range ranks {
		reported := uint64(share)
		s.Workload.Ranks[i].Reported = &reported
	}
}

// RDAck sends an acknowledgement of all packets before a PSN, and of later packets by words of a
// bitmap.
func (s *Scene) RDAck(from, to, engine int, psn uint32, words ...uint64) {
	d := make(wire.RD, wire.RDAckBytes(len(words), 0))
	d.EncodeAck(s.Base(from, to, engine, psn), &wire.RDAckFields{Limit: psn + evidence.RDWindow, Room: 24},
		words, nil)
	s.RD(from, to, 0, d)
}

// AtTime calls do with the scene's clock set to a time.
func (s *Scene) AtTime(at int64, do func()) {
	now := s.Now
	s.Now = at - s.Step
	do()
	s.Now = now
}

// DatagramOf returns the reliable datagram in a frame over IPv4.
func DatagramOf(frame []byte) wire.RD {
	b := frame[42:]
	if len(b) > 0 && b[0] < 0x80 {
		b = b[wire.INT(b).Len():]
	}
	return b
}

// First returns the id of a data packet of rank 0 on engine 0, and the time at which it left. PSNs
// count from the engine's first PSN.
func (s *Scene) First(psn uint32) (id uint64, left int64) {
	for _, k := range s.Sightings {
		if k.Tap == "h0:eth0" && k.Out && IsData(k) {
			if b := DatagramOf(k.Frame).Base(); b.Type == wire.RDData && b.PSN == psn+0xFFFFFF00 &&
				b.Source == 32 {
				return k.ID, k.Time
			}
		}
	}
	s.T.Fatalf("no packet with PSN %d", psn)
	return 0, 0
}

// Vanish loses the data packet of rank 0 with a PSN behind the leaf, and returns the time at which
// it left.
func (s *Scene) Vanish(psn uint32) (left int64) {
	id, left := s.First(psn)
	s.Remove(func(k Sighting) bool { return k.ID == id && k.Time > left+1000 })
	return left
}

// DataAgain sends a packet of rank 0 once more, a time after it left.
func (s *Scene) DataAgain(psn uint32, after int64) {
	_, left := s.First(psn)
	base := s.Base(0, 1, 0, psn+0xFFFFFF00)
	base.Flags = wire.RDRepeat
	s.AtTime(left+after, func() {
		s.RD(0, 1, 5, s.Data(base, uint32(RDLife(0))+psn/7, RDMessageBytes, psn%7*RDPayloadBytes))
	})
}

// Say acknowledges from rank 1 to rank 0, at the departure of packet psn plus after.
func (s *Scene) Say(psn uint32, after int64, change func(*wire.RDAckFields), cumulative uint32,
	words ...uint64) {
	_, left := s.First(psn)
	f := wire.RDAckFields{Room: 24}
	if change != nil {
		change(&f)
	}
	d := make(wire.RD, wire.RDAckBytes(len(words), 0))
	d.EncodeAck(s.Base(1, 0, 0, cumulative+0xFFFFFF00), &f, words, nil)
	s.AtTime(left+after, func() { s.RD(1, 0, 0, d) })
}

// Extra sends a packet with the next PSN from rank 0, and its acknowledgement from rank 1.
func (s *Scene) Extra(message, total, position uint32, flags uint8) {
	psn := s.LastPSN()
	base := s.Base(0, 1, 0, psn)
	base.Flags = flags
	s.RD(0, 1, 5, s.Data(base, message, total, position))
	s.RDAck(1, 0, 0, psn+1)
}

// Skip sends a skip of a packet from rank 0, which ends the packet's message.
func (s *Scene) Skip(psn, message, total uint32) {
	d := make(wire.RD, wire.RDSkipLen)
	d.EncodeSkip(s.Base(0, 1, 0, psn), &wire.RDSkipFields{Count: 1, Message: message, Total: total})
	s.RD(0, 1, 0, d)
}

// SkipExtra sends a skip of the next PSN from rank 0, and its acknowledgement from rank 1.
func (s *Scene) SkipExtra(message, total uint32) {
	psn := s.LastPSN()
	s.Skip(psn, message, total)
	s.RDAck(1, 0, 0, psn+1)
}

// LastPSN returns the PSN after the last that rank 0 sent on engine 0.
func (s *Scene) LastPSN() (next uint32) {
	next = 0xFFFFFF00
	for _, k := range s.Sightings {
		if k.Tap == "h0:eth0" && k.Out && IsData(k) {
			if b := DatagramOf(k.Frame).Base(); b.Type == wire.RDData && b.Source == 32 &&
				int32(b.PSN-next) >= 0 {
				next = b.PSN + 1
			}
		}
	}
	return next
}

// NACK sends a negative acknowledgement of a packet from rank 1, a time after the packet left.
func (s *Scene) NACK(psn uint32, after int64, reason wire.RDReason) {
	_, left := s.First(psn)
	d := make(wire.RD, wire.RDNackLen)
	d.EncodeNack(s.Base(1, 0, 0, psn+0xFFFFFF00), &wire.RDNackFields{Reason: reason})
	s.AtTime(left+after, func() { s.RD(1, 0, 0, d) })
}

// Head trims a packet on its way to rank 1.
func (s *Scene) Head(psn uint32, comment string) {
	id, left := s.First(psn)
	s.Change(func(k Sighting) bool { return k.ID == id && k.Time > left+1100 }, func(k *Sighting) {
		d := DatagramOf(k.Frame)
		size := len(k.Frame) - len(d) + wire.RDDataLen
		k.Frame = bytes.Clone(k.Frame[:size])
		k.Length = size
		wire.IPv4(k.Frame[14:]).RewriteTotalLength(uint16(size - 14))
		wire.UDP(k.Frame[34:]).SetLength(uint16(size - 34))
		if k.Tap == "leaf1:p1" {
			k.Comment = comment
		}
	})
}

const Another = int64(40_000) // ns, before a rank's second next packet
