package wire

import (
	"bytes"
	"testing"
)

func TestTCP(t *testing.T) {
	b := sample(t, sampleTCP)[EthernetLen+IPv4MinLen:]
	cut(t, TCP(b), 32, TCP.Valid)
	h := TCP(b)
	equal(t, "source port", h.SrcPort(), 50679)
	equal(t, "destination port", h.DstPort(), 80)
	equal(t, "seq", h.Seq(), 0xc57e0e48)
	equal(t, "ack", h.Ack(), 0x49074232)
	equal(t, "header length", h.HeaderLength(), 32)
	equal(t, "flags", h.Flags(), TCPACK|TCPPSH)
	equal(t, "window", h.Window(), 115)
	equal(t, "checksum", h.Checksum(), 0x9a8f)
	equal(t, "options", len(h.Options()), 12)
	equal(t, "payload", len(h.Payload()), 0)
	made := make([]byte, TCPMinLen)
	TCP(made).Encode(&TCPFields{
		SrcPort: 50679, DstPort: 80, Seq: 0xc57e0e48, Ack: 0x49074232, HeaderLength: 32,
		Flags: TCPACK | TCPPSH, Window: 115, Checksum: 0x9a8f,
	})
	if !bytes.Equal(made, b[:TCPMinLen]) {
		t.Errorf("encoded % x", made)
	}
	b[tcpOffset] = 4 << 4
	equal(t, "valid with 16 bytes", h.Valid(), false)
}

func TestTCPChecksum(t *testing.T) {
	frame := sample(t, sampleSYN)
	packet := IPv4(frame[EthernetLen:])
	segment := TCP(packet.Payload())
	pseudo := PseudoIPv4(packet.Src(), packet.Dst(), ProtocolTCP, len(segment))
	equal(t, "valid", segment.ChecksumValid(pseudo), true)
	want := segment.Checksum()
	segment.FillChecksum(pseudo)
	equal(t, "checksum", segment.Checksum(), want)
	segment.SetChecksum(want + 1)
	equal(t, "valid", segment.ChecksumValid(pseudo), false)
}
