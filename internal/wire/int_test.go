package wire

import (
	"bytes"
	"testing"

	"railbed/testkit/protocoltest"
)

// The example "INT-MD in-between UDP header and UDP payload" of the INT
// Dataplane Specification v2.1, with numbers for its words: two hops of node id
// and queue occupancy. It is of no domain, so it may be read and not written.
const intOfSpecification = `1407 0050 2000 0206 9000 0000 0000 0000
	0000 0002 0300 1000 0000 0001 0100 0020 7061 796c`

func TestINTOfTheSpecification(t *testing.T) {
	b := sample(t, intOfSpecification)
	cut(t, INT(b), 32, INT.Valid)
	m := INT(b)
	equal(t, "port", m.NextPort(), 80)
	equal(t, "hop length", m.HopLen(), 8)
	equal(t, "remaining", m.Remaining(), 6)
	equal(t, "instructions", m.Instructions(), INTNodeID|INTQueue)
	equal(t, "room", m.HasRoom(), false)
	equal(t, "hops", m.Hops(), 2)
	equal(t, "first hop", m.Hop(0), INTHop{Known: INTNodeID | INTQueue, Node: 1, Queue: 1, QueueBytes: 32})
	equal(t, "second hop", m.Hop(1), INTHop{Known: INTNodeID | INTQueue, Node: 2, Queue: 3, QueueBytes: 4096})
	equal(t, "payload", string(m.Payload()), "payl")
	equal(t, "flags", m.Discard() || m.HopsExceeded() || m.MTUExceeded(), false)

	before := bytes.Clone(b)
	_, result := m.Push(&INTHop{Known: INTNodeID, Node: 9})
	equal(t, "push", result, INTNoRoom)
	equal(t, "MTU exceeded", m.MTUExceeded(), true)
	before[4] |= 2
	if !bytes.Equal(b, before) {
		t.Errorf("pushed % x", b)
	}
}

// exampleHops are the hops of the probe in PROTOCOL.md.
var exampleHops = [2]INTHop{
	{Known: INTStandard, Node: 1, Ingress: 3, Egress: 17, Queue: 3, EgressTime: 2_000_000,
		Utilisation: 250_000},
	{Known: INTStandard, Node: 9, Ingress: 1, Egress: 2, Queue: 3, QueueBytes: 40320, EgressTime: 2_031_480,
		Utilisation: 990_000},
}

func TestINTExample(t *testing.T) {
	want := protocoltest.Example(t, "int-probe")
	cut(t, INT(want), len(want)-INTProbeLen, INT.Valid)
	m := INT(want)
	equal(t, "port", m.NextPort(), PortINT)
	equal(t, "discard", m.Discard(), true)
	equal(t, "capacity", m.Capacity(), 3)
	equal(t, "hops", m.Hops(), 2)
	equal(t, "first hop", m.Hop(0), exampleHops[0])
	equal(t, "second hop", m.Hop(1), exampleHops[1])
	equal(t, "valid probe", INTProbe(m.Payload()).Valid(), true)
	equal(t, "sequence", INTProbe(m.Payload()).Seq(), 7)
	equal(t, "sent", INTProbe(m.Payload()).Sent(), 1_990_000)

	fields := INTFields{Hops: 3, NextPort: PortINT, Discard: true}
	made := bytes.Repeat([]byte{0xee}, INTBlockLen(&fields)+INTProbeLen)
	INT(made).Encode(&fields)
	INTProbe(made[INTBlockLen(&fields):]).Encode(7, 1_990_000)
	for i := range exampleHops {
		equal(t, "hops", INT(made).Hops(), i)
		_, result := INT(made).Push(&exampleHops[i])
		equal(t, "push", result, INTWritten)
	}
	if !bytes.Equal(made, want) {
		t.Errorf("made\n% x, want\n% x", made, want)
	}
	_, result := INT(made).Push(&exampleHops[0])
	equal(t, "third hop", result, INTWritten)
	full := bytes.Clone(made)
	_, result = INT(made).Push(&exampleHops[0])
	equal(t, "fourth hop", result, INTFull)
	equal(t, "exceeded", INT(made).HopsExceeded(), true)
	full[4] |= 4
	if !bytes.Equal(made, full) {
		t.Errorf("fourth hop made % x", made)
	}
}

