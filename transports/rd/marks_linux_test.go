package rd

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
	"railbed/transports"
)

// TestMarks holds how each type of packet leaves, as sections 1.1 and 1.2 of the
// document have it: where from and to, with which DSCP, and whether it is ECN-capable.
// The peer is a plain socket, which never answers.
func TestMarks(t *testing.T) {
	for name, at := range map[string]netip.Addr{"IPv4": ownLoopback(), "IPv6": netip.IPv6Loopback()} {
		t.Run(name, func(t *testing.T) { testMarks(t, at) })
	}
}

func testMarks(t *testing.T, at netip.Addr) {
	const paths = 3
	a := open(t, Config{Addr: at, Paths: paths, Grain: 1})
	slot := 15 // the last one, which is unused while others are free
	peer, err := net.ListenUDP("udp",
		net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, uint16(wire.PortRD+16*slot))))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	level, option, kind := unix.IPPROTO_IP, unix.IP_RECVTOS, int32(unix.IP_TOS)
	if at.Is6() {
		level, option, kind = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_TCLASS
	}
	raw, err := peer.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlled := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), level, option, 1)
	}); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	to, err := a.AddPeer(address{life: 5 << 32, at: at, port: uint8(16 * slot), engines: 1,
		room: 64}.encode())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	post(t, a, transports.Request{Op: transports.OpWriteImm, Peer: to, Local: make([]byte, 10_000),
		Remote: make([]byte, transports.KeyLen), Context: ctx})
	left := map[wire.RDType]bool{wire.RDData: true, wire.RDProbe: true, wire.RDSkip: true, wire.RDClose: true}
	sources := map[uint16]bool{}
	_ = peer.SetReadDeadline(time.Now().Add(20 * time.Second))
	for len(left) > 0 {
		var data [9000]byte
		var control [64]byte
		n, controls, _, from, err := peer.ReadMsgUDPAddrPort(data[:], control[:])
		if err != nil {
			t.Fatalf("no %v: %v", left, err)
		}
		messages, err := unix.ParseSocketControlMessage(control[:controls])
		if err != nil || len(messages) != 1 || messages[0].Header.Type != kind {
			t.Fatalf("%+v, %v", messages, err)
		}
		tos := int(messages[0].Data[0])
		if at.Is6() {
			tos = int(binary.NativeEndian.Uint32(messages[0].Data))
		}
		b := wire.RD(data[:n])
		if !b.Valid() {
			t.Fatalf("%x", data[:n])
		}
		want := 51 << 2
		if b.Type() == wire.RDData || b.Type() == wire.RDSkip {
			want = 35<<2 | 2
			sources[from.Port()] = true
		}
		if first := a.workers[0].socket.firstPath; tos != want || from.Port() < first ||
			from.Port() >= first+paths || first < 63488 || int(b.Base().Destination) != 16*slot {
			t.Errorf("%v from %v with traffic class %#x, want %#x, for %d", b.Type(), from, tos, want,
				b.Base().Destination)
		}
		if delete(left, b.Type()); b.Type() == wire.RDProbe {
			cancel() // and skips go
		}
		if len(left) == 1 && left[wire.RDClose] {
			go a.Close()
		}
	}
	if len(sources) != paths {
		t.Errorf("data left by %d of %d paths", len(sources), paths)
	}
	cancel()
	a.Close()
}
