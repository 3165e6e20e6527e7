package quic

import (
	"net/netip"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
)

func openAtNIC(c transportstest.NICConfig) (transportstest.NICEndpoint, error) {
	return Open(Config{Addr: c.Addr, Port: c.Port, Device: c.Device, PeerTimeout: c.PeerTimeout})
}

func TestVanishedPeer(t *testing.T) { transportstest.VanishedPeer(t, openAtNIC) }

func TestDeviceBound(t *testing.T) { transportstest.DeviceBound(t, openAtNIC) }

func TestOpenRefuses(t *testing.T) { transportstest.OpenRefuses(t, openAtNIC) }

// TestNoRouteForAWhile takes an address away from an endpoint with requests outstanding. The kernel
// then refuses its packets, and the connection goes on when the address is back.
func TestNoRouteForAWhile(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	const addr = "10.9.9.1/32"
	transportstest.OtherNIC(t)
	transportstest.IP(t, "address", "add", addr, "dev", "other")
	config := Config{Addr: netip.MustParsePrefix(addr).Addr(), PeerTimeout: 5 * time.Second}
	a, b := open(t, config), open(t, config)
	ab, _ := transportstest.Pair(t, a, b)
	transportstest.Exchange(t, a, ab, b)
	transportstest.IP(t, "address", "delete", addr, "dev", "other")
	if _, err := a.socket.WriteTo([]byte{0}, a.socket.LocalAddr()); err == nil {
		t.Error("the kernel sends packets without a route")
	}
	if _, err := a.Post(t.Context(),
		[]transports.Request{{Op: transports.OpWrite, Peer: ab}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	transportstest.IP(t, "address", "add", addr, "dev", "other")
	if c := transportstest.Next(t, a); c.Err != nil {
		t.Errorf("after 200 ms without a route: %v", c.Err)
	}
}
