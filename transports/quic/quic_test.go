package quic

import (
	"errors"
	"net/netip"
	"os"
	"strings"
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
	hosttest.Long(t)
	transportstest.Suite{
		Open: func(t testing.TB) transports.Endpoint {
			return open(t, Config{PeerTimeout: 3 * time.Second})
		},
	}.Run(t)
}

// TestConformanceAbrupt ends peers as the death of their process does: without a word.
func TestConformanceAbrupt(t *testing.T) {
	hosttest.Long(t)
	transportstest.Suite{
		Open: func(t testing.TB) transports.Endpoint {
			return open(t, Config{Addr: netip.IPv6Loopback(), PeerTimeout: 2 * time.Second})
		},
		Kill: func(_ testing.TB, e transports.Endpoint) {
			e.(*Endpoint).socket.Close()
			e.Close() // complains of the socket; the next Close does not
		},
	}.Run(t)
}

// TestOneConnection: messages in both directions share the connection that the first sender made.
func TestOneConnection(t *testing.T) {
	a, b := open(t, Config{}), open(t, Config{})
	ab, ba := transportstest.Pair(t, a, b)
	transportstest.Exchange(t, a, ab, b)
	transportstest.Exchange(t, b, ba, a)
	time.Sleep(50 * time.Millisecond) // a second dial would take a few
	for name, p := range map[string]*peer{"first": a.Peers()[ab], "second": b.Peers()[ba]} {
		p.Lock()
		if len(p.links) != 1 {
			t.Errorf("the %s endpoint has %d connections with the other", name, len(p.links))
		}
		p.Unlock()
	}
	if a.Close() != nil || b.Close() != nil {
		t.Error("an endpoint does not close")
	}
}

// TestRefusedMessageLeavesOthers refuses a message that is far longer than the windows, between
// messages that are right.
func TestRefusedMessageLeavesOthers(t *testing.T) {
	a, b := open(t, Config{}), open(t, Config{})
	ab, _ := transportstest.Pair(t, a, b)
	handle, err := b.Register(make([]byte, 8000), transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	const size, wrong = 64 << 20, 3
	requests := make([]transports.Request, 8)
	for i := range requests {
		requests[i] = transports.Request{ID: uint64(i), Op: transports.OpWrite, Peer: ab,
			Local: make([]byte, 1000), Remote: handle.Remote(), Offset: uint64(1000 * i)}
	}
	requests[wrong].Local = make([]byte, size)
	if n, err := a.Post(t.Context(), requests); n != len(requests) || err != nil {
		t.Fatal(n, err)
	}
	for range requests {
		switch c := transportstest.Next(t, a); {
		case c.ID != wrong && c.Err != nil:
			t.Errorf("request %d: %v", c.ID, c.Err)
		case c.ID == wrong && (!errors.Is(c.Err, transports.ErrAccess) ||
			!strings.Contains(c.Err.Error(), "the region has 8000 bytes")):
			t.Errorf("the message that is too long: %v", c.Err)
		}
	}
	if got := b.Counters().Received; got != 7000 {
		t.Errorf("%d bytes were received, want 7000", got)
	}
	if got := a.Counters().Sent; got != 7000 {
		t.Errorf("%d bytes were sent, want 7000", got)
	}
}
