package medium

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// frame is an IPv4 frame between two hosts.
func frame(src, dst byte, protocol uint8, payload []byte) *packet.Packet {
	data := make([]byte, wire.EthernetLen+wire.IPv4MinLen+len(payload))
	wire.Ethernet(data).Encode(&wire.EthernetFields{Dst: wire.MAC{2, 0, 0, 0, 0, dst},
		Src: wire.MAC{2, 0, 0, 0, 0, src}, EtherType: wire.EtherTypeIPv4})
	copy(data[wire.EthernetLen+wire.IPv4MinLen:], payload)
	wire.IPv4(data[wire.EthernetLen:]).Encode(&wire.IPv4Fields{
		TotalLength: uint16(len(data) - wire.EthernetLen),
		TTL:         64,
		Protocol:    protocol,
		Src:         [4]byte{10, 0, 0, src},
		Dst:         [4]byte{10, 0, 0, dst},
	})
	one := &packet.Packet{Data: data}
	one.Parse()
	return one
}

func tcp(src, dst byte, srcPort, dstPort uint16, flags wire.TCPFlags, sequence uint32) *packet.Packet {
	payload := make([]byte, wire.TCPMinLen)
	wire.TCP(payload).Encode(&wire.TCPFields{SrcPort: srcPort, DstPort: dstPort, Flags: flags, Seq: sequence})
	return frame(src, dst, wire.ProtocolTCP, payload)
}

func udp(srcPort, dstPort uint16) *packet.Packet {
	payload := make([]byte, wire.UDPLen)
	binary.BigEndian.PutUint16(payload, srcPort)
	binary.BigEndian.PutUint16(payload[2:], dstPort)
	binary.BigEndian.PutUint16(payload[4:], wire.UDPLen)
	return frame(1, 2, wire.ProtocolUDP, payload)
}

func icmp(kind uint8, id uint16) *packet.Packet {
	payload := make([]byte, wire.ICMPLen)
	wire.ICMPv4(payload).Encode(&wire.ICMPFields{Type: kind, Rest: wire.EchoRest(id, 1)})
	return frame(1, 2, wire.ProtocolICMPv4, payload)
}

// marks are the flow and ordinal of each packet in turn.
func marks(f *Flows, packets ...*packet.Packet) [][2]uint64 {
	all := make([][2]uint64, len(packets))
	for i, one := range packets {
		f.Mark(one)
		all[i] = [2]uint64{one.Flow, one.Ordinal}
	}
	return all
}

const (
	syn    = wire.TCPSYN
	synAck = wire.TCPSYN | wire.TCPACK
	ack    = wire.TCPACK
)

// TestRunsAreAlike plays two runs of one program, whose kernels chose other
// ephemeral ports, identifiers and sequence numbers: the marks are the same.
func TestRunsAreAlike(t *testing.T) {
	run := func(port, id uint16, sequence uint32) [][2]uint64 {
		return marks(NewFlows(1, "h0", "eth0", nil),
			tcp(1, 2, port, 80, syn, sequence), tcp(1, 2, port, 80, ack, sequence+1),
			tcp(1, 2, port+1, 80, syn, sequence+9),
			tcp(1, 2, port, 80, ack, sequence+2), tcp(1, 2, port+1, 80, ack, sequence+10),
			tcp(1, 3, port+2, 80, syn, 7),
			tcp(1, 2, 22, port+3, synAck, sequence), tcp(1, 2, 22, port+3, ack, sequence+1),
			tcp(1, 2, port+4, port+5, syn, sequence), // a listener that let its kernel choose
			udp(port, 53), udp(port+1, 53), udp(port, 53), udp(7777, 7778), udp(port, port+9),
			// a hash, in the ephemeral range or not
			udp(port+7, 4791), udp(port+7, 4791), udp(port/10+60000, 4791),
			icmp(wire.ICMPv4Echo, id), icmp(wire.ICMPv4Echo, id), icmp(wire.ICMPv4Echo, id+1),
			icmp(wire.ICMPv4EchoReply, id),
		)
	}
	first, second := run(40000, 77, 1), run(51234, 4242, 1<<31)
	for i := range first {
		if first[i] != second[i] {
			t.Errorf("packet %d: %v in one run, %v in another", i, first[i], second[i])
		}
	}
}

