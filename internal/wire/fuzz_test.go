package wire

import (
	"bytes"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"railbed/testkit/protocoltest"
)

// FuzzParse checks the promises of Headers for any bytes. If gopacket's own decoder accepts a frame
// without an error, Parse must return the same result.
func FuzzParse(f *testing.F) {
	for _, text := range samples {
		f.Add(sample(f, text))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := bytes.Clone(frame)
		h := Parse(frame)
		if !bytes.Equal(frame, before) {
			t.Fatal("the frame was changed")
		}
		if int(h.End) > len(frame) || h.L3 > 0 && int(h.L3) < EthernetLen {
			t.Fatalf("end or L3 outside: %+v", h)
		}
		if h.L4 != 0 && (h.L4 < h.L3 || h.Payload < h.L4 || int(h.L4) > len(frame) ||
			int(h.Payload) > len(frame)) {
			t.Fatalf("offsets out of order: %+v", h)
		}
		if h.Has(IsIPv4 | IsIPv6) {
			t.Fatal("both IPs")
		}
		h.SrcAddr()
		h.DstAddr()
		if h.Verdict != WellFormed {
			return
		}
		if h.Has(IsIPv4) && !IPv4(frame[h.L3:]).Valid() || h.Has(IsIPv6) && !IPv6(frame[h.L3:]).Valid() {
			t.Fatalf("well formed, but not valid: %+v", h)
		}
		compare(t, frame, &h)
	})
}

// compare holds a well-formed frame against gopacket.
func compare(t *testing.T, frame []byte, h *Headers) {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet,
		gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	if ip, ok := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4); ok && h.Has(IsIPv4) &&
		len(packet.Layers()) > 1 && packet.Layers()[1] == gopacket.Layer(ip) {
		if got := h.SrcAddr().AsSlice(); !bytes.Equal(got, ip.SrcIP.To4()) || h.TTL != ip.TTL ||
			h.Protocol != uint8(ip.Protocol) || h.DSCP<<2|uint8(h.ECN) != ip.TOS {
			t.Fatalf("IPv4 %+v, gopacket %+v", h, ip)
		}
	}
	if ip, ok := packet.Layer(layers.LayerTypeIPv6).(*layers.IPv6); ok && h.Has(IsIPv6) &&
		packet.Layers()[1] == gopacket.Layer(ip) {
		if got := h.DstAddr().AsSlice(); !bytes.Equal(got, ip.DstIP.To16()) || h.TTL != ip.HopLimit ||
			h.DSCP<<2|uint8(h.ECN) != ip.TrafficClass {
			t.Fatalf("IPv6 %+v, gopacket %+v", h, ip)
		}
	}
	if h.Has(HasOptions) || h.Has(Tagged) || h.Has(Fragment) || packet.ErrorLayer() != nil ||
		len(packet.Layers()) < 3 {
		return
	}
	switch l := packet.Layers()[2].(type) {
	case *layers.UDP:
		if h.Protocol == ProtocolUDP && (h.SrcPort != uint16(l.SrcPort) || h.DstPort != uint16(l.DstPort)) {
			t.Fatalf("UDP %+v, gopacket %+v", h, l)
		}
	case *layers.TCP:
		if h.Protocol == ProtocolTCP &&
			(h.SrcPort != uint16(l.SrcPort) || h.TCPFlags&TCPSYN != 0 != l.SYN ||
				h.TCPFlags&TCPCWR != 0 != l.CWR ||
				int(h.Payload-h.L4) != int(l.DataOffset)*4) {
			t.Fatalf("TCP %+v, gopacket %+v", h, l)
		}
	}
}

// FuzzHeaders calls every accessor on any bytes that Valid takes.
func FuzzHeaders(f *testing.F) {
	for _, text := range samples {
		frame := sample(f, text)
		f.Add(frame)
		f.Add(frame[EthernetLen:])
		f.Add(frame[EthernetLen+IPv4MinLen:])
		f.Add(frame[min(len(frame), EthernetLen+IPv6Len):])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		if e := Ethernet(b); e.Valid() {
			e.Dst()
			e.Src()
			e.EtherType()
			e.Payload()
		}
		if g := Tag(b); g.Valid() {
			var made [TagLen]byte
			Tag(made[:]).Encode(&TagFields{g.TPID(), g.Priority(), g.DropEligible(), g.VLAN()})
			same(t, made[:], b)
			g.EtherType()
		}
		if a := ARP(b); a.Valid() {
			var made [ARPLen]byte
			ARP(made[:]).Encode(&ARPFields{a.Operation(), a.SenderMAC(), a.TargetMAC(), a.SenderIP(),
				a.TargetIP()})
			same(t, made[:], b)
		}
		fuzzIP(t, b)
		fuzzTransport(t, b)
		fuzzMACControl(t, b)
	})
}

func same(t *testing.T, made, from []byte) {
	if !bytes.Equal(made, from[:len(made)]) {
		t.Fatalf("encoded % x from % x", made, from)
	}
}

