package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Layout of the reliable datagrams of transports/rd/PROTOCOL.md: offsets in bytes from the UDP
// payload, or from the end of an INT block before it.
const (
	rdVersionType = 0 // bit 7 set, version 3 bits, type 4 bits
	rdFlags       = 1
	rdSource      = 2 // engine's port, low byte
	rdDestination = 3 // engine's port, low byte
	rdTag         = 4
	rdLife        = 8
	rdPSN         = 16
	rdLength      = 20
	rdCheck       = 22

	// RDBaseLen is the length of the base header, which all types and versions have.
	RDBaseLen = 24

	rdDataKey       = 24
	rdDataOffset    = 32
	rdDataMessage   = 40
	rdDataTotal     = 44
	rdDataPosition  = 48
	rdDataImm       = 52
	rdDataTimestamp = 56
	rdDataSum       = 60

	// RDDataLen is the length of a data packet's header.
	RDDataLen = 64

	rdSkipCount     = 24
	rdSkipMessage   = 28
	rdSkipTotal     = 32
	rdSkipImm       = 36
	rdSkipTimestamp = 40
	rdSkipBytes     = 44
	rdSkipPosition  = 48

	// RDSkipLen is the length of a whole skip.
	RDSkipLen = 52

	rdAckLimit      = 24
	rdAckTimestamp  = 28
	rdAckDelay      = 32
	rdAckDuplicates = 36
	rdAckReceived   = 40
	rdAckWords      = 44
	rdAckEchoes     = 45
	rdAckRoom       = 46

	// RDAckLen is the length of an acknowledgement without bitmap and echoes.
	RDAckLen = 48

	rdNackReason  = 24
	rdNackPath    = 26
	rdNackMessage = 28
	rdNackDetail  = 32

	// RDNackLen is the length of a whole negative acknowledgement.
	RDNackLen = 40

	rdProbeTimestamp = 24

	// RDProbeLen is the length of a whole probe.
	RDProbeLen = 32

	rdRejectReason = 24
	rdRejectLeast  = 25
	rdRejectMost   = 26
	rdRejectMeant  = 28
	rdRejectTo     = 32

	// RDRejectLen is the length of a whole reject.
	RDRejectLen = 40

	// RDVersion is the version that this package reads and writes.
	RDVersion = 1
	// RDEngines is the largest number of engines of an endpoint. Their ports are consecutive; the
	// offset of the first from PortRD is a multiple of RDEngines.
	RDEngines = 16
	// RDMaxWords is the longest bitmap of an acknowledgement, in words of 8
	// bytes.
	RDMaxWords = 16
	// RDMaxEchoes is the largest number of paths in one acknowledgement.
	RDMaxEchoes = 64
	rdEchoLen   = 4
)

// RDType is the type of a reliable datagram.
type RDType uint8

// Types.
const (
	RDData   RDType = 1 + iota // A piece of a message.
	RDSkip                     // Packets that will not arrive.
	RDAck                      // Packets that have arrived.
	RDNack                     // Why a packet was refused.
	RDProbe                    // Requests an acknowledgement.
	RDReject                   // The sender refuses to communicate.
	RDClose                    // The sender is closing.

	// RDTypes is one more than the last type.
	RDTypes = int(RDClose) + 1
)

var rdTypeNames = [RDTypes]string{"none", "DATA", "SKIP", "ACK", "NACK", "PROBE", "REJECT", "CLOSE"}

// String returns the type in the document's spelling.
func (t RDType) String() string {
	if int(t) < RDTypes {
		return rdTypeNames[t]
	}
	return "unknown"
}

// Flags of a reliable datagram.
const (
	RDEncrypted  uint8 = 0x80 // a security header follows the base
	RDRepeat     uint8 = 0x40 // sent before
	RDImm        uint8 = 0x20 // the message has an immediate
	RDDroppable  uint8 = 0x10 // the message may have holes
	RDAckRequest uint8 = 0x08 // acknowledge at once
)

// RDReason is the reason why a packet was refused.
type RDReason uint8

// Reasons of a RDNack.
const (
	RDTrimmed     RDReason = 1 + iota // Only its header arrived.
	RDBusy                            // No room for its immediate now: retry later.
	RDNoRegion                        // The key matches no region.
	RDNotWritable                     // The region may not be written.
	RDBounds                          // The write would end outside; the detail is the region's size.
	RDWindow                          // The PSN or the message is beyond the limit.

	// RDReasons is one more than the last reason.
	RDReasons = int(RDWindow) + 1
)

var rdReasonNames = [RDReasons]string{"none", "trimmed", "busy", "no-region", "not-writable", "bounds",
	"window"}

// String returns the name of the reason, such as "not-writable", or "unknown".
func (r RDReason) String() string {
	if int(r) < RDReasons {
		return rdReasonNames[r]
	}
	return "unknown"
}

// RDRejection is the reason why an endpoint refuses to communicate.
type RDRejection uint8

