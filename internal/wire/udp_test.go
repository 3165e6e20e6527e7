package wire

import (
	"bytes"
	"testing"
)

func TestUDP(t *testing.T) {
	packet := IPv4(sample(t, sampleUDP)[EthernetLen:])
	b := packet.Payload()
	cut(t, UDP(b), 210, UDP.Valid)
	u := UDP(b)
	equal(t, "source port", u.SrcPort(), 53)
	equal(t, "destination port", u.DstPort(), 35181)
	equal(t, "length", u.Length(), 210)
	equal(t, "checksum", u.Checksum(), 0x754a)
	equal(t, "payload", len(u.Payload()), 202)
	pseudo := PseudoIPv4(packet.Src(), packet.Dst(), ProtocolUDP, int(u.Length()))
	// The publisher changed something: tshark 4.0.17 says "0x754a incorrect,
	// should be 0x554a".
	equal(t, "checksum valid", u.ChecksumValid(pseudo), false)
	u.SetChecksum(0x554a)
	equal(t, "checksum valid", u.ChecksumValid(pseudo), true)
	equal(t, "checksum of other addresses valid", u.ChecksumValid(pseudo+1), false)

	made := bytes.Clone(b)
	clear(made[:UDPLen])
	UDP(made).Encode(&UDPFields{SrcPort: 53, DstPort: 35181, Length: 210})
	equal(t, "no checksum valid", UDP(made).ChecksumValid(pseudo), true)
	UDP(made).FillChecksum(pseudo)
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
}

// RFC 768: a checksum that is computed as zero is sent as all ones.
func TestUDPChecksumOfZero(t *testing.T) {
	b := make([]byte, 10)
	u := UDP(b)
	u.Encode(&UDPFields{SrcPort: 1, DstPort: 2, Length: 10})
	sum := slowSum(b, 0)
	b[8], b[9] = byte(^sum>>8), byte(^sum) // now the sum is ffff
	u.FillChecksum(0)
	equal(t, "checksum", u.Checksum(), 0xffff)
	equal(t, "valid", u.ChecksumValid(0), true)
}
