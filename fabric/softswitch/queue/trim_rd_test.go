package queue

import (
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/wire"
)

// rdPayload is a reliable datagram of a type with a payload of zeros, behind room for
// telemetry of so many hops, or without any when there are none.
func rdPayload(kind wire.RDType, length, hops int) gopacket.Payload {
	block := 0
	fields := wire.INTFields{Hops: hops, NextPort: wire.PortRD + 3}
	if hops > 0 {
		block = wire.INTBlockLen(&fields)
	}
	header := wire.RDHeaderLen(kind)
	if kind == wire.RDAck {
		header = wire.RDAckBytes(wire.RDMaxWords, wire.RDMaxEchoes)
	}
	data := make([]byte, block+header+length)
	if hops > 0 {
		wire.INT(data).Encode(&fields)
	}
	base := wire.RDBase{Source: 1, Destination: 3, Tag: 7, Life: 1<<40 | 9, PSN: 12, Length: uint16(length)}
	switch rd := wire.RD(data[block:]); kind {
	case wire.RDAck:
		rd.EncodeAck(base, &wire.RDAckFields{}, make([]uint64, wire.RDMaxWords),
			make([]wire.RDEcho, wire.RDMaxEchoes))
	default:
		rd.EncodeData(base, &wire.RDDataFields{Key: 5, Total: 1 << 20, Sum: wire.RDSum(rd[wire.RDDataLen:])})
	}
	return data
}

// A trimmed reliable datagram has its whole header and its telemetry, and is valid, with any
// headers before it.
func TestTrimmedReliableDatagramsAreValid(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, tagged := range []bool{false, true} {
			for _, hops := range []int{0, 1, 3, 8, 42} {
				one := &packet.Packet{Data: rdFrame(t, v6, tagged, rdPayload(wire.RDData, 4000, hops)),
					Priority: dataQueue, Ingress: -1}
				one.Parse()
				o := trimPort(t, 2000).Enqueue(0, one)
				h := &one.Headers
				if !one.Trimmed || o.Dropped || h.Verdict != wire.WellFormed {
					t.Errorf("IPv6 %t, tag %t, %d hops: trimmed %t, %+v, %v", v6, tagged, hops, one.Trimmed,
						o, h.Verdict)
					continue
				}
				left := one.Data[h.Payload:h.End]
				if hops > 0 {
					if !wire.INT(left).Valid() {
						t.Errorf("IPv6 %t, tag %t, %d hops: %d bytes are no whole block", v6, tagged, hops,
							len(left))
						continue
					}
					left = left[wire.INT(left).Len():]
				}
				rd := wire.RD(left)
				if !rd.Valid() || !rd.Trimmed() || rd.Length() != 4000 || len(one.Data) < trimSize ||
					len(one.Data) > trimSize && len(rd) != wire.RDDataLen {
					t.Errorf("IPv6 %t, tag %t, %d hops: %d bytes are left, %d of the datagram, valid %t", v6,
						tagged, hops, len(one.Data), len(rd), rd.Valid())
				}
			}
		}
	}
}

// What is no data is never cut, and neither is data that would not get shorter.
func TestReliableDatagramsThatAreNotCut(t *testing.T) {
	for name, data := range map[string]gopacket.Payload{
		"acknowledgement":                  rdPayload(wire.RDAck, 0, 0),
		"acknowledgement behind telemetry": rdPayload(wire.RDAck, 0, 8),
		"data without payload":             rdPayload(wire.RDData, 0, 8),
	} {
		one := &packet.Packet{Data: rdFrame(t, true, true, data), Priority: dataQueue, Ingress: -1}
		one.Parse()
		length := len(one.Data)
		if o := trimPort(t, length-1).Enqueue(0, one); !o.Dropped || one.Trimmed || len(one.Data) != length {
			t.Errorf("%s: %+v, %d bytes are left of %d, want it dropped whole", name, o, len(one.Data),
				length)
		}
	}
}

// Whatever fields indicate a block or a header, cutting reads no further than the packet, and
// allocates nothing.
func TestTrimOfDamagedReliableDatagrams(t *testing.T) {
	whole := rdFrame(t, false, false, rdPayload(wire.RDData, 4000, 8))
	for at := 42; at < 42+16; at++ {
		for value := range 256 {
			data := append([]byte(nil), whole...)
			data[at] = byte(value)
			one := &packet.Packet{Data: data, Priority: dataQueue, Ingress: -1}
			one.Parse()
			if o := trimPort(t, 2000).Enqueue(0, one); o.Dropped == one.Trimmed ||
				len(one.Data) > len(whole) {
				t.Fatalf("byte %d is %d: %+v, %d bytes", at, value, o, len(one.Data))
			}
		}
	}
	one := &packet.Packet{Data: whole}
	one.Parse()
	if n := testing.AllocsPerRun(100, func() { headersEnd(one) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func rdFrame(t testing.TB, v6, tagged bool, payload gopacket.Payload) []byte {
	t.Helper()
	next, stack := layers.EthernetTypeIPv4, []gopacket.SerializableLayer(nil)
	datagram := &layers.UDP{SrcPort: wire.PortRDPath, DstPort: wire.PortRD + 3}
	if v6 {
		ip := ipv6(dataDSCP, layers.IPProtocolUDP)
		next = layers.EthernetTypeIPv6
		stack = append(stack, ip, datagram)
		_ = datagram.SetNetworkLayerForChecksum(ip) // it accepts IP
	} else {
		ip := ipv4(dataDSCP, layers.IPProtocolUDP)
		stack = append(stack, ip, datagram)
		_ = datagram.SetNetworkLayerForChecksum(ip) // it accepts IP
	}
	outer := ethernet(next)
	if tagged {
		outer = ethernet(layers.EthernetTypeDot1Q)
		stack = append([]gopacket.SerializableLayer{&layers.Dot1Q{Priority: dataQueue, Type: next}}, stack...)
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buffer, options,
		append(append([]gopacket.SerializableLayer{outer}, stack...), payload)...); err != nil {
		t.Fatal(err)
	}
	return append([]byte(nil), buffer.Bytes()...)
}
