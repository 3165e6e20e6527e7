package roce

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/internal/kernel"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// cutting is two sockets at an address of the loopback device, and who sees what goes
// between them.
type cutting struct {
	*testing.T
	from, to *socket
	sniffer  int // a raw socket
	psn      infiniband.PSN
}

func newCutting(t *testing.T, at string) *cutting {
	c := &cutting{T: t}
	addr := netip.MustParseAddr(at)
	for _, s := range []**socket{&c.from, &c.to} {
		one, err := openSocket(&DeviceConfig{Addr: addr, DSCP: defaultDSCP}, 1024)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { one.close() })
		*s = one
	}
	var err error
	if c.sniffer, err = unix.Socket(c.to.family(), unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_UDP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c.sniffer) })
	return c
}

// message puts a message of a WRITE, of 1,024 bytes a packet, into the batch, and
// returns how many packets it is.
func (c *cutting) message(size int) (packets int) {
	last := (size+1023)/1024 - 1
	for i := range last + 1 {
		o := infiniband.WriteMiddle
		switch {
		case i == 0:
			o = infiniband.WriteFirst
		case i == last:
			o = infiniband.WriteLast
		}
		part := min(size-i*1024, 1024)
		p := c.from.room()[:infiniband.Len(o, part)]
		p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, PKey: infiniband.PKey,
			DestQP: c.to.number(1), PSN: c.psn}}, part)
		copy(p.Payload(), bytes.Repeat([]byte{byte(c.psn)}, part))
		c.psn = c.psn.Add(1)
		c.from.add(c.to.addr, sourcePort(c.from.number(1)), len(p))
	}
	return last + 1
}

// sent sends the batch, and is the PSNs of the packets that arrive.
func (c *cutting) sent(want int) (psns []infiniband.PSN) {
	c.Helper()
	if err := c.from.send(); err != nil || c.from.out.count > 0 {
		c.Fatal(err, c.from.out.count)
	}
	for deadline := time.Now().Add(time.Second); len(psns) < want && time.Now().Before(deadline); {
		list, err := c.to.receive()
		if err != nil {
			c.Fatal(err)
		}
		for _, a := range list {
			psn := a.packet.BTH().PSN()
			if payload := a.packet.Payload(); !bytes.Equal(payload,
				bytes.Repeat([]byte{byte(psn)}, len(payload))) {
				c.Errorf("packet %d is not what was sent", psn)
			}
			psns = append(psns, psn)
		}
	}
	return psns
}

// seen returns the IP packets that the packet socket on the link captured, for IPv6 without header.
func (c *cutting) seen() (all [][]byte) {
	for {
		b := make([]byte, 1<<16)
		n, _, err := unix.Recvfrom(c.sniffer, b, 0)
		if err != nil {
			return all
		}
		all = append(all, b[:n])
	}
}

// What finds the ring full is counted.
func TestOverruns(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	c := newCutting(t, "127.0.0.1")
	sent, came := 0, 0
	for range 600 {
		sent += c.message(16 * 1024)
		if err := c.from.send(); err != nil {
			t.Fatal(err)
		}
	}
	for {
		list, err := c.to.receive()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		came += len(list)
	}
	lost := c.to.ring.lost()
	if lost == 0 || came == 0 || int(lost) > sent-came {
		t.Errorf("%d of %d packets came, and %d had no room", came, sent, lost)
	}
	if err := c.to.close(); err != nil || c.to.ring.lost() != lost {
		t.Errorf("once closed: %v, and %d had no room, want %d", err, c.to.ring.lost(), lost)
	}
}