// TestFlowsAreTold apart: each line is packets with the number of the flow that
// each belongs to.
func TestFlowsAreTold(t *testing.T) {
	fragment := func(protocol uint8, offset uint16, more bool) *packet.Packet {
		one := frame(1, 2, protocol, make([]byte, 64))
		wire.IPv4(one.Data[wire.EthernetLen:]).Encode(&wire.IPv4Fields{
			TotalLength:   84,
			TTL:           64,
			Protocol:      protocol,
			Src:           [4]byte{10, 0, 0, 1},
			Dst:           [4]byte{10, 0, 0, 2},
			Offset:        offset,
			MoreFragments: more,
		})
		one.Parse()
		return one
	}
	ether := func(dst byte, kind uint16) *packet.Packet {
		one := &packet.Packet{Data: []byte{2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, 1, byte(kind >> 8), byte(kind),
			0, 0}}
		one.Parse()
		return one
	}
	planned := newPorts(32768, 60999, 50000, 50001, 49200)
	for what, c := range map[string]struct {
		ports   *Ports
		packets []*packet.Packet
		flows   []int
	}{
		"a repeated SYN goes on, a new one begins": {nil,
			[]*packet.Packet{tcp(1, 2, 40000, 80, syn, 5), tcp(1, 2, 40000, 80, syn, 5),
				tcp(1, 2, 40000, 80, ack, 6), tcp(1, 2, 40000, 80, syn, 999),
				tcp(1, 2, 40000, 80, ack, 1000)},
			[]int{0, 0, 0, 1, 1}},
		"a SYN begins what was met in the middle": {nil,
			[]*packet.Packet{tcp(1, 2, 40000, 80, ack, 5), tcp(1, 2, 40000, 80, ack, 6),
				tcp(1, 2, 40000, 80, syn, 7)},
			[]int{0, 0, 1}},
		"addresses, protocols and services": {nil,
			[]*packet.Packet{tcp(1, 2, 40000, 80, syn, 5), tcp(1, 3, 40000, 80, syn, 5),
				tcp(1, 2, 40000, 81, syn, 5), udp(40000, 80), tcp(1, 2, 80, 40000, synAck, 5)},
			[]int{0, 1, 2, 3, 4}},
		"UDP with planned ports at both ends": {planned,
			[]*packet.Packet{udp(50000, 4791), udp(50001, 4791), udp(50000, 4791), udp(50001, 50000),
				udp(49200, 4791)},
			[]int{0, 1, 0, 2, 3}},
		"fragments": {nil,
			[]*packet.Packet{fragment(17, 0, true), fragment(17, 64, true), fragment(17, 128, false),
				fragment(6, 64, false), udp(1, 2)},
			[]int{0, 0, 0, 1, 2}},
		"ICMP": {nil,
			[]*packet.Packet{icmp(8, 1), icmp(8, 2), icmp(0, 1), icmp(8, 1), icmp(11, 1), icmp(11, 2),
				icmp(3, 9)},
			[]int{0, 1, 2, 0, 3, 3, 4}},
		"others": {nil,
			[]*packet.Packet{frame(1, 2, 47, make([]byte, 8)), frame(1, 2, 47, nil), frame(1, 2, 132, nil),
				ether(9, 0x806), ether(9, 0x806), ether(8, 0x806), ether(9, 0x88cc)},
			[]int{0, 0, 1, 2, 2, 3, 4}},
	} {
		known := map[uint64]int{}
		count := map[int]uint64{}
		for i, m := range marks(NewFlows(1, "h0", "eth0", c.ports), c.packets...) {
			number, seen := known[m[0]]
			if !seen {
				number = len(known)
				known[m[0]] = number
			}
			count[number]++
			if number != c.flows[i] || m[1] != count[number] {
				t.Errorf("%s: packet %d is number %d of flow %d, want %d of flow %d", what, i, m[1], number,
					count[number], c.flows[i])
			}
		}
	}
}

// TestPlannedPortIsTheFlow: with planned source ports the order of beginning does
// not matter.
func TestPlannedPortIsTheFlow(t *testing.T) {
	ports := newPorts(32768, 60999, 50000, 50001)
	one := marks(NewFlows(1, "h0", "eth0", ports), udp(50000, 4791), udp(50001, 4791))
	two := marks(NewFlows(1, "h0", "eth0", ports), udp(50001, 4791), udp(50000, 4791))
	if one[0] != two[1] || one[1] != two[0] {
		t.Errorf("in one order %v, in the other %v", one, two)
	}
	other := marks(NewFlows(1, "h0", "eth1", ports), udp(50000, 4791))
	if other[0] == one[0] {
		t.Error("two NICs have one flow")
	}
}

// TestFlowsForget fills a NIC's memory: the latest connections are known, the
// others begin anew, and nothing grows.
func TestFlowsForget(t *testing.T) {
	f := NewFlows(1, "h0", "eth0", nil)
	for i := range uint16(2 * maxFlows) {
		f.Mark(udp(1000+i, 1))
		f.Mark(udp(1000, 1)) // one goes on all the time
	}
	kept := udp(1000, 1)
	f.Mark(kept)
	if kept.Ordinal != 2*maxFlows+2 {
		t.Errorf("the busy flow's packet is number %d, want %d", kept.Ordinal, 2*maxFlows+2)
	}
	for _, c := range []struct {
		flow uint16
		want uint64
	}{{2*maxFlows - 1, 2}, {maxFlows + 1, 2}, {maxFlows, 1}, {5, 1}} {
		one := udp(1000+c.flow, 1)
		if f.Mark(one); one.Ordinal != c.want {
			t.Errorf("flow %d: packet %d, want %d", c.flow, one.Ordinal, c.want)
		}
	}
	if n := len(f.open.slots); n != maxFlows || cap(f.open.slots) != maxFlows ||
		len(f.services.slots) != maxFlows {
		t.Errorf("%d connections and %d services are remembered", n, len(f.services.slots))
	}
}

