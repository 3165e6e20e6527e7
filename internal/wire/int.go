package wire

import (
	"encoding/binary"
	"math/bits"
)

// Layout of a telemetry block, P4.org INT Dataplane Specification v2.1 (INT-MD
// with its shim header for TCP/UDP), with the room for all hops reserved by the
// sender: fabric/softswitch/PROTOCOL.md. Offsets in bytes.
const (
	intTypeNPT      = 0 // type 4 bits, next protocol type 2
	intLength       = 1 // of what follows the shim, in words of 4 bytes
	intNextPort     = 2
	intVersionFlags = 4 // version 4 bits, D, E, M, reserved
	intHopWords     = 6 // low 5 bits
	intRemaining    = 7
	intInstructions = 8
	intDomain       = 10
	intDSInstr      = 12
	intDSFlags      = 14

	// INTLen is a block without room for any hop, in bytes.
	INTLen = 16

	intShimLen     = 4
	intHeaderWords = 3
	intTypeMD      = 1
	intNPTPayload  = 1
	intVersion     = 2
	intDiscard     = 0x08
	intExceeded    = 0x04
	intMTU         = 0x02

	// INTDomain is the domain in which blocks have their room reserved.
	INTDomain = 0x5242
	// INTMaxWords is the most that all hops of a block can take, in words of 4
	// bytes.
	INTMaxWords = 0xFF - intHeaderWords
)

// Instructions: what each hop is asked for. INT v2.1 counts bits from the most
// significant one.
const (
	INTNodeID             uint16 = 1 << (15 - iota)
	INTInterfaces                // level 1: ingress and egress port
	INTHopLatency                // ns
	INTQueue                     // queue and its occupancy
	INTIngressTime               // ns, 8 bytes
	INTEgressTime                // ns, 8 bytes
	INTInterfaces2               // level 2, 8 bytes; our switch has none
	INTUtilisation               // of the egress link
	INTBuffer                    // buffer and its occupancy
	INTChecksumComplement uint16 = 1

	intLong = INTIngressTime | INTEgressTime | INTInterfaces2

	// INTStandard is what our probes and transports ask for: 24 bytes a hop.
	INTStandard = INTNodeID | INTInterfaces | INTQueue | INTEgressTime | INTUtilisation
)

// INTHop is what one hop reports.
type INTHop struct {
	// Known has the instruction bit of each of the following that is known.
	// What is asked for and not known is written as all ones, and what is read
	// as all ones is not known.
	Known           uint16
	Node            uint32
	Ingress, Egress uint16 // ports
	Latency         uint64 // from ingress to egress, ns; written as at most 2^32-2
	Queue           uint8
	QueueBytes      uint32 // written as at most 2^24-1
	IngressTime     uint64 // ns of the testbed's clock
	EgressTime      uint64 // ns of the testbed's clock
	Ingress2        uint32
	Egress2         uint32
	// Utilisation is the share of the egress link's rate in use, in millionths.
	Utilisation uint32
	Buffer      uint8
	BufferBytes uint32 // written as at most 2^24-1
}

// INTFields are what the sender of a block decides.
type INTFields struct {
	Hops         int    // for how many there is room
	Instructions uint16 // 0 means INTStandard
	// NextPort is the UDP port of what follows the block.
	NextPort uint16
	// Discard tells the receiver that the packet was made for its telemetry.
	Discard bool
}

// INTHopLen is how many bytes each hop writes for the instructions. Reserved
// bits ask for 4.
func INTHopLen(instructions uint16) int {
	return 4 * (bits.OnesCount16(instructions) + bits.OnesCount16(instructions&intLong))
}

// INTBlockLen is the length of a block in bytes: what a packet must reserve.
func INTBlockLen(f *INTFields) int { return INTLen + f.Hops*INTHopLen(f.instructions()) }

func (f *INTFields) instructions() uint16 {
	if f.Instructions == 0 {
		return INTStandard
	}
	return f.Instructions
}

// INT is a telemetry block from its shim header on, and what follows it.
type INT []byte

// Valid says that the bytes hold a whole block of INT-MD, version 2, whose
// lengths agree with each other. A block with domain-specific instructions of
// others is valid, one with source-only metadata is not.
func (b INT) Valid() bool {
	if len(b) < INTLen || b[intTypeNPT]>>4 != intTypeMD || b[intVersionFlags]>>4 != intVersion ||
		len(b) < b.Len() {
		return false
	}
	stack, hop := int(b[intLength])-intHeaderWords, b.HopLen()/4
	if stack < 0 || hop == 0 || hop*4 < INTHopLen(b.Instructions()) || stack%hop != 0 {
		return false
	}
	return !b.HasRoom() || int(b.Remaining()) <= stack/hop
}

