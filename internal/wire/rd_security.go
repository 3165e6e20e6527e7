package wire

import "encoding/binary"

// Layout of an encrypted reliable datagram (transports/rd/PROTOCOL.md, 10):
// base, security header, what a plain datagram has behind its base, tag.
const (
	rdSecurityReadable = 24
	rdSecurityHeard    = 25
	rdSecurityEpoch    = 26
	rdSecurityCounter  = 28

	// RDSecurityLen is the security header behind the base.
	RDSecurityLen = 12
	// RDTagLen is the tag at the end.
	RDTagLen = 16
	// RDSealedLen is how much longer an encrypted datagram is than a plain one.
	RDSealedLen = RDSecurityLen + RDTagLen
	// RDSealedLeast is what is left of an encrypted datagram that says anything.
	RDSealedLeast = RDBaseLen + RDSecurityLen
)

// RDSecurity is the security header of an encrypted datagram.
type RDSecurity struct {
	// Readable is how much behind this header is authenticated and not encrypted, in
	// words of 4 bytes.
	Readable uint8
	// Heard is the low half of the newest epoch that the sender had a packet of, in
	// the other direction.
	Heard uint8
	// Epoch says by which key.
	Epoch uint16
	// Counter is never used twice with a key.
	Counter uint64
}

// Sealed says that the bytes, which HasBase, say of themselves that they are
// encrypted.
func (b RD) Sealed() bool { return b[rdFlags]&RDEncrypted != 0 }

// Security reads the security header of RDSealedLeast bytes.
func (b RD) Security() RDSecurity {
	return RDSecurity{
		Readable: b[rdSecurityReadable], Heard: b[rdSecurityHeard],
		Epoch:   binary.BigEndian.Uint16(b[rdSecurityEpoch:]),
		Counter: binary.BigEndian.Uint64(b[rdSecurityCounter:]),
	}
}

// EncodeSecurity makes a base that stands in b that of an encrypted datagram, and
// writes the security header behind it.
func (b RD) EncodeSecurity(f *RDSecurity) {
	b[rdFlags] |= RDEncrypted
	b.seal(RDBaseLen)
	b[rdSecurityReadable], b[rdSecurityHeard] = f.Readable, f.Heard
	binary.BigEndian.PutUint16(b[rdSecurityEpoch:], f.Epoch)
	binary.BigEndian.PutUint64(b[rdSecurityCounter:], f.Counter)
}

// SealedTrimmed says that bytes are missing of an encrypted data packet: the tag is
// gone with them.
func (b RD) SealedTrimmed() bool {
	return b.Type() == RDData && len(b) < RDDataLen+RDSealedLen+b.Length()
}

// Unseal takes an opened datagram, whose security header still stands in front of what
// it has behind its base, for the plain one that was sealed: it moves the base,
// and leaves out header and tag. The Check stays that of the base alone.
func (b RD) Unseal() RD {
	copy(b[RDSecurityLen:], b[:RDBaseLen])
	b = b[RDSecurityLen : len(b)-RDTagLen]
	b[rdFlags] &^= RDEncrypted
	return b
}

// Recheck makes the Check of a plain datagram that is Formed what its type has.
func (b RD) Recheck() {
	header := RDHeaderLen(b.Type())
	if b.Type() == RDAck {
		header = len(b)
	}
	b.seal(header)
}
