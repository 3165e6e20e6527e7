package quic

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
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

// Reply codes. A message is placed, or it was discarded because its stream was reset. Otherwise it was
// refused: its region is none of this endpoint, is not writable for peers, or is too short. The detail
// of replyBounds is the region's length.
const (
	replyPlaced = iota
	replyWelcome
	replyDiscarded
	replyNoRegion
	replyNotWritable
	replyBounds
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

// address is the content of Endpoint.Address: family[1] ip[4|16] port[2] id[32].
type address struct {
	at netip.AddrPort
	id identity
}

func (a address) encode() []byte {
	ip := a.at.Addr().AsSlice()
	out := append([]byte{byte(len(ip))}, ip...)
	out = binary.BigEndian.AppendUint16(out, a.at.Port())
	return append(out, a.id[:]...)
}

func decodeAddress(raw []byte) (address, error) {
	if len(raw) == 0 || raw[0] != 4 && raw[0] != 16 || len(raw) != 1+int(raw[0])+2+len(identity{}) {
		return address{}, fmt.Errorf("%d bytes are no address of a quic endpoint", len(raw))
	}
	ip, _ := netip.AddrFromSlice(raw[1 : 1+raw[0]])
	rest := raw[1+raw[0]:]
	at := netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest))
	if at.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return address{}, fmt.Errorf("%v cannot be the address of a quic endpoint", at)
	}
	return address{at: at, id: identity(rest[2:])}, nil
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
		return h, fmt.Errorf("header of %d bytes, limit %d", length, transports.MaxMessage)
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
func (r reply) refusal() string {
	switch r.code {
	case replyNoRegion:
		return "the peer has no such region"
	case replyNotWritable:
		return "the region is not writable for peers"
	}
	return fmt.Sprintf("the region has %d bytes", r.detail)
}