func fuzzIP(t *testing.T, b []byte) {
	if h := IPv4(bytes.Clone(b)); h.Valid() {
		h.Options()
		h.Payload()
		h.FillChecksum()
		made := bytes.Clone(b)
		IPv4(made).Encode(&IPv4Fields{
			h.HeaderLength(), h.DSCP(), h.ECN(), h.TotalLength(), h.ID(), h.DontFragment(), h.MoreFragments(),
			uint16(h.FragmentOffset()),
			h.TTL(), h.Protocol(), h.Src(), h.Dst(),
		})
		if h.fragment()&0x8000 == 0 { // the reserved bit is not kept
			same(t, made[:h.HeaderLength()], h)
		}
		h.DecrementTTL()
		h.RewriteTOS(b[len(b)-1])
		if !h.ChecksumValid() {
			t.Fatalf("rewritten % x", h)
		}
	}
	if h := IPv6(b); h.Valid() {
		made := bytes.Clone(b)
		clear(made[:IPv6Len])
		IPv6(made).Encode(&IPv6Fields{h.DSCP(), h.ECN(), h.FlowLabel(), h.PayloadLength(), h.NextHeader(),
			h.HopLimit(), h.Src(), h.Dst()})
		same(t, made[:IPv6Len], b)
		payload := h.Payload()
		u, ok := SkipExtensions(h.NextHeader(), payload)
		if u.Offset > len(payload) || ok && !u.Fragment && isExtension(u.Protocol) {
			t.Fatalf("walked to %+v", u)
		}
	}
}

func fuzzTransport(t *testing.T, b []byte) {
	if u := UDP(bytes.Clone(b)); u.Valid() {
		u.Payload()
		u.FillChecksum(uint16(len(b)))
		if !u.ChecksumValid(uint16(len(b))) {
			t.Fatalf("checksum of % x", u)
		}
	}
	if h := TCP(bytes.Clone(b)); h.Valid() {
		h.Options()
		h.Payload()
		h.FillChecksum(7)
		if !h.ChecksumValid(7) {
			t.Fatalf("checksum of % x", h)
		}
	}
	if m := ICMPv4(bytes.Clone(b)); m.Valid() {
		m.MTU()
		m.IsError()
		m[icmpType] = ICMPv4Echo
		m.FillChecksum()
		m.MakeReply()
		if !m.ChecksumValid() {
			t.Fatalf("checksum of % x", m)
		}
	}
	if m := ICMPv6(bytes.Clone(b)); m.Valid() {
		m.MTU()
		m.IsError()
		if m.IsNeighbor() {
			m.Target()
			m.NeighborFlags()
			m.LinkAddress(SourceLinkAddress)
			m.LinkAddress(TargetLinkAddress)
		}
		m.FillChecksum([16]byte{}, [16]byte{1})
		if !m.ChecksumValid([16]byte{}, [16]byte{1}) {
			t.Fatalf("checksum of % x", m)
		}
	}
}

func fuzzMACControl(t *testing.T, b []byte) {
	if m := MACControl(b); m.Valid() && m.Opcode() == OpcodePause {
		m.PauseQuanta()
	}
	if g := GFC(b); g.Valid() {
		fields := g.Fields()
		var made [GFCLen]byte
		GFC(made[:]).Encode(&fields)
		if got := GFC(made[:]).Fields(); got != fields {
			t.Errorf("%+v is encoded as %+v", fields, got)
		}
	}
	if p := PFC(b); p.Valid() {
		fields := PFCFields{Enable: p.Enable()}
		for i := range PFCPriorities {
			fields.Quanta[i] = p.Quanta(i)
		}
		var made [PFCLen]byte
		PFC(made[:]).Encode(&fields)
		for i := range PFCPriorities {
			if p.Enabled(i) != PFC(made[:]).Enabled(i) ||
				p.Enabled(i) && p.Quanta(i) != PFC(made[:]).Quanta(i) {
				t.Fatalf("encoded % x from % x", made, b)
			}
		}
	}
}

// FuzzINT pushes into any bytes: nothing outside the block may change, nothing
// at all when it is invalid, and the checksum of a datagram around it holds.
func FuzzINT(f *testing.F) {
	f.Add(protocoltest.Example(f, "int-probe"))
	f.Add(sample(f, intOfSpecification))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) > 0xFFFF-UDPLen {
			return
		}
		datagram := append(make([]byte, UDPLen), payload...)
		udp := UDP(datagram)
		udp.Encode(&UDPFields{DstPort: PortINT, Length: uint16(len(datagram))})
		udp.FillChecksum(1)
		b := INT(udp.Payload())
		before, valid := bytes.Clone(datagram), b.Valid()
		delta, result := b.Push(
			&INTHop{Known: 0xFFFF, Node: 1, Queue: 2, QueueBytes: 3, EgressTime: 4, Utilisation: 5})
		if valid != (result != INTInvalid) {
			t.Fatalf("valid %v, pushed %d", valid, result)
		}
		if !valid {
			if !bytes.Equal(datagram, before) {
				t.Fatal("changed what is invalid")
			}
			return
		}
		if !b.Valid() {
			t.Fatal("a push made it invalid")
		}
		end := UDPLen + b.Len()
		if !bytes.Equal(datagram[end:], before[end:]) ||
			!bytes.Equal(datagram[:UDPLen+4], before[:UDPLen+4]) {
			t.Fatal("changed what is outside")
		}
		udp.AdjustChecksum(delta)
		if !udp.ChecksumValid(1) {
			t.Fatalf("checksum of % x", datagram)
		}
		for i := range b.Hops() {
			b.Hop(i)
		}
		if result == INTWritten && b.Instructions()&INTNodeID != 0 && b.Hop(b.Hops()-1).Node != 1 {
			t.Fatalf("the last hop is %+v", b.Hop(b.Hops()-1))
		}
	})
}

