package roce

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// datagram sends an IP packet as it is.
func (v *villain) datagram(to netip.Addr, b []byte) {
	v.t.Helper()
	v.add(to, 0xC000, v.out.size-v.headersLen())
	i := v.out.count - 1
	v.out.vectors[i].SetLen(copy(v.out.buffers[i*v.out.size:][:v.out.size], b))
	v.flush()
}

// write returns a UDP datagram with a WRITE of 100 bytes that the responder expects next. more is
// added to the length in the UDP header, and behind bytes follow the ICRC.
func (w *attacked) write(payload []byte, more, behind int) []byte {
	there := w.linkOf(w.b)
	n := infiniband.Len(infiniband.WriteOnly, len(payload))
	b := make([]byte, wire.UDPLen+n+behind)
	wire.UDP(b).Encode(&wire.UDPFields{SrcPort: 0xC000, DstPort: infiniband.Port,
		Length: uint16(len(b) + more)})
	infiniband.Packet(b[wire.UDPLen:][:n]).Encode(&infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly, PKey: infiniband.PKey, DestQP: there.number,
			PSN: there.psn.Add(1)},
		RETH: infiniband.RETHFields{VA: uint64(binary.BigEndian.Uint32(w.region.Remote()[4:])) << baseShift,
			RKey: binary.BigEndian.Uint32(w.region.Remote()), Length: uint32(len(payload))},
	}, len(payload))
	copy(infiniband.Packet(b[wire.UDPLen:][:n]).Payload(), payload)
	return b
}

// inIP puts what follows 20 bytes into an IPv4 packet, from the peer as it seems, whose
// header has some of it as options.
func (w *attacked) inIP(rest []byte, options int) []byte {
	b := make([]byte, wire.IPv4MinLen, wire.IPv4MinLen+len(rest))
	wire.IPv4(b).Encode(&wire.IPv4Fields{
		DSCP:         defaultDSCP,
		TotalLength:  uint16(cap(b)),
		ID:           1,
		DontFragment: true,
		TTL:          ttl,
		Protocol:     wire.ProtocolUDP,
		Src:          w.a.config.Addr.As4(), Dst: w.b.config.Addr.As4(),
	})
	b[0] += byte(options / 4)
	return append(b, rest...)
}

// sealed sets the ICRC of a packet that begins at at and ends behind bytes before the end, with the
// 8 bytes at udp as its UDP header. A receiver that assumes these bounds finds it right.
func sealed(b []byte, at, behind, udp int) []byte {
	infiniband.Packet(b[at : len(b)-behind]).Seal(
		append(bytes.Clone(b[:wire.IPv4MinLen]), b[udp:][:wire.UDPLen]...))
	return b
}

// TestMalformedDatagrams: a datagram with an IP or UDP header that RoCEv2 does not permit writes
// nothing. It comes from the peer's address, with every number right. A receiver that ignores the
// defect would find its ICRC right, too.
func TestMalformedDatagrams(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	w := newAttacked(t, 0)
	v := newVillain(t, "127.0.0.3")
	payload := bytes.Repeat([]byte{0xEE}, 100)
	// UDP, BTH and RETH are one option, with the type and length in the source port. A receiver
	// that skips options finds another UDP header after it, in the payload.
	const options = 36
	optional := w.write(payload, 0, 0)
	wire.UDP(optional).SetSrcPort(0xDE<<8 | options)
	copy(optional[options:], w.write(payload, 0, 0)[:wire.UDPLen+infiniband.BTHLen])
	wire.UDP(optional[options:]).SetLength(uint16(len(optional) - options))
	const begins = infiniband.HeadersIPv4
	padding := bytes.Repeat([]byte{1}, 8) // of options that do nothing
	stepped := append(padding, w.write(payload, 0, 0)...)
	for name, packet := range map[string][]byte{
		"IP options as UDP":                sealed(w.inIP(optional, options), begins, 0, wire.IPv4MinLen),
		"IP options, ICRC of the datagram": sealed(w.inIP(stepped, 8), begins+8, 0, begins),
		"IP options, ICRC of the options":  sealed(w.inIP(stepped, 8), begins+8, 0, wire.IPv4MinLen),
		"UDP shorter than IP, ICRC of all": sealed(w.inIP(w.write(payload, -4, 0), 0), begins, 0,
			wire.IPv4MinLen),
		"UDP shorter than IP, ICRC of it": sealed(w.inIP(w.write(payload, -4, 4), 0), begins, 4,
			wire.IPv4MinLen),
		"UDP longer than IP": sealed(w.inIP(w.write(payload, 4, 0), 0), begins, 0,
			wire.IPv4MinLen),
	} {
		v.datagram(w.b.config.Addr, packet)
		v.processed(&w.b.driver)
		if w.untouched(); t.Failed() {
			t.Fatalf("written by %s", name)
		}
	}
	w.works()
	w = newAttacked(t, 0)
	v.datagram(w.b.config.Addr, sealed(w.inIP(w.write(payload, 0, 0), 0), begins, 0, wire.IPv4MinLen))
	v.processed(&w.b.driver)
	if !bytes.Equal(w.memory[100:200], payload) {
		t.Error("the same in a sound datagram writes nothing: the test is no attack")
	}
}

// TestForeignQKey: a request for a connection is ignored if its Q_Key is not that of the general
// services (IBTA 10.2.5).
func TestForeignQKey(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	d, err := OpenDevice(DeviceConfig{Addr: netip.MustParseAddr("127.0.0.1"), MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Listen(7174); err != nil {
		t.Fatal(err)
	}
	v := newVillain(t, "127.0.0.3")
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(infiniband.AttributeREQ, 1)
	f := infiniband.REQFields{LocalComm: 1, Service: infiniband.TCPService | 7174, MTU: 3}
	infiniband.IPService(f.Private[:]).Encode(&infiniband.IPServiceFields{Version: 4})
	infiniband.REQ(m.CM()).Encode(&f)
	asked := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.asking)
	}
	for _, key := range []uint32{0, 1, infiniband.GSIQKey + 1, infiniband.GSIQKey &^ (1 << 31)} {
		v.say(&d.driver, infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.UDSendOnly,
			DestQP: infiniband.GSI}, DETH: infiniband.DETHFields{QKey: key, SrcQP: infiniband.GSI}}, m)
		if v.processed(&d.driver); asked() != 0 {
			t.Errorf("a request with Q_Key %#x is heard", key)
		}
	}
	v.message(&d.driver, m)
	if v.processed(&d.driver); asked() != 1 {
		t.Error("a request with the right Q_Key is not heard: the test is no attack")
	}
}
