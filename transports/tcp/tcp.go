// Package tcp is the transports.Endpoint over the kernel's TCP: the baseline with which every other
// transport is compared.
//
// An endpoint connects to a peer when it first posts to it. That connection carries messages one
// way and small replies the other. So replies never queue behind bulk data, and two endpoints that
// start at once need no tie-break. Every packet's ports identify the sender of the payload: the
// receiver's listening port is the destination. Payload goes from the caller's memory to the socket
// with writev. The receiver checks key, rights and bounds, then reads from the socket straight into
// the region. Only the few bytes of a message that were read with its header are copied once more.
//
// A stream neither reorders nor drops: every Class shares it and Droppable messages arrive whole.
// Bytes that were written to the stream cannot be called back, so a request can be canceled only
// while it waits for earlier requests. A refused message leaves the others alone. A peer is dead
// when its connection ends. It is also dead when the kernel's retransmissions or keepalive probes
// go unanswered for Config.PeerTimeout. A peer whose process is stopped while its kernel answers is
// not dead.
package tcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"railbed/transports"
	"railbed/transports/completion"
	"railbed/transports/memory"
)

const (
	defaultPeerTimeout = 20 * time.Second
	// queueDepth bounds the requests outstanding to one peer. With a collective's slices of 256 KiB
	// that is more than any bandwidth-delay product.
	queueDepth = 256
	// farewell is how long Close waits for peers to close first; see opGoodbye.
	farewell = 100 * time.Millisecond
)

// Config configures an endpoint. Only Addr is required.
type Config struct {
	// Addr is the address of the NIC that the endpoint sends from and listens
	// on. An unspecified address is refused.
	Addr netip.Addr
	// Port is the listening port. Default: the kernel picks one.
	Port uint16
	// SourcePorts are the local ports of outgoing connections. Each connection takes the first port
	// that is free towards its peer. Default: the kernel picks.
	SourcePorts []uint16
	// DSCP is the DSCP of all packets.
	DSCP uint8
	// Device is the NIC's name. Sockets are bound to it where the kernel permits this process to;
	// see Endpoint.DeviceBound. Default: not bound.
	Device string
	// PeerTimeout is the time for which a peer may leave packets unanswered. Default 20 s.
	PeerTimeout time.Duration
}

// Counters counts an endpoint's bytes since Open. Stream counts all bytes that passed the sockets,
// headers and replies included. This is the TCP payload of packets. Payload counts the bytes of
// whole messages placed.
type Counters struct {
	PayloadSent, PayloadReceived uint64
	StreamSent, StreamReceived   uint64
}

// Flow is one TCP connection of an endpoint. Payload flows from the connecting to the listening
// side only.
type Flow struct {
	Peer       transports.Peer
	Connecting bool // this endpoint connected and sends the payload
	Local      netip.AddrPort
	Remote     netip.AddrPort
}

// Endpoint implements transports.Endpoint. Make one with Open.
type Endpoint struct {
	config      Config
	self        address
	deviceBound bool
	listener    *net.TCPListener
	completions *completion.Queue
	busy        busyPoll
	handshakes  chan struct{} // one token per hello being read
	goroutines  sync.WaitGroup
	ctx         context.Context // ends with Close; bounds connects
	cancel      context.CancelFunc

	counters struct {
		payloadSent, payloadReceived, streamSent, streamReceived atomic.Uint64
	}

	mu        sync.RWMutex
	closed    bool
	peers     []*peer
	byID      map[endpointID]*peer
	strangers map[endpointID]*net.TCPConn // connections with a hello from endpoints not added yet
	regions   memory.Regions
}

var _ transports.Endpoint = (*Endpoint)(nil)

