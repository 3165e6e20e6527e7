package wire

import (
	"bytes"
	"testing"
)

func TestIPv4(t *testing.T) {
	frame := sample(t, sampleICMPv4)
	b := frame[EthernetLen:]
	cut(t, IPv4(b), 0x38, IPv4.Valid)
	h := IPv4(b)
	equal(t, "header length", h.HeaderLength(), 20)
	equal(t, "total length", h.TotalLength(), 56)
	equal(t, "TTL", h.TTL(), 252)
	equal(t, "protocol", h.Protocol(), ProtocolICMPv4)
	equal(t, "source", h.Src(), [4]byte{72, 14, 222, 226})
	equal(t, "destination", h.Dst(), [4]byte{172, 29, 20, 15})
	equal(t, "checksum", h.Checksum(), 0xd7a7)
	equal(t, "checksum valid", h.ChecksumValid(), true)
	equal(t, "payload", len(h.Payload()), 36)
	equal(t, "options", len(h.Options()), 0)
	made := make([]byte, IPv4MinLen)
	IPv4(made).Encode(&IPv4Fields{TotalLength: 56, TTL: 252, Protocol: 1, Src: h.Src(), Dst: h.Dst()})
	if !bytes.Equal(made, b[:IPv4MinLen]) {
		t.Errorf("encoded % x", made)
	}

	// The packet inside the error: TOS 0x20, don't fragment.
	h = IPv4(b[28:])
	equal(t, "TOS", h.TOS(), 0x20)
	equal(t, "DSCP", h.DSCP(), 8) // CS1
	equal(t, "don't fragment", h.DontFragment(), true)
	equal(t, "checksum valid", h.ChecksumValid(), true)

	h = IPv4(sample(t, sampleFragment)[EthernetLen:])
	equal(t, "id", h.ID(), 0xf2)
	equal(t, "more fragments", h.MoreFragments(), true)
	equal(t, "offset", h.FragmentOffset(), 0)
	made = make([]byte, IPv4MinLen)
	IPv4(made).Encode(&IPv4Fields{TotalLength: 56, ID: 0xf2, MoreFragments: true, TTL: 64, Protocol: 17,
		Src: h.Src(), Dst: h.Dst()})
	if !bytes.Equal(made, h[:IPv4MinLen]) {
		t.Errorf("encoded % x", made)
	}
	IPv4(made).Encode(&IPv4Fields{TotalLength: 56, Offset: 1480, DontFragment: true})
	equal(t, "offset", IPv4(made).FragmentOffset(), 1480)
	equal(t, "don't fragment", IPv4(made).DontFragment(), true)
}

// Each rewrite of a captured header is compared with the sum of the whole, computed as RFC 1071
// specifies.
func TestIPv4Rewrites(t *testing.T) {
	right := func(what string, h IPv4) {
		t.Helper()
		if slowSum(h[:h.HeaderLength()], 0) != 0xffff {
			t.Errorf("%s: checksum of % x is wrong", what, h[:h.HeaderLength()])
		}
	}
	for tos := range 256 {
		h := IPv4(sample(t, sampleICMPv4)[EthernetLen:])
		h.RewriteTOS(uint8(tos))
		equal(t, "TOS", h.TOS(), uint8(tos))
		right("TOS", h)
		h.RewriteECN(CE)
		equal(t, "ECN", h.ECN(), CE)
		equal(t, "DSCP", h.DSCP(), uint8(tos)>>2)
		right("ECN", h)
		h.RewriteDSCP(46)
		equal(t, "TOS", h.TOS(), 46<<2|3)
		right("DSCP", h)
		h.RewriteTotalLength(uint16(tos) + 20)
		equal(t, "total length", h.TotalLength(), uint16(tos)+20)
		right("total length", h)
	}
	h := IPv4(sample(t, sampleICMPv4)[EthernetLen:])
	for want := 251; want >= 0; want-- {
		equal(t, "TTL", h.DecrementTTL(), uint8(want))
		equal(t, "protocol", h.Protocol(), ProtocolICMPv4)
		right("TTL", h)
	}
	equal(t, "TTL", h.DecrementTTL(), 0)
	right("TTL", h)

	// What was wrong stays wrong.
	h.SetChecksum(h.Checksum() ^ 0x0100)
	h.RewriteTOS(0x55)
	equal(t, "valid", h.ChecksumValid(), false)
}

func BenchmarkDecrementTTLAndMark(b *testing.B) {
	h := IPv4(sample(b, sampleICMPv4)[EthernetLen:])
	b.ReportAllocs()
	for b.Loop() {
		h[ipv4TTL] |= 1
		h.DecrementTTL()
		h.RewriteECN(CE)
	}
}
