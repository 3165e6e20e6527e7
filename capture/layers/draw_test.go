package layers

import (
	"math/rand/v2"
	"net"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

// drawDatagram is a datagram of any type, and how many bytes its header has.
func drawDatagram(draw *rand.Rand) ([]byte, int) {
	base := wire.RDBase{
		Flags:       uint8(draw.Uint32()) &^ wire.RDEncrypted,
		Source:      uint8(draw.Uint32()),
		Destination: uint8(draw.Uint32()),
		Tag:         draw.Uint32(), Life: draw.Uint64(), PSN: draw.Uint32(),
	}
	if draw.IntN(3) == 0 {
		base.PSN = -draw.Uint32N(100) // numbers begin again behind it
	}
	kind := wire.RDType(1 + draw.IntN(wire.RDTypes-1))
	header := wire.RDHeaderLen(kind)
	b := make(wire.RD, header)
	switch kind {
	case wire.RDData:
		base.Length = uint16(draw.IntN(600) * draw.IntN(2))
		b = make(wire.RD, header+int(base.Length))
		for i := range b.Payload() {
			b.Payload()[i] = uint8(draw.Uint32())
		}
		b.EncodeData(base, &wire.RDDataFields{
			Key:       draw.Uint64(),
			Offset:    draw.Uint64(),
			Message:   draw.Uint32(),
			Total:     draw.Uint32(),
			Position:  draw.Uint32(),
			Imm:       draw.Uint32(),
			Timestamp: draw.Uint32(),
			Sum:       wire.RDSum(b.Payload()) + draw.Uint32N(5)/4,
		})
	case wire.RDSkip:
		b.EncodeSkip(base, &wire.RDSkipFields{
			Count:     draw.Uint32(),
			Message:   draw.Uint32(),
			Total:     draw.Uint32(),
			Imm:       draw.Uint32(),
			Timestamp: draw.Uint32(),
			Bytes:     draw.Uint32(),
			Position:  draw.Uint32(),
		})
	case wire.RDAck:
		words, heard := make([]uint64, draw.IntN(4)), make([]wire.RDEcho, draw.IntN(5))
		if draw.IntN(20) == 0 {
			words, heard = make([]uint64, wire.RDMaxWords), make([]wire.RDEcho, wire.RDMaxEchoes)
		}
		for i := range words {
			words[i] = draw.Uint64() & draw.Uint64() & draw.Uint64()
		}
		for i := range heard {
			heard[i] = wire.RDEcho{Path: uint16(draw.Uint32()), Packets: uint8(draw.Uint32()),
				Marked: uint8(draw.Uint32())}
		}
		header = wire.RDAckBytes(len(words), len(heard))
		b = make(wire.RD, header)
		b.EncodeAck(base, &wire.RDAckFields{
			Limit:      draw.Uint32(),
			Timestamp:  draw.Uint32(),
			Delay:      draw.Uint32(),
			Duplicates: draw.Uint32(),
			Received:   draw.Uint32(),
			Room:       uint16(draw.Uint32()),
		}, words, heard)
	case wire.RDNack:
		b.EncodeNack(base, &wire.RDNackFields{Reason: wire.RDReason(draw.IntN(9)),
			Path: uint16(draw.Uint32()), Message: draw.Uint32(), Detail: draw.Uint64()})
	case wire.RDProbe:
		b.EncodeProbe(base, draw.Uint32())
	case wire.RDReject:
		b.EncodeReject(base, &wire.RDRejectFields{Reason: wire.RDRejection(draw.IntN(6)),
			Least: uint8(draw.Uint32()), Most: uint8(draw.Uint32()), Meant: draw.Uint32(), To: draw.Uint64()})
	case wire.RDClose:
		b.EncodeClose(base)
	}
	return b, header
}

// drawINT is a block of telemetry that some hops wrote into.
func drawINT(draw *rand.Rand, port uint16) []byte {
	fields := wire.INTFields{Hops: draw.IntN(5), NextPort: port, Discard: draw.IntN(4) == 0}
	if draw.IntN(2) == 0 {
		fields.Instructions = uint16(1 + draw.IntN(0xFFFF))
	}
	block := make(wire.INT, wire.INTBlockLen(&fields))
	block.Encode(&fields)
	for range draw.IntN(fields.Hops + 2) {
		block.Push(&wire.INTHop{
			Known:       uint16(draw.Uint32() | draw.Uint32()),
			Node:        draw.Uint32(),
			Ingress:     uint16(draw.Uint32()),
			Egress:      uint16(draw.Uint32()),
			Latency:     uint64(draw.Uint32()),
			Queue:       uint8(draw.IntN(8)),
			QueueBytes:  draw.Uint32N(1 << 24),
			IngressTime: draw.Uint64(),
			EgressTime:  draw.Uint64(),
			Ingress2:    draw.Uint32(),
			Egress2:     draw.Uint32(),
			Utilisation: draw.Uint32N(1e6),
			Buffer:      uint8(draw.IntN(4)),
			BufferBytes: draw.Uint32N(1 << 24),
		})
	}
	return block
}

// The ways in which drawFrame spoils a datagram; all others leave it whole.
const (
	spoilBit = iota
	spoilPayload
	spoilVersion
	spoilType
	spoilTrim
	spoilHeader
	spoilLonger
	spoilEncrypted
	spoilNoise
	spoilSnap
	spoilings = 2 * spoilSnap
)

// drawFrame is a frame with a datagram of any type, over IPv4 or IPv6, with
// telemetry or without, half of them spoiled.
func drawFrame(t *testing.T, draw *rand.Rand) captured {
	payload, header := drawDatagram(draw)
	way := draw.IntN(spoilings)
	switch way {
	case spoilBit:
		at := draw.IntN(8 * header)
		payload[at/8] ^= 1 << (at % 8)
	case spoilPayload:
		if len(payload) > header {
			payload[header+draw.IntN(len(payload)-header)] ^= 1
		}
	case spoilVersion:
		payload[0] = payload[0]&0x8F | uint8(draw.IntN(8))<<4
	case spoilType:
		payload[0] = payload[0]&0xF0 | uint8(draw.IntN(16))
	case spoilTrim:
		payload = payload[:header+draw.IntN(len(payload)-header+1)]
	case spoilHeader:
		payload = payload[:1+draw.IntN(header)]
	case spoilLonger:
		payload = append(payload, make([]byte, 1+draw.IntN(9))...)
	case spoilEncrypted:
		if draw.IntN(3) > 0 { // as much longer as it would be
			payload = append(payload, make([]byte, wire.RDSealedLen)...)
			payload[wire.RDBaseLen] = uint8(draw.IntN(20))
		}
		payload[1] |= wire.RDEncrypted
		sealed := wire.RD(payload[:wire.RDBaseLen])
		base, kind := sealed.Base(), payload[0]
		sealed.EncodeClose(base)
		// The type is in the check: half of these are right.
		if draw.IntN(2) == 0 {
			payload[0] = kind
		}
	case spoilNoise:
		for i := range payload {
			payload[i] = uint8(draw.Uint32())
		}
		payload[0] |= 0x80
	}
	port := uint16(wire.PortRD + draw.IntN(wire.PortsRD))
	if draw.IntN(3) == 0 {
		block := drawINT(draw, port)
		if draw.IntN(8) == 0 {
			block[draw.IntN(len(block)-2)+2]++
			block[2], block[3] = uint8(port>>8), uint8(port) // what follows is ours
		}
		payload = append(block, payload...)
	}
	f := drawn(t, draw, port, payload)
	length := len(f)
	if way == spoilSnap {
		f = f[:length-draw.IntN(len(payload))]
	}
	return captured{f, length}
}

func drawn(t *testing.T, draw *rand.Rand, port uint16, payload []byte) []byte {
	ethernet := &golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: golayers.EthernetTypeIPv4}
	udp := &golayers.UDP{SrcPort: golayers.UDPPort(wire.PortRDPath + draw.IntN(wire.PortsRDPath)),
		DstPort: golayers.UDPPort(port)}
	if draw.IntN(2) == 0 {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip := &golayers.IPv6{Version: 6, HopLimit: 64, NextHeader: golayers.IPProtocolUDP,
			SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
		udp.SetNetworkLayerForChecksum(ip)
		return build(t, ethernet, ip, udp, gopacket.Payload(payload))
	}
	ip := &golayers.IPv4{Version: 4, TTL: 64, Protocol: golayers.IPProtocolUDP, SrcIP: net.IP{10, 0, 0, 1},
		DstIP: net.IP{10, 0, 0, 2}}
	udp.SetNetworkLayerForChecksum(ip)
	return build(t, ethernet, ip, udp, gopacket.Payload(payload))
}
