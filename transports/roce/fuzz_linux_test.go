package roce

import (
	"bytes"
	"net/netip"
	"testing"

	"railbed/transports/infiniband"
)

// FuzzAddress: an address is read as it was written, and nothing else is one.
func FuzzAddress(f *testing.F) {
	for _, at := range []string{"10.0.0.1", "fd00::1"} {
		f.Add(address{life: 1 << 60, at: netip.MustParseAddr(at), port: 20_001, mtu: 3, selective: true}.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAddress(b); err == nil && !bytes.Equal(a.encode(), b) {
			t.Errorf("%x is %+v, which is %x", b, a, a.encode())
		}
	})
}

// FuzzParse: what a raw socket gives is read without a panic, and is a packet only if
// its ICRC is right.
func FuzzParse(f *testing.F) {
	for _, d := range []*socket{{addr: netip.MustParseAddr("10.0.0.1"), dscp: 26}, {addr: netip.MustParseAddr("fd00::1"), dscp: 26}} {
		d.memory(256)
		p := d.room()[:infiniband.Len(infiniband.WriteOnly, 5)]
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly, PKey: infiniband.PKey}}, 5)
		d.add(d.addr, 9, len(p))
		sent := d.out.buffers[:d.headersLen()+len(p)]
		f.Add(sent, []byte{}, d.addr.Is6())
		f.Add(sent[d.headersLen()-8:], make([]byte, 20), true)
	}
	f.Fuzz(func(t *testing.T, data, control []byte, v6 bool) {
		d := &socket{addr: netip.MustParseAddr("10.0.0.1")}
		if v6 {
			d.addr = netip.MustParseAddr("fd00::1")
		}
		data = bytes.Clone(data)
		a, ok := d.parse(d.addr, data, control)
		if !ok {
			return
		}
		a.packet[len(a.packet)-1] ^= 1
		if _, ok := d.parse(d.addr, data, control); ok || !a.packet.Valid() {
			t.Errorf("%x is taken with its ICRC as it is, and with another", data)
		}
	})
}
