package queue

import (
	"bytes"
	"net"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

const (
	trimSize  = 128
	trimDSCP  = 59
	dataDSCP  = 35
	dataQueue = 4
	express   = 7
)

// trimPort is a port whose queue of data is full and whose express queue has
// room for some bytes.
func trimPort(t testing.TB, room int) *Port {
	sw := softSwitch(1<<20, 1)
	sw.Soft.Trim = &plan.Trim{Size: trimSize, DSCP: trimDSCP, Queue: express, Priorities: []int{dataQueue}}
	withPFC(sw, plan.PortPFC{XOff: 1000, Headroom: 1000}, 3)
	_, ports := memory(t, sw, listen(t))
	p := ports[0]
	length := p.memory.shared - int64(room)
	p.append(0, dataQueue, &packet.Packet{Data: make([]byte, length)}, length)
	p.memory.used += length
	return p
}

// sample is a packet as gopacket writes it.
type sample struct {
	name  string
	stack func(dscp uint8) []gopacket.SerializableLayer
	// kept is the payload that is left, -1 when the packet is not to be cut.
	kept int
	// stale is set if the transport's header stays as it was.
	stale bool
}

func ethernet(next layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: next}
}

func ipv4(dscp uint8, protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{
		Version:  4,
		TOS:      dscp<<2 | 2,
		TTL:      63,
		Id:       77,
		Protocol: protocol,
		SrcIP:    net.IP{10, 0, 0, 1},
		DstIP:    net.IP{10, 0, 0, 2},
	}
}

func ipv6(dscp uint8, next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{
		Version: 6, TrafficClass: dscp<<2 | 2, FlowLabel: 0xabcde, HopLimit: 63, NextHeader: next,
		SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00::2"),
	}
}

func udpOver(ip gopacket.NetworkLayer) *layers.UDP {
	u := &layers.UDP{SrcPort: 4791, DstPort: 4792}
	if ip != nil {
		_ = u.SetNetworkLayerForChecksum(ip) // it accepts IP
	}
	return u
}

var samples = []sample{
	{name: "UDP over IPv4", kept: trimSize - 42, stack: func(dscp uint8) []gopacket.SerializableLayer {
		ip := ipv4(dscp, layers.IPProtocolUDP)
		return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), ip, udpOver(ip)}
	}},
	{name: "UDP over IPv6", kept: trimSize - 62, stack: func(dscp uint8) []gopacket.SerializableLayer {
		ip := ipv6(dscp, layers.IPProtocolUDP)
		return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv6), ip, udpOver(ip)}
	}},
	{name: "UDP over IPv4 with options, in a tag", kept: trimSize - 58,
		stack: func(dscp uint8) []gopacket.SerializableLayer {
			ip := ipv4(dscp, layers.IPProtocolUDP)
			ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 11, OptionData: make([]byte, 9)}}
			return []gopacket.SerializableLayer{
				ethernet(layers.EthernetTypeDot1Q),
				&layers.Dot1Q{Priority: 4, VLANIdentifier: 9, Type: layers.EthernetTypeIPv4}, ip, udpOver(ip),
			}
		}},
	{name: "TCP over IPv4", kept: trimSize - 54, stale: true,
		stack: func(dscp uint8) []gopacket.SerializableLayer {
			ip := ipv4(dscp, layers.IPProtocolTCP)
			tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 3, ACK: true, Window: 9}
			_ = tcp.SetNetworkLayerForChecksum(ip) // it accepts IP
			return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), ip, tcp}
		}},
	{name: "first fragment", kept: trimSize - 42, stale: true,
		stack: func(dscp uint8) []gopacket.SerializableLayer {
			ip := ipv4(dscp, layers.IPProtocolUDP)
			ip.Flags = layers.IPv4MoreFragments
			return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), ip, udpOver(ip)}
		}},
	{name: "later fragment", kept: trimSize - 34, stack: func(dscp uint8) []gopacket.SerializableLayer {
		ip := ipv4(dscp, layers.IPProtocolUDP)
		ip.FragOffset = 100
		return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), ip}
	}},
	{name: "priority tag", kept: trimSize - 46, stack: func(dscp uint8) []gopacket.SerializableLayer {
		tag := &layers.Dot1Q{Priority: dataQueue, Type: layers.EthernetTypeIPv4}
		if dscp == trimDSCP {
			tag.Priority = express
		}
		ip := ipv4(dscp, layers.IPProtocolUDP)
		return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeDot1Q), tag, ip, udpOver(ip)}
	}},
	{name: "no IP", kept: -1, stack: func(uint8) []gopacket.SerializableLayer {
		return []gopacket.SerializableLayer{ethernet(0x88b5)}
	}},
	{name: "trimmed elsewhere", kept: -1, stack: func(uint8) []gopacket.SerializableLayer {
		ip := ipv4(trimDSCP, layers.IPProtocolUDP)
		return []gopacket.SerializableLayer{ethernet(layers.EthernetTypeIPv4), ip, udpOver(ip)}
	}},
}

