package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/transports"
)

// dial connects to an endpoint by hand and says hello as id.
func dial(t *testing.T, e *Endpoint, hello []byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", e.self.at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ends checks that the endpoint ends a connection soon.
func ends(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Errorf("%s: the connection stays", what)
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// fake adds a peer that this test plays, which listens nowhere.
func fake(t *testing.T, e *Endpoint) (endpointID, transports.Peer) {
	t.Helper()
	id := endpointID{1, 2, 3}
	peer, err := e.AddPeer(address{at: netip.MustParseAddrPort("127.0.0.1:1"), id: id}.encode())
	if err != nil {
		t.Fatal(err)
	}
	return id, peer
}

// next waits for one completion.
func next(t *testing.T, e *Endpoint) transports.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var c [1]transports.Completion
	for e.Poll(c[:]) == 0 {
		if err := e.Wait(ctx); err != nil {
			t.Fatalf("wait for a completion: %v", err)
		}
	}
	return c[0]
}

func TestHelloForOthersIsRefused(t *testing.T) {
	e := open(t, Config{})
	ends(t, dial(t, e, []byte("GET / HTTP/1.1\r\nHost: somebody-else.example\r\n\r\n")), "a web browser")
	ends(t, dial(t, e, encodeHello(endpointID{1}, endpointID{2})), "a hello for another endpoint")
}

func TestSecondConnectionIsRefused(t *testing.T) {
	e := open(t, Config{})
	id, peer := fake(t, e)
	first := dial(t, e, encodeHello(id, e.self.id))
	ends(t, dialLater(t, e, id), "a second connection of one peer")
	var raw [headerLen]byte
	header{op: transports.OpWriteImm, imm: 9}.encode(&raw)
	if _, err := first.Write(raw[:]); err != nil {
		t.Fatal(err)
	}
	if c := next(t, e); c.Op != transports.OpReceive || c.Imm != 9 || c.Peer != peer {
		t.Errorf("the first connection delivered %+v", c)
	}
}

// dialLater waits until the endpoint has the first connection of id.
func dialLater(t *testing.T, e *Endpoint, id endpointID) net.Conn {
	t.Helper()
	hosttest.Until(t, "the first connection", func() bool { return len(e.Flows()) > 0 })
	return dial(t, e, encodeHello(id, e.self.id))
}

// TestBrokenSenders plays peers that break the protocol: each is failed, and
// nothing lands.
func TestBrokenSenders(t *testing.T) {
	for name, test := range map[string]struct {
		send func(key uint64) []byte
		want string
	}{
		"operation": {func(uint64) []byte {
			return append([]byte{77}, make([]byte, headerLen-1)...)
		}, "operation 77"},
		"length": {func(key uint64) []byte {
			var raw [headerLen]byte
			header{op: transports.OpWrite, key: key, length: transports.MaxMessage + 1}.encode(&raw)
			return raw[:]
		}, "limit"},
		"half a header": {func(uint64) []byte { return make([]byte, 5) }, "unexpected EOF"},
		"half a message": {func(key uint64) []byte {
			var raw [headerLen]byte
			header{op: transports.OpWriteImm, key: key, offset: 1, length: 100}.encode(&raw)
			return append(raw[:], make([]byte, 50)...)
		}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			id, peer := fake(t, e)
			buf := make([]byte, 200)
			handle, err := e.Register(buf, transports.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			conn := dial(t, e, encodeHello(id, e.self.id))
			if _, err := conn.Write(test.send(binary.BigEndian.Uint64(handle.Remote()))); err != nil {
				t.Fatal(err)
			}
			conn.(*net.TCPConn).CloseWrite()
			c := next(t, e)
			if c.Op != transports.OpPeerDown || c.Peer != peer ||
				!strings.Contains(c.Err.Error(), test.want) {
				t.Errorf("got %+v, want PEER_DOWN with %q", c, test.want)
			}
		})
	}
}

// TestBrokenReceiver plays a peer whose replies are nonsense.
func TestBrokenReceiver(t *testing.T) {
	for name, r := range map[string]reply{
		"number from the future": {code: replyPlaced, number: 1000},
		"unknown code":           {code: 200, number: 1},
		"stranger":               {code: replyStranger},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			e := open(t, Config{})
			peer, err := e.AddPeer(address{at: listener.Addr().(*net.TCPAddr).AddrPort(),
				id: endpointID{9}}.encode())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Post(t.Context(),
				[]transports.Request{{ID: 4, Op: transports.OpWriteImm, Peer: peer}}); err != nil {
				t.Fatal(err)
			}
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.ReadFull(conn, make([]byte, helloLen+headerLen)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(r.append(nil)); err != nil {
				t.Fatal(err)
			}
			if c := next(t, e); c.ID != 4 || !errors.Is(c.Err, transports.ErrPeerFailed) {
				t.Errorf("the request ended with %+v", c)
			}
			if c := next(t, e); c.Op != transports.OpPeerDown {
				t.Errorf("then came %+v", c)
			}
		})
	}
}

