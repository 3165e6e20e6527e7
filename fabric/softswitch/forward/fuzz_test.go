package forward

import (
	"bytes"
	"net/netip"
	"testing"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/plan/spec"
)

// FuzzDecide passes any bytes to a router, which has routes for some addresses, and to a bridge.
// There must be no panic, and no packet is lost in the switch. Sent packets and answers are well
// formed and fit the MTU of their link. A forwarded packet has one hop less to live. An answer goes
// to the sender, from one of the switch's own addresses, and never answers an error.
func FuzzDecide(f *testing.F) {
	for _, c := range answers {
		f.Add(octets(f, c.frame), uint8(0))
		f.Add(octets(f, c.answer), uint8(1))
	}
	p := wired(f, "a b", "s t", "a -- s", "b -- t", "s -- t", "s -- t")
	pool := newPool(f)
	s := table(f, p, "s", spec.Flowlet, pool, depths{})
	own := map[netip.Addr]bool{}
	for _, a := range p.Switch("s").Loopbacks {
		own[a.Addr()] = true
	}
	for _, port := range p.Switch("s").Ports {
		for _, a := range port.Addrs {
			own[a.Addr()] = true
		}
	}
	bridge := newStations(f)
	now := clock.Time(0)
	f.Fuzz(func(t *testing.T, data []byte, ingress uint8) {
		if len(data) > pool.Cell() {
			return
		}
		now += 1e6 // slow enough for every answer
		one := put(pool, data)
		before := one.Headers
		port := int(ingress % 3)
		d := s.Decide(now, one, port)
		switch d.Action {
		case Send:
			wellFormed(t, "forwarded", one)
			h := &one.Headers
			if h.TTL != before.TTL-1 || h.TTL == 0 || h.Src != before.Src || h.Dst != before.Dst {
				t.Errorf("%+v becomes %+v", before, one.Headers)
			}
			if len(one.Data)-int(h.L3) > max(p.Switch("s").Ports[d.Port].MTU, 46) {
				t.Errorf("%d bytes leave", len(one.Data))
			}
			if wire.Ethernet(one.Data).Src() != wire.MAC(p.Switch("s").Ports[d.Port].MAC) {
				t.Errorf("it leaves from %s", wire.Ethernet(one.Data).Src())
			}
			if !bytes.Equal(one.Data[h.L4:h.End], data[h.L4:h.End]) {
				t.Error("its payload changed")
			}
		case Reply:
			checkReply(t, d, before.SrcAddr(), own)
			pool.Put(d.Reply)
		case Drop:
			if d.Reason == Forwarded || !bytes.Equal(one.Data, data) {
				t.Errorf("dropped for %s", d.Reason)
			}
		default:
			t.Errorf("a router does %+v", d)
		}
		if pool.Put(one); pool.Used() != 0 {
			t.Fatalf("%d packets are left", pool.Used())
		}
		same := put(bridge.pool, data)
		port = int(ingress % 4)
		if d := bridge.table.Decide(now, same, port); d.Reply != nil || d.Action == Reply ||
			d.Action == Send && d.Port == port || !bytes.Equal(same.Data, data) {
			t.Errorf("a bridge does %+v", d)
		}
		bridge.pool.Put(same)
	})
}

func checkReply(t *testing.T, d Decision, asker netip.Addr, own map[netip.Addr]bool) {
	t.Helper()
	wellFormed(t, "reply", d.Reply)
	rightChecksum(t, "reply", d.Reply)
	h := &d.Reply.Headers
	if h.Verdict != wire.WellFormed {
		t.Errorf("the reply is %s", h.Verdict)
	}
	if h.EtherType == wire.EtherTypeARP {
		return
	}
	discovery := h.Protocol == wire.ProtocolICMPv6 && d.Reply.Data[h.L4] == wire.ICMPv6NeighborAdvertisement
	if !own[h.SrcAddr()] || h.DstAddr() != asker && !discovery {
		t.Errorf("the reply is from %s to %s, asked by %s", h.SrcAddr(), h.DstAddr(), asker)
	}
}
