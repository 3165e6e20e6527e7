package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/testkit/transportstest"
	"railbed/transports"
	"railbed/transports/streams"
)

// dial connects to an endpoint by hand and says hello as id.
func dial(t *testing.T, e *Endpoint, hello []byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", e.Self.At.String())
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

func idOf(number byte) string { return string(append(make([]byte, idLen-1), number)) }

func head(h streams.Header) []byte {
	raw := streams.FormatTCP.Encode(h)
	return raw[:]
}

// fake adds a peer that this test plays, which listens nowhere.
func fake(t *testing.T, e *Endpoint) (string, transports.Peer) {
	t.Helper()
	id := idOf(1)
	peer, err := e.AddPeer(streams.Address{At: netip.MustParseAddrPort("127.0.0.1:1"), ID: id}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return id, peer
}

func TestHelloForOthersIsRefused(t *testing.T) {
	e := open(t, Config{})
	ends(t, dial(t, e, []byte("GET / HTTP/1.1\r\nHost: somebody-else.example\r\n\r\n")), "a web browser")
	ends(t, dial(t, e, encodeHello(idOf(1), idOf(2))), "a hello for another endpoint")
}

// The codes are on the wire.
func TestReplyCodes(t *testing.T) {
	if replyPlaced != 0 || replyBounds != 3 || replyStranger != 4 {
		t.Error("the codes of replies have changed")
	}
}

func TestSecondConnectionIsRefused(t *testing.T) {
	e := open(t, Config{})
	id, peer := fake(t, e)
	first := dial(t, e, encodeHello(id, e.Self.ID))
	ends(t, dialLater(t, e, id), "a second connection of one peer")
	raw := head(streams.Header{Op: transports.OpWriteImm, Imm: 9})
	if _, err := first.Write(raw); err != nil {
		t.Fatal(err)
	}
	if c := transportstest.Next(t, e); c.Op != transports.OpReceive || c.Imm != 9 || c.Peer != peer {
		t.Errorf("the first connection delivered %+v", c)
	}
}

// dialLater waits until the endpoint has the first connection of id.
func dialLater(t *testing.T, e *Endpoint, id string) net.Conn {
	t.Helper()
	hosttest.Until(t, "the first connection", func() bool { return len(e.Flows()) > 0 })
	return dial(t, e, encodeHello(id, e.Self.ID))
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
			raw := head(streams.Header{Op: transports.OpWrite, Key: key, Length: transports.MaxMessage + 1})
			return raw
		}, "limit"},
		"half a header": {func(uint64) []byte { return make([]byte, 5) }, "unexpected EOF"},
		"half a message": {func(key uint64) []byte {
			raw := head(streams.Header{Op: transports.OpWriteImm, Key: key, Offset: 1, Length: 100})
			return append(raw, make([]byte, 50)...)
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
			conn := dial(t, e, encodeHello(id, e.Self.ID))
			if _, err := conn.Write(test.send(binary.BigEndian.Uint64(handle.Remote()))); err != nil {
				t.Fatal(err)
			}
			conn.(*net.TCPConn).CloseWrite()
			transportstest.PeerDown(t, e, peer, test.want)
		})
	}
}

// TestBrokenReceiver plays a peer whose replies are nonsense.
func TestBrokenReceiver(t *testing.T) {
	for name, r := range map[string]streams.Reply{
		"number from the future": {Code: replyPlaced, Number: 1000},
		"unknown code":           {Code: 200, Number: 1},
		"stranger":               {Code: replyStranger},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			e := open(t, Config{})
			peer, err := e.AddPeer(streams.Address{At: listener.Addr().(*net.TCPAddr).AddrPort(),
				ID: idOf(9)}.Encode())
			if err != nil {
				t.Fatal(err)
			}
			transportstest.Notify(t, e, peer, 4)
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.ReadFull(conn, make([]byte, helloLen+headerLen)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(r.Append(nil)); err != nil {
				t.Fatal(err)
			}
			if c := transportstest.Next(t, e); c.ID != 4 || !errors.Is(c.Err, transports.ErrPeerFailed) {
				t.Errorf("the request ended with %+v", c)
			}
			if c := transportstest.Next(t, e); c.Op != transports.OpPeerDown {
				t.Errorf("then came %+v", c)
			}
		})
	}
}

// TestStalledSender holds a message halfway: closing its region must not wait
// for the rest, and ends the sender.
func TestStalledSender(t *testing.T) {
	e := open(t, Config{})
	id, peer := fake(t, e)
	handle, err := e.Register(make([]byte, 1000), transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, e, encodeHello(id, e.Self.ID))
	raw := head(streams.Header{Op: transports.OpWrite, Key: binary.BigEndian.Uint64(handle.Remote()),
		Length: 1000})
	if _, err := conn.Write(append(raw, make([]byte, 10)...)); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "the first bytes of a message",
		func() bool { return e.Counters().StreamReceived >= helloLen+headerLen+10 })
	transportstest.CloseBeside(t, e, peer, handle)
	ends(t, conn, "the stalled sender")
}

// TestPlannedPorts reuses listening and source ports at once after a close,
// which a TIME_WAIT on either would prevent.
func TestPlannedPorts(t *testing.T) {
	const base = 17600
	for round := range 5 {
		a := open(t, Config{Port: base, SourcePorts: []uint16{base + 2}})
		b := open(t, Config{Port: base + 1, SourcePorts: []uint16{base + 3}})
		ab, ba := transportstest.Pair(t, a, b)
		transportstest.Exchange(t, a, ab, b)
		transportstest.Exchange(t, b, ba, a)
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

func at(port uint16) netip.AddrPort { return netip.AddrPortFrom(transportstest.Loopback, port) }

// TestSourcePortTaken lets somebody else have the first planned port towards
// the peer.
func TestSourcePortTaken(t *testing.T) {
	const base = 17650
	b := open(t, Config{})
	first := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at(base)),
		Control: streams.SocketOptions{Reuse: true}.Control}
	taken, err := first.Dial("tcp", b.Self.At.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { taken.(*net.TCPConn).SetLinger(0); taken.Close() }()
	a := open(t, Config{SourcePorts: []uint16{base, base + 1}})
	ab, _ := transportstest.Pair(t, a, b)
	transportstest.Exchange(t, a, ab, b)
	if flow := a.Flows()[0]; flow.Local != at(base+1) {
		t.Errorf("connected from %v, want %v", flow.Local, at(base+1))
	}
}
