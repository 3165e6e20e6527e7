// Package streams is the common part of the endpoints over byte streams (tcp, quic). It has the peers, the
// requests outstanding to each, the regions that peers write into, and the formats of messages. A transport
// makes the connections.
//
// A message is a header and its payload, which the receiver reads straight into the region. The receiver's
// replies complete messages at their sender.
package streams

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"railbed/transports"
	"railbed/transports/completion"
)

const (
	// DefaultPeerTimeout is the time for which a peer may leave packets unanswered.
	DefaultPeerTimeout = 20 * time.Second
	// QueueDepth bounds the requests outstanding to one peer. With a collective's slices of 256 KiB that is
	// more than any bandwidth-delay product.
	QueueDepth = 256
	// maxStrangers bounds the connections of endpoints that were not added.
	maxStrangers = 4096
)

// Links are the connections with a peer. The type embeds the Peer, whose lock guards them.
type Links[C any] interface {
	links
	// Accept starts to use a connection that the peer made. It returns false if the peer has failed, or has
	// such a connection already.
	Accept(conn C) bool
	Base() *Peer
}

// Transport is the part of an Endpoint that differs between transports. C is a connection.
type Transport[L Links[C], C any] struct {
	Name   string
	Format Format
	IDLen  int // the length of the ids in addresses
	// Peer makes the links of a new peer. An error refuses the peer.
	Peer func(*Peer) (L, error)
	// Refuse closes a connection that no peer uses.
	Refuse func(C)
	// Stop ends the acceptance of connections, and End ends the connections. Close calls Stop first, and
	// End when all peers have failed.
	Stop func() error
	End  func([]L) error
}

// Endpoint has the methods of transports.Endpoint. Make one with New.
type Endpoint[L Links[C], C any] struct {
	core
	// Self is the endpoint's address. Listen sets it.
	Self        Address
	transport   Transport[L, C]
	addr        netip.Addr
	deviceBound bool
	cancel      context.CancelFunc

	mu        sync.RWMutex
	closed    bool
	peers     []L
	byID      map[string]L
	strangers map[string]C // connections of endpoints not added yet
}

// core is the part of an endpoint that its peers use.
type core struct {
	// Ctx ends with Close.
	Ctx            context.Context
	format         Format
	completions    *completion.Queue
	goroutines     sync.WaitGroup
	regions        regions
	sent, received atomic.Uint64
}

// New makes an endpoint that does not listen yet.
func New[L Links[C], C any](addr netip.Addr, t Transport[L, C]) (*Endpoint[L, C], error) {
	if !addr.IsValid() || addr.IsUnspecified() {
		return nil, fmt.Errorf("open %s endpoint: address %v is unspecified, want the address of a NIC",
			t.Name, addr)
	}
	e := &Endpoint[L, C]{transport: t, addr: addr}
	e.byID, e.strangers = make(map[string]L), make(map[string]C)
	e.format, e.completions = t.Format, completion.New()
	e.Ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Listen calls listen with a device, and without one if this process may not bind to the device. Then the
// endpoint has an address, with the id and the port at which it listens.
func (e *Endpoint[L, C]) Listen(device string, id []byte,
	listen func(device string) (net.Addr, error)) error {
	at, err := listen(device)
	if e.deviceBound = device != ""; e.deviceBound && errors.Is(err, syscall.EPERM) {
		at, err = listen("")
		e.deviceBound = false
	}
	if err != nil {
		e.cancel()
		return fmt.Errorf("open %s endpoint on %v: %w", e.transport.Name, e.addr, err)
	}
	port := netip.MustParseAddrPort(at.String()).Port()
	e.Self = Address{At: netip.AddrPortFrom(e.addr, port), ID: string(id)}
	return nil
}

// DeviceBound reports whether the sockets are bound to the configured device.
func (e *Endpoint[L, C]) DeviceBound() bool { return e.deviceBound }

// Go starts a goroutine that Close waits for.
func (c *core) Go(run func()) { c.goroutines.Go(run) }

// Idle reports that no completion waits to be polled and that more may come.
func (c *core) Idle() bool { return c.completions.Empty() }

// Placed returns the bytes of whole messages placed, at the peers and here.
func (c *core) Placed() (sent, received uint64) { return c.sent.Load(), c.received.Load() }

// Poll implements transports.Endpoint.
func (c *core) Poll(completions []transports.Completion) int { return c.completions.Poll(completions) }

// Wait implements transports.Endpoint.
func (c *core) Wait(ctx context.Context) error { return c.completions.Wait(ctx) }

// Address implements transports.Endpoint.
func (e *Endpoint[L, C]) Address() []byte { return e.Self.Encode() }

// AddPeer implements transports.Endpoint.
func (e *Endpoint[L, C]) AddPeer(raw []byte) (transports.Peer, error) {
	number, err := e.addPeer(raw)
	if err != nil {
		return 0, fmt.Errorf("add peer: %w", err)
	}
	return number, nil
}

func (e *Endpoint[L, C]) addPeer(raw []byte) (transports.Peer, error) {
	to, err := decodeAddress(raw, e.transport.IDLen, e.transport.Name)
	if err != nil {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, transports.ErrClosed
	}
	if p, found := e.byID[to.ID]; found {
		return p.Base().Number, nil
	}
	base := newPeer(&e.core, transports.Peer(len(e.peers)), to)
	p, err := e.transport.Peer(base)
	if err != nil {
		base.cancel()
		return 0, err
	}
	base.links = p
	e.peers = append(e.peers, p)
	e.byID[to.ID] = p
	if conn, waiting := e.strangers[to.ID]; waiting {
		delete(e.strangers, to.ID)
		if !p.Accept(conn) {
			e.transport.Refuse(conn)
		}
	}
	return base.Number, nil
}

// Admit passes a connection to its peer, or keeps it until that peer is added. It closes a connection that is
// over the limits, or that its peer does not use.
func (e *Endpoint[L, C]) Admit(id string, conn C) {
	if !e.admit(id, conn) {
		e.transport.Refuse(conn)
	}
}

func (e *Endpoint[L, C]) admit(id string, conn C) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, known := e.byID[id]; known && !e.closed {
		return p.Accept(conn)
	}
	if _, waiting := e.strangers[id]; e.closed || waiting || len(e.strangers) >= maxStrangers {
		return false
	}
	e.strangers[id] = conn
	return true
}