// Reasons of a RDReject.
const (
	RDRejectVersion  RDRejection = 1 + iota // The endpoint supports the versions Least to Most.
	RDRejectLife                            // The packet was meant for another life of the endpoint.
	RDRejectStranger                        // The endpoint does not know the sender of the packet yet.
	RDRejectSecurity                        // The endpoint requires encryption, or does not have the key.

	// RDRejections is one more than the last.
	RDRejections = int(RDRejectSecurity) + 1
)

var rdRejectionNames = [RDRejections]string{"none", "version", "life", "stranger", "security"}

// String returns the name of the reason, such as "version", or "unknown".
func (r RDRejection) String() string {
	if int(r) < RDRejections {
		return rdRejectionNames[r]
	}
	return "unknown"
}

// RD is a reliable datagram: the payload of a UDP datagram to a port of reliable datagrams
// (IsPortRD), after the INT block if there is one.
type RD []byte

// RDBase holds the fields that every type and version has.
type RDBase struct {
	Type  RDType
	Flags uint8
	// Source and Destination are the engines' ports, counted from PortRD: answers to the source go
	// to its address and PortRD+Source.
	Source, Destination uint8
	// Tag is the low half of the destination's life.
	Tag uint32
	// Life is the sender's life.
	Life uint64
	// PSN is a packet's number between two engines; in an RDAck it is the first PSN that has not
	// arrived.
	PSN uint32
	// Length, in an RDData, is the length of the payload as it was sent; trimming does not change
	// it.
	Length uint16
}

// RDDataFields are the fields of a data packet after its base.
type RDDataFields struct {
	// Key and Offset are the region and the offset of the message's first byte in it.
	Key, Offset uint64
	Message     uint32 // number of the message between the two engines
	Total       uint32 // bytes of the message
	Position    uint32 // of the payload in the message
	Imm         uint32
	Timestamp   uint32 // ns of the sender's clock, modulo 2^32
	Sum         uint32 // CRC-32C of the payload
}

// RDSkipFields are the fields of a skip. A skip reports that Count packets from the PSN on will not
// arrive. They carry Bytes of the message's Total, from Position on.
type RDSkipFields struct {
	Count, Message, Total, Imm, Timestamp, Bytes, Position uint32
}

// RDEcho counts the packets that arrived by one path since the last acknowledgement.
type RDEcho struct {
	Path    uint16 // the UDP source port
	Packets uint8
	Marked  uint8 // packets with congestion experienced
}

// RDAckFields are the fields of an acknowledgement without its lists.
type RDAckFields struct {
	Limit      uint32 // The first PSN that the receiver refuses.
	Timestamp  uint32 // Of a probe since the last acknowledgement, else of the packet with the longest delay.
	Delay      uint32 // In ns, from the arrival of that packet to this acknowledgement.
	Duplicates uint32 // Data packets that arrived again, modulo 2^32.
	Received   uint32 // Payload bytes received, modulo 2^32.
	Words      uint8
	Echoes     uint8
	Room       uint16 // Packets that may be in flight at once.
}

// RDNackFields are the fields of a negative acknowledgement.
type RDNackFields struct {
	Reason  RDReason
	Path    uint16 // the UDP source port of the refused packet
	Message uint32
	Detail  uint64
}