// FuzzAggregation encodes valid messages again.
func FuzzAggregation(f *testing.F) {
	for _, name := range []string{"update", "partial", "result", "reject", "max"} {
		f.Add(protocoltest.Example(f, "aggregation-"+name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a := Aggregation(b)
		if !a.Valid() {
			return
		}
		fields := a.Fields()
		made := make([]byte, len(b))
		Aggregation(made).Encode(&fields)
		same(t, made[:AggregationLen], b)
		equal(t, "bytes of elements", len(a.Data()), int(a.Elements())*a.Type().Size())
		for i := range a.DataLen() / 4 {
			a.Fixed(i)
			Aggregation(made).SetFloat(i, a.Float(i))
		}
	})
}

// rdReserved are the bytes that each type sends as 0 and no receiver reads.
var rdReserved = [RDTypes][]int{
	RDNack: {25}, RDProbe: {28, 29, 30, 31}, RDReject: {27},
}

// FuzzRD reads any bytes, unchanged and with their check corrected. No byte is read beyond the end
// of a valid datagram, and encoding its fields again gives the same bytes.
func FuzzRD(f *testing.F) {
	for _, example := range rdExamples {
		b := protocoltest.Example(f, "rd-"+example.name)
		f.Add(b)
		f.Add(slices.Clip(b[:len(b)-1]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzRD(t, data)
		if len(data) < RDBaseLen {
			return
		}
		// How far the check reaches is written here once more.
		b := RD(bytes.Clone(data))
		header := RDHeaderLen(b.Type())
		switch {
		case b.Flags()&RDEncrypted != 0:
			header = RDBaseLen
		case b.Type() == RDAck:
			header = len(b)
		}
		if header > len(b) || header == 0 {
			return
		}
		b[22], b[23] = 0, 0
		sum := crc32.Checksum(b[:header], crc32.MakeTable(crc32.Castagnoli))
		b[22], b[23] = byte(sum>>8), byte(sum)
		fuzzRD(t, b)
	})
}

func fuzzRD(t *testing.T, data []byte) {
	b := RD(bytes.Clone(data)[:len(data):len(data)])
	if b.HasBase() {
		b.Base()
		b.Version()
		b.Trimmed()
	}
	if !b.Valid() || b.Flags()&RDEncrypted != 0 {
		return
	}
	base, header := b.Base(), RDHeaderLen(b.Type())
	made := RD(bytes.Repeat([]byte{0xFF}, len(b)))
	switch base.Type {
	case RDData:
		if want := len(b)-RDDataLen < int(base.Length); len(b.Payload()) != len(b)-RDDataLen ||
			b.Trimmed() != want {
			t.Fatalf("%d bytes with %d of payload of %d: trimmed is %v", len(b), len(b.Payload()),
				base.Length, b.Trimmed())
		}
		fields := b.Data()
		made.EncodeData(base, &fields)
	case RDSkip:
		fields := b.Skip()
		made.EncodeSkip(base, &fields)
	case RDAck:
		fields := b.Ack()
		words, echoes := make([]uint64, fields.Words), make([]RDEcho, fields.Echoes)
		for i := range words {
			words[i] = b.AckWord(i)
		}
		for i := range echoes {
			echoes[i] = b.AckEcho(i)
		}
		made.EncodeAck(base, &fields, words, echoes)
		header = RDAckBytes(len(words), len(echoes))
	case RDNack:
		fields := b.Nack()
		made.EncodeNack(base, &fields)
	case RDProbe:
		made.EncodeProbe(base, b.ProbeTimestamp())
	case RDReject:
		fields := b.Reject()
		made.EncodeReject(base, &fields)
	case RDClose:
		made.EncodeClose(base)
	default:
		t.Fatalf("type %d is valid", base.Type)
	}
	if !made.Valid() {
		t.Fatalf("encoded % x, which is not valid, from % x", []byte(made), data)
	}
	changed := false
	for _, i := range rdReserved[base.Type] {
		changed = changed || b[i] != 0
		b[i] = 0
	}
	if changed { // and so the check is another
		copy(b[22:24], made[22:24])
	}
	same(t, made[:header], b)
}