// Open listens on the address. It fails when the address or port is not free.
func Open(config Config) (*Endpoint, error) {
	if !config.Addr.IsValid() || config.Addr.IsUnspecified() {
		return nil, fmt.Errorf("open tcp endpoint: address %v is unspecified, want the address of a NIC",
			config.Addr)
	}
	if config.PeerTimeout == 0 {
		config.PeerTimeout = defaultPeerTimeout
	}
	e := &Endpoint{
		config:      config,
		completions: completion.New(),
		handshakes:  make(chan struct{}, maxHandshakes),
		byID:        make(map[endpointID]*peer),
		strangers:   make(map[endpointID]*net.TCPConn),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.listen(); err != nil {
		e.cancel()
		return nil, fmt.Errorf("open tcp endpoint on %v: %w", config.Addr, err)
	}
	at := e.listener.Addr().(*net.TCPAddr).AddrPort()
	e.self.at = netip.AddrPortFrom(config.Addr, at.Port())
	rand.Read(e.self.id[:])
	e.goroutines.Go(e.acceptLoop)
	return e, nil
}

// listen binds to the device too, and without it where that is not permitted.
func (e *Endpoint) listen() error {
	for _, device := range []string{e.config.Device, ""} {
		config := net.ListenConfig{Control: control(socketOptions{device: device, dscp: e.config.DSCP,
			v6: e.config.Addr.Is6()}), KeepAlive: -1}
		at := netip.AddrPortFrom(e.config.Addr, e.config.Port)
		listener, err := config.Listen(e.ctx, "tcp", at.String())
		if device != "" && errors.Is(err, errNotPermitted) {
			continue
		}
		if err != nil {
			return err
		}
		e.listener, e.deviceBound = listener.(*net.TCPListener), device != ""
		return nil
	}
	return nil
}

// DeviceBound reports whether the sockets are bound to Config.Device.
func (e *Endpoint) DeviceBound() bool { return e.deviceBound }

// Address implements transports.Endpoint.
func (e *Endpoint) Address() []byte { return e.self.encode() }

// AddPeer implements transports.Endpoint.
func (e *Endpoint) AddPeer(raw []byte) (transports.Peer, error) {
	to, err := decodeAddress(raw)
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
		p.accept(conn)
	}
	return p.number, nil
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
	closed, known := e.closed, int(request.Peer) < len(e.peers)
	var p *peer
	if known {
		p = e.peers[request.Peer]
	}
	e.mu.RUnlock()
	switch {
	case closed:
		return false, transports.ErrClosed
	case !known:
		return false, fmt.Errorf("unknown peer %d: want a number from AddPeer", request.Peer)
	}
	h := header{op: request.Op, unsignaled: request.Unsignaled, imm: request.Imm,
		length: uint32(request.Size())}
	if h.length > 0 {
		if len(request.Remote) != transports.KeyLen {
			return false, fmt.Errorf("%v %d bytes: %w: handle of %d bytes, want the handle of a tcp region",
				request.Op, h.length, transports.ErrAccess, len(request.Remote))
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
func (e *Endpoint) Wait(ctx context.Context) error {
	e.poll(ctx)
	return e.completions.Wait(ctx)
}

// Counters returns the counts. It is safe to call at any time, also after Close.
func (e *Endpoint) Counters() Counters {
	return Counters{
		PayloadSent:     e.counters.payloadSent.Load(),
		PayloadReceived: e.counters.payloadReceived.Load(),
		StreamSent:      e.counters.streamSent.Load(),
		StreamReceived:  e.counters.streamReceived.Load(),
	}
}

// Flows lists the connections that the endpoint has or had with its peers.
func (e *Endpoint) Flows() []Flow {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var flows []Flow
	for _, p := range e.peers {
		flows = append(flows, p.flows()...)
	}
	return flows
}

// Close implements transports.Endpoint. It takes up to 100 ms if a peer does not answer a goodbye.
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

	// Close the listener before the goodbyes, so that no new peer connects in between.
	err := e.listener.Close()
	e.cancel()
	for _, conn := range strangers {
		conn.Close()
	}
	// This completes the outstanding requests and says goodbye to idle peers.
	for _, p := range peers {
		p.fail(transports.ErrClosed, polite)
	}
	patience, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	for _, p := range peers {
		p.awaitEnd(patience)
	}
	// Connections to peers that did not answer are cut. That unblocks every reader, also one
	// placing bytes into a region.
	e.completions.Close()
	for _, p := range peers {
		p.cut()
	}
	err = errors.Join(err, e.regions.Close())
	e.goroutines.Wait()
	return err
}
