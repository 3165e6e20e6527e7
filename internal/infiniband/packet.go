package infiniband

import (
	"encoding/binary"
	"math/bits"
)

const (
	// ICRCLen is the length of the invariant CRC, at the end of a packet.
	ICRCLen     = 4
	cnpReserved = 16 // A17.9.3
	// CNPLen is the length of a congestion notification packet.
	CNPLen = BTHLen + cnpReserved + ICRCLen
	// MaxOverhead is the largest number of bytes of a packet besides its payload: headers, padding
	// and ICRC.
	MaxOverhead = BTHLen + AtomicETHLen + 3 + ICRCLen
)

// Packet is a whole transport packet: the payload of a UDP datagram to Port, from the BTH to the
// ICRC.
type Packet []byte

// Fields are the fields of a packet's headers. Fields of headers that the opcode does not have are
// zero after reading and ignored when writing.
type Fields struct {
	BTH        BTHFields
	DETH       DETHFields
	RETH       RETHFields
	AtomicETH  AtomicETHFields
	AETH       AETHFields
	Original   uint64 // of an AtomicAckETH
	Imm        uint32
	Invalidate uint32 // the R_Key of an IETH
}

// Pad returns the number of padding bytes after a payload: packets are a multiple of four bytes
// long (9.2.4).
func Pad(payload int) int { return -payload & 3 }

// Len returns the length in bytes of a packet with a payload, including padding and ICRC.
func Len(o Opcode, payload int) int { return o.HeaderLen() + payload + Pad(payload) + ICRCLen }

// Valid reports whether the bytes are a packet of version 0 with a Known opcode and all its
// headers. The length must be a multiple of four bytes, and there must be no payload if the opcode
// has none. The ICRC may be wrong.
func (p Packet) Valid() bool { return p.Begins(len(p)) }

// Begins reports whether the bytes are the beginning of a Valid packet of the given length, with at
// least all its headers, as in a truncated capture. BTH, the extended headers and Fields may be
// called on them.
func (p Packet) Begins(length int) bool {
	if len(p) < BTHLen || len(p) > length || length%4 != 0 {
		return false
	}
	b := BTH(p)
	o := b.Opcode()
	payload := p.PayloadLen(length)
	return o.Known() && b.Version() == 0 && len(p) >= o.HeaderLen() && payload >= 0 &&
		(payload == 0 && b.Pad() == 0 || o.HasPayload())
}

// PayloadLen returns the length of the payload of a packet that has the given length and begins
// with these bytes.
func (p Packet) PayloadLen(length int) int {
	return length - p.Opcode().HeaderLen() - ICRCLen - BTH(p).Pad()
}

// Opcode is the packet's opcode.
func (p Packet) Opcode() Opcode { return BTH(p).Opcode() }

// BTH is the base transport header.
func (p Packet) BTH() BTH { return BTH(p[:BTHLen]) }

// header returns one of the extended headers, or nil if the opcode does not have it.
func (p Packet) header(h Header) []byte {
	l := &layouts[p[bthOpcode]]
	if l.headers&h == 0 {
		return nil
	}
	i := bits.TrailingZeros8(uint8(h))
	return p[l.at[i] : int(l.at[i])+headerLens[i]]
}

// DETH returns nil if the opcode has no DETH.
func (p Packet) DETH() DETH { return p.header(HasDETH) }

// RETH returns nil if the opcode has no RETH.
func (p Packet) RETH() RETH { return p.header(HasRETH) }

// AtomicETH returns nil if the opcode has no AtomicETH.
func (p Packet) AtomicETH() AtomicETH { return p.header(HasAtomicETH) }

// AETH returns nil if the opcode has no AETH.
func (p Packet) AETH() AETH { return p.header(HasAETH) }

// AtomicAckETH returns nil if the opcode has no AtomicAckETH.
func (p Packet) AtomicAckETH() AtomicAckETH { return p.header(HasAtomicAckETH) }

// ImmDt returns nil if the opcode has no immediate.
func (p Packet) ImmDt() ImmDt { return p.header(HasImmDt) }

// IETH returns nil if the opcode has no IETH.
func (p Packet) IETH() IETH { return p.header(HasIETH) }

// Payload is the payload, without its padding.
func (p Packet) Payload() []byte {
	return p[p.Opcode().HeaderLen() : len(p)-ICRCLen-BTH(p).Pad()]
}

// ICRC is the packet's invariant CRC; it may be wrong.
func (p Packet) ICRC() uint32 { return binary.LittleEndian.Uint32(p[len(p)-ICRCLen:]) }

// Fields reads the headers.
func (p Packet) Fields() (f Fields) {
	f.BTH = p.BTH().Fields()
	switch o := f.BTH.Opcode; {
	case o.Has(HasAETH):
		f.AETH = p.AETH().Fields()
		if o.Has(HasAtomicAckETH) {
			f.Original = p.AtomicAckETH().Original()
		}
		return f
	case o.Has(HasAtomicETH):
		f.AtomicETH = p.AtomicETH().Fields()
		return f
	case o.Has(HasRETH):
		f.RETH = p.RETH().Fields()
	case o.Has(HasDETH):
		f.DETH = p.DETH().Fields()
	case o.Has(HasIETH):
		f.Invalidate = p.IETH().RKey()
	}
	if f.BTH.Opcode.Has(HasImmDt) {
		f.Imm = p.ImmDt().Imm()
	}
	return f
}

// Encode writes the headers, the pad count and the padding of a packet with the given length of
// payload. The caller writes the payload (Payload) and the ICRC (Seal). The packet must be Len
// bytes long, and its opcode Known. The pad count in the fields is ignored.
func (p Packet) Encode(f *Fields, payload int) {
	o := f.BTH.Opcode
	_ = p[Len(o, payload)-1]
	bth := f.BTH
	bth.Pad = uint8(Pad(payload))
	BTH(p).Encode(&bth)
	if h := p.DETH(); h != nil {
		h.Encode(&f.DETH)
	}
	if h := p.RETH(); h != nil {
		h.Encode(&f.RETH)
	}
	if h := p.AtomicETH(); h != nil {
		h.Encode(&f.AtomicETH)
	}
	if h := p.AETH(); h != nil {
		h.Encode(&f.AETH)
	}
	if h := p.AtomicAckETH(); h != nil {
		h.Encode(f.Original)
	}
	if h := p.ImmDt(); h != nil {
		h.Encode(f.Imm)
	}
	if h := p.IETH(); h != nil {
		h.Encode(f.Invalidate)
	}
	clear(p.header(hasReserved))
	clear(p[o.HeaderLen()+payload : len(p)-ICRCLen])
}

// EncodeCNP writes a congestion notification packet for a queue pair, CNPLen bytes, without its
// ICRC.
func (p Packet) EncodeCNP(destination QPN) {
	p.Encode(&Fields{BTH: BTHFields{Opcode: CNP, PKey: PKey, BECN: true, DestQP: destination}}, 0)
}