func payload(length int) gopacket.Payload {
	data := make([]byte, length)
	for i := range data {
		data[i] = byte(i * 7)
	}
	return data
}

func written(t *testing.T, s sample, dscp uint8, length int) []byte {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options,
		append(s.stack(dscp), payload(length))...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buffer.Bytes()...)
}

// A trimmed packet equals the packet that gopacket writes for the same headers with the shorter
// payload, except for transport headers that stay unchanged.
func TestTrimmedPacketIsWhole(t *testing.T) {
	for _, s := range samples {
		for _, length := range []int{1300, 1301, 400} {
			data := written(t, s, dataDSCP, length)
			one := &packet.Packet{Data: append([]byte(nil), data...), Length: len(data), Priority: dataQueue,
				Ingress: -1}
			one.Parse()
			o := trimPort(t, 1000).Enqueue(0, one)
			if s.kept < 0 {
				if !o.Dropped || one.Trimmed || !bytes.Equal(one.Data, data) {
					t.Errorf("%s: %+v, want it dropped as it was", s.name, o)
				}
				continue
			}
			want := written(t, s, trimDSCP, s.kept)
			if s.stale {
				copy(want[34:], data[34:trimSize])
			}
			if !bytes.Equal(one.Data, want) {
				t.Errorf("%s of %d bytes:\n% x, want\n% x", s.name, length, one.Data, want)
			}
			if want := map[bool]Reason{true: Tail, false: Buffer}[length < 1000]; o.Dropped ||
				o.Queue != express || o.Reason != want {
				t.Errorf("%s: %+v", s.name, o)
			}
			if !one.Trimmed || one.Length != len(data) || one.Priority != express {
				t.Errorf("%s: trimmed %t, length %d, priority %d", s.name, one.Trimmed, one.Length,
					one.Priority)
			}
			headers := one.Headers
			if one.Parse(); one.Headers != headers {
				t.Errorf("%s: headers %+v, want %+v", s.name, headers, one.Headers)
			}
		}
	}
}

// A checksum that a sender left out stays left out.
func TestTrimKeepsAMissingChecksum(t *testing.T) {
	data := written(t, samples[0], dataDSCP, 1300)
	data[40], data[41] = 0, 0
	one := &packet.Packet{Data: data, Priority: dataQueue, Ingress: -1}
	one.Parse()
	trimPort(t, 1000).Enqueue(0, one)
	if !one.Trimmed || one.Data[40]|one.Data[41] != 0 {
		t.Errorf("trimmed %t, checksum % x", one.Trimmed, one.Data[40:42])
	}
}

// A bit that a link flipped before may be in the remaining or in the removed bytes. It shows in the
// checksum of the trimmed packet, as it would have in the whole packet.
func TestTrimKeepsDamageVisible(t *testing.T) {
	for _, s := range samples[:3] {
		for _, size := range []int{trimSize, trimSize + 1} {
			for _, at := range []int{trimSize - 1, trimSize - 2, 500, 501, 0} {
				data := written(t, s, dataDSCP, 1301)
				if at > 0 {
					data[at] ^= 0x10
				}
				one := &packet.Packet{Data: data, Priority: dataQueue, Ingress: -1}
				one.Parse()
				p := trimPort(t, 1000)
				p.trim.size = size
				p.Enqueue(0, one)
				h := &one.Headers
				datagram := wire.UDP(one.Data[h.L4:])
				pseudo := wire.PseudoIPv6(h.Src, h.Dst, wire.ProtocolUDP, len(datagram))
				if h.Has(wire.IsIPv4) {
					pseudo = wire.PseudoIPv4([4]byte(h.Src[12:]), [4]byte(h.Dst[12:]), wire.ProtocolUDP,
						len(datagram))
				}
				if !one.Trimmed || len(one.Data) != size || datagram.ChecksumValid(pseudo) != (at == 0) {
					t.Errorf("%s cut to %d, byte %d damaged: trimmed %t to %d, checksum valid %t", s.name,
						size, at, one.Trimmed, len(one.Data), datagram.ChecksumValid(pseudo))
				}
			}
		}
	}
}

// The headers are kept whole, whatever the size, and 24 bytes from UDP's on.
func TestTrimKeepsHeaders(t *testing.T) {
	p := trimPort(t, 1000)
	p.trim.size = 64
	one := &packet.Packet{Data: written(t, samples[1], dataDSCP, 1300), Priority: dataQueue, Ingress: -1}
	one.Parse()
	p.Enqueue(0, one)
	if want := 14 + 40 + 24; len(one.Data) != want {
		t.Errorf("%d bytes are left, want %d", len(one.Data), want)
	}
}