// Every report that an instruction can request, one at a time and all at once.
func TestINTInstructions(t *testing.T) {
	all := INTHop{
		Known:       0xFFFF,
		Node:        0x01020304,
		Ingress:     0x0506,
		Egress:      0x0708,
		Latency:     0x090a0b0c,
		Queue:       0x0d,
		QueueBytes:  0x0e0f10,
		IngressTime: 0x1112131415161718,
		EgressTime:  0x191a1b1c1d1e1f20,
		Ingress2:    0x21222324,
		Egress2:     0x25262728,
		Utilisation: 0x292a2b2c, Buffer: 0x2d, BufferBytes: 0x2e2f30,
	}
	push := func(instructions, known uint16) []byte {
		fields := INTFields{Hops: 1, Instructions: instructions}
		b := make([]byte, INTBlockLen(&fields))
		INT(b).Encode(&fields)
		hop := all
		hop.Known = known
		_, result := INT(b).Push(&hop)
		equal(t, "push", result, INTWritten)
		return b[INTLen:]
	}
	// The order of the bits, bit 0 first: INT v2.1, 5.8.
	want := sample(t, `01020304 05060708 090a0b0c 0d0e0f10 1112131415161718 191a1b1c1d1e1f20 2122232425262728 292a2b2c 2d2e2f30
		ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff`)
	if got := push(0xFFFF, 0xFFFF); !bytes.Equal(got, want) {
		t.Errorf("all\n% x, want\n% x", got, want)
	}
	if got := push(0xFFFF, 0); !bytes.Equal(got, bytes.Repeat([]byte{0xff}, len(want))) {
		t.Errorf("none known: % x", got)
	}
	at := 0
	for bit := uint16(0x8000); bit != 0; bit >>= 1 {
		if got := push(bit, 0xFFFF); !bytes.Equal(got, want[at:at+INTHopLen(bit)]) {
			t.Errorf("instruction %04x: % x", bit, got)
		}
		at += INTHopLen(bit)
	}
	equal(t, "bytes of all", at, INTHopLen(0xFFFF))

	all.Latency, all.QueueBytes, all.BufferBytes = 1<<40, 1<<30, 1<<30
	if got := push(INTHopLatency|INTQueue|INTBuffer, 0xFFFF); !bytes.Equal(got,
		sample(t, "fffffffe 0dffffff 2dffffff")) {
		t.Errorf("too large: % x", got)
	}
}

func TestINTInvalid(t *testing.T) {
	for name, change := range map[string]func(INT){
		"type 2":                 func(b INT) { b[0] = 2<<4 | 1<<2 },
		"version 1":              func(b INT) { b[4] = 1 << 4 },
		"length under header":    func(b INT) { b[1] = 2 },
		"length over frame":      func(b INT) { b[1] = 200 },
		"no words per hop":       func(b INT) { b[6] = 0 },
		"words under need":       func(b INT) { b[6] = 3 },
		"room is no multiple":    func(b INT) { b[1] = 22 },
		"more hops than room":    func(b INT) { b[7] = 4 },
		"more instructions":      func(b INT) { b[9] = 0x0f },
		"length of many":         func(b INT) { b[1], b[7] = 255, 255 },
		"length of header alone": func(b INT) { b[1], b[7] = 3, 1 },
	} {
		b := INT(protocoltest.Example(t, "int-probe"))
		equal(t, "valid", b.Valid(), true)
		change(b)
		before := bytes.Clone(b)
		delta, result := b.Push(&exampleHops[0])
		if result != INTInvalid || delta != 0 || b.Valid() || !bytes.Equal(b, before) {
			t.Errorf("%s: pushed %d, valid %v", name, result, b.Valid())
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("43 hops of 24 bytes were encoded")
		}
	}()
	INT(make([]byte, 2000)).Encode(&INTFields{Hops: 43})
}

