package porttest

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/internal/kernel"
)

// A node with its offloads on sends packets without checksum, and bursts as one packet. The port
// returns correct frames or none.
func offloads(t *testing.T, driver port.Driver) {
	r := NewRig(t, driver, Settings{Offloads: true})
	p := r.Port(t, port.Options{})
	if err := r.Node.Do(func() error { return setIPv6(NICName, true) }); err != nil {
		t.Fatal(err)
	}
	for _, family := range []struct{ own, peer string }{{"192.0.2.1/24", "192.0.2.2"},
		{"fd00::1/64", "fd00::2"}} {
		peer := netip.MustParseAddr(family.peer)
		conn := r.dialUDP(t, netip.MustParsePrefix(family.own), peer)
		for i := range 100 { // of even and odd lengths
			payload := bytes.Repeat([]byte{byte(i)}, 3+i*13)
			if _, err := conn.Write(payload); err != nil {
				t.Fatal(err)
			}
			frame := nextUDP(t, p)
			if frame == nil {
				t.Fatalf("%s: datagram %d did not come: %+v", family.own, i, stats(t, p))
			}
			if err := checkUDP(frame, payload); err != nil {
				t.Errorf("%s, %d bytes: %v", family.own, len(payload), err)
			}
		}
		refused := func() uint64 { s := stats(t, p); return s.Refused + s.Truncated }
		before := refused()
		segmented(t, conn)
		for i := 0; i < segments && refused() == before; i++ { // the kernel segmented it before
			frame := nextUDP(t, p)
			switch {
			case frame == nil && refused() == before:
				t.Fatalf("%s: the burst left no trace: %+v", family.own, stats(t, p))
			case frame != nil && len(frame) > r.MTU+HeaderLen:
				t.Errorf("%s: a frame of %d bytes came", family.own, len(frame))
			}
		}
	}
	s := stats(t, p)
	t.Logf("%s: %+v", driver, s)
	if driver != port.Tap && (s.ChecksumsCompleted == 0 || s.Refused+s.Truncated == 0) {
		t.Error("no packet came without checksum, or no burst as one: the test shows nothing")
	}
}

// nextUDP returns the next frame with UDP; IPv6 sends other frames by itself.
func nextUDP(t *testing.T, p port.Port) []byte {
	t.Helper()
	e := newEpoll(t, p.Fd(), 0)
	batch := frames(p.Description(), 1)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		n, err := p.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		data := batch[0].Data
		if n == 1 && len(data) >= 42 &&
			(data[12] == 0x08 && data[23] == 17 || data[12] == 0x86 && data[20] == 17) {
			return data
		}
		if s := stats(t, p); n == 0 && e.wait(t, 20*time.Millisecond) == 0 && s.Refused+s.Truncated > 0 {
			return nil
		}
	}
	return nil
}

const segments = 4

// segmented sends one burst that the NIC must segment.
func segmented(t *testing.T, conn *net.UDPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const solUDP = 17
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), solUDP, unix.UDP_SEGMENT, 1000)
	}); err != nil || set != nil {
		t.Fatal(err, set)
	}
	if _, err := conn.Write(make([]byte, segments*1000)); err != nil {
		t.Fatal(err)
	}
}

// dialUDP sets an address and a neighbour on the NIC, and returns a socket to the neighbour.
func (r *Rig) dialUDP(t *testing.T, own netip.Prefix, peer netip.Addr) (conn *net.UDPConn) {
	t.Helper()
	batch := kernel.NewBatch("node", nil)
	batch.AddAddress(NICName, NICIndex, own)
	batch.AddNeighbor(NICName, kernel.Neighbor{Index: NICIndex, Addr: peer,
		MAC: kernel.MAC{2, 0, 0, 0, 0, 9}})
	if err := r.conn.Do(batch); err != nil {
		t.Fatal(err)
	}
	err := r.Node.Do(func() (err error) {
		conn, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own.Addr(), 7000)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, 7001)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// checkUDP checks a frame's checksum by RFC 768: the words of pseudo header, header and payload add
// up to 0xFFFF.
func checkUDP(frame, payload []byte) error {
	var addresses, segment []byte
	switch {
	case frame[12] == 0x08:
		addresses, segment = frame[26:34], frame[34:]
	default:
		addresses, segment = frame[22:54], frame[54:]
	}
	if !bytes.Equal(segment[8:], payload) {
		return fmt.Errorf("payload differs: %d bytes", len(segment)-8)
	}
	covered := append(bytes.Clone(addresses), 0, 17, byte(len(segment)>>8), byte(len(segment)))
	covered = append(covered, segment...)
	if len(covered)%2 == 1 {
		covered = append(covered, 0)
	}
	sum := 0
	for i := 0; i < len(covered); i += 2 {
		sum += int(covered[i])<<8 + int(covered[i+1])
		sum = sum&0xFFFF + sum>>16
	}
	if sum != 0xFFFF {
		return fmt.Errorf("the UDP checksum is wrong: the words add up to %#x, want 0xffff", sum)
	}
	return nil
}
