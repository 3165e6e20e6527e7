package softswitch

import (
	"bytes"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"railbed/capture/display"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/infiniband"
)

// rewrittenFrame returns a frame of gopacket in which a fault rewrites a field and updates the checksums.
func rewrittenFrame(t *testing.T, frame []byte, field, to string) []byte {
	t.Helper()
	one := &packet.Packet{Data: bytes.Clone(frame)}
	one.Parse()
	change, err := display.CompileRewrite(field, to)
	if err != nil {
		t.Fatal(err)
	}
	var all faults
	shown := all.show(one)
	if !change.Changes(shown) {
		t.Fatalf("%s to %s changes nothing in % x", field, to, frame)
	}
	right := rightSums(one)
	change.Apply(shown)
	one.Parse()
	right.fill(one)
	return one.Data
}

// TestRewriteUpdatesChecksums compares frames that a fault rewrites with frames that gopacket makes with the
// new value.
func TestRewriteUpdatesChecksums(t *testing.T) {
	type headers struct {
		four    layers.IPv4
		six     layers.IPv6
		udp     layers.UDP
		tcp     layers.TCP
		icmp    layers.ICMPv4
		payload gopacket.Payload
	}
	fresh := func() *headers {
		return &headers{
			four: layers.IPv4{Version: 4, TTL: 64, Id: 7, SrcIP: net.IP{10, 0, 0, 1},
				DstIP: net.IP{10, 0, 0, 2}},
			six: layers.IPv6{Version: 6, HopLimit: 64, SrcIP: net.ParseIP("fd00::1"),
				DstIP: net.ParseIP("fd00::2")},
			udp:     layers.UDP{SrcPort: 4000, DstPort: 5000},
			tcp:     layers.TCP{SrcPort: 4000, DstPort: 5000, Seq: 17, Ack: 18, ACK: true, Window: 100},
			icmp:    layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 3, Seq: 4},
			payload: gopacket.Payload("seventeen bytes.."),
		}
	}
	frame := func(h *headers, over string, six bool) []byte {
		eth := layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
			DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
		network := gopacket.SerializableLayer(&h.four)
		var pseudo gopacket.NetworkLayer = &h.four
		if six {
			eth.EthernetType, network, pseudo = layers.EthernetTypeIPv6, &h.six, &h.six
		}
		var transport gopacket.SerializableLayer
		switch over {
		case "udp":
			h.four.Protocol, h.six.NextHeader, transport = 17, 17, &h.udp
			_ = h.udp.SetNetworkLayerForChecksum(pseudo)
		case "tcp":
			h.four.Protocol, h.six.NextHeader, transport = 6, 6, &h.tcp
			_ = h.tcp.SetNetworkLayerForChecksum(pseudo)
		case "icmp":
			h.four.Protocol, transport = 1, &h.icmp
		}
		b := gopacket.NewSerializeBuffer()
		options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
		if err := gopacket.SerializeLayers(b, options, &eth, network, transport, h.payload); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for _, test := range []struct {
		over, field, to string
		six             bool
		change          func(*headers)
	}{
		{"udp", "ip.src", "10.0.0.9", false, func(h *headers) { h.four.SrcIP = net.IP{10, 0, 0, 9} }},
		{"udp", "ip.ttl", "3", false, func(h *headers) { h.four.TTL = 3 }},
		{"udp", "udp.dstport", "5001", false, func(h *headers) { h.udp.DstPort = 5001 }},
		{"udp", "ipv6.dst", "fd00::9", true, func(h *headers) { h.six.DstIP = net.ParseIP("fd00::9") }},
		{"tcp", "tcp.window_size_value", "0", false, func(h *headers) { h.tcp.Window = 0 }},
		{"tcp", "tcp.flags.fin", "true", true, func(h *headers) { h.tcp.FIN = true }},
		{"tcp", "ip.dsfield.dscp", "46", false, func(h *headers) { h.four.TOS = 46 << 2 }},
		{"icmp", "icmp.code", "5", false,
			func(h *headers) { h.icmp.TypeCode = layers.CreateICMPv4TypeCode(8, 5) }},
	} {
		t.Run(test.over+" "+test.field, func(t *testing.T) {
			before, after := fresh(), fresh()
			test.change(after)
			got := rewrittenFrame(t, frame(before, test.over, test.six), test.field, test.to)
			if want := frame(after, test.over, test.six); !bytes.Equal(got, want) {
				t.Errorf("got  % x\nwant % x", got, want)
			}
			wrong := frame(before, test.over, test.six)
			wrong[bytes.Index(wrong, before.payload)] ^= 1
			one := &packet.Packet{Data: rewrittenFrame(t, wrong, test.field, test.to)}
			if one.Parse(); rightSums(one).transport {
				t.Error("a wrong checksum became right")
			}
		})
	}
}

// TestRewriteUpdatesICRC: the ICRC is right for the new value, or as wrong as before.
func TestRewriteUpdatesICRC(t *testing.T) {
	frame := roceFrame(t)
	valid := func(frame []byte) bool {
		return infiniband.Packet(frame[42:]).ICRCValid(frame[14:42])
	}
	if !valid(frame) {
		t.Fatal("the frame's ICRC is wrong")
	}
	for field, to := range map[string]string{"infiniband.bth.psn": "77", "ip.src": "10.0.0.9",
		"infiniband.bth.destqp": "0x99"} {
		got := rewrittenFrame(t, frame, field, to)
		if bytes.Equal(got, frame) || !valid(got) {
			t.Errorf("%s: % x", field, got)
		}
		damaged := bytes.Clone(frame)
		damaged[60] ^= 1
		if valid(rewrittenFrame(t, damaged, field, to)) {
			t.Errorf("%s: a wrong ICRC became right", field)
		}
	}
}

// roceFrame is a packet of RoCEv2 with a payload.
func roceFrame(t *testing.T) []byte {
	t.Helper()
	packet := make(infiniband.Packet, infiniband.Len(infiniband.SendOnly, 32))
	fields := infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.SendOnly, PKey: 0xFFFF, DestQP: 17, PSN: 76}}
	packet.Encode(&fields, 32)
	b := gopacket.NewSerializeBuffer()
	ip := layers.IPv4{Version: 4, TTL: 64, Protocol: 17, SrcIP: net.IP{10, 0, 0, 1},
		DstIP: net.IP{10, 0, 0, 2}}
	udp := layers.UDP{SrcPort: 50000, DstPort: infiniband.Port}
	_ = udp.SetNetworkLayerForChecksum(&ip)
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
			DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}, &ip, &udp,
		gopacket.Payload(packet)); err != nil {
		t.Fatal(err)
	}
	frame := b.Bytes()
	infiniband.Packet(frame[42:]).Seal(frame[14:42])
	return frame
}
