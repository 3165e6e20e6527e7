package wire

import "encoding/binary"

// Layout of an encrypted reliable datagram (transports/rd/PROTOCOL.md, 10): base, security header,
// the fields of a plain datagram after its base, tag.
const (
	rdSecurityReadable = 24
	rdSecurityHeard    = 25
	rdSecurityEpoch    = 26
	rdSecurityCounter  = 28

	// RDSecurityLen is the length of the security header, which follows the base.
	RDSecurityLen = 12
	// RDTagLen is the length of the tag at the end.
	RDTagLen = 16
	// RDSealedLen is the number of bytes by which an encrypted datagram is longer than a plain
	// datagram.
	RDSealedLen = RDSecurityLen + RDTagLen
	// RDSealedLeast is the length of the shortest trimmed encrypted datagram that is still of use.
	RDSealedLeast = RDBaseLen + RDSecurityLen
)

// RDSecurity is the security header of an encrypted datagram.
type RDSecurity struct {
	// Readable is the length of the data after this header that are authenticated but not
	// encrypted, in words of 4 bytes.
	Readable uint8
	// Heard is the low half of the newest epoch in which the sender received a packet of the other
	// direction.
	Heard uint8
	// Epoch selects the key.
	Epoch uint16
	// Counter is never used twice with the same key.
	Counter uint64
}

// Sealed reports whether a datagram is marked as encrypted. HasBase must be true.
func (b RD) Sealed() bool { return b[rdFlags]&RDEncrypted != 0 }

// Security reads the security header of RDSealedLeast bytes.
func (b RD) Security() RDSecurity {
	return RDSecurity{
		Readable: b[rdSecurityReadable], Heard: b[rdSecurityHeard],
		Epoch:   binary.BigEndian.Uint16(b[rdSecurityEpoch:]),
		Counter: binary.BigEndian.Uint64(b[rdSecurityCounter:]),
	}
}

// EncodeSecurity marks the base that is already in b as encrypted, and writes the security header
// after it.
func (b RD) EncodeSecurity(f *RDSecurity) {
	b[rdFlags] |= RDEncrypted
	b.seal(RDBaseLen)
	b[rdSecurityReadable], b[rdSecurityHeard] = f.Readable, f.Heard
	binary.BigEndian.PutUint16(b[rdSecurityEpoch:], f.Epoch)
	binary.BigEndian.PutUint64(b[rdSecurityCounter:], f.Counter)
}

// SealedTrimmed reports whether an encrypted data packet is truncated: then the tag is missing,
// too.
func (b RD) SealedTrimmed() bool {
	return b.Type() == RDData && len(b) < RDDataLen+RDSealedLen+b.Length()
}

// Unseal converts an opened datagram, which still has its security header, to the plain datagram
// that was sealed. It moves the base over the security header and drops the tag. The Check stays
// the Check of an encrypted datagram, which covers only the base.
func (b RD) Unseal() RD {
	copy(b[RDSecurityLen:], b[:RDBaseLen])
	b = b[RDSecurityLen : len(b)-RDTagLen]
	b[rdFlags] &^= RDEncrypted
	return b
}

// Recheck recomputes the Check of a plain datagram that is Formed for its type.
func (b RD) Recheck() {
	header := RDHeaderLen(b.Type())
	if b.Type() == RDAck {
		header = len(b)
	}
	b.seal(header)
}
