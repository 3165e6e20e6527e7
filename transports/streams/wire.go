package streams

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"railbed/transports"
)

// All numbers on the wire are big-endian. A message has a header and its payload. The two formats of a header
// differ in the place of the length:
//
//	tcp   op[1] flags[1] zero[2] imm[4] length[4] zero[4] key[8] offset[8]
//	quic  op[1] zero[1]  zero[2] imm[4] zero[4] length[4] key[8] offset[8]
//
// A reply completes the message with the number, or all messages up to it. This and the meaning of the codes
// depend on the transport:
//
//	reply   code[1] zero[7] number[8] detail[8]
const (
	HeaderLen = 32
	ReplyLen  = 24
)

// unsignaled is the flag of a message that needs no reply of its own: a reply to a later message suffices.
const unsignaled = 1

// Format is the format of a transport's headers.
type Format struct {
	length int  // the offset of the length, 8 or 12
	flags  byte // the flags that the transport has
}

// The formats of the transports.
var (
	FormatTCP  = Format{length: 8, flags: unsignaled}
	FormatQUIC = Format{length: 12}
)

// Header is a message's header.
type Header struct {
	Op          transports.Op
	Unsignaled  bool
	Imm, Length uint32
	Key, Offset uint64
}

// Encode encodes a header.
func (f Format) Encode(h Header) (raw [HeaderLen]byte) {
	raw[0] = byte(h.Op)
	if h.Unsignaled {
		raw[1] = unsignaled & f.flags
	}
	binary.BigEndian.PutUint32(raw[4:], h.Imm)
	binary.BigEndian.PutUint32(raw[f.length:], h.Length)
	binary.BigEndian.PutUint64(raw[16:], h.Key)
	binary.BigEndian.PutUint64(raw[24:], h.Offset)
	return raw
}

// Decode decodes and checks a header.
func (f Format) Decode(raw *[HeaderLen]byte) (Header, error) {
	h := Header{
		Op:         transports.Op(raw[0]),
		Unsignaled: raw[1] == unsignaled,
		Imm:        binary.BigEndian.Uint32(raw[4:]),
		Length:     binary.BigEndian.Uint32(raw[f.length:]),
		Key:        binary.BigEndian.Uint64(raw[16:]),
		Offset:     binary.BigEndian.Uint64(raw[24:]),
	}
	reserved := binary.BigEndian.Uint32(raw[20-f.length:]) // the other of the offsets 8 and 12
	switch {
	case h.Op != transports.OpWrite && h.Op != transports.OpWriteImm:
		return h, fmt.Errorf("header with operation %d", raw[0])
	case raw[1]&^f.flags|raw[2]|raw[3] != 0, reserved != 0:
		return h, fmt.Errorf("header % x: reserved bytes are not zero", raw[:])
	case h.Length > transports.MaxMessage:
		return h, fmt.Errorf("header of a message of %d bytes, limit %d", h.Length, transports.MaxMessage)
	}
	return h, nil
}

// Reply is a receiver's reply.
type Reply struct {
	Code           byte
	Number, Detail uint64
}

// Append appends the encoded reply.
func (r Reply) Append(to []byte) []byte {
	to = append(to, r.Code, 0, 0, 0, 0, 0, 0, 0)
	to = binary.BigEndian.AppendUint64(to, r.Number)
	return binary.BigEndian.AppendUint64(to, r.Detail)
}

// DecodeReply decodes a reply.
func DecodeReply(raw *[ReplyLen]byte) Reply {
	return Reply{Code: raw[0], Number: binary.BigEndian.Uint64(raw[8:]),
		Detail: binary.BigEndian.Uint64(raw[16:])}
}

// Address is the address of an endpoint at a port. The id distinguishes the endpoint from others that had the
// port before.
type Address struct {
	At netip.AddrPort
	ID string
}

// Encode encodes an address: family[1] ip[4|16] port[2] id.
func (a Address) Encode() []byte {
	ip := a.At.Addr().AsSlice()
	out := append([]byte{byte(len(ip))}, ip...)
	out = binary.BigEndian.AppendUint16(out, a.At.Port())
	return append(out, a.ID...)
}

// decodeAddress decodes an address with an id of a length. of is the transport, for the error.
func decodeAddress(raw []byte, idLen int, of string) (Address, error) {
	if len(raw) == 0 || raw[0] != 4 && raw[0] != 16 || len(raw) != 1+int(raw[0])+2+idLen {
		return Address{}, fmt.Errorf("%d bytes are not the address of a %s endpoint", len(raw), of)
	}
	ip, _ := netip.AddrFromSlice(raw[1 : 1+raw[0]])
	rest := raw[1+raw[0]:]
	at := netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest))
	if at.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return Address{}, fmt.Errorf("%v is not the address of a %s endpoint, want "+
			"a unicast address and a port", at, of)
	}
	return Address{At: at, ID: string(rest[2:])}, nil
}