// A packet that is not trimmed is dropped for the reason of its refusal. A packet that was trimmed
// once is dropped when the express queue has no room.
func TestWhatIsNotTrimmed(t *testing.T) {
	for name, c := range map[string]struct {
		room   int
		change func(*packet.Packet)
		want   Reason
	}{
		"another priority": {100, func(one *packet.Packet) { one.Priority = 2 }, Buffer},
		"trimmed before":   {100, func(one *packet.Packet) { one.Trimmed = true }, Buffer},
		"not longer": {100, func(one *packet.Packet) {
			one.Data = written(t, samples[0], dataDSCP, trimSize-42)
		}, Buffer},
		"truncated":       {100, func(one *packet.Packet) { one.Data = one.Data[:200] }, Buffer},
		"express is full": {trimSize - 1, func(*packet.Packet) {}, Express},
		"a trimmed one": {64, func(one *packet.Packet) {
			one.Trimmed, one.Priority = true, express
		}, Buffer},
		"lossless": {100, func(one *packet.Packet) { one.Priority, one.Ingress = 3, 0 }, Headroom},
	} {
		one := &packet.Packet{Data: written(t, samples[0], dataDSCP, 2300), Priority: dataQueue, Ingress: -1}
		c.change(one)
		one.Parse()
		before, data := *one, append([]byte(nil), one.Data...)
		p := trimPort(t, c.room)
		o := p.Enqueue(0, one)
		if !o.Dropped || o.Reason != c.want || !bytes.Equal(one.Data, data) ||
			one.Trimmed != before.Trimmed || one.Priority != before.Priority {
			t.Errorf("%s: %+v, want it dropped as it was for reason %d", name, o, c.want)
		}
	}
}

// RED's mark signals the same as a trimmed packet itself. So RED marks no trimmed packet, neither
// one trimmed here nor one trimmed before.
func TestTrimmedPacketsAreNotMarked(t *testing.T) {
	p := trimPort(t, 10_000)
	p.marker = newMarker(&plan.ECN{Kind: spec.RED, KMin: 100, KMax: 200, PMax: units.Ratio{Num: 1, Den: 1},
		Priorities: []int{dataQueue, express}}, 1)
	offer := func(length int, change func(*packet.Packet)) (Outcome, *packet.Packet) {
		one := &packet.Packet{Data: written(t, samples[0], dataDSCP, length), Priority: express, Ingress: -1}
		one.Parse()
		change(one)
		return p.Enqueue(0, one), one
	}
	whole := func(*packet.Packet) {}
	offer(400, whole)
	if o, one := offer(400, whole); !o.Marked || one.Trimmed {
		t.Fatalf("a whole packet behind %d bytes: %+v, want a mark", o.Depth, o)
	}
	for name, change := range map[string]func(*packet.Packet){
		"cut here":   func(one *packet.Packet) { one.Priority = dataQueue },
		"cut before": func(one *packet.Packet) { one.Trimmed = true },
	} {
		if o, one := offer(1300, change); o.Dropped || !one.Trimmed || o.Marked || o.Queue != express ||
			one.Headers.ECN != wire.ECT0 {
			t.Errorf("%s: %+v, trimmed %t, ECN %d; want it trimmed and not marked", name, o, one.Trimmed,
				one.Headers.ECN)
		}
	}
}

// Trimmed packets go ahead of the data that wait.
func TestTrimmedPacketsGoFirst(t *testing.T) {
	sw := softSwitch(100_000, 1)
	sw.Soft.Trim = &plan.Trim{Size: trimSize, DSCP: trimDSCP, Queue: express, Priorities: []int{dataQueue}}
	sw.Soft.Scheduler.Strict = []int{express}
	sw.Soft.Scheduler.Weights[express] = 0
	_, ports := memory(t, sw, nil)
	trimmed := 0
	for trimmed < 10 {
		if o := ports[0].Enqueue(0, frameOf(1000, dataQueue)); o.Dropped {
			t.Fatalf("dropped: %+v", o)
		} else if o.Reason != Accepted {
			trimmed++
		}
	}
	for range 10 {
		if one := ports[0].Dequeue(0); !one.Trimmed || len(one.Data) != trimSize {
			t.Fatalf("sent a frame of %d bytes, want a trimmed one of %d", len(one.Data), trimSize)
		}
	}
	if one := ports[0].Dequeue(0); one.Trimmed {
		t.Error("a packet that was accepted is trimmed")
	}
}
