package tcp

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func open(t testing.TB, config Config) *Endpoint {
	t.Helper()
	if !config.Addr.IsValid() {
		config.Addr = transportstest.Loopback
	}
	e, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestConformance(t *testing.T) {
	transportstest.Suite{
		Open: func(t testing.TB) transports.Endpoint {
			e, err := Open(Config{Addr: transportstest.Loopback, PeerTimeout: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	}.Run(t)
}

// TestConformanceAbrupt ends peers as the death of their process does.
func TestConformanceAbrupt(t *testing.T) {
	hosttest.Long(t)
	transportstest.Suite{
		Open: func(t testing.TB) transports.Endpoint {
			e, err := Open(Config{Addr: netip.IPv6Loopback(), PeerTimeout: 3 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
		Kill: func(_ testing.TB, e transports.Endpoint) {
			victim := e.(*Endpoint)
			victim.listener.Close()
			for _, p := range victim.Peers() {
				p.cut()
			}
			victim.Close() // complains of the listener; the next Close does not
		},
	}.Run(t)
}
