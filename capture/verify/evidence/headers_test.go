package evidence

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/pcapng"
	"railbed/internal/wire"
)

// headerFrames returns frames of many kinds.
func headerFrames(t testing.TB) (all [][]byte) {
	t.Helper()
	add := func(parts ...gopacket.SerializableLayer) {
		b := gopacket.NewSerializeBuffer()
		o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
		if err := gopacket.SerializeLayers(b, o, parts...); err != nil {
			t.Fatal(err)
		}
		all = append(all, bytes.Clone(b.Bytes()))
	}
	ethernet := func(kind golayers.EthernetType) *golayers.Ethernet {
		return &golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
			DstMAC: net.HardwareAddr{3, 0, 0, 0, 0, 2}, EthernetType: kind}
	}
	tag := func(id uint16, kind golayers.EthernetType) *golayers.Dot1Q {
		return &golayers.Dot1Q{Priority: 5, VLANIdentifier: id, Type: kind}
	}
	v4 := func(p golayers.IPProtocol) *golayers.IPv4 {
		return &golayers.IPv4{Version: 4, TTL: 61, TOS: 26<<2 | 3, Id: 4711, Protocol: p,
			SrcIP: net.IP{10, 1, 0, 1}, DstIP: net.IP{10, 2, 0, 2}}
	}
	v6 := func(p golayers.IPProtocol) *golayers.IPv6 {
		return &golayers.IPv6{Version: 6, HopLimit: 9, TrafficClass: 26<<2 | 2, NextHeader: p,
			SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
	}
	tcp := func(over gopacket.NetworkLayer) *golayers.TCP {
		s := &golayers.TCP{SrcPort: 40001, DstPort: 5003, Seq: 1000, Ack: 2000, Window: 512, SYN: true,
			ACK: true, PSH: true, Options: []golayers.TCPOption{
				{OptionType: golayers.TCPOptionKindNop, OptionLength: 1},
				{OptionType: golayers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
				{OptionType: golayers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}}
		_ = s.SetNetworkLayerForChecksum(over)
		return s
	}
	udp := func(over gopacket.NetworkLayer) *golayers.UDP {
		u := &golayers.UDP{SrcPort: 40000, DstPort: 5001}
		_ = u.SetNetworkLayerForChecksum(over)
		return u
	}
	payload := gopacket.Payload(make([]byte, 50))
	t4, u4, t6, u6 := v4(golayers.IPProtocolTCP), v4(golayers.IPProtocolUDP), v6(golayers.IPProtocolTCP),
		v6(golayers.IPProtocolUDP)
	add(ethernet(golayers.EthernetTypeIPv4), t4, tcp(t4), payload)
	add(ethernet(golayers.EthernetTypeIPv4), u4, udp(u4), payload)
	add(ethernet(golayers.EthernetTypeIPv6), t6, tcp(t6), payload)
	add(ethernet(golayers.EthernetTypeIPv6), u6, udp(u6), payload)
	add(ethernet(golayers.EthernetTypeDot1Q), tag(0, golayers.EthernetTypeQinQ),
		tag(7, golayers.EthernetTypeIPv4), u4, udp(u4), payload)
	add(ethernet(golayers.EthernetTypeARP), payload)
	add(ethernet(golayers.EthernetTypeMPLSUnicast), payload)
	add(ethernet(golayers.EthernetTypeIPv4), v4(golayers.IPProtocolICMPv4), payload)
	add(ethernet(golayers.EthernetTypeIPv4), v4(golayers.IPProtocolGRE), payload)
	for _, offset := range []uint16{0, 10} {
		part := v4(golayers.IPProtocolUDP)
		part.Flags, part.FragOffset = golayers.IPv4MoreFragments, offset
		add(ethernet(golayers.EthernetTypeIPv4), part, udp(u4), payload)
	}
	add(ethernet(golayers.EthernetTypeIPv6), v6(golayers.IPProtocolIPv6Fragment),
		gopacket.Payload([]byte{17, 0, 0, 0, 0, 0, 0, 1}), udp(u6), payload)
	add(ethernet(golayers.EthernetTypeIPv6), v6(golayers.IPProtocolIPv6Routing),
		gopacket.Payload([]byte{17, 0, 0, 0, 0, 0, 0, 1}), udp(u6), payload)
	add(ethernet(golayers.EthernetTypeLLC), payload)
	return all
}

// reference is the decoding of the outermost headers by gopacket.
type reference struct {
	ethernet golayers.Ethernet
	tag      golayers.Dot1Q
	ipv4     golayers.IPv4
	ipv6     golayers.IPv6
	tcp      golayers.TCP
	udp      golayers.UDP
}

// decode returns the fields of the headers, and whether gopacket could read them.
func (d *reference) decode(t *testing.T, data []byte, length int) (p Packet, right bool) {
	t.Helper()
	parser := gopacket.NewDecodingLayerParser(golayers.LayerTypeEthernet, &d.ethernet, &d.tag, &d.ipv4,
		&d.ipv6, &d.tcp, &d.udp)
	parser.IgnoreUnsupported = true
	var layers []gopacket.LayerType
	right = parser.DecodeLayers(data, &layers) == nil
	for _, layer := range layers {
		switch layer {
		case golayers.LayerTypeEthernet:
			p.Type, p.Group = uint16(d.ethernet.EthernetType), d.ethernet.DstMAC[0]&1 != 0
			length -= 14
		case golayers.LayerTypeDot1Q:
			p.Type = uint16(d.tag.Type)
			p.Tags++
			length -= 4
		case golayers.LayerTypeIPv4:
			p.IP, p.TTL, p.Proto = 4, d.ipv4.TTL, uint8(d.ipv4.Protocol)
			p.DSCP, p.ECN = d.ipv4.TOS>>2, wire.ECN(d.ipv4.TOS&3)
			p.Fragment = d.ipv4.FragOffset != 0 || d.ipv4.Flags&golayers.IPv4MoreFragments != 0
			if header := d.ipv4.Contents; header[2]|header[3] != 0 {
				length = min(length, int(d.ipv4.Length))
			}
			length -= 4 * int(d.ipv4.IHL)
			copy(p.Addresses.Src[12:], d.ipv4.SrcIP)
			copy(p.Addresses.Dst[12:], d.ipv4.DstIP)
		case golayers.LayerTypeIPv6:
			p.IP, p.TTL, p.Proto = 6, d.ipv6.HopLimit, uint8(d.ipv6.NextHeader)
			p.DSCP, p.ECN = d.ipv6.TrafficClass>>2, wire.ECN(d.ipv6.TrafficClass&3)
			length = min(length-40, int(d.ipv6.Length))
			if p.Proto == wire.ProtocolFragment && len(d.ipv6.Payload) > 0 {
				p.Fragment, p.Proto = true, d.ipv6.Payload[0]
			}
			copy(p.Addresses.Src[:], d.ipv6.SrcIP)
			copy(p.Addresses.Dst[:], d.ipv6.DstIP)
		case golayers.LayerTypeTCP:
			p.Seq, p.SYN, p.FIN, p.PSH = d.tcp.Seq, d.tcp.SYN, d.tcp.FIN, d.tcp.PSH
			p.ACK, p.ECE, p.Ack, p.Window = d.tcp.ACK, d.tcp.ECE, d.tcp.Ack, d.tcp.Window
			p.Payload, p.Segment = max(0, length-4*int(d.tcp.DataOffset)), d.tcp.Payload
			p.key.sport, p.key.dport = uint16(d.tcp.SrcPort), uint16(d.tcp.DstPort)
		case golayers.LayerTypeUDP:
			p.Payload = max(0, length-8)
			p.key.sport, p.key.dport = uint16(d.udp.SrcPort), uint16(d.udp.DstPort)
		}
	}
	return p, right
}

// differs reports whether gopacket treats a change of a byte otherwise: it reads any version of IP, and
// refuses wrong options.
func differs(frame []byte, at int) bool {
	h := wire.Parse(frame)
	return h.L4 > 0 && at == int(h.L3) ||
		h.Protocol == wire.ProtocolTCP && at >= int(h.L4)+wire.TCPMinLen && at < int(h.Payload)
}

// compareLengths checks that a packet whose IPv4 header has impossible lengths is decoded if gopacket reads
// it.
func compareLengths(t *testing.T, c *Capture, d *decoder, data []byte) {
	t.Helper()
	undecoded := c.Undecoded
	d.decode(&pcapng.Packet{Data: data, Length: len(data), Number: 1})
	var gopackets reference
	if _, right := gopackets.decode(t, data, len(data)); (c.Undecoded == undecoded) != right {
		t.Errorf("% x: undecoded %d, gopacket reads it: %t", data, c.Undecoded-undecoded, right)
	}
}

// The fields of a packet are those that gopacket reads, in frames that a capture cut off or a fault changed.
func TestHeadersAgainstGopacket(t *testing.T) {
	c := &Capture{Taps: []*Tap{{ethernet: true, described: pcapng.Interface{LinkType: pcapng.LinkEthernet}}},
		Dilation: 1}
	d := newDecoder(c)
	var gopackets reference
	compare := func(data []byte, length int) {
		t.Helper()
		undecoded := c.Undecoded
		got := d.decode(&pcapng.Packet{Data: data, Length: length, Number: 1})
		want, right := gopackets.decode(t, data, length)
		if got.Proto == 4 || got.Proto == 41 { // gopacket goes on with the IP packet within
			return
		}
		if got.Scale >= 0 && got.SYN && len(got.Segment) > 0 && got.Scale != 7 {
			t.Errorf("% x: window scale %d, want 7", data, got.Scale)
		}
		if (c.Undecoded == undecoded) != right {
			t.Errorf("% x: undecoded %d, gopacket reads it: %t", data, c.Undecoded-undecoded, right)
		}
		want.key.Addresses, want.key.version = got.key.Addresses, got.key.version
		want.key.proto = got.key.proto
		if got.Type != want.Type || got.Group != want.Group || got.Tags != want.Tags || got.IP != want.IP ||
			got.TTL != want.TTL || got.Proto != want.Proto || got.DSCP != want.DSCP || got.ECN != want.ECN ||
			got.Fragment != want.Fragment || got.Addresses != want.Addresses || got.key != want.key ||
			got.Seq != want.Seq || got.Ack != want.Ack || got.Window != want.Window || got.SYN != want.SYN ||
			got.FIN != want.FIN || got.PSH != want.PSH || got.ACK != want.ACK || got.ECE != want.ECE ||
			got.Payload != want.Payload || !bytes.Equal(got.Segment, want.Segment) {
			t.Errorf("% x, %d bytes:\n%+v, gopacket has\n%+v", data, length, *got, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, frame := range headerFrames(t) {
		for cut := range len(frame) + 1 {
			compare(frame[:cut:cut], len(frame))
		}
		if h := wire.Parse(frame); h.Has(wire.IsIPv4) {
			short := bytes.Clone(frame)
			short[h.L3] = 0x44
			compare(short, len(short))
			for header := range byte(6) { // in words, of which the least is 5, beside total lengths about it
				for total := range byte(24) {
					short[h.L3], short[h.L3+2], short[h.L3+3] = 0x40|header, 0, total
					compareLengths(t, c, d, short)
				}
			}
		}
		padded := append(bytes.Clone(frame), make([]byte, 9)...)
		compare(padded, len(padded))
		for range 2000 {
			changed := bytes.Clone(frame)
			at := random.IntN(min(len(frame), 60))
			changed[at] ^= 1 << random.IntN(8)
			if !differs(frame, at) {
				compare(changed, len(changed))
			}
		}
	}
}
