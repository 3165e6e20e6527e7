package wire

import (
	"bytes"
	"net/netip"
	"testing"
)

func TestIPv6(t *testing.T) {
	b := sample(t, sampleSolicitation)[EthernetLen:]
	cut(t, IPv6(b), 40+32, IPv6.Valid)
	h := IPv6(b)
	equal(t, "traffic class", h.TrafficClass(), 0xe0) // CS7
	equal(t, "DSCP", h.DSCP(), 56)
	equal(t, "ECN", h.ECN(), NotECT)
	equal(t, "flow label", h.FlowLabel(), 0)
	equal(t, "next header", h.NextHeader(), ProtocolICMPv6)
	equal(t, "hop limit", h.HopLimit(), 255)
	equal(t, "source", netip.AddrFrom16(h.Src()).String(), "fe80::21f:caff:feb3:75c0")
	equal(t, "destination", netip.AddrFrom16(h.Dst()).String(), "2620:0:1005:0:26be:5ff:fe27:b17")
	equal(t, "payload", len(h.Payload()), 32)
	made := make([]byte, IPv6Len)
	IPv6(made).Encode(&IPv6Fields{DSCP: 56, PayloadLength: 32, NextHeader: 58, HopLimit: 255, Src: h.Src(),
		Dst: h.Dst()})
	if !bytes.Equal(made, b[:IPv6Len]) {
		t.Errorf("encoded % x", made)
	}
}

// The first word of an IPv6 header is version 4 bits, traffic class 8, flow
// label 20: RFC 8200, 3.
func TestIPv6Setters(t *testing.T) {
	h := IPv6(sample(t, sampleSolicitation)[EthernetLen:])
	h.SetFlowLabel(0xFABCDE)
	h.SetTrafficClass(0x12)
	if want := sample(t, "61 2a bc de"); !bytes.Equal(h[:4], want) {
		t.Errorf("first word % x, want % x", h[:4], want)
	}
	h.SetECN(CE)
	h.SetDSCP(46)
	equal(t, "traffic class", h.TrafficClass(), 46<<2|3)
	equal(t, "flow label", h.FlowLabel(), 0xABCDE)
	h.SetTrafficClass(0x40) // no bit of the old one stays
	equal(t, "traffic class", h.TrafficClass(), 0x40)
	equal(t, "flow label", h.FlowLabel(), 0xABCDE)
	equal(t, "hop limit", h.DecrementHopLimit(), 254)
	h.SetHopLimit(0)
	equal(t, "hop limit", h.DecrementHopLimit(), 0)
	h.SetPayloadLength(33)
	equal(t, "valid", h.Valid(), false)
}

func TestSkipExtensions(t *testing.T) {
	for _, test := range []struct {
		name, bytes string
		next        uint8
		want        Upper
		ok          bool
	}{
		{"none", "", 17, Upper{Protocol: 17}, true},
		{"no next header", "", 59, Upper{Protocol: 59}, true},
		// RFC 4302, 2.2: payload length 4 is 24 bytes; from sampleEcho.
		{"authentication", "0104 0000 0000 0101 0000 0001 2533 01b1 a20b b6f1 bdbf 9d9e 0800", 51,
			Upper{Protocol: 1, Offset: 24}, true},
		// testPacketIPv6HopByHop0, ip6_test.go of gopacket.
		{"hop by hop", "3b00 0104 0000 0000", 0, Upper{Protocol: 59, Offset: 8}, true},
		{"cut", "3b00 0104 0000 00", 0, Upper{}, false},
		{"cut in its length", "3b", 60, Upper{Protocol: 60}, false},
		{"length of the largest", "11ff", 60, Upper{Protocol: 60}, false},
		// RFC 8200, 4.5: next header, reserved, offset 13 bits, 2 reserved, M.
		{"first fragment", "1100 0001 0000 0007", 44,
			Upper{Protocol: 17, Offset: 8, Fragment: true, MoreFragments: true}, true},
		{"last fragment", "3c00 0588 0000 0007", 44,
			Upper{Protocol: 60, Offset: 8, Fragment: true, FragmentOffset: 1416}, true},
		{"atomic fragment", "1100 0000 0000 0007", 44, Upper{Protocol: 17, Offset: 8, Fragment: true}, true},
		{"two", "3c00 0104 0000 0000 1101 0000 0000 0000 0000 0000 0000 0000", 0,
			Upper{Protocol: 17, Offset: 24}, true},
		{"encrypted", "3200 0104 0000 0000 ff", 0, Upper{Protocol: 50, Offset: 8}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, ok := SkipExtensions(test.next, sample(t, test.bytes))
			equal(t, "ok", ok, test.ok)
			equal(t, "found", got, test.want)
		})
	}
	// Exactly MaxExtensions are passed, one more is not.
	one := sample(t, "3c00 0104 0000 0000")
	chain := bytes.Repeat(one, MaxExtensions)
	chain[len(chain)-8] = ProtocolTCP
	got, ok := SkipExtensions(ProtocolDestination, chain)
	equal(t, "eight", ok && got.Protocol == ProtocolTCP, true)
	_, ok = SkipExtensions(ProtocolDestination, bytes.Repeat(one, MaxExtensions+1))
	equal(t, "nine", ok, false)
}
