package layers

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/wire"
)

func build(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		ls...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type fields struct {
	src, dst byte // last byte of the MAC addresses
	tos, ttl uint8
	id       uint16
	flow     uint32
	sport    uint16
	payload  string
	v6       bool
}

func frame(t testing.TB, f fields) []byte {
	ethernet := &golayers.Ethernet{
		SrcMAC:       net.HardwareAddr{2, 0, 0, 0, 0, f.src},
		DstMAC:       net.HardwareAddr{2, 0, 0, 0, 0, f.dst},
		EthernetType: golayers.EthernetTypeIPv4,
	}
	udp := &golayers.UDP{SrcPort: golayers.UDPPort(f.sport), DstPort: 9}
	if f.v6 {
		ethernet.EthernetType = golayers.EthernetTypeIPv6
		ip := &golayers.IPv6{Version: 6, TrafficClass: f.tos, HopLimit: f.ttl, FlowLabel: f.flow,
			NextHeader: 17, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2")}
		udp.SetNetworkLayerForChecksum(ip)
		return build(t, ethernet, ip, udp, gopacket.Payload(f.payload))
	}
	ip := &golayers.IPv4{Version: 4, TOS: f.tos, TTL: f.ttl, Id: f.id, Protocol: 17,
		SrcIP: net.IP{10, 0, 0, 1}, DstIP: net.IP{10, 0, 0, 2}}
	udp.SetNetworkLayerForChecksum(ip)
	return build(t, ethernet, ip, udp, gopacket.Payload(f.payload))
}

func TestIdentity(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		base := fields{src: 1, dst: 2, ttl: 64, id: 7, sport: 1000, payload: "hello", v6: v6}
		want := Identity(frame(t, base), 500)
		same := map[string]func(*fields){
			"addresses": func(f *fields) { f.src, f.dst = 3, 4 },
			"ttl":       func(f *fields) { f.ttl = 63 },
			"dscp, ecn": func(f *fields) { f.tos = 0xff },
		}
		for name, change := range same {
			f := base
			change(&f)
			if got := Identity(frame(t, f), 500); got != want {
				t.Errorf("v6 %v: changed with the %s", v6, name)
			}
		}
		other := map[string]func(*fields){
			"payload": func(f *fields) { f.payload = "hellp" },
			"port":    func(f *fields) { f.sport++ },
		}
		if v6 {
			other["flow label"] = func(f *fields) { f.flow = 1 }
		} else {
			other["ip id"] = func(f *fields) { f.id++ }
		}
		for name, change := range other {
			f := base
			change(&f)
			if got := Identity(frame(t, f), 500); got == want {
				t.Errorf("v6 %v: did not change with the %s", v6, name)
			}
		}
		padded := append(frame(t, base), make([]byte, 9)...)
		if Identity(padded, len(padded)) != want {
			t.Errorf("v6 %v: changed with padding of the link", v6)
		}
		tagged := append(append([]byte{}, padded[:12]...), 0x81, 0, 0, 5)
		if tagged = append(tagged, padded[12:]...); Identity(tagged, len(tagged)) != want {
			t.Errorf("v6 %v: changed with a VLAN tag", v6)
		}
	}
	arp := func(op uint16) []byte {
		return build(t, &golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
			DstMAC: net.HardwareAddr{255, 255, 255, 255, 255, 255}, EthernetType: golayers.EthernetTypeARP},
			&golayers.ARP{AddrType: 1, Protocol: 0x800, Operation: op, SourceHwAddress: make([]byte, 6),
				DstHwAddress: make([]byte, 6), SourceProtAddress: make([]byte, 4),
				DstProtAddress: make([]byte, 4)})
	}
	first, again := Identity(arp(1), 42), Identity(arp(1), 42)
	if first == Identity(arp(2), 42) || first != again || first == Identity(arp(1), 60) {
		t.Error("identity of ARP")
	}
	for length := range 60 { // snapped anywhere, it must not panic
		Identity(frame(t, fields{v6: true})[:min(length, 62)], 62)
		Identity(frame(t, fields{})[:min(length, 42)], 42)
	}
}

