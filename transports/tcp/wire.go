package tcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"railbed/transports"
	"railbed/transports/memory"
)

// All numbers on the wire are big-endian.
//
// The connecting side opens with a hello and then sends messages, each a
// header followed by its payload:
//
//	hello   magic[8] sender-id[16] receiver-id[16]
//	header  op[1] flags[1] zero[2] imm[4] length[4] zero[4] key[8] offset[8]
//
// The only flag marks a message that needs no reply of its own: a reply to a later message
// suffices.
//
// The accepting side sends replies only. Messages are numbered from 1 in the order of their
// headers. A reply applies to all messages up to its number:
//
//	reply   code[1] zero[7] number[8] detail[8]
const (
	helloLen  = 40
	headerLen = 32
	replyLen  = 24
	idLen     = 16
)

// HelloLen, HeaderLen and Goodbye describe a stream of messages. It has a hello at its beginning
// and a header for each message. If the sender closes politely, it ends with a header whose first
// byte is Goodbye. Replies go the other way.
const (
	HelloLen  = helloLen
	HeaderLen = headerLen
	Goodbye   = opGoodbye
)

const magic = "RAILTCP1"

// opGoodbye marks the last header of a connection. The sender will close and waits for the receiver
// to close first. So no TIME_WAIT blocks the planned source port in the next run.
const opGoodbye = 0xff

const flagUnsignaled = 1

// Reply codes.
const (
	replyPlaced   = 0                   // every message up to number, unless refused, is placed.
	replyBounds   = byte(memory.Bounds) // up to this: the refusals of memory; detail is the region's length
	replyStranger = 4                   // the hello was meant for another endpoint
)

type endpointID [idLen]byte

// address is the content of Endpoint.Address: see transports.EncodeAddress.
type address struct {
	at netip.AddrPort
	id endpointID
}

func (a address) encode() []byte { return transports.EncodeAddress(a.at, a.id[:]) }

func decodeAddress(raw []byte) (a address, err error) {
	a.at, err = transports.DecodeAddress(raw, a.id[:], "tcp")
	return a, err
}

func encodeHello(from, to endpointID) []byte {
	return append(append([]byte(magic), from[:]...), to[:]...)
}

func decodeHello(raw *[helloLen]byte) (from, to endpointID, err error) {
	if string(raw[:8]) != magic {
		return from, to, fmt.Errorf("hello starts with %q, want %q", raw[:8], magic)
	}
	return endpointID(raw[8:]), endpointID(raw[8+idLen:]), nil
}

type header struct {
	op         transports.Op
	unsignaled bool
	imm        uint32
	length     uint32
	key        uint64
	offset     uint64
}

func (h header) encode(to *[headerLen]byte) {
	*to = [headerLen]byte{0: byte(h.op)}
	if h.unsignaled {
		to[1] = flagUnsignaled
	}
	binary.BigEndian.PutUint32(to[4:], h.imm)
	binary.BigEndian.PutUint32(to[8:], h.length)
	binary.BigEndian.PutUint64(to[16:], h.key)
	binary.BigEndian.PutUint64(to[24:], h.offset)
}

func decodeHeader(raw []byte) (header, error) {
	h := header{
		op:         transports.Op(raw[0]),
		unsignaled: raw[1] == flagUnsignaled,
		imm:        binary.BigEndian.Uint32(raw[4:]),
		length:     binary.BigEndian.Uint32(raw[8:]),
		key:        binary.BigEndian.Uint64(raw[16:]),
		offset:     binary.BigEndian.Uint64(raw[24:]),
	}
	if raw[1]&^flagUnsignaled|raw[2]|raw[3]|raw[12]|raw[13]|raw[14]|raw[15] != 0 {
		return h, fmt.Errorf("header % x: reserved bytes are not zero", raw[:headerLen])
	}
	switch {
	case h.op != transports.OpWrite && h.op != transports.OpWriteImm && h.op != opGoodbye:
		return h, fmt.Errorf("header with operation %d", raw[0])
	case h.length > transports.MaxMessage:
		return h, fmt.Errorf("header of a message of %d bytes, limit %d", h.length, transports.MaxMessage)
	}
	return h, nil
}

type reply struct {
	code   byte
	number uint64
	detail uint64
}

func (r reply) append(to []byte) []byte {
	to = append(to, r.code, 0, 0, 0, 0, 0, 0, 0)
	to = binary.BigEndian.AppendUint64(to, r.number)
	return binary.BigEndian.AppendUint64(to, r.detail)
}

func decodeReply(raw *[replyLen]byte) reply {
	return reply{code: raw[0], number: binary.BigEndian.Uint64(raw[8:]),
		detail: binary.BigEndian.Uint64(raw[16:])}
}

// refusal returns the receiver's reason in words.
func (r reply) refusal() string { return memory.Refusal(r.code).String(r.detail) }
