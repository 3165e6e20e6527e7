package rd

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/wire"
	"railbed/transports/rd/engine"
)

// TestJoined sends packets that the kernel cuts out of one, and passes on as one on the loopback
// device. They arrive as they were sent, each with its path and its mark and without its telemetry.
// The last one has any length.
func TestJoined(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		for _, joins := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, joins=%v", addr, joins), func(t *testing.T) {
				testJoined(t, netip.MustParseAddr(addr), joins)
			})
		}
	}
}

func testJoined(t *testing.T, at netip.Addr, joins bool) {
	sockets, slot, err := openSockets(&Config{Addr: at, Slot: -1, Engines: 1, Paths: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := sockets[0]
	t.Cleanup(func() { s.close() })
	if !s.joins {
		t.Fatal("the kernel joins no datagrams (UDP_GRO)")
	}
	if !joins {
		if err := unix.SetsockoptInt(s.receiver, unix.SOL_UDP, unix.UDP_GRO, 0); err != nil {
			t.Fatal(err)
		}
	}
	var level, option = unix.IPPROTO_IP, unix.IP_TOS
	if at.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
	}
	if err := unix.SetsockoptInt(s.paths[1], level, option, 3); err != nil { // as if it had met congestion
		t.Fatal(err)
	}
	in := newArrivals(batch, 2000, joins)
	for _, lengths := range [][]int{{100}, {1000, 1000, 1000}, {1000, 1000, 1}, {1, 1, 1, 1},
		{1400, 1400, 1400, 1400, 1400, 1399}} {
		for path := range 2 {
			for _, telemetry := range []bool{false, true} {
				var packets []engine.Packet
				var want [][]byte
				for i, n := range lengths {
					payload := bytes.Repeat([]byte{byte(0x80 | i)}, n)
					p := engine.Packet{Peer: -1, To: at, Port: uint8(slot * wire.RDEngines), Path: path,
						Payload: payload}
					if telemetry {
						p.Header = make([]byte, wire.INTLen)
						wire.INT(p.Header).Encode(&wire.INTFields{})
					}
					packets, want = append(packets, p), append(want, payload)
				}
				if err := s.send(packets, nil); err != nil {
					t.Fatal(err)
				}
				checkArrivals(t, s, in, want, s.firstPath+uint16(path), path == 1)
				several := int(in.headers[0].N) > len(packets[0].Header)+lengths[0]
				if several != (joins && len(lengths) > 1) {
					t.Errorf("lengths %v: the first that was received has %d bytes", lengths, in.headers[0].N)
				}
			}
		}
	}
}

// TestKernelCutsNothing sends packets over sockets for which the kernel refuses to cut packets, as
// it does for some devices. Each packet is sent alone, and none is lost or duplicated.
func TestKernelCutsNothing(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	sockets, slot, err := openSockets(&Config{Addr: at, Slot: -1, Engines: 1, Paths: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := sockets[0]
	t.Cleanup(func() { s.close() })
	if err := unix.SetsockoptInt(s.paths[0], unix.SOL_SOCKET, unix.SO_NO_CHECK, 1); err != nil {
		t.Fatal(err)
	}
	in := newArrivals(batch, 2000, s.joins)
	for round := range 2 {
		var packets []engine.Packet
		var want [][]byte
		for i, n := range []int{90, 1000, 1000, 1000, 300, 1000, 1000} { // as up to three messages
			payload := bytes.Repeat([]byte{byte(0x80 | i)}, n)
			packets = append(packets, engine.Packet{Peer: -1, To: at, Port: uint8(slot * wire.RDEngines),
				Payload: payload})
			want = append(want, payload)
		}
		if err := s.send(packets, nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		checkArrivals(t, s, in, want, s.firstPath, false)
		if !s.whole {
			t.Fatal("the kernel cut them")
		}
	}
}

// TestControlTakesAllPaths holds that what may go by any path goes by all in turn.
func TestControlTakesAllPaths(t *testing.T) {
	at := netip.MustParseAddr("127.0.0.1")
	sockets, slot, err := openSockets(&Config{Addr: at, Slot: -1, Engines: 1, Paths: 3})
	if err != nil {
		t.Fatal(err)
	}
	s := sockets[0]
	t.Cleanup(func() { s.close() })
	came := make(map[uint16]int)
	in := newArrivals(batch, 2000, s.joins)
	for range 6 {
		p := engine.Packet{Peer: -1, To: at, Port: uint8(slot * wire.RDEngines), Path: -1, Control: true,
			Header: []byte{0x80}}
		if err := s.send([]engine.Packet{p}, nil); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(2 * time.Second); len(in.list) == 0 && time.Now().Before(end); {
			if err := s.receive(in); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range in.list {
			came[a.Path-s.firstPath]++
		}
		in.list = in.list[:0]
	}
	if len(came) != 3 || came[0] != 2 || came[1] != 2 {
		t.Errorf("by path %v", came)
	}
}

// FuzzArrivals checks that joined datagrams are split for any data, and any length that the kernel
// reports. No byte is added or lost, except for the telemetry in front of each datagram.
func FuzzArrivals(f *testing.F) {
	block := make([]byte, wire.INTLen)
	wire.INT(block).Encode(&wire.INTFields{})
	f.Add(append(block, 0x91, 0, 1), 0)
	f.Add([]byte{0x91, 1, 2, 0x92, 3}, 3)
	f.Add([]byte{0x91, 1, 2, 0x92, 3, 4}, 3)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, data []byte, each int) {
		a := arrivals{}
		a.add(engine.Arrival{Path: 7}, bytes.Clone(data), each)
		for i, got := range a.list {
			piece := data
			if last := i == len(a.list)-1; !last {
				piece, data = data[:each], data[each:]
			} else if each > 0 && len(piece) > each || i > 0 && len(piece) == 0 {
				t.Fatalf("%d pieces, and %d bytes are the last of %d each", len(a.list), len(piece), each)
			}
			plain := len(piece) == 0 || piece[0]&0x80 != 0
			if !bytes.HasSuffix(piece, got.Data) || plain && len(got.Data) != len(piece) || got.Path != 7 {
				t.Fatalf("piece %d is %x, want %x or its end", i, got.Data, piece)
			}
		}
	})
}

// checkArrivals receives until there is as much as there should be.
func checkArrivals(t *testing.T, s *socket, in *arrivals, want [][]byte, path uint16, marked bool) {
	t.Helper()
	got := 0
	for end := time.Now().Add(2 * time.Second); got < len(want) && time.Now().Before(end); {
		if err := s.receive(in); err != nil {
			t.Fatal(err)
		}
		for _, a := range in.list {
			if got >= len(want) || !bytes.Equal(a.Data, want[got]) || a.Path != path || a.Marked != marked {
				t.Fatalf("datagram %d: %d bytes by %d, marked %v; want %d by %d, marked %v", got, len(a.Data),
					a.Path, a.Marked, len(want[min(got, len(want)-1)]), path, marked)
			}
			got++
		}
	}
	if got != len(want) {
		t.Fatalf("%d of %d datagrams came", got, len(want))
	}
}