func TestOrdinals(t *testing.T) {
	o := NewOrdinals(1 << 10)
	ids := func(place uint64, at time.Duration) (out []uint64) {
		for i := range 3 {
			out = append(out, o.ID(99, place, int64(at)+int64(i)))
		}
		return out
	}
	a, b := ids(0, time.Hour), ids(1, time.Hour+5*time.Millisecond)
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("the %d. identical packet is %x at one tap and %x at the other", i+1, a[i], b[i])
		}
	}
	if a[0] != 99 || a[0] == a[1] || a[1] == a[2] {
		t.Errorf("ids %x", a)
	}
	if later := o.ID(99, 0, int64(time.Hour+2*time.Second)); later != 99 {
		t.Errorf("after a pause the id is %x", later)
	}
	// Within what the table holds, nothing is forgotten.
	o = NewOrdinals(1 << 11)
	for round := range 2 {
		forgotten := 0
		for i := range uint64(1 << 11) {
			if got := o.ID(mix(i, 7), 0, int64(time.Second)+int64(i)); round == 1 && got == mix(i, 7) {
				forgotten++
			}
		}
		if forgotten > 1<<11/100 {
			t.Errorf("%d of %d forgotten", forgotten, 1<<11)
		}
	}
}

func BenchmarkIdentity(b *testing.B) {
	f := frame(b, fields{payload: string(make([]byte, 200))})
	o := NewOrdinals(1 << 18)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		binary.BigEndian.PutUint16(f[18:], uint16(i))
		o.ID(Identity(f, 1500), 3, int64(i)*1000)
	}
}

// TestIdentityOfTelemetry: hops write into a packet, and it is the same one; what
// the sender wrote tells packets apart.
func TestIdentityOfTelemetry(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		made := func(port uint16, seq uint64, hops int) []byte {
			fields := wire.INTFields{Hops: 3, NextPort: port}
			block := wire.INTBlockLen(&fields)
			ip := map[bool]int{false: wire.IPv4MinLen, true: wire.IPv6Len}[v6]
			frame := make([]byte, wire.EthernetLen+ip+wire.UDPLen+block+wire.INTProbeLen)
			length := uint16(len(frame) - wire.EthernetLen - ip)
			if v6 {
				wire.Ethernet(frame).SetEtherType(wire.EtherTypeIPv6)
				wire.IPv6(frame[wire.EthernetLen:]).Encode(&wire.IPv6Fields{PayloadLength: length,
					NextHeader: wire.ProtocolUDP, HopLimit: uint8(64 - hops)})
			} else {
				wire.Ethernet(frame).SetEtherType(wire.EtherTypeIPv4)
				wire.IPv4(frame[wire.EthernetLen:]).Encode(&wire.IPv4Fields{
					TotalLength: length + wire.IPv4MinLen, Protocol: wire.ProtocolUDP,
					TTL: uint8(64 - hops)})
			}
			datagram := wire.UDP(frame[wire.EthernetLen+ip:])
			datagram.Encode(&wire.UDPFields{SrcPort: 9, DstPort: port, Length: length, Checksum: 0x1234})
			b := wire.INT(datagram[wire.UDPLen:])
			b.Encode(&fields)
			wire.INTProbe(b.Payload()).Encode(seq, 0)
			for n := range hops {
				delta, _ := b.Push(&wire.INTHop{Known: wire.INTStandard, Node: uint32(n + 1)})
				datagram.AdjustChecksum(delta)
			}
			return frame
		}
		for _, port := range []uint16{wire.PortINT, wire.PortRD, 9} {
			for _, snap := range []int{1 << 16, 100} {
				of := func(frame []byte) uint64 { return Identity(frame[:min(snap, len(frame))], len(frame)) }
				sent := made(port, 1, 0)
				for hops := range 5 { // the last finds no room
					if same := of(made(port, 1, hops)) == of(sent); same != (hops == 0 || port != 9) {
						t.Errorf("v6 %t, port %d, snap %d, after %d hops: the same packet is %t", v6, port,
							snap, hops, same)
					}
				}
				if snap > len(sent) && of(made(port, 2, 0)) == of(sent) {
					t.Errorf("v6 %t, port %d: two probes are one", v6, port)
				}
			}
		}
	}
}