// RDRejectFields are the fields of a reject.
type RDRejectFields struct {
	Reason      RDRejection
	Least, Most uint8  // versions
	Meant       uint32 // the tag of the rejected packet
	To          uint64 // the life of its sender
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// RDSum is the CRC-32C of a payload.
func RDSum(payload []byte) uint32 { return crc32.Checksum(payload, castagnoli) }

var rdHeaderLens = [RDTypes]int{RDData: RDDataLen, RDSkip: RDSkipLen, RDAck: RDAckLen, RDNack: RDNackLen,
	RDProbe: RDProbeLen, RDReject: RDRejectLen, RDClose: RDBaseLen}

// RDHeaderLen is the length of a type's header in bytes, or 0 for an unknown type.
func RDHeaderLen(t RDType) int {
	if int(t) < RDTypes {
		return rdHeaderLens[t]
	}
	return 0
}

// RDFirst returns the first byte of a packet of a type. The second has the flags.
func RDFirst(t RDType) uint8 { return 0x80 | RDVersion<<4 | uint8(t) }

// HasBase reports whether the bytes hold the base header.
func (b RD) HasBase() bool { return len(b) >= RDBaseLen && b[rdVersionType]&0x80 != 0 }

// Version returns the version. HasBase must be true.
func (b RD) Version() uint8 { return b[rdVersionType] >> 4 & 7 }

// Type returns the type. HasBase must be true.
func (b RD) Type() RDType { return RDType(b[rdVersionType] & 0xF) }

// Valid reports whether the bytes are a datagram of this version with a correct check and
// consistent lengths. The payload of a data packet may be missing: see Trimmed. In an encrypted
// datagram only the base is checked.
func (b RD) Valid() bool {
	if !b.HasBase() || b.Version() != RDVersion {
		return false
	}
	header := RDHeaderLen(b.Type())
	switch {
	case header == 0:
		return false
	case b.Sealed():
		header = RDBaseLen
	case !b.Formed():
		return false
	case b.Type() == RDAck:
		header = len(b)
	}
	return b.check(header) == binary.BigEndian.Uint16(b[rdCheck:])
}

// Formed reports whether the lengths of a plain datagram are consistent. HasBase must be true.
// Formed does not test the check.
func (b RD) Formed() bool {
	header := RDHeaderLen(b.Type())
	if header == 0 || len(b) < header || b.Length() > 0 && b.Type() != RDData {
		return false
	}
	switch b.Type() {
	case RDData:
		return len(b) <= header+b.Length()
	case RDAck:
		words, echoes := int(b[rdAckWords]), int(b[rdAckEchoes])
		return words <= RDMaxWords && echoes <= RDMaxEchoes && len(b) == header+8*words+rdEchoLen*echoes
	}
	return len(b) == header
}

var noCheck [2]byte // allocated once on the heap, not for each packet

// check returns the low half of the CRC-32C over the first n bytes, with the check itself as zeros.
func (b RD) check(n int) uint16 {
	sum := crc32.Update(0, castagnoli, b[:rdCheck])
	sum = crc32.Update(sum, castagnoli, noCheck[:])
	return uint16(crc32.Update(sum, castagnoli, b[rdCheck+2:n]))
}

// Trimmed reports whether a part of a data packet's payload is missing.
func (b RD) Trimmed() bool { return len(b) < RDDataLen+b.Length() }

// Flags are the flags.
func (b RD) Flags() uint8 { return b[rdFlags] }

// Length is the length of the payload with which a data packet was sent.
func (b RD) Length() int { return int(binary.BigEndian.Uint16(b[rdLength:])) }

// Payload is the part of a data packet's payload that arrived.
func (b RD) Payload() []byte { return b[RDDataLen:] }

// Base reads the base.
func (b RD) Base() RDBase {
	return RDBase{
		Type: b.Type(), Flags: b[rdFlags], Source: b[rdSource], Destination: b[rdDestination],
		Tag: binary.BigEndian.Uint32(b[rdTag:]), Life: binary.BigEndian.Uint64(b[rdLife:]),
		PSN: binary.BigEndian.Uint32(b[rdPSN:]), Length: binary.BigEndian.Uint16(b[rdLength:]),
	}
}

// encodeBase writes the base; the caller must call seal afterwards.
func (b RD) encodeBase(f *RDBase) {
	b[rdVersionType] = RDFirst(f.Type)
	b[rdFlags], b[rdSource], b[rdDestination] = f.Flags, f.Source, f.Destination
	binary.BigEndian.PutUint32(b[rdTag:], f.Tag)
	binary.BigEndian.PutUint64(b[rdLife:], f.Life)
	binary.BigEndian.PutUint32(b[rdPSN:], f.PSN)
	binary.BigEndian.PutUint16(b[rdLength:], f.Length)
}

func (b RD) seal(n int) { binary.BigEndian.PutUint16(b[rdCheck:], b.check(n)) }

// Data reads the header of a data packet.
func (b RD) Data() RDDataFields {
	return RDDataFields{
		Key: binary.BigEndian.Uint64(b[rdDataKey:]), Offset: binary.BigEndian.Uint64(b[rdDataOffset:]),
		Message: binary.BigEndian.Uint32(b[rdDataMessage:]), Total: binary.BigEndian.Uint32(b[rdDataTotal:]),
		Position: binary.BigEndian.Uint32(b[rdDataPosition:]), Imm: binary.BigEndian.Uint32(b[rdDataImm:]),
		Timestamp: binary.BigEndian.Uint32(b[rdDataTimestamp:]), Sum: binary.BigEndian.Uint32(b[rdDataSum:]),
	}
}

// EncodeData writes the header of a data packet; base.Type is ignored.
func (b RD) EncodeData(base RDBase, f *RDDataFields) {
	base.Type = RDData
	b.encodeBase(&base)
	binary.BigEndian.PutUint64(b[rdDataKey:], f.Key)
	binary.BigEndian.PutUint64(b[rdDataOffset:], f.Offset)
	binary.BigEndian.PutUint32(b[rdDataMessage:], f.Message)
	binary.BigEndian.PutUint32(b[rdDataTotal:], f.Total)
	binary.BigEndian.PutUint32(b[rdDataPosition:], f.Position)
	binary.BigEndian.PutUint32(b[rdDataImm:], f.Imm)
	binary.BigEndian.PutUint32(b[rdDataTimestamp:], f.Timestamp)
	binary.BigEndian.PutUint32(b[rdDataSum:], f.Sum)
	b.seal(RDDataLen)
}
