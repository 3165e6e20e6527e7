package transportstest

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// Loopback is the address of endpoints whose NICConfig has none.
var Loopback = netip.MustParseAddr("127.0.0.1")

// NICConfig configures an endpoint at a NIC. Fields that are not set have the transport's defaults.
type NICConfig struct {
	Addr        netip.Addr
	Port        uint16
	Device      string
	PeerTimeout time.Duration
}

// NICEndpoint is an endpoint at a NIC.
type NICEndpoint interface {
	transports.Endpoint
	DeviceBound() bool
}

// OpenAtNIC opens an endpoint, or returns the error of the transport.
type OpenAtNIC func(NICConfig) (NICEndpoint, error)

func (open OpenAtNIC) must(t testing.TB, c NICConfig) NICEndpoint {
	t.Helper()
	if !c.Addr.IsValid() {
		c.Addr = Loopback
	}
	e, err := open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// Next waits for one completion.
func Next(t testing.TB, e transports.Endpoint) transports.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Bound)
	defer cancel()
	var c [1]transports.Completion
	for e.Poll(c[:]) == 0 {
		if err := e.Wait(ctx); err != nil {
			t.Fatalf("wait for a completion: %v", err)
		}
	}
	return c[0]
}

// Pair adds each of two endpoints to the other.
func Pair(t testing.TB, a, b transports.Endpoint) (ab, ba transports.Peer) {
	t.Helper()
	ab, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if ba, err = b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	return ab, ba
}

// Exchange sends one message and waits for both of its completions.
func Exchange(t testing.TB, from transports.Endpoint, peer transports.Peer, to transports.Endpoint) {
	t.Helper()
	Notify(t, from, peer, 0)
	if c := Next(t, from); c.Op != transports.OpWriteImm || c.Err != nil {
		t.Fatalf("sender: %+v", c)
	}
	if c := Next(t, to); c.Op != transports.OpReceive {
		t.Fatalf("receiver: %+v", c)
	}
}

// Notify posts an empty message.
func Notify(t testing.TB, from transports.Endpoint, peer transports.Peer, id uint64) {
	t.Helper()
	if n, err := from.Post(t.Context(),
		[]transports.Request{{ID: id, Op: transports.OpWriteImm, Peer: peer}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}

// PeerDown checks that the next completion is the end of a peer, with a text in its error.
func PeerDown(t testing.TB, e transports.Endpoint, peer transports.Peer, want string) {
	t.Helper()
	if c := Next(t, e); c.Op != transports.OpPeerDown || c.Peer != peer ||
		!strings.Contains(c.Err.Error(), want) {
		t.Errorf("got %+v, want PEER_DOWN with %q", c, want)
	}
}

// CloseBeside closes a region into which a peer is writing a message whose rest it holds back. Closing must
// not wait for the rest, and ends the peer.
func CloseBeside(t testing.TB, e transports.Endpoint, peer transports.Peer, r transports.Region) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hosttest.Bound):
		t.Fatal("closing a region waits for a sender that stalls")
	}
	PeerDown(t, e, peer, "a region that was being closed")
}

// IP runs ip(8).
func IP(t testing.TB, args ...string) {
	t.Helper()
	if output, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, output)
	}
}

// VanishedPeer cuts the link between two endpoints silently. One has requests outstanding and the other only
// receives. Both must notice within the peer timeout, after at most the time between two packets that keep
// the connection alive.
func VanishedPeer(t *testing.T, open OpenAtNIC) {
	if !hosttest.InNetns(t) {
		return
	}
	const timeout = 2 * time.Second
	a, b := open.must(t, NICConfig{PeerTimeout: timeout}), open.must(t, NICConfig{PeerTimeout: timeout})
	ab, _ := Pair(t, a, b)
	Exchange(t, a, ab, b)
	IP(t, "link", "set", "lo", "down")
	start := time.Now()
	for id := range uint64(3) {
		Notify(t, a, ab, id)
	}
	for id := range uint64(3) {
		if c := Next(t, a); c.ID != id || !errors.Is(c.Err, transports.ErrPeerFailed) {
			t.Errorf("request %d ended with %+v", id, c)
		}
	}
	if c := Next(t, a); c.Op != transports.OpPeerDown {
		t.Errorf("the sender reports %+v", c)
	}
	if c := Next(t, b); c.Op != transports.OpPeerDown {
		t.Errorf("the receiver reports %+v", c)
	}
	if took := time.Since(start); took < timeout/2 || took > 15*time.Second { // the default is 20 s
		t.Errorf("a peer timeout of %v took %v", timeout, took)
	}
}

// OtherNIC makes a NIC named other.
func OtherNIC(t testing.TB) {
	t.Helper()
	IP(t, "link", "add", "other", "type", "veth", "peer", "name", "far")
	t.Cleanup(func() { IP(t, "link", "delete", "other") })
	IP(t, "link", "set", "other", "up")
}

// DeviceBound binds endpoints to the NIC, and they still reach each other.
func DeviceBound(t *testing.T, open OpenAtNIC) {
	if !hosttest.InNetns(t) {
		return
	}
	OtherNIC(t)
	a, b := open.must(t, NICConfig{Device: "lo"}), open.must(t, NICConfig{Device: "lo"})
	if !a.DeviceBound() {
		t.Errorf("not bound to lo")
	}
	ab, _ := Pair(t, a, b)
	Exchange(t, a, ab, b)

	// Bound to another NIC the same address is out of reach.
	c := open.must(t, NICConfig{Device: "other", PeerTimeout: time.Second})
	cb, err := c.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(t.Context(), []transports.Request{{Op: transports.OpWrite, Peer: cb}}); err != nil {
		t.Fatal(err)
	}
	if done := Next(t, c); !errors.Is(done.Err, transports.ErrPeerFailed) {
		t.Errorf("a request by way of the wrong NIC: %+v", done)
	}
}

// OpenRefuses opens endpoints where none can be.
func OpenRefuses(t *testing.T, open OpenAtNIC) {
	// family[1] ip[4] port[2] id
	taken := open.must(t, NICConfig{}).Address()
	for name, c := range map[string]NICConfig{
		"no address":          {},
		"every address":       {Addr: netip.IPv4Unspecified()},
		"address of no NIC":   {Addr: netip.MustParseAddr("192.0.2.1")},
		"port in use":         {Addr: Loopback, Port: uint16(taken[5])<<8 | uint16(taken[6])},
		"device that is none": {Addr: Loopback, Device: "no-such-nic"},
	} {
		if e, err := open(c); err == nil {
			e.Close()
			t.Errorf("%s: opened", name)
		}
	}
}
