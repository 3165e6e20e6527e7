package display

import (
	"net"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
)

// frames returns frames of many kinds.
func frames(t *testing.T) (all [][]byte) {
	t.Helper()
	add := func(parts ...gopacket.SerializableLayer) []byte {
		b := gopacket.NewSerializeBuffer()
		o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
		if err := gopacket.SerializeLayers(b, o, parts...); err != nil {
			t.Fatal(err)
		}
		all = append(all, b.Bytes())
		return b.Bytes()
	}
	ethernet := func(kind golayers.EthernetType) *golayers.Ethernet {
		return &golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
			DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: kind}
	}
	ip := func(p golayers.IPProtocol, ttl uint8) *golayers.IPv4 {
		return &golayers.IPv4{Version: 4, TTL: ttl, TOS: 26<<2 | 1, Id: 4711,
			Flags: golayers.IPv4DontFragment, Protocol: p, SrcIP: net.IP{10, 1, 0, 1},
			DstIP: net.IP{10, 2, 0, 2}}
	}
	ip6 := func(p golayers.IPProtocol) *golayers.IPv6 {
		return &golayers.IPv6{Version: 6, HopLimit: 9, TrafficClass: 26<<2 | 2, FlowLabel: 0x12345,
			NextHeader: p, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
	}
	udp := func(over gopacket.NetworkLayer, port golayers.UDPPort) *golayers.UDP {
		u := &golayers.UDP{SrcPort: 40000, DstPort: port}
		if err := u.SetNetworkLayerForChecksum(over); err != nil {
			t.Fatal(err)
		}
		return u
	}
	add(ethernet(golayers.EthernetTypeARP), &golayers.ARP{AddrType: 1, Protocol: 0x0800, HwAddressSize: 6,
		ProtAddressSize: 4, Operation: 1, SourceHwAddress: []byte{2, 0, 0, 0, 0, 1},
		SourceProtAddress: []byte{10, 1, 0, 1}, DstHwAddress: make([]byte, 6),
		DstProtAddress: []byte{10, 2, 0, 2}})
	v4, v6 := ip(golayers.IPProtocolUDP, 64), ip6(golayers.IPProtocolUDP)
	plain := add(ethernet(golayers.EthernetTypeIPv4), v4, udp(v4, 5001), gopacket.Payload("hello, fabric"))
	add(ethernet(golayers.EthernetTypeDot1Q), &golayers.Dot1Q{Priority: 5, VLANIdentifier: 7,
		Type: golayers.EthernetTypeIPv4}, v4, udp(v4, 5001), gopacket.Payload("tagged"))
	add(ethernet(golayers.EthernetTypeIPv6), v6, udp(v6, 5002), gopacket.Payload("hello, six"))
	for _, flags := range []golayers.TCP{{SYN: true}, {SYN: true, ACK: true}, {ACK: true, PSH: true},
		{RST: true}, {FIN: true, ACK: true, ECE: true}} {
		tcp, over := flags, ip(golayers.IPProtocolTCP, 63)
		tcp.SrcPort, tcp.DstPort, tcp.Seq, tcp.Ack, tcp.Window = 40001, 5003, 1000, 2000, 512
		tcp.Options = []golayers.TCPOption{{OptionType: golayers.TCPOptionKindMSS, OptionLength: 4,
			OptionData: []byte{5, 180}}}
		if err := tcp.SetNetworkLayerForChecksum(over); err != nil {
			t.Fatal(err)
		}
		add(ethernet(golayers.EthernetTypeIPv4), over, &tcp, gopacket.Payload(make([]byte, int(tcp.Window))))
	}
	add(ethernet(golayers.EthernetTypeIPv4), ip(golayers.IPProtocolICMPv4, 1), &golayers.ICMPv4{
		TypeCode: golayers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(plain[14:14+20+8]))
	icmp6 := &golayers.ICMPv6{TypeCode: golayers.CreateICMPv6TypeCode(128, 0)}
	over := ip6(golayers.IPProtocolICMPv6)
	if err := icmp6.SetNetworkLayerForChecksum(over); err != nil {
		t.Fatal(err)
	}
	add(ethernet(golayers.EthernetTypeIPv6), over, icmp6, gopacket.Payload([]byte{0, 1, 0, 2, 3, 4}))
	later := ip(golayers.IPProtocolUDP, 2)
	later.Flags, later.FragOffset = golayers.IPv4MoreFragments, 10
	add(ethernet(golayers.EthernetTypeIPv4), later, gopacket.Payload(make([]byte, 64)))
	return all
}
