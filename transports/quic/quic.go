// Package quic is the transports.Endpoint over QUIC (RFC 9000) and TLS 1.3, by quic-go.
//
// An endpoint is one UDP socket, from which it dials and on which it accepts. Each pair of endpoints
// has one connection, which the first of them to post dials. If both dial at once, there are two.
// A message is one unidirectional stream: a header, then the bytes, which the receiver reads straight
// into the region. The first stream of each side carries its replies to messages. A side sends the
// first reply when it has added the other as a peer. No message leaves before that reply.
//
// Messages are written one after the other. A lost packet delays only the messages that it carried
// bytes of, since streams are not ordered among each other. A canceled message resets its stream.
// A refused message ends its stream and no other. Every Class shares the connection, and Droppable
// messages arrive whole.
//
// Each endpoint has a key and certificate of its own. The address has the hash of the certificate,
// and both ends of a connection compare it. So an address names one endpoint, and no other endpoint,
// such as the endpoint of a restarted process, can pretend to be it. A peer is dead when its
// connection closes, or when packets to it are unanswered for the peer timeout. A peer whose process
// is stopped is dead, too, because the process answers, and not its kernel.
package quic

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
	"railbed/transports/streams"
)

// A connection starts with the largest windows to which quic-go lets them grow. quic-go would start with
// 512 KiB, which limits the first messages on a fast link.
const (
	streamWindow     = 6 << 20
	connectionWindow = 15 << 20
)

// Config configures an endpoint. Only Addr is required.
type Config struct {
	// Addr is the address of the NIC to which the socket is bound. An unspecified address is refused.
	Addr netip.Addr
	// Port is the UDP port. Default: the kernel picks one.
	Port uint16
	// Device is the NIC's name. The socket is bound to it where the kernel permits this process to;
	// see Endpoint.DeviceBound. Default: not bound.
	Device string
	// PeerTimeout is how long a peer may leave packets unanswered. Both ends of a connection use the
	// shorter timeout of the two. Default 20 s.
	PeerTimeout time.Duration
}

// Counters count the bytes of whole messages placed, at the peers and here, since Open.
type Counters struct {
	Sent, Received uint64
}

// Endpoint implements transports.Endpoint. Make one with Open.
type Endpoint struct {
	*streams.Endpoint[*peer, *quicgo.Conn]
	config      Config
	certificate tls.Certificate
	socket      *net.UDPConn
	transport   *quicgo.Transport
	listener    *quicgo.Listener
}

var _ transports.Endpoint = (*Endpoint)(nil)

// Open opens the socket and listens. It fails when the address or port is not free.
func Open(config Config) (*Endpoint, error) {
	config.PeerTimeout = cmp.Or(config.PeerTimeout, streams.DefaultPeerTimeout)
	e := &Endpoint{config: config}
	var err error
	if e.Endpoint, err = streams.New(config.Addr, streams.Transport[*peer, *quicgo.Conn]{
		Name:   "quic",
		Format: streams.FormatQUIC,
		IDLen:  len(identity{}),
		Peer:   e.newPeer,
		Refuse: e.refuse,
		Stop:   func() error { return nil }, // the end of Ctx ends acceptLoop
		End:    e.end,
	}); err != nil {
		return nil, err
	}
	var id identity
	if e.certificate, id, err = newCertificate(); err != nil {
		return nil, fmt.Errorf("open quic endpoint: make certificate: %w", err)
	}
	if err := e.Listen(config.Device, id[:], e.listen); err != nil {
		return nil, err
	}
	e.Go(e.acceptLoop)
	return e, nil
}

func (e *Endpoint) listen(device string) (at net.Addr, err error) {
	if e.socket, err = e.openSocket(device); err != nil {
		return nil, err
	}
	e.transport = &quicgo.Transport{Conn: socket{e.socket}}
	if e.listener, err = e.transport.Listen(serverTLS(e.certificate), e.settings()); err != nil {
		return nil, errors.Join(err, e.socket.Close())
	}
	return e.socket.LocalAddr(), nil
}

// refuse closes a connection that no peer uses.
func (e *Endpoint) refuse(conn *quicgo.Conn) {
	code := codeRefused
	if e.Ctx.Err() != nil {
		code = codeClosed
	}
	_ = conn.CloseWithError(code, "")
}

// end closes the socket. The transport sends the connections' last packets, so it closes after them.
func (e *Endpoint) end([]*peer) error {
	return errors.Join(e.listener.Close(), e.transport.Close(), e.socket.Close())
}

// settings are the settings of connections.
func (e *Endpoint) settings() *quicgo.Config {
	return &quicgo.Config{
		HandshakeIdleTimeout:           e.config.PeerTimeout,
		MaxIdleTimeout:                 e.config.PeerTimeout,
		KeepAlivePeriod:                e.config.PeerTimeout / 4,
		InitialStreamReceiveWindow:     streamWindow,
		InitialConnectionReceiveWindow: connectionWindow,
		MaxIncomingStreams:             -1,                     // none has two directions
		MaxIncomingUniStreams:          streams.QueueDepth + 2, // replies, and the stream of the next message
	}
}

// acceptLoop passes connections to the peers that made them.
func (e *Endpoint) acceptLoop() {
	for {
		conn, err := e.listener.Accept(e.Ctx)
		if err != nil {
			return // Close has begun: the listener has no other errors
		}
		if id, err := identityOf(conn.ConnectionState().TLS.PeerCertificates); err != nil {
			e.refuse(conn)
		} else {
			e.Admit(string(id[:]), conn)
		}
	}
}

// Counters returns the counts. It is safe to call at any time, also after Close.
func (e *Endpoint) Counters() Counters {
	sent, received := e.Placed()
	return Counters{Sent: sent, Received: received}
}
