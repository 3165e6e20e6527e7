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
	"railbed/testkit/transportstest"
	"railbed/transports"
	"railbed/transports/streams"
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
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: transportstest.Loopback.AsSlice()})
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
	at = netip.AddrPortFrom(transportstest.Loopback, at.Port())
	return streams.Address{At: at, ID: string(p.id[:])}.Encode()
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
	config := clientTLS(p.certificate, e.Self.ID)
	if change != nil {
		change(config)
	}
	return p.Dial(t.Context(), net.UDPAddrFromAddrPort(e.Self.At), config, e.settings())
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

func head(h streams.Header) []byte {
	raw := streams.FormatQUIC.Encode(h)
	return raw[:]
}

var welcome = streams.Reply{Code: replyWelcome}.Append(nil)

// ends checks that the endpoint ends a connection soon.
func ends(t *testing.T, conn *quicgo.Conn, what string) {
	t.Helper()
	select {
	case <-conn.Context().Done():
	case <-time.After(hosttest.Bound):
		t.Errorf("%s: the connection stays", what)
	}
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
	message := append(head(streams.Header{Op: transports.OpWriteImm, Key: key, Length: 4}), 1, 2, 3, 4)

	// The endpoint has not added this one.
	stranger := play(t)
	waiting, err := stranger.dial(t, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	stream(t, waiting, welcome)
	stream(t, waiting, message).Close()
	for e.Strangers() == 0 { // the handshakes of two connections may end in the other order
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
	if c := transportstest.Next(t, e); c.Op != transports.OpReceive || c.Peer != peer || memory[3] != 4 {
		t.Errorf("after it was added: %+v, % x", c, memory[:4])
	}
}

// TestImpostor: another endpoint at the address of a dead endpoint is refused.
func TestImpostor(t *testing.T) {
	e, other := open(t, Config{}), open(t, Config{})
	id := string(make([]byte, len(identity{})))
	peer, err := e.AddPeer(streams.Address{At: other.Self.At, ID: id}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	transportstest.Notify(t, e, peer, 7)
	if c := transportstest.Next(t, e); c.ID != 7 || !errors.Is(c.Err, transports.ErrPeerFailed) ||
		!strings.Contains(c.Err.Error(), "another endpoint listens at its address") {
		t.Errorf("the request ended with %+v", c)
	}
}

// The codes are on the wire.
func TestReplyCodes(t *testing.T) {
	if replyPlaced != 0 || replyWelcome != 1 || replyDiscarded != 2 || replyBounds != 5 {
		t.Error("the codes of replies have changed")
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
		stream(t, first, head(streams.Header{Op: transports.OpWriteImm, Imm: imm})).Close()
		if c := transportstest.Next(t, e); c.Op != transports.OpReceive || c.Imm != imm {
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
			return head(streams.Header{Op: transports.OpWrite, Key: key, Length: transports.MaxMessage + 1})
		}, "limit"},
		"half a header": {welcome, func(uint64) []byte { return make([]byte, 5) }, "ends early"},
		"half a message": {welcome, func(key uint64) []byte {
			h := streams.Header{Op: transports.OpWriteImm, Key: key, Offset: 1, Length: 100}
			return append(head(h), make([]byte, 50)...)
		}, "ends early"},
		"more than a message": {welcome, func(uint64) []byte {
			return append(head(streams.Header{Op: transports.OpWrite}), 1)
		}, "longer than its header says"},
		"a reply to no message": {streams.Reply{Code: replyPlaced, Number: 2}.Append(nil), nil,
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
			transportstest.PeerDown(t, e, peer, test.want)
			ends(t, conn, name)
		})
	}
}

// TestBrokenReceiver plays a peer whose replies are nonsense.
func TestBrokenReceiver(t *testing.T) {
	for name, r := range map[string]streams.Reply{
		"another message":                 {Code: replyPlaced, Number: 1 << 40},
		"unknown code":                    {Code: 200},
		"discarded, but not canceled":     {Code: replyDiscarded},
		"the message of the other's side": {Code: replyPlaced, Number: 3},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, Config{})
			p := play(t)
			listener, err := p.Listen(serverTLS(p.certificate), e.settings())
			if err != nil {
				t.Fatal(err)
			}
			peer := p.addedTo(t, e)
			transportstest.Notify(t, e, peer, 4)
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
				if r.Number == 0 {
					r.Number = uint64(s.StreamID()) + 4
				}
				if _, err := io.ReadFull(s, make([]byte, replyLen)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := replies.Write(r.Append(nil)); err != nil {
				t.Fatal(err)
			}
			if c := transportstest.Next(t, e); c.ID != 4 || !errors.Is(c.Err, transports.ErrPeerFailed) ||
				!strings.Contains(c.Err.Error(), "it replied with code") {
				t.Errorf("the request ended with %+v", c)
			}
			if c := transportstest.Next(t, e); c.Op != transports.OpPeerDown {
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
	peer := p.addedTo(t, e)
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
	stream(t, conn, append(head(streams.Header{Op: transports.OpWrite, Key: key, Length: 1000}), 1, 2, 3))
	r := handle.(*streams.Region)
	hosttest.Until(t, "a message that is read", r.Busy)
	transportstest.CloseBeside(t, e, peer, handle)
	ends(t, conn, "the stalled sender")
}
