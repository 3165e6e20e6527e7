package wire

import (
	"bytes"
	"testing"
)

func TestEthernet(t *testing.T) {
	b := sample(t, sampleTCP)
	cut(t, Ethernet(b), EthernetLen, Ethernet.Valid)
	e := Ethernet(b)
	equal(t, "destination", e.Dst().String(), "00:00:0c:9f:f0:20")
	equal(t, "source", e.Src(), MAC{0xbc, 0x30, 0x5b, 0xe8, 0xd3, 0x49})
	equal(t, "type", e.EtherType(), EtherTypeIPv4)
	equal(t, "payload", e.Payload()[0], 0x45)

	made := make([]byte, EthernetLen)
	Ethernet(made).Encode(&EthernetFields{e.Dst(), e.Src(), e.EtherType()})
	if !bytes.Equal(made, b[:EthernetLen]) {
		t.Errorf("encoded % x", made)
	}
}

// IEEE 802.1Q table 8-1 reserves 01-80-C2-00-00-00 to 0F; 33-33 is IPv6
// multicast (RFC 2464, 7).
func TestMAC(t *testing.T) {
	for _, test := range []struct {
		address          MAC
		multicast, local bool
	}{
		{Broadcast, true, false},
		{MACControlAddress, true, true},
		{MAC{1, 0x80, 0xc2, 0, 0, 0x0f}, true, true},
		{MAC{1, 0x80, 0xc2, 0, 0, 0x10}, true, false},
		{MAC{0x33, 0x33, 0xff, 0, 0, 1}, true, false},
		{MAC{2, 0, 0, 0, 0, 1}, false, false},
	} {
		equal(t, test.address.String()+" multicast", test.address.IsMulticast(), test.multicast)
		equal(t, test.address.String()+" link local", test.address.IsLinkLocal(), test.local)
	}
}
