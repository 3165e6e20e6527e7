package infiniband

import "encoding/binary"

// Layout of the base transport header (9.2): offsets in bytes.
const (
	bthOpcode     = 0
	bthFlags      = 1 // SE, M, PadCnt 2 bits, TVer 4 bits
	bthPKey       = 2
	bthCongestion = 4 // FECN, BECN, reserved; not in the ICRC
	bthDestQP     = 5
	bthAckReq     = 8
	bthPSN        = 9

	BTHLen = 12 // bytes of the header
)

const (
	bthSolicited = 0x80
	bthMigReq    = 0x40
	bthVersion   = 0x0F
	bthFECN      = 0x80
	bthBECN      = 0x40
	bthAck       = 0x80
)

// BTH is a base transport header and the bytes after it.
type BTH []byte

// BTHFields are the fields of a BTH. The version is 0.
type BTHFields struct {
	Opcode Opcode
	// Solicited requests that the responder raise an event.
	Solicited bool
	// MigReq is the migration state: rdma_rxe sends false, ConnectX true.
	MigReq bool
	// Pad is the number of bytes of padding between payload and ICRC, 0 to 3.
	Pad uint8
	// PKey is the partition's key.
	PKey uint16
	// FECN and BECN are congestion notifications: BECN is set in a CNP.
	FECN, BECN bool
	DestQP     QPN
	// AckReq requests an acknowledgement from the responder.
	AckReq bool
	PSN    PSN
}

// Valid reports whether the bytes hold a BTH.
func (b BTH) Valid() bool { return len(b) >= BTHLen }

// Opcode is the opcode.
func (b BTH) Opcode() Opcode { return Opcode(b[bthOpcode]) }

// Version is the version of the transport header. Only version 0 exists.
func (b BTH) Version() uint8 { return b[bthFlags] & bthVersion }

// Pad is the number of bytes of padding in the packet, 0 to 3.
func (b BTH) Pad() int { return int(field(b[bthFlags], 4, 2)) }

// PKey is the partition's key.
func (b BTH) PKey() uint16 { return binary.BigEndian.Uint16(b[bthPKey:]) }

// FECN reports whether the packet experienced congestion.
func (b BTH) FECN() bool { return flag(b[bthCongestion], bthFECN) }

// BECN reports whether a packet of the other direction experienced congestion.
func (b BTH) BECN() bool { return flag(b[bthCongestion], bthBECN) }

// DestQP is the queue pair that the packet is for.
func (b BTH) DestQP() QPN { return QPN(uint24(b[bthDestQP:])) }

// AckReq reports whether the packet requests an acknowledgement.
func (b BTH) AckReq() bool { return flag(b[bthAckReq], bthAck) }

// PSN is the packet's sequence number. A response has the PSN of its request.
func (b BTH) PSN() PSN { return PSN(uint24(b[bthPSN:])) }

// Fields reads all fields.
func (b BTH) Fields() BTHFields {
	return BTHFields{
		Opcode:    b.Opcode(),
		Solicited: flag(b[bthFlags], bthSolicited),
		MigReq:    flag(b[bthFlags], bthMigReq),
		Pad:       uint8(b.Pad()),
		PKey:      b.PKey(),
		FECN:      b.FECN(),
		BECN:      b.BECN(),
		DestQP:    b.DestQP(),
		AckReq:    b.AckReq(),
		PSN:       b.PSN(),
	}
}

// Encode writes the header. Reserved bits are 0.
func (b BTH) Encode(f *BTHFields) {
	_ = b[BTHLen-1]
	b[bthOpcode] = uint8(f.Opcode)
	b[bthFlags] = mask(f.Solicited, bthSolicited) | mask(f.MigReq, bthMigReq) | f.Pad&3<<4
	binary.BigEndian.PutUint16(b[bthPKey:], f.PKey)
	b[bthCongestion] = mask(f.FECN, bthFECN) | mask(f.BECN, bthBECN)
	putUint24(b[bthDestQP:], uint32(f.DestQP))
	b[bthAckReq] = mask(f.AckReq, bthAck)
	putUint24(b[bthPSN:], uint32(f.PSN))
}
