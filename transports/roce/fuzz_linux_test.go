package roce

import (
	"bytes"
	"net/netip"
	"testing"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
)

// FuzzAddress: an address is read as it was written, and nothing else is one.
func FuzzAddress(f *testing.F) {
	for _, at := range []string{"10.0.0.1", "fd00::1"} {
		f.Add(address{life: 1 << 60, at: netip.MustParseAddr(at), port: 20_001, mtu: 3,
			selective: true}.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAddress(b); err == nil && !bytes.Equal(a.encode(), b) {
			t.Errorf("%x is %+v, which is %x", b, a, a.encode())
		}
	})
}

// FuzzParse: parsing a ring's data never panics, for one packet or for several that the kernel has
// not cut. Data counts as a packet only if its ICRC is right.
func FuzzParse(f *testing.F) {
	for _, d := range []*socket{{addr: netip.MustParseAddr("10.0.0.1"), dscp: 26},
		{addr: netip.MustParseAddr("fd00::1"), dscp: 26}} {
		d.memory(256)
		d.out.whole = true
		p := d.room()[:infiniband.Len(infiniband.WriteOnly, 5)]
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
			PKey: infiniband.PKey}}, 5)
		d.add(d.addr, 9, len(p))
		f.Add(d.out.buffers[:d.headersLen()+len(p)], false, d.addr.Is6())
		f.Add(wholeOf(d, 3, 256, 100), true, d.addr.Is6())
	}
	f.Fuzz(func(t *testing.T, data []byte, whole, v6 bool) {
		d := &socket{addr: netip.MustParseAddr("10.0.0.1")}
		if v6 {
			d.addr = netip.MustParseAddr("fd00::1")
		}
		d.memory(1024)
		data = bytes.Clone(data)
		d.parse(data, whole)
		for _, a := range d.in.list {
			if !a.packet.Valid() {
				t.Fatalf("%x has %x for a packet", data, a.packet)
			}
			a.packet[len(a.packet)-1] ^= 1
		}
		d.in.list = d.in.list[:0]
		if d.parse(data, whole); len(d.in.list) > 0 {
			t.Errorf("%x is taken with its ICRCs as they are, and with others", data)
		}
	})
}

// wholeOf returns the uncut packets of a SEND: so many with a payload of mtu, and one with the
// rest.
func wholeOf(d *socket, packets, mtu, rest int) []byte {
	out := make([]byte, d.headersLen(), 1<<16)
	for i := range packets + 1 {
		o, size := infiniband.SendMiddle, mtu
		if i == packets {
			o, size = infiniband.SendLast, rest
		}
		d.out.count = 0
		n := infiniband.Len(o, size)
		p := d.room()[:n]
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, PKey: infiniband.PKey,
			PSN: infiniband.PSN(i)}}, size)
		whole := append(make([]byte, d.headersLen()), p...)
		d.encode(whole, d.addr, 9, uint16(i))
		p.Seal(whole[:d.headersLen()])
		out = append(out, p...)
	}
	d.out.count = 0
	headers := out[:d.headersLen()]
	if d.addr.Is4() {
		wire.IPv4(headers).Encode(&wire.IPv4Fields{TotalLength: uint16(len(out)), DontFragment: true,
			TTL: ttl, Protocol: wire.ProtocolUDP, Src: d.addr.As4(), Dst: d.addr.As4()})
	} else {
		wire.IPv6(headers).Encode(&wire.IPv6Fields{PayloadLength: uint16(len(out) - wire.IPv6Len),
			NextHeader: wire.ProtocolUDP, Src: d.addr.As16(), Dst: d.addr.As16()})
	}
	wire.UDP(headers[len(headers)-wire.UDPLen:]).Encode(&wire.UDPFields{SrcPort: 9, DstPort: infiniband.Port,
		Length: uint16(len(out) - len(headers) + wire.UDPLen)})
	return out
}