// Strangers counts the connections of endpoints that were not added yet.
func (e *Endpoint[L, C]) Strangers() int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return len(e.strangers)
}

// Peers returns the links of all peers, by number.
func (e *Endpoint[L, C]) Peers() []L {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.peers
}

// Register implements transports.Endpoint.
func (e *Endpoint[L, C]) Register(buf []byte, access transports.Access) (transports.Region, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return nil, fmt.Errorf("register region: %w", transports.ErrClosed)
	}
	return e.regions.register(buf, access)
}

// Post implements transports.Endpoint.
func (e *Endpoint[L, C]) Post(ctx context.Context, requests []transports.Request) (int, error) {
	return transports.PostEach(ctx, requests, e.postOne)
}

func (e *Endpoint[L, C]) postOne(request *transports.Request) (bool /* taken */, error) {
	if err := request.Check(); err != nil {
		return false, err
	}
	e.mu.RLock()
	closed := e.closed
	var p *Peer
	if int64(request.Peer) < int64(len(e.peers)) {
		p = e.peers[request.Peer].Base()
	}
	e.mu.RUnlock()
	switch {
	case closed:
		return false, transports.ErrClosed
	case p == nil:
		return false, fmt.Errorf("unknown peer %d: want a number from AddPeer", request.Peer)
	}
	h := Header{Op: request.Op, Unsignaled: request.Unsignaled, Imm: request.Imm,
		Length: uint32(request.Size())}
	if h.Length > 0 {
		if len(request.Remote) != transports.KeyLen {
			return false, fmt.Errorf("%v %d bytes: %w: handle of %d bytes, want the handle of a %s region",
				request.Op, h.Length, transports.ErrAccess, len(request.Remote), e.transport.Name)
		}
		h.Key, h.Offset = binary.BigEndian.Uint64(request.Remote), request.Offset
	}
	return p.post(h, request)
}

// Close implements transports.Endpoint.
func (e *Endpoint[L, C]) Close() error {
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

	// No new peer connects before the connections end.
	err := e.transport.Stop()
	e.cancel()
	for _, conn := range strangers {
		e.transport.Refuse(conn)
	}
	// This completes the outstanding requests, and ends the connections so that the peers notice.
	for _, p := range peers {
		p.Base().Fail(transports.ErrClosed)
	}
	// This ends the receivers that wait for room.
	e.completions.Close()
	// The end of the connections ends every reader, also a reader that places bytes into a region.
	err = errors.Join(err, e.transport.End(peers), e.regions.Close())
	e.goroutines.Wait()
	return err
}
