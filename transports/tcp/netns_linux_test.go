package tcp

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

func ip(t *testing.T, args ...string) {
	t.Helper()
	if output, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, output)
	}
}

// TestVanishedPeer cuts the link between two endpoints silently. One has requests outstanding and
// the other only receives. Both must notice within the peer timeout plus the time of the keepalive
// probes.
func TestVanishedPeer(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	const timeout = 2 * time.Second
	a, b := open(t, Config{PeerTimeout: timeout}), open(t, Config{PeerTimeout: timeout})
	ab, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, ab, b)
	ip(t, "link", "set", "lo", "down")
	start := time.Now()
	for id := range uint64(3) {
		if n, err := a.Post(t.Context(),
			[]transports.Request{{ID: id, Op: transports.OpWriteImm, Peer: ab}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for id := range uint64(3) {
		if c := next(t, a); c.ID != id || !errors.Is(c.Err, transports.ErrPeerFailed) {
			t.Errorf("request %d ended with %+v", id, c)
		}
	}
	if c := next(t, a); c.Op != transports.OpPeerDown {
		t.Errorf("the sender reports %+v", c)
	}
	if c := next(t, b); c.Op != transports.OpPeerDown {
		t.Errorf("the receiver reports %+v", c)
	}
	if took := time.Since(start); took < timeout/2 || took > 15*time.Second { // the default is 20 s
		t.Errorf("a peer timeout of %v took %v", timeout, took)
	}
}

// TestDeviceBound binds to the NIC and still reaches the peer.
func TestDeviceBound(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	ip(t, "link", "add", "other", "type", "veth", "peer", "name", "far")
	defer ip(t, "link", "delete", "other")
	ip(t, "link", "set", "other", "up")
	a, b := open(t, Config{Device: "lo"}), open(t, Config{Device: "lo"})
	if !a.DeviceBound() {
		t.Errorf("not bound to lo")
	}
	ab, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, ab, b)

	// Bound to another NIC the same address is out of reach.
	c := open(t, Config{Device: "other", PeerTimeout: time.Second})
	cb, err := c.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(t.Context(), []transports.Request{{Op: transports.OpWrite, Peer: cb}}); err != nil {
		t.Fatal(err)
	}
	if done := next(t, c); !errors.Is(done.Err, transports.ErrPeerFailed) {
		t.Errorf("a request by way of the wrong NIC: %+v", done)
	}
}