// TestStalledSender holds a message halfway: closing its region must not wait
// for the rest, and ends the sender.
func TestStalledSender(t *testing.T) {
	e := open(t, Config{})
	id, _ := fake(t, e)
	handle, err := e.Register(make([]byte, 1000), transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, e, encodeHello(id, e.self.id))
	var raw [headerLen]byte
	header{op: transports.OpWrite, key: binary.BigEndian.Uint64(handle.Remote()), length: 1000}.encode(&raw)
	if _, err := conn.Write(append(raw[:], make([]byte, 10)...)); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the first bytes of a message",
		func() bool { return e.Counters().StreamReceived >= helloLen+headerLen+10 })
	closed := make(chan error, 1)
	go func() { closed <- handle.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hosttest.Bound):
		t.Fatal("closing a region waits for a sender that stalls")
	}
	if c := next(t, e); c.Op != transports.OpPeerDown ||
		!strings.Contains(c.Err.Error(), "a region that was being closed") {
		t.Errorf("the sender: %+v", c)
	}
	ends(t, conn, "the stalled sender")
}

// TestPlannedPorts reuses listening and source ports at once after a close,
// which a TIME_WAIT on either would prevent.
func TestPlannedPorts(t *testing.T) {
	const base = 17600
	for round := range 5 {
		a := open(t, Config{Port: base, SourcePorts: []uint16{base + 2}})
		b := open(t, Config{Port: base + 1, SourcePorts: []uint16{base + 3}})
		ab, err := a.AddPeer(b.Address())
		if err != nil {
			t.Fatal(err)
		}
		ba, err := b.AddPeer(a.Address())
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, a, ab, b)
		exchange(t, b, ba, a)
		want := fmt.Sprint([]Flow{
			{Peer: ab, Connecting: true, Local: at(base + 2), Remote: at(base + 1)},
			{Peer: ab, Local: at(base), Remote: at(base + 3)},
		})
		if got := fmt.Sprint(a.Flows()); got != want {
			t.Errorf("flows\n%s, want\n%s", got, want)
		}
		if round%2 == 0 {
			a, b = b, a
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		sent, received := a.Counters(), b.Counters()
		if sent.StreamSent != received.StreamReceived || received.StreamSent != sent.StreamReceived {
			t.Errorf("round %d: streams differ: %+v and %+v", round, sent, received)
		}
	}
}

func at(port uint16) netip.AddrPort { return netip.AddrPortFrom(loopback, port) }

// exchange sends one message and waits for both of its completions.
func exchange(t *testing.T, from *Endpoint, peer transports.Peer, to *Endpoint) {
	t.Helper()
	if n, err := from.Post(t.Context(),
		[]transports.Request{{Op: transports.OpWriteImm, Peer: peer}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if c := next(t, from); c.Op != transports.OpWriteImm || c.Err != nil {
		t.Fatalf("sender: %+v", c)
	}
	if c := next(t, to); c.Op != transports.OpReceive {
		t.Fatalf("receiver: %+v", c)
	}
}

// TestSourcePortTaken lets somebody else have the first planned port towards
// the peer.
func TestSourcePortTaken(t *testing.T) {
	const base = 17650
	b := open(t, Config{})
	first := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at(base)),
		Control: control(socketOptions{reuse: true})}
	taken, err := first.Dial("tcp", b.self.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { taken.(*net.TCPConn).SetLinger(0); taken.Close() }()
	a := open(t, Config{SourcePorts: []uint16{base, base + 1}})
	ab, err := a.AddPeer(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddPeer(a.Address()); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, ab, b)
	if flow := a.Flows()[0]; flow.Local != at(base+1) {
		t.Errorf("connected from %v, want %v", flow.Local, at(base+1))
	}
}

func TestOpenRefuses(t *testing.T) {
	taken := open(t, Config{})
	for name, config := range map[string]Config{
		"no address":          {},
		"every address":       {Addr: netip.IPv4Unspecified()},
		"address of no NIC":   {Addr: netip.MustParseAddr("192.0.2.1")},
		"port that is taken":  {Addr: loopback, Port: taken.self.at.Port()},
		"device that is none": {Addr: loopback, Device: "no-such-nic"},
	} {
		if e, err := Open(config); err == nil {
			e.Close()
			t.Errorf("%s: opened", name)
		}
	}
}