// Starts says that the bytes begin with the header of a block with its room
// reserved, all of which may not be there: for captures that cut packets off.
func (b INT) Starts() bool {
	return len(b) >= INTLen && b[intTypeNPT]>>4 == intTypeMD && b[intVersionFlags]>>4 == intVersion &&
		b[intLength] >= intHeaderWords && b.HasRoom()
}

// Len is the length of the block in bytes.
func (b INT) Len() int { return intShimLen + int(b[intLength])*4 }

// NextPort is the UDP port of what follows the block.
func (b INT) NextPort() uint16 { return binary.BigEndian.Uint16(b[intNextPort:]) }

// Discard says that the packet was made for its telemetry.
func (b INT) Discard() bool { return b[intVersionFlags]&intDiscard != 0 }

// HopsExceeded says that a hop found no room.
func (b INT) HopsExceeded() bool { return b[intVersionFlags]&intExceeded != 0 }

// MTUExceeded says that a hop could not make room.
func (b INT) MTUExceeded() bool { return b[intVersionFlags]&intMTU != 0 }

// HopLen is how many bytes each hop writes.
func (b INT) HopLen() int { return int(b[intHopWords]&0x1F) * 4 }

// Remaining is how many hops may still write.
func (b INT) Remaining() uint8 { return b[intRemaining] }

// Instructions is what each hop writes.
func (b INT) Instructions() uint16 { return binary.BigEndian.Uint16(b[intInstructions:]) }

// Domain is the domain specific ID, INTDomain in our blocks.
func (b INT) Domain() uint16 { return binary.BigEndian.Uint16(b[intDomain:]) }

// HasRoom says that the block is one of ours, with its room reserved. In
// others every hop makes the packet longer, which our switch does not do.
func (b INT) HasRoom() bool { return b.Domain() == INTDomain }

// Capacity is how many hops the block has room for.
func (b INT) Capacity() int { return (b.Len() - INTLen) / b.HopLen() }

// Hops is how many hops have written.
func (b INT) Hops() int {
	if b.HasRoom() {
		return b.Capacity() - int(b.Remaining())
	}
	return b.Capacity()
}

// Payload is what follows the block.
func (b INT) Payload() []byte { return b[b.Len():] }

// Encode writes a block with all its room free, INTBlockLen bytes. It panics
// when the hops do not fit INTMaxWords.
func (b INT) Encode(f *INTFields) {
	instructions := f.instructions()
	words := f.Hops * INTHopLen(instructions) / 4
	if f.Hops < 0 || words > INTMaxWords {
		panic("wire: INT block too long")
	}
	b = b[:INTLen+words*4]
	clear(b[:INTLen])
	b[intTypeNPT] = intTypeMD<<4 | intNPTPayload<<2
	b[intLength] = uint8(intHeaderWords + words)
	binary.BigEndian.PutUint16(b[intNextPort:], f.NextPort)
	b[intVersionFlags] = intVersion << 4
	if f.Discard {
		b[intVersionFlags] |= intDiscard
	}
	b[intHopWords] = uint8(INTHopLen(instructions) / 4)
	b[intRemaining] = uint8(f.Hops)
	binary.BigEndian.PutUint16(b[intInstructions:], instructions)
	binary.BigEndian.PutUint16(b[intDomain:], INTDomain)
	for i := range b[INTLen:] {
		b[INTLen+i] = 0xFF
	}
}

// INTPush is what became of a hop's report.
type INTPush uint8

// Results of Push.
const (
	INTInvalid INTPush = iota // not a valid block; nothing was changed
	INTWritten
	INTFull   // there was no room; the block says so now
	INTNoRoom // a block that would have to grow; it says now that it could not
)

// Push writes a hop's report into the block and returns what it adds to the
// one's complement sum over the packet, for UDP.AdjustChecksum. It takes any
// bytes and changes nothing outside a valid block. The block must stand at an
// even distance from the UDP header.
func (b INT) Push(h *INTHop) (delta uint16, result INTPush) {
	if !b.Valid() {
		return 0, INTInvalid
	}
	head := b[intVersionFlags : intVersionFlags+4]
	before := uint64(binary.BigEndian.Uint32(head))
	var slot []byte
	switch {
	case !b.HasRoom():
		head[0] |= intMTU
		result = INTNoRoom
	case b.Remaining() == 0:
		head[0] |= intExceeded
		result = INTFull
	default:
		// The first hop takes the end of the room, so that the latest one comes
		// first, as the stack of INT v2.1 has it.
		at := INTLen + (int(b.Remaining())-1)*b.HopLen()
		slot = b[at : at+b.HopLen()]
		before += uint64(Sum(slot, 0))
		h.write(slot, b.Instructions())
		b[intRemaining]--
		result = INTWritten
	}
	after := uint64(binary.BigEndian.Uint32(head)) + uint64(Sum(slot, 0))
	return fold(after + uint64(^fold(before))), result
}