// TestBounded compares the table with a list that is searched from end to end.
func TestBounded(t *testing.T) {
	type kept struct{ key, value int }
	for _, limit := range []int{1, 2, 16, 17, 100} {
		table := bounded[int, int]{limit: limit}
		var list []kept // newest last
		r := rand.New(rand.NewPCG(uint64(limit), 1))
		for step := range 20_000 {
			key := int(r.ExpFloat64() * float64(limit))
			hash := uint64(key % 13) // chains
			at, found := table.find(hash, key)
			i := len(list) - 1
			for i >= 0 && list[i].key != key {
				i--
			}
			if found != (i >= 0) || found && *at != list[i].value {
				t.Fatalf("limit %d, step %d: key %d found is %t, want %t", limit, step, key, found, i >= 0)
			}
			one := kept{key, step}
			if found {
				list = append(list[:i], list[i+1:]...)
			} else {
				at = table.add(hash, key)
				if *at != 0 {
					t.Fatalf("limit %d, step %d: a new key has the value %d", limit, step, *at)
				}
				if len(list) == limit {
					list = list[1:]
				}
			}
			*at = step
			list = append(list, one)
		}
	}
}

func TestMarkAllocatesNothing(t *testing.T) {
	f := NewFlows(1, "h0", "eth0", nil)
	packets := make([]*packet.Packet, 3*maxFlows)
	for i := range packets {
		packets[i] = tcp(1, 2, uint16(i), 80, syn, uint32(i))
	}
	marks(f, packets...)
	i := 0
	if n := testing.AllocsPerRun(len(packets), func() {
		f.Mark(packets[i%len(packets)])
		i++
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

// FuzzMark takes any frame: no panic, and a place in a flow.
func FuzzMark(f *testing.F) {
	for _, one := range []*packet.Packet{tcp(1, 2, 3, 4, syn, 5), udp(1, 2), icmp(8, 1), frame(1, 2, 1, nil),
		{}} {
		f.Add(one.Data)
	}
	flows := NewFlows(1, "h0", "eth0", nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		one := &packet.Packet{Data: data}
		one.Parse()
		flows.Mark(one)
		if one.Flow == 0 || one.Ordinal == 0 {
			t.Errorf("flow %d, packet %d", one.Flow, one.Ordinal)
		}
	})
}

func BenchmarkMark(b *testing.B) {
	for _, count := range []int{1, 64, maxFlows} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			f := NewFlows(1, "h0", "eth0", nil)
			packets := make([]*packet.Packet, count)
			for i := range packets {
				packets[i] = udp(uint16(i), 53)
			}
			b.ReportAllocs()
			for i := range b.N {
				f.Mark(packets[i%count])
			}
		})
	}
}

// TestInterleavingChangesNothing plays one connection twice through a NIC and a link. The second
// time it has other ephemeral ports, and among its packets are other connections of the node in
// another order and number. The same of its packets are lost, corrupted, duplicated and held back.
func TestInterleavingChangesNothing(t *testing.T) {
	const packets = 5000
	run := func(port uint16, others func(i int) int) (fates []fate) {
		f := NewFlows(3, "h0", "eth0", nil)
		m := New(everything, Seed(3, "h0--leaf1", true))
		now, other := clock.Time(0), uint32(0)
		next := func(one *packet.Packet) fate {
			now += 1e6
			f.Mark(one)
			return send(m, now, one.Flow, one.Ordinal)
		}
		fates = append(fates, next(tcp(1, 2, port, 80, syn, uint32(port))))
		for i := range packets {
			for range others(i) {
				other++
				next(tcp(1, byte(2+other%3), port+1+uint16(other%50), 81, syn, other/9))
				next(udp(port+uint16(other%7), 53))
			}
			fates = append(fates, next(tcp(1, 2, port, 80, ack, uint32(i))))
		}
		return fates
	}
	first := run(40000, func(int) int { return 0 })
	second := run(50123, func(i int) int { return i * 7919 % 4 })
	hit := 0
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("packet %d: %+v in one run, %+v in the other", i, first[i], second[i])
		}
		if first[i].reason != Arrives || first[i].corrupt >= 0 || first[i].again != clock.Never {
			hit++
		}
	}
	if hit < packets/10 {
		t.Errorf("only %d packets met a fault", hit)
	}
}
