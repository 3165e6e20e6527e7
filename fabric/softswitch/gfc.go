package softswitch

import (
	"encoding/binary"

	"railbed/fabric/softswitch/queue"
	"railbed/transports/wire"
)

// gfcMessage is what Gentle Flow Control tells the sender at the far end of a
// link: for each enabled priority its stage, the rate being the line's / 2^stage,
// or its share of the line's rate in parts of queue.FullRate.
//
// On the wire it is a MAC control frame of the extension opcode (IEEE 802.3
// annex 31C) with an identifier of our own, because nobody has assigned an
// opcode to GFC:
//
//	opcode 0xFFFE | 06 'R' 'G' | 0 stages, 1 shares | 0 | enabled, a bit each | 8 values of 2 bytes
type gfcMessage struct {
	enabled uint8
	share   bool
	values  [queue.Priorities]uint16
}

const (
	opcodeExtension = 0xFFFE
	gfcKind         = 5
	gfcEnabled      = 7
	gfcValues       = 8
	gfcLen          = gfcValues + 2*queue.Priorities
)

var gfcID = [3]byte{0x06, 'R', 'G'} // locally administered

// encode writes a whole frame and returns its length.
func (m *gfcMessage) encode(to []byte, src wire.MAC) int {
	to = to[:wire.EthernetMinLen]
	wire.Ethernet(to).Encode(&wire.EthernetFields{Dst: wire.MACControlAddress, Src: src, EtherType: wire.EtherTypeMACControl})
	body := to[wire.EthernetLen:]
	clear(body)
	binary.BigEndian.PutUint16(body, opcodeExtension)
	copy(body[2:], gfcID[:])
	if m.share {
		body[gfcKind] = 1
	}
	body[gfcEnabled] = m.enabled
	for q, value := range m.values {
		binary.BigEndian.PutUint16(body[gfcValues+2*q:], value)
	}
	return len(to)
}

// decodeGFC reads a frame behind its Ethernet header.
func decodeGFC(body []byte) (m gfcMessage, ok bool) {
	if len(body) < gfcLen || binary.BigEndian.Uint16(body) != opcodeExtension || [3]byte(body[2:]) != gfcID || body[gfcKind] > 1 {
		return m, false
	}
	m.enabled, m.share = body[gfcEnabled], body[gfcKind] == 1
	for q := range m.values {
		m.values[q] = binary.BigEndian.Uint16(body[gfcValues+2*q:])
		if m.share && m.values[q] == 0 {
			m.values[q] = 1 // nobody is to stop for good
		}
	}
	return m, true
}