// probe is a frame with the example in it.
func probe(t testing.TB) []byte {
	payload := protocoltest.Example(t, "int-probe")
	frame := make([]byte, EthernetLen+IPv4MinLen+UDPLen, 200)
	frame = append(frame, payload...)
	Ethernet(frame).Encode(&EthernetFields{Dst: MAC{2, 0, 0, 0, 0, 2}, Src: MAC{2, 0, 0, 0, 0, 1},
		EtherType: EtherTypeIPv4})
	ip := IPv4(frame[EthernetLen:])
	ip.Encode(&IPv4Fields{TotalLength: uint16(len(ip)), TTL: 64, Protocol: ProtocolUDP,
		Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}})
	udp := UDP(ip.Payload())
	udp.Encode(&UDPFields{SrcPort: 40000, DstPort: PortINT, Length: uint16(len(udp))})
	udp.FillChecksum(PseudoIPv4(ip.Src(), ip.Dst(), ProtocolUDP, len(udp)))
	return frame
}

// A hop's writes keep a right checksum of a packet right, and a wrong checksum wrong.
func TestINTChecksum(t *testing.T) {
	frame := probe(t)
	h := Parse(frame)
	block, ok := FindINT(frame, &h)
	equal(t, "found", ok, true)
	ip := IPv4(frame[h.L3:])
	udp := UDP(ip.Payload())
	pseudo := PseudoIPv4(ip.Src(), ip.Dst(), ProtocolUDP, len(udp))
	for i := range 3 { // written, full, full
		delta, result := block.Push(&INTHop{Known: 0xFFFF, Node: uint32(i), EgressTime: 0xFEDCBA9876543210,
			Utilisation: 0x89abcdef})
		equal(t, "push", result, []INTPush{INTWritten, INTFull, INTFull}[i])
		udp.AdjustChecksum(delta)
		equal(t, "valid", udp.ChecksumValid(pseudo) && udp.Checksum() != 0, true)
		equal(t, "by hand", slowSum(udp, pseudo), 0xffff)
	}
	udp.SetChecksum(udp.Checksum() ^ 0x8000)
	udp.AdjustChecksum(0x1234)
	equal(t, "valid", udp.ChecksumValid(pseudo), false)
	udp.SetChecksum(0)
	udp.AdjustChecksum(0x1234)
	equal(t, "none", udp.Checksum(), 0)
}

func TestFindINT(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func([]byte)
		want   bool
	}{
		{"probe", func([]byte) {}, true},
		{"reliable datagram", func(f []byte) { UDP(f[34:]).SetDstPort(PortRD) }, true},
		{"other port", func(f []byte) { UDP(f[34:]).SetDstPort(PortAggregation) }, false},
		{"other payload", func(f []byte) { f[42] = 0x80 }, false},
		{"IP checksum", func(f []byte) { f[24] ^= 1 }, false},
		{"fragment", func(f []byte) { f[20] = 0x20; IPv4(f[14:]).FillChecksum() }, false},
		{"UDP cut", func(f []byte) { UDP(f[34:]).SetLength(8 + 87) }, false},
		{"UDP of the block", func(f []byte) { UDP(f[34:]).SetLength(8 + 88) }, true},
	} {
		frame := probe(t)
		test.change(frame)
		h := Parse(frame)
		_, ok := FindINT(frame, &h)
		equal(t, test.name, ok, test.want)
	}
}

func BenchmarkINTPush(b *testing.B) {
	frame := probe(b)
	h := Parse(frame)
	b.ReportAllocs()
	for b.Loop() {
		block, ok := FindINT(frame, &h)
		block[intRemaining] = 1
		delta, result := block.Push(&exampleHops[0])
		if !ok || result != INTWritten {
			b.Fatal(result)
		}
		UDP(frame[h.L4:]).AdjustChecksum(delta)
	}
}
