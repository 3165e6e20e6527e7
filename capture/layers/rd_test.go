package layers

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
	"railbed/testkit/protocoltest"
)

// rdExampleNames are the examples of transports/rd/PROTOCOL.md.
var rdExampleNames = []string{"rd-data", "rd-skip", "rd-ack", "rd-nack", "rd-probe", "rd-reject", "rd-close"}

// TestRD reads the document's examples behind UDP, and writes them again.
func TestRD(t *testing.T) {
	const lifeA, lifeB = 0x0123456789ABCDEF, 0xFEDCBA9876543210
	there := func(kind wire.RDType, flags uint8, psn uint32) RD {
		return RD{Version: 1, Valid: true, Whole: true,
			RDBase: wire.RDBase{Type: kind, Flags: flags, Source: 17, Destination: 3, Tag: lifeB & 0xFFFFFFFF,
				Life: lifeA, PSN: psn}}
	}
	back := func(kind wire.RDType, psn uint32) RD {
		return RD{Version: 1, Valid: true, Whole: true,
			RDBase: wire.RDBase{Type: kind, Source: 3, Destination: 17, Tag: lifeA & 0xFFFFFFFF, Life: lifeB,
				PSN: psn}}
	}
	data := there(wire.RDData, wire.RDRepeat|wire.RDImm|wire.RDAckRequest, 5)
	data.Length = 16
	data.Data = wire.RDDataFields{
		Key:       0x1122334455667788,
		Offset:    65536,
		Message:   3,
		Total:     12304,
		Position:  12288,
		Imm:       0xCAFE0001,
		Timestamp: 123_456_789,
		Sum:       0xDC43A2F8,
	}
	skip := there(wire.RDSkip, wire.RDImm|wire.RDDroppable|wire.RDAckRequest, 0xFFFFFFFE)
	skip.Skip = wire.RDSkipFields{Count: 1, Message: 7, Total: 65536, Imm: 0xCAFE0002, Timestamp: 123_460_000,
		Bytes: 4000, Position: 8000}
	ack := back(wire.RDAck, 0xFFFFFFFE)
	ack.Ack = wire.RDAckFields{Limit: 1022, Timestamp: 123_456_789, Delay: 2500, Duplicates: 2,
		Received: 1 << 20, Words: 2, Echoes: 2, Room: 256}
	ack.Bitmap, ack.Echoes = []uint64{0xA000000000000001, 0x4000000000000000},
		[]wire.RDEcho{{Path: 63489, Packets: 12, Marked: 3}, {Path: 64000, Packets: 255}}
	nack := back(wire.RDNack, 5)
	nack.Nack = wire.RDNackFields{Reason: wire.RDBounds, Path: 63489, Message: 3, Detail: 70000}
	probe := there(wire.RDProbe, wire.RDAckRequest, 9)
	probe.ProbeTimestamp = 123_500_000
	reject := back(wire.RDReject, 0)
	reject.Reject = wire.RDRejectFields{Reason: wire.RDRejectLife, Least: 1, Most: 1, Meant: 0x5EEDB00C,
		To: lifeA}
	for i, want := range []RD{data, skip, ack, nack, probe, reject, there(wire.RDClose, 0, 9)} {
		name := rdExampleNames[i]
		payload := protocoltest.Example(t, name)
		packet := gopacket.NewPacket(datagram(t, wire.PortRD+255, payload), golayers.LayerTypeEthernet,
			gopacket.Default)
		got, ok := packet.Layer(LayerTypeRD).(*RD)
		if !ok || packet.ErrorLayer() != nil || packet.Metadata().Truncated {
			t.Errorf("%s: decoded %v", name, packet)
			continue
		}
		if made := build(t, got, gopacket.Payload(got.Payload)); !bytes.Equal(made, payload) {
			t.Errorf("%s: wrote % x", name, made)
		}
		header := len(payload) - int(want.Length)
		want.BaseLayer = golayers.BaseLayer{Contents: payload[:header], Payload: payload[header:]}
		want.Check = uint16(payload[22])<<8 | uint16(payload[23])
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: decoded\n%+v, want\n%+v", name, *got, want)
		}
		if got.SumValid() != (name == "rd-data") {
			t.Errorf("%s: the sum is valid %v", name, got.SumValid())
		}
	}
	if came := ack.Came(); !reflect.DeepEqual(came, []uint32{0xFFFFFFFF, 1, 62, 64}) {
		t.Errorf("%d came", came)
	}
}

