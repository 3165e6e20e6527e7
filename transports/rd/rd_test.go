package rd

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/testkit/privacytest"
	"railbed/testkit/transportstest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

func TestMain(m *testing.M) { os.Exit(hosttest.MainAlone(m, "rd-ports")) }

func open(t testing.TB, c Config) *Endpoint {
	t.Helper()
	if !c.Addr.IsValid() {
		c.Addr = netip.MustParseAddr("127.0.0.1")
	}
	if c.Slot == 0 {
		c.Slot = -1
	}
	e, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// loopbacks counts those that were given out.
var loopbacks atomic.Uint32

// ownLoopback is an address that no other test of any process has.
func ownLoopback() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(64 + loopbacks.Add(1)%128), byte(pid >> 8), byte(pid)})
}

func TestConformance(t *testing.T) {
	for name, c := range map[string]Config{
		"one engine": {}, "three engines, jumbo": {MTU: 9000, Engines: 3},
		"IPv6, paced": {Addr: netip.IPv6Loopback(), Rate: 500_000_000},
		"encrypted": {Secret: privacytest.Secret(), Engines: 2, MTU: 9000,
			Addr: netip.IPv6Loopback()},
		"encrypted, readable": {Secret: privacytest.Secret(), Readable: true,
			Keys: privacy.Limits{Packets: 50}},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "three engines, jumbo" {
				hosttest.Long(t)
			}
			c.PeerTimeout = 2 * time.Second
			transportstest.Suite{Open: func(t testing.TB) transports.Endpoint { return open(t, c) }}.Run(t)
		})
	}
}

// FuzzAddress checks that bytes decode to an address that encodes to the same bytes, or are
// refused. No address has impossible engines or ports.
func FuzzAddress(f *testing.F) {
	f.Add(address{life: 1 << 40, at: netip.MustParseAddr("10.0.0.1"), port: 16, engines: 4, room: 9}.encode())
	f.Add(address{at: netip.IPv6Loopback(), engines: 16, encrypts: true}.encode())
	for at, value := range map[int]byte{2: 2, 3: 249, 4: 17, 5: 2} { // version, port, engines, flags
		b := address{at: netip.IPv6Loopback(), engines: 16}.encode()
		b[at] = value
		f.Add(b)
	}
	f.Add(address{at: netip.IPv4Unspecified(), engines: 1}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddress(b)
		if err != nil {
			return
		}
		if p := a.peer(); !bytes.Equal(a.encode(), b) || int(p.Port)+p.Engines > wire.PortsRD ||
			p.Engines < 1 || a.at.IsUnspecified() {
			t.Fatalf("%x: %+v, encoded %x", b, a, a.encode())
		}
	})
}

// TestEndpointAllocatesNothing holds that packets cost no memory on their way through
// endpoints and their sockets; messages and their completions may.
func TestEndpointAllocatesNothing(t *testing.T) {
	a, b := open(t, Config{Engines: 2}), open(t, Config{Engines: 2})
	peer, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	region, err := b.Register(make([]byte, 1<<20), transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	request := []transports.Request{{Op: transports.OpWrite, Peer: peer, Local: make([]byte, 1<<20),
		Remote: region.Remote()}}
	done := make([]transports.Completion, 1)
	transfer := func(messages int) {
		for range messages {
			if n, err := a.Post(context.Background(), request); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			for a.Poll(done) == 0 {
				if err := a.Wait(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if done[0].Err != nil {
				t.Fatal(done[0].Err)
			}
		}
	}
	transfer(4)
	var before, after runtime.MemStats
	packets := b.Counters().Received
	runtime.ReadMemStats(&before)
	transfer(16)
	runtime.ReadMemStats(&after)
	packets = b.Counters().Received - packets
	if n := after.Mallocs - before.Mallocs; packets < 10_000 || n > packets/20 {
		t.Errorf("%d allocations for %d packets", n, packets)
	}
}
