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
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
	"railbed/transports/completion"
	"railbed/transports/memory"
)

const (
	defaultPeerTimeout = 20 * time.Second
	// queueDepth bounds the requests outstanding to one peer.
	queueDepth = 256
	// maxStrangers bounds the connections of endpoints that were not added.
	maxStrangers = 4096
	// A connection starts with the largest windows to which quic-go lets them grow. quic-go would
	// start with 512 KiB, which limits the first messages on a fast link.
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
	config      Config
	self        address
	certificate tls.Certificate
	deviceBound bool
	socket      *net.UDPConn
	transport   *quicgo.Transport
	listener    *quicgo.Listener
	completions *completion.Queue
	goroutines  sync.WaitGroup
	ctx         context.Context // ends with Close
	cancel      context.CancelFunc

	sent, received atomic.Uint64

	mu        sync.RWMutex
	closed    bool
	peers     []*peer
	byID      map[identity]*peer
	strangers map[identity]*quicgo.Conn // of endpoints not added yet
	regions   memory.Regions
}

var _ transports.Endpoint = (*Endpoint)(nil)

// Open opens the socket and listens. It fails when the address or port is not free.
func Open(config Config) (*Endpoint, error) {
	if !config.Addr.IsValid() || config.Addr.IsUnspecified() {
		return nil, fmt.Errorf("open quic endpoint: address %v is unspecified, want the address of a NIC",
			config.Addr)
	}
	config.PeerTimeout = cmp.Or(config.PeerTimeout, defaultPeerTimeout)
	e := &Endpoint{
		config:      config,
		completions: completion.New(),
		byID:        make(map[identity]*peer),
		strangers:   make(map[identity]*quicgo.Conn),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.listen(); err != nil {
		e.cancel()
		return nil, fmt.Errorf("open quic endpoint on %v: %w", config.Addr, err)
	}
	e.goroutines.Go(e.acceptLoop)
	return e, nil
}

func (e *Endpoint) listen() (err error) {
	if e.certificate, e.self.id, err = newCertificate(); err != nil {
		return fmt.Errorf("make certificate: %w", err)
	}
	if e.socket, e.deviceBound, err = openSocket(e.ctx, &e.config); err != nil {
		return err
	}
	e.self.at = netip.AddrPortFrom(e.config.Addr, uint16(e.socket.LocalAddr().(*net.UDPAddr).Port))
	e.transport = &quicgo.Transport{Conn: socket{e.socket}}
	if e.listener, err = e.transport.Listen(serverTLS(e.certificate), e.settings()); err != nil {
		return errors.Join(err, e.socket.Close())
	}
	return nil
}

// settings are the settings of connections.
func (e *Endpoint) settings() *quicgo.Config {
	return &quicgo.Config{
		HandshakeIdleTimeout:           e.config.PeerTimeout,
		MaxIdleTimeout:                 e.config.PeerTimeout,
		KeepAlivePeriod:                e.config.PeerTimeout / 4,
		InitialStreamReceiveWindow:     streamWindow,
		InitialConnectionReceiveWindow: connectionWindow,
		MaxIncomingStreams:             -1,             // none has two directions
		MaxIncomingUniStreams:          queueDepth + 2, // replies, and the stream of the next message
	}
}

// DeviceBound reports whether the socket is bound to Config.Device.
func (e *Endpoint) DeviceBound() bool { return e.deviceBound }

// Address implements transports.Endpoint.
func (e *Endpoint) Address() []byte { return e.self.encode() }

// AddPeer implements transports.Endpoint.
func (e *Endpoint) AddPeer(raw []byte) (transports.Peer, error) {
	to, err := decodeAddress(raw)
	if err == nil && to.at.Addr().Is4() != e.config.Addr.Is4() {
		err = fmt.Errorf("it is at %v, and this endpoint at %v: want one IP version", to.at, e.config.Addr)
	}
	if err != nil {
		return 0, fmt.Errorf("add peer: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, fmt.Errorf("add peer: %w", transports.ErrClosed)
	}
	if p, found := e.byID[to.id]; found {
		return p.number, nil
	}
	p := newPeer(e, transports.Peer(len(e.peers)), to)
	e.peers = append(e.peers, p)
	e.byID[to.id] = p
	if conn, waiting := e.strangers[to.id]; waiting {
		delete(e.strangers, to.id)
		p.attach(conn, accepted)
	}
	return p.number, nil
}

// acceptLoop passes each connection to its peer, or keeps it until that peer is added. A connection
// that is over the limits, or the second of its endpoint, is closed.
func (e *Endpoint) acceptLoop() {
	for {
		conn, err := e.listener.Accept(e.ctx)
		if err != nil {
			return // Close has begun: the listener has no other errors
		}
		if !e.admit(conn) {
			_ = conn.CloseWithError(codeRefused, "")
		}
	}
}

func (e *Endpoint) admit(conn *quicgo.Conn) bool {
	from, err := identityOf(conn.ConnectionState().TLS.PeerCertificates)
	if err != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, known := e.byID[from]; known && !e.closed {
		return p.attach(conn, accepted)
	}
	if _, waiting := e.strangers[from]; e.closed || waiting || len(e.strangers) >= maxStrangers {
		return false
	}
	e.strangers[from] = conn
	return true
}

// Register implements transports.Endpoint.
func (e *Endpoint) Register(buf []byte, access transports.Access) (transports.Region, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return nil, fmt.Errorf("register region: %w", transports.ErrClosed)
	}
	return e.regions.Register(buf, access)
}

// Post implements transports.Endpoint.
func (e *Endpoint) Post(ctx context.Context, requests []transports.Request) (int, error) {
	return transports.PostEach(ctx, requests, e.postOne)
}

func (e *Endpoint) postOne(request *transports.Request) (bool /* taken */, error) {
	if err := request.Check(); err != nil {
		return false, err
	}
	e.mu.RLock()
	closed := e.closed
	var p *peer
	if int64(request.Peer) < int64(len(e.peers)) {
		p = e.peers[request.Peer]
	}
	e.mu.RUnlock()
	switch {
	case closed:
		return false, transports.ErrClosed
	case p == nil:
		return false, fmt.Errorf("unknown peer %d: want a number from AddPeer", request.Peer)
	}
	h := header{op: request.Op, imm: request.Imm, length: uint32(request.Size())}
	if h.length > 0 {
		if len(request.Remote) != transports.KeyLen {
			return false, fmt.Errorf("%v %d bytes: %w: the region handle has %d bytes, want %d", request.Op,
				h.length, transports.ErrAccess, len(request.Remote), transports.KeyLen)
		}
		h.key, h.offset = binary.BigEndian.Uint64(request.Remote), request.Offset
	}
	return p.post(h, request)
}

// Poll implements transports.Endpoint.
func (e *Endpoint) Poll(completions []transports.Completion) int {
	return e.completions.Poll(completions)
}

// Wait implements transports.Endpoint.
func (e *Endpoint) Wait(ctx context.Context) error { return e.completions.Wait(ctx) }

// Counters returns the counts. It is safe to call at any time, also after Close.
func (e *Endpoint) Counters() Counters {
	return Counters{Sent: e.sent.Load(), Received: e.received.Load()}
}

// Close implements transports.Endpoint.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.goroutines.Wait()
		return nil
	}
	// From here on Post, AddPeer and Register refuse, so that the lists below are final.
	e.closed = true
	peers, strangers := e.peers, e.strangers
	e.strangers = nil
	e.mu.Unlock()

	e.cancel() // ends acceptLoop, so that no connection comes later
	// This completes the outstanding requests and tells the peers.
	for _, p := range peers {
		p.fail(transports.ErrClosed, codeClosed)
	}
	for _, conn := range strangers {
		_ = conn.CloseWithError(codeClosed, "")
	}
	// This ends the receivers that wait for room.
	e.completions.Close()
	err := e.regions.Close()
	// The transport sends the connections' last packets, so it closes after them.
	err = errors.Join(err, e.listener.Close(), e.transport.Close(), e.socket.Close())
	e.goroutines.Wait()
	return err
}