// A block of telemetry comes first, by its first bits and whatever its next port.
func TestRDBehindINT(t *testing.T) {
	fields := wire.INTFields{Hops: 2, NextPort: wire.PortRD + 3}
	block := make([]byte, wire.INTBlockLen(&fields))
	wire.INT(block).Encode(&fields)
	payload := append(block, protocoltest.Example(t, "rd-data")...)
	packet := gopacket.NewPacket(datagram(t, wire.PortRD+3, payload), golayers.LayerTypeEthernet,
		gopacket.Default)
	got, ok := packet.Layer(LayerTypeRD).(*RD)
	if telemetry, also := packet.Layer(LayerTypeINT).(*INT); !ok || !also || !got.Valid ||
		telemetry.Remaining != 2 || len(packet.Layers()) != 5 {
		t.Fatalf("decoded %v", packet)
	}
	// What trimming cut within the block is neither.
	packet = gopacket.NewPacket(datagram(t, wire.PortRD+3, payload[:60]), golayers.LayerTypeEthernet,
		gopacket.Default)
	if packet.Layer(LayerTypeRD) != nil || packet.ErrorLayer() == nil || !packet.Metadata().Truncated {
		t.Errorf("decoded %v", packet)
	}
}

// What is not whole or not valid is read as far as it goes.
func TestRDParts(t *testing.T) {
	data, ack, sealed := protocoltest.Example(t, "rd-data"), protocoltest.Example(t, "rd-ack"),
		protocoltest.Example(t, "rd-sealed")
	with := func(b []byte, at int, value byte) []byte {
		b = bytes.Clone(b)
		b[at] = value
		return b
	}
	for _, test := range []struct {
		why                                           string
		bytes                                         []byte
		valid, whole, trimmed, truncated, failed, sum bool
		contents                                      int
	}{
		{"no payload", data[:64], true, true, true, true, false, false, 64},
		{"a payload without its end", data[:79], true, true, true, true, false, false, 64},
		{"half a header", data[:63], false, false, false, true, false, false, 24},
		{"half a base", data[:23], false, false, false, true, true, false, 0},
		{"another byte in the header", with(data, 40, 1), false, true, false, false, false, true, 64},
		{"another byte in the payload", with(data, 64, 0), true, true, false, false, false, false, 64},
		{"more than its length", append(bytes.Clone(data), 0), false, true, false, false, false, false, 64},
		{"another version", with(data, 0, 0xA1), false, false, false, false, false, false, 24},
		{"another type", with(data, 0, 0x9F), false, false, false, false, false, false, 24},
		{"encrypted, with a wrong check", with(data, 1, 0x80), false, false, true, true, false, false, 36},
		{"encrypted", sealed, true, false, false, false, false, false, 36},
		{"encrypted, trimmed", sealed[:64], true, false, true, true, false, false, 36},
		{"encrypted, without its security header", sealed[:35], true, false, true, true, false, false, 24},
		{"lists that are not all there", ack[:71], false, false, false, true, false, false, 24},
		{"too many words", with(ack, 44, 17), false, false, false, true, false, false, 24},
	} {
		packet := gopacket.NewPacket(test.bytes, LayerTypeRD, gopacket.Default)
		got, ok := packet.Layer(LayerTypeRD).(*RD)
		if ok == test.failed || packet.Metadata().Truncated != test.truncated {
			t.Errorf("%s: decoded %v", test.why, packet)
		}
		if ok && (got.Valid != test.valid || got.Whole != test.whole || got.Trimmed != test.trimmed ||
			len(got.Contents) != test.contents) {
			t.Errorf("%s: decoded %+v", test.why, got)
		}
		if ok && got.SumValid() != test.sum {
			t.Errorf("%s: the sum is valid %v", test.why, got.SumValid())
		}
	}
}

// What cannot be sent is not written.
func TestRDSerializeErrors(t *testing.T) {
	for why, layer := range map[string]*RD{
		"another version":     {Version: 2, RDBase: wire.RDBase{Type: wire.RDClose}},
		"no type":             {Version: 1},
		"encrypted":           {Version: 1, RDBase: wire.RDBase{Type: wire.RDClose, Flags: wire.RDEncrypted}},
		"a payload behind it": {Version: 1, RDBase: wire.RDBase{Type: wire.RDProbe}},
		"more than Length":    {Version: 1, RDBase: wire.RDBase{Type: wire.RDData, Length: 3}},
		"too many words": {Version: 1, RDBase: wire.RDBase{Type: wire.RDAck},
			Bitmap: make([]uint64, wire.RDMaxWords+1)},
	} {
		b, payload := gopacket.NewSerializeBuffer(), "four"
		if layer.Type == wire.RDAck {
			payload = ""
		}
		if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{}, layer,
			gopacket.Payload(payload)); err == nil {
			t.Errorf("%s: wrote % x", why, b.Bytes())
		}
	}
}
