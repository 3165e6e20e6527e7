package live_test

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"railbed/internal/kernel"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
	"railbed/transports/rd"
	"railbed/transports/roce"
)

// Transports conform over the NICs' queues as over the kernel. The endpoints are on two nodes in turn, so
// that some pairs cross the switch and some share a node. The frames took the queues.
func TestTransportsConformPastTheKernel(t *testing.T) {
	for name, open := range map[string]func(at netip.Addr) (transports.Endpoint, error){
		"rd": func(at netip.Addr) (transports.Endpoint, error) {
			return rd.Open(rd.Config{Addr: at, Device: "eth0", Bypass: true, Slot: -1, MTU: 9000,
				PeerTimeout: 2 * time.Second})
		},
		"rd, three engines, paced": func(at netip.Addr) (transports.Endpoint, error) {
			return rd.Open(rd.Config{Addr: at, Device: "eth0", Bypass: true, Slot: -1, MTU: 1500, Engines: 3,
				Rate: 500_000_000, PeerTimeout: 2 * time.Second})
		},
		"roce": func(at netip.Addr) (transports.Endpoint, error) {
			return roce.Open(roce.Config{Addr: at, Bypass: true, MTU: 9000,
				PeerTimeout: 2 * time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "rd, three engines, paced" {
				hosttest.Long(t)
			}
			f, p, spaces := twoHosts(t, "{rate: 1gbit, mtu: 9000}")
			var opened atomic.Uint32
			transportstest.Suite{Open: func(t testing.TB) (e transports.Endpoint) {
				t.Helper()
				node := fmt.Sprintf("h%d", opened.Add(1)%2)
				return openOn(t, p, spaces, node, open)
			}}.Run(t)
			for _, node := range []string{"h0", "h1"} {
				if s := nicState(t, f, node).Bypass; s.Sent < 1000 || s.Received < 1000 || s.Broken > 0 {
					t.Errorf("%s: %+v, want at least 1000 frames each way past the kernel", node, s)
				}
			}
		})
	}
}

func openOn(t testing.TB, p *plan.Plan, spaces map[string]*kernel.Namespace, node string,
	open func(at netip.Addr) (transports.Endpoint, error)) (e transports.Endpoint) {
	t.Helper()
	if err := spaces[node].Do(func() (err error) {
		e, err = open(netip.MustParseAddr(address(p, node)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
