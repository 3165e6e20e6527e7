package quic

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
	"railbed/transports/memory"
)

// All numbers on the wire are big-endian.
//
// Each side of a connection opens a stream of replies first. Each further stream is a message: a
// header and its payload:
//
//	header  op[1] zero[3] imm[4] zero[4] length[4] key[8] offset[8]
//
// A reply names the stream of the message that it ends. The first reply of a stream ends none. It is
// replyWelcome, which a side sends when it reads messages:
//
//	reply   code[1] zero[7] stream[8] detail[8]
const (
	headerLen = 32
	replyLen  = 24
)

// protocol is the name of this protocol in TLS (ALPN, RFC 7301).
const protocol = "railbed-quic/1"

// Reply codes. A message is placed, or it was discarded because its stream was reset. Greater codes are the
// refusals of package memory. The detail is the region's length then.
const (
	replyPlaced = iota
	replyWelcome
	replyDiscarded
	replyBounds = replyDiscarded + byte(memory.Bounds)
)

// Codes with which an endpoint closes a connection: because it closes itself, because the peer has
// failed, or because the peer has a connection already.
const (
	codeClosed quicgo.ApplicationErrorCode = iota
	codeBroken
	codeRefused
)

// codeReset is the code with which streams of messages are ended. The reply has the reason.
const codeReset quicgo.StreamErrorCode = 0

// address is the content of Endpoint.Address: see transports.EncodeAddress.
type address struct {
	at netip.AddrPort
	id identity
}

func (a address) encode() []byte { return transports.EncodeAddress(a.at, a.id[:]) }

func decodeAddress(raw []byte) (a address, err error) {
	a.at, err = transports.DecodeAddress(raw, a.id[:], "quic")
	return a, err
}

type header struct {
	op     transports.Op
	imm    uint32
	length uint32
	key    uint64
	offset uint64
}

func (h header) append(to []byte) []byte {
	to = append(to, byte(h.op), 0, 0, 0)
	to = binary.BigEndian.AppendUint32(to, h.imm)
	to = binary.BigEndian.AppendUint64(to, uint64(h.length))
	to = binary.BigEndian.AppendUint64(to, h.key)
	return binary.BigEndian.AppendUint64(to, h.offset)
}

func decodeHeader(raw *[headerLen]byte) (header, error) {
	h := header{
		op:     transports.Op(raw[0]),
		imm:    binary.BigEndian.Uint32(raw[4:]),
		length: binary.BigEndian.Uint32(raw[12:]),
		key:    binary.BigEndian.Uint64(raw[16:]),
		offset: binary.BigEndian.Uint64(raw[24:]),
	}
	length := binary.BigEndian.Uint64(raw[8:])
	switch {
	case h.op != transports.OpWrite && h.op != transports.OpWriteImm:
		return h, fmt.Errorf("header with operation %d", raw[0])
	case raw[1]|raw[2]|raw[3] != 0:
		return h, fmt.Errorf("header % x: reserved bytes are not zero", raw[:])
	case length > transports.MaxMessage:
		return h, fmt.Errorf("header of a message of %d bytes, limit %d", length, transports.MaxMessage)
	}
	return h, nil
}

type reply struct {
	code   byte
	stream quicgo.StreamID
	detail uint64
}

func (r reply) append(to []byte) []byte {
	to = append(to, r.code, 0, 0, 0, 0, 0, 0, 0)
	to = binary.BigEndian.AppendUint64(to, uint64(r.stream))
	return binary.BigEndian.AppendUint64(to, r.detail)
}

func decodeReply(raw *[replyLen]byte) reply {
	return reply{code: raw[0], stream: quicgo.StreamID(binary.BigEndian.Uint64(raw[8:])),
		detail: binary.BigEndian.Uint64(raw[16:])}
}

// refusal returns the receiver's reason in words.
func (r reply) refusal() string { return memory.Refusal(r.code - replyDiscarded).String(r.detail) }
