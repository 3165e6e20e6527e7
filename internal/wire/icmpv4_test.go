package wire

import (
	"bytes"
	"testing"
)

func TestICMPv4(t *testing.T) {
	b := sample(t, sampleICMPv4)[EthernetLen+IPv4MinLen:]
	cut(t, ICMPv4(b), ICMPLen, ICMPv4.Valid)
	m := ICMPv4(b)
	equal(t, "type", m.Type(), ICMPv4Unreachable)
	equal(t, "code", m.Code(), ICMPv4AdminProhibited)
	equal(t, "checksum", m.Checksum(), 0x946e)
	equal(t, "checksum valid", m.ChecksumValid(), true)
	equal(t, "error", m.IsError(), true)
	equal(t, "body", IPv4(m.Body()).Dst(), [4]byte{10, 66, 73, 201})
	made := append(make([]byte, ICMPLen), m.Body()...)
	ICMPv4(made).Encode(&ICMPFields{Type: 3, Code: 13})
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
	made[9] ^= 1
	equal(t, "checksum valid", ICMPv4(made).ChecksumValid(), false)
	// RFC 1191, 4: the MTU is the lower half of the second word.
	ICMPv4(made).Encode(&ICMPFields{Type: 3, Code: ICMPv4FragNeeded, Rest: 1400})
	equal(t, "MTU", ICMPv4(made).MTU(), 1400)
	equal(t, "bytes", [4]byte(made[4:8]), [4]byte{0, 0, 0x05, 0x78})
}

func TestICMPv4Echo(t *testing.T) {
	b := sample(t, sampleEcho)[EthernetLen+IPv4MinLen+24:]
	m := ICMPv4(b)
	equal(t, "type", m.Type(), ICMPv4Echo)
	equal(t, "id", m.ID(), 1560)
	equal(t, "seq", m.Seq(), 1)
	equal(t, "body", len(m.Body()), 56)
	equal(t, "error", m.IsError(), false)
	equal(t, "checksum valid", m.ChecksumValid(), true)
	made := append(make([]byte, ICMPLen), m.Body()...)
	ICMPv4(made).Encode(&ICMPFields{Type: 8, Rest: EchoRest(1560, 1)})
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
	m.MakeReply()
	equal(t, "type", m.Type(), ICMPv4EchoReply)
	equal(t, "sum", slowSum(m, 0), 0xffff)
}

// The reply to an echo without id, sequence number and data is all zeros, for which the update of
// RFC 1624 has the wrong zero.
func TestICMPv4ReplyOfZeros(t *testing.T) {
	m := ICMPv4(make([]byte, ICMPLen))
	m.Encode(&ICMPFields{Type: ICMPv4Echo})
	equal(t, "checksum", m.Checksum(), 0xf7ff)
	m.MakeReply()
	equal(t, "checksum", m.Checksum(), 0xffff)
	equal(t, "checksum valid", m.ChecksumValid(), true)
}
