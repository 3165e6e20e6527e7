package wire

import (
	"encoding/binary"
	"math/bits"
)

// Layout of a telemetry block: P4.org INT Dataplane Specification v2.1 (INT-MD with its shim header
// for TCP/UDP). The sender reserves the room for all hops: fabric/softswitch/PROTOCOL.md. Offsets
// in bytes.
const (
	intTypeNPT      = 0 // type 4 bits, next protocol type 2
	intLength       = 1 // of the bytes after the shim, in words of 4 bytes
	intNextPort     = 2
	intVersionFlags = 4 // version 4 bits, D, E, M, reserved
	intHopWords     = 6 // low 5 bits
	intRemaining    = 7
	intInstructions = 8
	intDomain       = 10
	intDSInstr      = 12
	intDSFlags      = 14

	// INTLen is the length of a block without room for any hop, in bytes.
	INTLen = 16

	intShimLen     = 4
	intHeaderWords = 3
	intTypeMD      = 1
	intNPTPayload  = 1
	intVersion     = 2
	intDiscard     = 0x08
	intExceeded    = 0x04
	intMTU         = 0x02

	// INTDomain is the domain specific ID of blocks with reserved room.
	INTDomain = 0x5242
	// INTMaxWords is the largest room for all hops of a block, in words of 4 bytes.
	INTMaxWords = 0xFF - intHeaderWords
)

// Instructions: the data that each hop is requested to write. INT v2.1 counts bits from the most
// significant one.
const (
	INTNodeID             uint16 = 1 << (15 - iota)
	INTInterfaces                // Level 1: ingress and egress port.
	INTHopLatency                // In ns.
	INTQueue                     // Queue and its occupancy.
	INTIngressTime               // In ns, 8 bytes.
	INTEgressTime                // In ns, 8 bytes.
	INTInterfaces2               // Level 2, 8 bytes; unknown to our switch.
	INTUtilisation               // Of the egress link.
	INTBuffer                    // Buffer and its occupancy.
	INTChecksumComplement uint16 = 1

	intLong = INTIngressTime | INTEgressTime | INTInterfaces2

	// INTStandard is the set of instructions in our probes and transports: 24 bytes a hop.
	INTStandard = INTNodeID | INTInterfaces | INTQueue | INTEgressTime | INTUtilisation
)

