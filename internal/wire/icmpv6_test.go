package wire

import (
	"bytes"
	"testing"
)

func TestICMPv6Solicitation(t *testing.T) {
	packet := IPv6(sample(t, sampleSolicitation)[EthernetLen:])
	b := packet.Payload()
	cut(t, ICMPv6(b), NeighborLen, ICMPv6.Valid)
	m := ICMPv6(b)
	equal(t, "type", m.Type(), ICMPv6NeighborSolicitation)
	equal(t, "code", m.Code(), 0)
	equal(t, "checksum", m.Checksum(), 0x1eba)
	equal(t, "checksum valid", m.ChecksumValid(packet.Src(), packet.Dst()), true)
	equal(t, "target", m.Target(), packet.Dst())
	link, ok := m.LinkAddress(SourceLinkAddress)
	equal(t, "option", ok, true)
	equal(t, "link address", link.String(), "00:1f:ca:b3:75:c0")
	_, ok = m.LinkAddress(TargetLinkAddress)
	equal(t, "other option", ok, false)

	made := make([]byte, NeighborLen+LinkAddressLen)
	ICMPv6(made).EncodeNeighbor(&NeighborFields{
		Type:   ICMPv6NeighborSolicitation,
		Target: packet.Dst(),
		Link:   link,
		Src:    packet.Src(),
		Dst:    packet.Dst(),
	})
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
	made[NeighborLen+1] = 0 // an option of no length must not stop us
	_, ok = ICMPv6(made).LinkAddress(SourceLinkAddress)
	equal(t, "option without length", ok, false)
}

func TestICMPv6Advertisement(t *testing.T) {
	packet := IPv6(sample(t, sampleAdvertisement)[EthernetLen:])
	b := packet.Payload()
	m := ICMPv6(b)
	equal(t, "type", m.Type(), ICMPv6NeighborAdvertisement)
	equal(t, "flags", m.NeighborFlags(), NeighborSolicited)
	equal(t, "target", m.Target(), packet.Src())
	equal(t, "error", m.IsError(), false)
	made := make([]byte, NeighborLen)
	ICMPv6(made).EncodeNeighbor(&NeighborFields{
		Type:   ICMPv6NeighborAdvertisement,
		Flags:  NeighborSolicited,
		Target: packet.Src(),
		Src:    packet.Src(),
		Dst:    packet.Dst(),
	})
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
	long := make([]byte, NeighborLen+LinkAddressLen)
	ICMPv6(long).EncodeNeighbor(
		&NeighborFields{Type: ICMPv6NeighborAdvertisement, Link: MAC{2, 0, 0, 0, 0, 9}})
	link, ok := ICMPv6(long).LinkAddress(TargetLinkAddress)
	equal(t, "target link address", ok && link == MAC{2, 0, 0, 0, 0, 9}, true)
}

// RFC 4443, 3.2: the MTU takes the whole second word.
func TestICMPv6PacketTooBig(t *testing.T) {
	var src, dst [16]byte
	b := make([]byte, ICMPLen+4)
	m := ICMPv6(b)
	m.Encode(&ICMPFields{Type: ICMPv6PacketTooBig, Rest: 70000}, src, dst)
	equal(t, "MTU", m.MTU(), 70000)
	equal(t, "bytes", [4]byte(b[4:8]), [4]byte{0, 1, 0x11, 0x70})
	equal(t, "error", m.IsError(), true)
	equal(t, "body", len(m.Body()), 4)
	m.Encode(&ICMPFields{Type: ICMPv6EchoReply, Rest: EchoRest(3, 4)}, src, dst)
	equal(t, "id", m.ID(), 3)
	equal(t, "seq", m.Seq(), 4)
}