// write fills a hop's slot, which is at least as long as the instructions ask.
func (h *INTHop) write(slot []byte, instructions uint16) {
	for i := range slot { // whatever is unknown
		slot[i] = 0xFF
	}
	at := 0
	for rest := instructions; rest != 0; {
		bit := uint16(0x8000) >> bits.LeadingZeros16(rest)
		rest &^= bit
		field := slot[at:]
		at += INTHopLen(bit)
		if h.Known&bit == 0 {
			continue
		}
		switch bit {
		case INTNodeID:
			binary.BigEndian.PutUint32(field, h.Node)
		case INTInterfaces:
			binary.BigEndian.PutUint32(field, uint32(h.Ingress)<<16|uint32(h.Egress))
		case INTHopLatency:
			binary.BigEndian.PutUint32(field, uint32(min(h.Latency, 0xFFFF_FFFE)))
		case INTQueue:
			binary.BigEndian.PutUint32(field, uint32(h.Queue)<<24|min(h.QueueBytes, 0xFF_FFFF))
		case INTIngressTime:
			binary.BigEndian.PutUint64(field, h.IngressTime)
		case INTEgressTime:
			binary.BigEndian.PutUint64(field, h.EgressTime)
		case INTInterfaces2:
			binary.BigEndian.PutUint64(field, uint64(h.Ingress2)<<32|uint64(h.Egress2))
		case INTUtilisation:
			binary.BigEndian.PutUint32(field, h.Utilisation)
		case INTBuffer:
			binary.BigEndian.PutUint32(field, uint32(h.Buffer)<<24|min(h.BufferBytes, 0xFF_FFFF))
		}
	}
}

// Hop is the report of a hop, 0 for the first on the packet's path, at most
// Hops()-1.
func (b INT) Hop(i int) (h INTHop) {
	end := b.Len() - i*b.HopLen()
	slot := b[end-b.HopLen() : end]
	at := 0
	for rest := b.Instructions(); rest != 0; {
		bit := uint16(0x8000) >> bits.LeadingZeros16(rest)
		rest &^= bit
		length := INTHopLen(bit)
		var value uint64
		if length == 8 {
			value = binary.BigEndian.Uint64(slot[at:])
		} else {
			value = uint64(binary.BigEndian.Uint32(slot[at:]))
		}
		at += length
		if value != 1<<(8*length)-1 {
			h.read(bit, value)
		}
	}
	return h
}

func (h *INTHop) read(bit uint16, value uint64) {
	h.Known |= bit
	switch bit {
	case INTNodeID:
		h.Node = uint32(value)
	case INTInterfaces:
		h.Ingress, h.Egress = uint16(value>>16), uint16(value)
	case INTHopLatency:
		h.Latency = value
	case INTQueue:
		h.Queue, h.QueueBytes = uint8(value>>24), uint32(value&0xFF_FFFF)
	case INTIngressTime:
		h.IngressTime = value
	case INTEgressTime:
		h.EgressTime = value
	case INTInterfaces2:
		h.Ingress2, h.Egress2 = uint32(value>>32), uint32(value)
	case INTUtilisation:
		h.Utilisation = uint32(value)
	case INTBuffer:
		h.Buffer, h.BufferBytes = uint8(value>>24), uint32(value&0xFF_FFFF)
	}
}

// FindINT is the telemetry block of a frame that Parse read, if it has one that
// is valid: the payload of a UDP datagram to PortINT, or to PortRD when the
// payload begins with one. Fragments and malformed frames have none.
func FindINT(frame []byte, h *Headers) (INT, bool) {
	if h.DstPort != PortINT && !IsPortRD(h.DstPort) || h.Protocol != ProtocolUDP || h.Verdict != WellFormed ||
		h.Flags&Fragment != 0 {
		return nil, false
	}
	// The UDP length may be shorter than the packet.
	length := UDP(frame[h.L4:]).Length()
	b := INT(frame[h.Payload : int(h.L4)+int(length)])
	return b, b.Valid()
}

// INTProbeLen is the payload of a probe behind its block, in bytes.
const INTProbeLen = 16

// INTProbe is the payload of a probe: a sequence number, and when it was sent in
// ns of the testbed's clock, 0 when its sender does not know.
type INTProbe []byte

// Valid says that the bytes hold a probe's payload.
func (p INTProbe) Valid() bool { return len(p) >= INTProbeLen }

// Seq is the sequence number, from 0.
func (p INTProbe) Seq() uint64 { return binary.BigEndian.Uint64(p) }

// Sent is when the probe was sent, in ns.
func (p INTProbe) Sent() uint64 { return binary.BigEndian.Uint64(p[8:]) }

// Encode writes the payload.
func (p INTProbe) Encode(seq, sent uint64) {
	_ = p[INTProbeLen-1]
	binary.BigEndian.PutUint64(p, seq)
	binary.BigEndian.PutUint64(p[8:], sent)
}