// TestCut: packets of a message are sent in few messages, and arrive unchanged. They arrive whole
// if the kernel passes them on uncut, and one by one if it cuts them. Then each is a packet of
// RoCEv2 with the ICRC of its own IP header. A packet that was changed is refused, and no other
// packet with it.
func TestCut(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	ns, err := kernel.CurrentNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	conn, err := kernel.OpenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, cut := range []bool{false, true} {
		if cut {
			if err := conn.TurnOffloadsOff("lo"); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []string{"127.0.0.1", "::1"} {
			t.Run(fmt.Sprintf("cut=%v/%s", cut, at), func(t *testing.T) {
				c := newCutting(t, at)
				n := c.message(20*1024) + c.message(5000) + c.message(1500)
				if m := c.from.out.messages; m != 5 { // two, two, and the last of two packets
					t.Errorf("%d packets are %d messages", n, m)
				}
				want := make([]infiniband.PSN, n)
				for i := range want {
					want[i] = infiniband.PSN(i)
				}
				if got := c.sent(n); !slices.Equal(got, want) || c.to.badICRC.Load() != 0 {
					t.Errorf("PSNs %v arrive, and %d packets with a wrong ICRC", got, c.to.badICRC.Load())
				}
				c.checkSent(cut, n)
				c.psn = 0
				n = c.message(20 * 1024)
				c.from.out.buffers[7*c.from.out.size+c.from.headersLen()+500] ^= 1
				if got := c.sent(n - 1); len(got) != n-1 || slices.Contains(got, 7) ||
					c.to.badICRC.Load() != 1 {
					t.Errorf("with packet 7 changed PSNs %v arrive, and %d are refused", got,
						c.to.badICRC.Load())
				}
			})
		}
	}
}

// checkSent checks the captured packets.
func (c *cutting) checkSent(cut bool, packets int) {
	c.Helper()
	all := c.seen()
	if !cut {
		if len(all) >= packets {
			c.Errorf("%d packets went as %d", packets, len(all))
		}
		return
	}
	if len(all) != packets {
		c.Errorf("%d packets went as %d", packets, len(all))
	}
	for _, b := range all {
		if c.to.addr.Is4() {
			h := wire.IPv4(b)
			if !h.DontFragment() || h.ECN() != wire.ECT0 || h.DSCP() != defaultDSCP ||
				!infiniband.Packet(b[infiniband.HeadersIPv4:]).ICRCValid(b[:infiniband.HeadersIPv4]) {
				c.Errorf("%x... of %d bytes, identification %d, has a wrong ICRC or class", b[:60], len(b),
					h.ID())
			}
		}
		if c.to.addr.Is4() {
			b = b[wire.IPv4MinLen:]
		}
		if port := wire.UDP(b).SrcPort(); port != sourcePort(c.from.number(1)) {
			c.Errorf("a packet comes from port %d", port)
		}
	}
}

// TestUncut: where the kernel refuses to cut, all packets go nevertheless.
func TestUncut(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	for _, at := range []string{"127.0.0.1", "::1"} {
		c := newCutting(t, at)
		n := c.message(10 * 1024)
		o := &c.from.out
		o.controls[0].Cut(&o.headers[0], 1) // into more pieces than it may
		if got := c.sent(n); len(got) != n || !o.whole || c.to.badICRC.Load() != 0 {
			t.Errorf("PSNs %v of %d arrive, and %d packets with a wrong ICRC", got, n, c.to.badICRC.Load())
		}
		if all := c.seen(); len(all) != n {
			t.Errorf("%d packets went as %d", n, len(all))
		}
	}
}

// TestInterfaceDown: a socket whose interface was down waits as before, and receives when the
// interface is up again.
func TestInterfaceDown(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	s, err := openSocket(&DeviceConfig{Addr: netip.MustParseAddr("127.0.0.1"), NIC: "lo",
		DSCP: defaultDSCP}, 1024)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	sh(t, "ip link set lo down", nil)
	const rest = 20 * time.Millisecond
	c := clock.New(1)
	s.wait(c, clock.Never, false) // this wait reads the socket's error
	began := time.Now()
	if s.wait(c, c.Now().Add(rest), false); time.Since(began) < rest {
		t.Errorf("a wait of %v took %v", rest, time.Since(began))
	}
	sh(t, "ip link set lo up", nil)
	w := &cutting{T: t, from: s, to: s}
	if got := w.sent(w.message(3000)); len(got) != 3 {
		t.Errorf("PSNs %v arrive", got)
	}
}
