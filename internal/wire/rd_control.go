package wire

import (
	"encoding/binary"
	"math/bits"
)

// Skip reads a skip.
func (b RD) Skip() RDSkipFields {
	return RDSkipFields{
		Count: binary.BigEndian.Uint32(b[rdSkipCount:]), Message: binary.BigEndian.Uint32(b[rdSkipMessage:]),
		Total: binary.BigEndian.Uint32(b[rdSkipTotal:]), Imm: binary.BigEndian.Uint32(b[rdSkipImm:]),
		Timestamp: binary.BigEndian.Uint32(b[rdSkipTimestamp:]),
		Bytes:     binary.BigEndian.Uint32(b[rdSkipBytes:]),
		Position:  binary.BigEndian.Uint32(b[rdSkipPosition:]),
	}
}

// EncodeSkip writes a skip.
func (b RD) EncodeSkip(base RDBase, f *RDSkipFields) {
	base.Type = RDSkip
	b.encodeBase(&base)
	binary.BigEndian.PutUint32(b[rdSkipCount:], f.Count)
	binary.BigEndian.PutUint32(b[rdSkipMessage:], f.Message)
	binary.BigEndian.PutUint32(b[rdSkipTotal:], f.Total)
	binary.BigEndian.PutUint32(b[rdSkipImm:], f.Imm)
	binary.BigEndian.PutUint32(b[rdSkipTimestamp:], f.Timestamp)
	binary.BigEndian.PutUint32(b[rdSkipBytes:], f.Bytes)
	binary.BigEndian.PutUint32(b[rdSkipPosition:], f.Position)
	b.seal(RDSkipLen)
}

// Ack reads an acknowledgement without its lists.
func (b RD) Ack() RDAckFields {
	return RDAckFields{
		Limit:      binary.BigEndian.Uint32(b[rdAckLimit:]),
		Timestamp:  binary.BigEndian.Uint32(b[rdAckTimestamp:]),
		Delay:      binary.BigEndian.Uint32(b[rdAckDelay:]),
		Duplicates: binary.BigEndian.Uint32(b[rdAckDuplicates:]),
		Received:   binary.BigEndian.Uint32(b[rdAckReceived:]),
		Words:      b[rdAckWords],
		Echoes:     b[rdAckEchoes],
		Room:       binary.BigEndian.Uint16(b[rdAckRoom:]),
	}
}

// AckWord is word i of the bitmap. Bit 63-k stands for the packet with the number PSN+1+64i+k, and
// is set if that packet has arrived.
func (b RD) AckWord(i int) uint64 { return binary.BigEndian.Uint64(b[RDAckLen+8*i:]) }

// AckEcho is echo i.
func (b RD) AckEcho(i int) RDEcho {
	e := b[RDAckLen+8*int(b[rdAckWords])+rdEchoLen*i:]
	return RDEcho{Path: binary.BigEndian.Uint16(e), Packets: e[2], Marked: e[3]}
}

// RDAckBytes is the length of an acknowledgement in bytes.
func RDAckBytes(words, echoes int) int { return RDAckLen + 8*words + rdEchoLen*echoes }

// EncodeAck writes an acknowledgement with its lists, RDAckBytes bytes.
func (b RD) EncodeAck(base RDBase, f *RDAckFields, words []uint64, echoes []RDEcho) {
	base.Type = RDAck
	b.encodeBase(&base)
	binary.BigEndian.PutUint32(b[rdAckLimit:], f.Limit)
	binary.BigEndian.PutUint32(b[rdAckTimestamp:], f.Timestamp)
	binary.BigEndian.PutUint32(b[rdAckDelay:], f.Delay)
	binary.BigEndian.PutUint32(b[rdAckDuplicates:], f.Duplicates)
	binary.BigEndian.PutUint32(b[rdAckReceived:], f.Received)
	b[rdAckWords], b[rdAckEchoes] = uint8(len(words)), uint8(len(echoes))
	binary.BigEndian.PutUint16(b[rdAckRoom:], f.Room)
	at := RDAckLen
	for _, w := range words {
		binary.BigEndian.PutUint64(b[at:], w)
		at += 8
	}
	for _, e := range echoes {
		binary.BigEndian.PutUint16(b[at:], e.Path)
		b[at+2], b[at+3] = e.Packets, e.Marked
		at += rdEchoLen
	}
	b.seal(at)
}

// RDAckBit returns the position in the bitmap of the packet with the number PSN+n, n >= 1.
func RDAckBit(n uint32) (word int, bit uint64) {
	return int(n-1) / 64, bits.RotateLeft64(1, 63-int(n-1)%64)
}

// Nack reads a negative acknowledgement.
func (b RD) Nack() RDNackFields {
	return RDNackFields{
		Reason: RDReason(b[rdNackReason]), Path: binary.BigEndian.Uint16(b[rdNackPath:]),
		Message: binary.BigEndian.Uint32(b[rdNackMessage:]),
		Detail:  binary.BigEndian.Uint64(b[rdNackDetail:]),
	}
}

// EncodeNack writes a negative acknowledgement.
func (b RD) EncodeNack(base RDBase, f *RDNackFields) {
	base.Type = RDNack
	b.encodeBase(&base)
	b[rdNackReason], b[rdNackReason+1] = uint8(f.Reason), 0
	binary.BigEndian.PutUint16(b[rdNackPath:], f.Path)
	binary.BigEndian.PutUint32(b[rdNackMessage:], f.Message)
	binary.BigEndian.PutUint64(b[rdNackDetail:], f.Detail)
	b.seal(RDNackLen)
}

// ProbeTimestamp is the timestamp of a probe.
func (b RD) ProbeTimestamp() uint32 { return binary.BigEndian.Uint32(b[rdProbeTimestamp:]) }

// EncodeProbe writes a probe: its PSN is the next that the sender would use.
func (b RD) EncodeProbe(base RDBase, timestamp uint32) {
	base.Type = RDProbe
	b.encodeBase(&base)
	binary.BigEndian.PutUint32(b[rdProbeTimestamp:], timestamp)
	binary.BigEndian.PutUint32(b[rdProbeTimestamp+4:], 0)
	b.seal(RDProbeLen)
}

// Reject reads a reject.
func (b RD) Reject() RDRejectFields {
	return RDRejectFields{
		Reason: RDRejection(b[rdRejectReason]), Least: b[rdRejectLeast], Most: b[rdRejectMost],
		Meant: binary.BigEndian.Uint32(b[rdRejectMeant:]), To: binary.BigEndian.Uint64(b[rdRejectTo:]),
	}
}

// EncodeReject writes a reject.
func (b RD) EncodeReject(base RDBase, f *RDRejectFields) {
	base.Type = RDReject
	b.encodeBase(&base)
	b[rdRejectMost+1] = 0
	b[rdRejectReason], b[rdRejectLeast], b[rdRejectMost] = uint8(f.Reason), f.Least, f.Most
	binary.BigEndian.PutUint32(b[rdRejectMeant:], f.Meant)
	binary.BigEndian.PutUint64(b[rdRejectTo:], f.To)
	b.seal(RDRejectLen)
}

// EncodeClose writes a close.
func (b RD) EncodeClose(base RDBase) {
	base.Type = RDClose
	b.encodeBase(&base)
	b.seal(RDBaseLen)
}
