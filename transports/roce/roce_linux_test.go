package roce

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
	"railbed/transports/roce/queuepair"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// TestConformance: over IPv4 and IPv6, by each way of repeating, with large and small
// packets; of these one beside the race detector, since most of it is waiting.
func TestConformance(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	for _, c := range []Config{{Addr: netip.MustParseAddr("127.0.0.1"), MTU: 4200},
		{Addr: netip.IPv6Loopback(), MTU: 400, Selective: true}} {
		if raceEnabled && !c.Selective {
			continue
		}
		c.PeerTimeout = 3 * time.Second
		t.Run(fmt.Sprintf("%v/mtu=%d", c.Addr, c.MTU), func(t *testing.T) {
			transportstest.Suite{Open: func(t testing.TB) transports.Endpoint {
				e, err := Open(c)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}}.Run(t)
		})
	}
}

// TestStrangePackets: what comes to the port and is none of a peer's changes nothing,
// and packets whose ICRC is wrong are counted.
func TestStrangePackets(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	addr := netip.MustParseAddr("127.0.0.1")
	open := func() *Endpoint {
		e, err := Open(Config{Addr: addr, MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	a, b := open(), open()
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, infiniband.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	first, count := a.QueuePairs()
	forged := 0
	for _, o := range []infiniband.Opcode{infiniband.WriteOnly, infiniband.WriteMiddle,
		infiniband.Acknowledge, infiniband.ReadRequest, infiniband.CNP, infiniband.UDSendOnly} {
		for _, to := range []infiniband.QPN{first, first + 1, first + infiniband.QPN(count) - 1,
			infiniband.GSI} {
			n := 0
			if o.HasPayload() {
				n = infiniband.MADLen
			}
			p := infiniband.Packet(make([]byte, infiniband.Len(o, n)))
			p.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, PKey: infiniband.PKey,
				DestQP: to}, RETH: infiniband.RETHFields{Length: uint32(n)},
				DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey}}, n)
			if _, err := conn.Write(p); err != nil {
				t.Fatal(err)
			}
			forged++
			if _, err := conn.Write(p[:len(p)-1]); err != nil { // is no packet
				t.Fatal(err)
			}
		}
	}
	hosttest.Eventually(t, fmt.Sprintf("%d packets with a wrong ICRC", forged), func() error {
		if counted := a.Counters().BadICRC; counted < uint64(forged) {
			return fmt.Errorf("%d were counted", counted)
		}
		return nil
	})
	memory := make([]byte, 100)
	region, err := b.Register(memory, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	to, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Post(t.Context(),
		[]transports.Request{{Op: transports.OpWrite, Peer: to, Local: []byte("still here"),
			Remote: region.Remote()}}); err != nil {
		t.Fatal(err)
	}
	var done [1]transports.Completion
	if err := a.Wait(t.Context()); err != nil || a.Poll(done[:]) != 1 || done[0].Err != nil ||
		string(memory[:10]) != "still here" {
		t.Errorf("%v, %+v, %q", err, done, memory[:10])
	}
	// Packets of an endpoint with a block of its own go to it alone.
	hosttest.Until(t, "the packets for all", func() bool { return b.Counters().BadICRC >= 6 })
	if got := b.Counters().BadICRC; got != 6 {
		t.Errorf("%d packets with a wrong ICRC at who has other queue pairs, want the 6 for all", got)
	}
}

// TestCountersWhileConnecting: an endpoint counts while it asks for a connection that
// has no queue pair yet.
func TestCountersWhileConnecting(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	e, err := Open(Config{Addr: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	nobody := e.self
	nobody.life++
	nobody.port = 9
	to, err := e.AddPeer(nobody.encode())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Post(t.Context(),
		[]transports.Request{{Op: transports.OpWriteImm, Peer: to}}); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "a link that connects", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.links) == 1
	})
	if c := e.Counters(); c.Counters != (queuepair.Counters{}) {
		t.Errorf("%+v before there is a connection", c)
	}
}
