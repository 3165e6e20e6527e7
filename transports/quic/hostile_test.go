package quic

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/memory"
)

// player is an end of connections that the test plays by hand.
type player struct {
	id          identity
	certificate tls.Certificate
	*quicgo.Transport
}

func play(t *testing.T) *player {
	t.Helper()
	certificate, id, err := newCertificate()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loopback.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	p := &player{id: id, certificate: certificate, Transport: &quicgo.Transport{Conn: socket}}
	t.Cleanup(func() { p.Transport.Close(); socket.Close() })
	return p
}

// address is the player's, where it need not listen.
func (p *player) address() []byte {
	at := p.Conn.LocalAddr().(*net.UDPAddr).AddrPort()
	return address{at: netip.AddrPortFrom(loopback, at.Port()), id: p.id}.encode()
}

func (p *player) addedTo(t *testing.T, e *Endpoint) transports.Peer {
	t.Helper()
	peer, err := e.AddPeer(p.address())
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

func (p *player) dial(t *testing.T, e *Endpoint, change func(*tls.Config)) (*quicgo.Conn, error) {
	t.Helper()
	config := clientTLS(p.certificate, e.self.id)
	if change != nil {
		change(config)
	}
	return p.Dial(t.Context(), net.UDPAddrFromAddrPort(e.self.at), config, e.settings())
}

// stream opens a stream with these bytes. The stream of replies must be the first.
func stream(t *testing.T, conn *quicgo.Conn, content []byte) *quicgo.SendStream {
	t.Helper()
	s, err := conn.OpenUniStreamSync(t.Context())
	if err == nil {
		_, err = s.Write(content)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var welcome = reply{code: replyWelcome}.append(nil)

// ends checks that the endpoint ends a connection soon.
func ends(t *testing.T, conn *quicgo.Conn, what string) {
	t.Helper()
	select {
	case <-conn.Context().Done():
	case <-time.After(hosttest.Bound):
		t.Errorf("%s: the connection stays", what)
	}
}

// next waits for one completion.
func next(t *testing.T, e *Endpoint) transports.Completion {
	t.Helper()
	var c [1]transports.Completion
	for timer := time.AfterFunc(hosttest.Bound, func() { e.Close() }); e.Poll(c[:]) == 0; {
		if err := e.Wait(t.Context()); err != nil {
			t.Fatalf("wait for a completion: %v", err)
		}
		defer timer.Stop()
	}
	return c[0]
}

// TestStrangersReachNothing: a handle alone opens nothing. Messages count only from endpoints that
// were added, and these prove who they are.
func TestStrangersReachNothing(t *testing.T) {
	e := open(t, Config{})
	memory := make([]byte, 100)
	handle, err := e.Register(memory, transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	key := binary.BigEndian.Uint64(handle.Remote())
	message := append(header{op: transports.OpWriteImm, key: key, length: 4}.append(nil), 1, 2, 3, 4)

	// The endpoint has not added this one.
	stranger := play(t)
	waiting, err := stranger.dial(t, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream(t, waiting, welcome)
	stream(t, waiting, message).Close()
	held := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.strangers) == 1
	}
	for !held() { // the handshakes of two connections may end in the other order
		if waiting.Context().Err() != nil {
			t.Fatal("the connection of an endpoint that was not added is not held")
		}
		time.Sleep(time.Millisecond)
	}
	second, err := stranger.dial(t, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	ends(t, second, "the second connection of an endpoint that was not added")

	// These say nothing of who they are, or speak something else.
	for name, change := range map[string]func(*tls.Config){
		"no certificate": func(c *tls.Config) { c.Certificates = nil },
		"HTTP/3":         func(c *tls.Config) { c.NextProtos = []string{"h3"} },
		"another key's certificate": func(c *tls.Config) {
			c.Certificates[0].PrivateKey = play(t).certificate.PrivateKey
		},
	} {
		conn, err := stranger.dial(t, e, change)
		if err == nil { // the client's handshake may end before the server's
			if s, err := conn.OpenUniStreamSync(t.Context()); err == nil {
				_, _ = s.Write(welcome)
			}
			ends(t, conn, name)
		}
	}
	time.Sleep(50 * time.Millisecond)
	var c [1]transports.Completion
	if n := e.Poll(c[:]); n != 0 || memory[0] != 0 {
		t.Errorf("a stranger wrote % x: %+v", memory[:4], c[:n])
	}
	peer := stranger.addedTo(t, e)
	if c := next(t, e); c.Op != transports.OpReceive || c.Peer != peer || memory[3] != 4 {
		t.Errorf("after it was added: %+v, % x", c, memory[:4])
	}
}

// TestImpostor: another endpoint at the address of a dead endpoint is refused.
func TestImpostor(t *testing.T) {
	e, other := open(t, Config{}), open(t, Config{})
	peer, err := e.AddPeer(address{at: other.self.at, id: identity{1}}.encode())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := e.Post(t.Context(),
		[]transports.Request{{ID: 7, Op: transports.OpWriteImm, Peer: peer}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if c := next(t, e); c.ID != 7 || !errors.Is(c.Err, transports.ErrPeerFailed) ||
		!strings.Contains(c.Err.Error(), "another endpoint listens at its address") {
		t.Errorf("the request ended with %+v", c)
	}
}

func TestSecondConnectionIsRefused(t *testing.T) {
	e := open(t, Config{})
	p := play(t)
	p.addedTo(t, e)
	first, err := p.dial(t, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream(t, first, welcome)
	delivers := func(imm uint32) {
		t.Helper()
		stream(t, first, header{op: transports.OpWriteImm, imm: imm}.append(nil)).Close()
		if c := next(t, e); c.Op != transports.OpReceive || c.Imm != imm {
			t.Errorf("the first connection delivered %+v, want immediate %d", c, imm)
		}
	}
	delivers(8) // the handshakes of two connections may end in the other order
	second, err := p.dial(t, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	ends(t, second, "a second connection of one peer")
	delivers(9)
}

// TestBrokenSenders plays peers that break the protocol: each fails.
func TestBrokenSenders(t *testing.T) {
	for name, test := range map[string]struct {
		first []byte
		send  func(key uint64) []byte
		want  string
	}{
		"operation": {welcome, func(uint64) []byte {
			return append([]byte{77}, make([]byte, headerLen-1)...)
		}, "operation 77"},
		"length": {welcome, func(key uint64) []byte {
			return header{op: transports.OpWrite, key: key, length: transports.MaxMessage + 1}.append(nil)
		}, "limit"},
		"half a header": {welcome, func(uint64) []byte { return make([]byte, 5) }, "ends early"},
		"half a message": {welcome, func(key uint64) []byte {
			h := header{op: transports.OpWriteImm, key: key, offset: 1, length: 100}
			return append(h.append(nil), make([]byte, 50)...)
		}, "ends early"},
		"more than a message": {welcome, func(uint64) []byte {
			return append(header{op: transports.OpWrite}.append(nil), 1)
		}, "longer than its header says"},
		"a reply to no message": {reply{code: replyPlaced, stream: 2}.append(nil), nil,
			"code 0 to message 2"},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			p := play(t)
			peer := p.addedTo(t, e)
			handle, err := e.Register(make([]byte, 200), transports.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := p.dial(t, e, nil)
			if err != nil {
				t.Fatal(err)
			}
			stream(t, conn, test.first)
			if test.send != nil {
				stream(t, conn, test.send(binary.BigEndian.Uint64(handle.Remote()))).Close()
			}
			c := next(t, e)
			if c.Op != transports.OpPeerDown || c.Peer != peer ||
				!strings.Contains(c.Err.Error(), test.want) {
				t.Errorf("got %+v, want PEER_DOWN with %q", c, test.want)
			}
			ends(t, conn, name)
		})
	}
}

// TestBrokenReceiver plays a peer whose replies are nonsense.
func TestBrokenReceiver(t *testing.T) {
	for name, r := range map[string]reply{
		"another message":                 {code: replyPlaced, stream: 1 << 40},
		"unknown code":                    {code: 200},
		"discarded, and nobody canceled":  {code: replyDiscarded},
		"the message of the other's side": {code: replyPlaced, stream: 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			p := play(t)
			listener, err := p.Listen(serverTLS(p.certificate), e.settings())
			if err != nil {
				t.Fatal(err)
			}
			peer := p.addedTo(t, e)
			if _, err := e.Post(t.Context(),
				[]transports.Request{{ID: 4, Op: transports.OpWriteImm, Peer: peer}}); err != nil {
				t.Fatal(err)
			}
			conn, err := listener.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			replies := stream(t, conn, welcome)
			for range 2 { // the replies of e, and its message
				s, err := conn.AcceptUniStream(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if r.stream == 0 {
					r.stream = s.StreamID() + 4
				}
				if _, err := io.ReadFull(s, make([]byte, replyLen)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := replies.Write(r.append(nil)); err != nil {
				t.Fatal(err)
			}
			if c := next(t, e); c.ID != 4 || !errors.Is(c.Err, transports.ErrPeerFailed) ||
				!strings.Contains(c.Err.Error(), "it replied with code") {
				t.Errorf("the request ended with %+v", c)
			}
			if c := next(t, e); c.Op != transports.OpPeerDown {
				t.Errorf("then came %+v", c)
			}
		})
	}
}

// TestStalledSender holds a message halfway: closing its region must not wait for the rest, and ends
// the sender.
func TestStalledSender(t *testing.T) {
	e := open(t, Config{})
	p := play(t)
	p.addedTo(t, e)
	handle, err := e.Register(make([]byte, 1000), transports.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := p.dial(t, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream(t, conn, welcome)
	key := binary.BigEndian.Uint64(handle.Remote())
	stream(t, conn, append(header{op: transports.OpWrite, key: key, length: 1000}.append(nil), 1, 2, 3))
	r := handle.(*memory.Region)
	hosttest.Until(t, "a message that is read", r.Busy)
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
		!strings.Contains(c.Err.Error(), "region that was being closed") {
		t.Errorf("the sender: %+v", c)
	}
	ends(t, conn, "the stalled sender")
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
