package rd

import (
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"railbed/testbed/hosttest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/privacy/privacytest"
	"railbed/transports/transportstest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

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
		"one engine": {}, "three engines": {Engines: 3}, "jumbo": {MTU: 9000, Engines: 2}, "IPv6": {Addr: netip.IPv6Loopback()}, "paced": {Rate: 500_000_000},
		"encrypted": {Secret: privacytest.Secret(), Engines: 2, MTU: 9000, Addr: netip.IPv6Loopback()}, "encrypted, readable": {Secret: privacytest.Secret(), Readable: true, Keys: privacy.Limits{Packets: 50}},
	} {
		t.Run(name, func(t *testing.T) {
			c.PeerTimeout = 2 * time.Second
			transportstest.Suite{Open: func(t testing.TB) transports.Endpoint { return open(t, c) }}.Run(t)
		})
	}
}