// INTHop is the report of one hop.
type INTHop struct {
	// Known has the instruction bit of each of the following values that is known. A value that is
	// requested and not known is written as all ones. A value that is read as all ones is not
	// known.
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

// INTFields are the fields that the sender of a block sets.
type INTFields struct {
	Hops         int    // number of hops to reserve room for
	Instructions uint16 // 0 means INTStandard
	// NextPort is the UDP port of the data after the block.
	NextPort uint16
	// Discard is set if the packet only carries telemetry.
	Discard bool
}

// INTHopLen is the number of bytes that each hop writes for the instructions. Each reserved bit
// requests 4.
func INTHopLen(instructions uint16) int {
	return 4 * (bits.OnesCount16(instructions) + bits.OnesCount16(instructions&intLong))
}

// INTBlockLen is the length of a block in bytes, which a packet must reserve.
func INTBlockLen(f *INTFields) int { return INTLen + f.Hops*INTHopLen(f.instructions()) }

func (f *INTFields) instructions() uint16 {
	if f.Instructions == 0 {
		return INTStandard
	}
	return f.Instructions
}

// INT is a telemetry block from its shim header on, with the data after it.
type INT []byte

// Valid reports whether the bytes hold a whole block of INT-MD, version 2, with consistent lengths.
// A block with domain-specific instructions of another domain is valid; a block with source-only
// metadata is not.
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

// Starts reports whether the bytes begin with the header of an INT block of Railbed, in which the
// sender reserves space for the hops' data. Unlike Valid, Starts accepts a block that a capture
// has truncated after the header.
func (b INT) Starts() bool {
	return len(b) >= INTLen && b[intTypeNPT]>>4 == intTypeMD && b[intVersionFlags]>>4 == intVersion &&
		b[intLength] >= intHeaderWords && b.HasRoom()
}

// Len is the length of the block in bytes.
func (b INT) Len() int { return intShimLen + int(b[intLength])*4 }

// NextPort is the UDP port of the data after the block.
func (b INT) NextPort() uint16 { return binary.BigEndian.Uint16(b[intNextPort:]) }

// Discard reports whether the packet only carries telemetry.
func (b INT) Discard() bool { return b[intVersionFlags]&intDiscard != 0 }

// HopsExceeded reports whether a hop found no room.
func (b INT) HopsExceeded() bool { return b[intVersionFlags]&intExceeded != 0 }

// MTUExceeded reports whether a hop could not make room because of the MTU.
func (b INT) MTUExceeded() bool { return b[intVersionFlags]&intMTU != 0 }

// HopLen is the number of bytes that each hop writes.
func (b INT) HopLen() int { return int(b[intHopWords]&0x1F) * 4 }

// Remaining is the number of hops that may still write.
func (b INT) Remaining() uint8 { return b[intRemaining] }

// Instructions are the instructions to each hop.
func (b INT) Instructions() uint16 { return binary.BigEndian.Uint16(b[intInstructions:]) }

// Domain is the domain specific ID, INTDomain in our blocks.
func (b INT) Domain() uint16 { return binary.BigEndian.Uint16(b[intDomain:]) }

// HasRoom reports whether the block is one of ours, with reserved room. In other blocks every hop
// makes the packet longer, which our switch does not do.
func (b INT) HasRoom() bool { return b.Domain() == INTDomain }

// Capacity is the number of hops that the block has room for.
func (b INT) Capacity() int { return (b.Len() - INTLen) / b.HopLen() }

// Hops is the number of hops that have written.
func (b INT) Hops() int {
	if b.HasRoom() {
		return b.Capacity() - int(b.Remaining())
	}
	return b.Capacity()
}

// Payload is the data after the block.
func (b INT) Payload() []byte { return b[b.Len():] }

// Encode writes a block with all its room free, INTBlockLen bytes. It panics if the hops do not fit
// INTMaxWords.
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

// INTPush is the result of Push.
type INTPush uint8

// Results of Push.
const (
	INTInvalid INTPush = iota // not a valid block; nothing was changed
	INTWritten
	INTFull   // there was no room; the block now reports that
	INTNoRoom // the block would have to grow; it now reports that it could not
)

// Push writes a hop's report into the block. It returns the change of the one's complement sum over
// the packet, for UDP.AdjustChecksum. It takes any bytes and changes nothing outside a valid block.
// The block must be at an even offset from the UDP header.
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
		// The first hop uses the end of the room, so that the latest hop comes first, as in the
		// stack of INT v2.1.
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

// write fills a hop's slot, which is at least as long as the instructions require.
func (h *INTHop) write(slot []byte, instructions uint16) {
	for i := range slot { // the encoding of unknown values
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

// Hop returns the report of hop i, from 0 for the first on the packet's path to Hops()-1.
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

// FindINT returns the valid telemetry block of a frame that Parse read, if there is one. The block
// is the payload of a UDP datagram to PortINT, or the start of the payload of one to PortRD.
// Fragments and malformed frames have none.
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

// INTProbeLen is the length of a probe's payload after its block, in bytes.
const INTProbeLen = 16

// INTProbe is the payload of a probe: a sequence number and the time of sending. The time is in ns
// of the testbed's clock, 0 if the sender does not have it.
type INTProbe []byte

// Valid reports whether the bytes hold a probe's payload.
func (p INTProbe) Valid() bool { return len(p) >= INTProbeLen }

// Seq is the sequence number, from 0.
func (p INTProbe) Seq() uint64 { return binary.BigEndian.Uint64(p) }

// Sent is the time at which the probe was sent, in ns.
func (p INTProbe) Sent() uint64 { return binary.BigEndian.Uint64(p[8:]) }

// Encode writes the payload.
func (p INTProbe) Encode(seq, sent uint64) {
	_ = p[INTProbeLen-1]
	binary.BigEndian.PutUint64(p, seq)
	binary.BigEndian.PutUint64(p[8:], sent)
}
