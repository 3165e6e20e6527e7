// Package rd is the transports.Endpoint of reliable datagrams: the transport of an imaginary NIC
// for AI training that keeps only the features that training needs. PROTOCOL.md in its folder has its
// wire format and rules.
//
// An endpoint has engines. Each engine has a thread, a socket to receive from, sockets to send
// from, and sequence spaces of its own. Engines share no lock on the path of a packet: regions,
// peers and the NIC's pacer are reached without one. Engines meet only where a message ends: their
// completions wait in one queue, which a worker locks once in each round. There are no connections.
// A posted message goes to a peer at once, in packets that take any path and are placed in any
// order. Package engine implements the protocol; this package drives engines over UDP sockets.
package rd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/completion"
	"railbed/transports/datagram"
	"railbed/transports/rd/engine"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate"
)

const (
	defaultPaths = 8
	defaultMTU   = 1500
	// defaultGrain is how many packets in a row take one path by default: one system call can send
	// them.
	defaultGrain = 4
	// A worker waits for the time of slackPackets at the rate, at most mostSlack, so that packets
	// leave together: waking a thread costs more than a packet.
	slackPackets = 4
	mostSlack    = time.Millisecond
)

// Config configures an endpoint. Only Addr is required.
type Config struct {
	// Addr is the address of the NIC that the endpoint sends from and receives on. An unspecified
	// address is refused.
	Addr netip.Addr
	// Slot is the index of the endpoint's block of ports, of the 16 blocks of the address. A
	// negative slot selects the first free block.
	Slot int
	// Engines is the number of engines that work in parallel, 1 to 16. Default 1.
	Engines int
	// Paths is the number of source ports of each engine. Default 8.
	Paths int
	// Choose selects how packets are spread over the paths. Default: oblivious.
	Choose path.Kind
	// Weights are the shares of the paths of path.KindWeighted. Default: equal shares.
	Weights []uint32
	// Grain is the number of consecutive packets on one path. Default 4.
	Grain int
	// DSCP is the DSCP of data packets. Default 35.
	DSCP uint8
	// Device is the NIC's name. Sockets are bound to it where the kernel permits this process to;
	// see Endpoint.DeviceBound. Default: not bound.
	Device string
	// Bypass makes packets take queues of the NIC Device, past the node's kernel (package nicqueue). The
	// endpoint still binds its ports in the kernel, and uses the kernel for peers on the node itself.
	Bypass bool
	// MTU is the NIC's MTU in bytes. Default 1500.
	MTU int
	// Rate is the highest rate at which the endpoint sends, in bit/s of Ethernet frames, each
	// counted with Overhead more bytes. Default: no bound.
	Rate     uint64
	Overhead int
	// Control makes the controller for an engine's packets to one peer. Engines count from 0.
	// Control is called when the engine first sends to the peer, and may return nil. Change state
	// that controllers share only within Change. Default: the Rate alone.
	Control func(engine int, to transports.Peer) rate.Controller
	// Clock is the testbed's clock. Default: a clock without dilation.
	Clock *clock.Clock
	// PeerTimeout is the time for which a peer may be silent while a request to it is outstanding.
	// Default 5 s.
	PeerTimeout time.Duration
	// Secret makes the endpoint encrypt all packets and accept only encrypted packets. All its
	// peers need the same secret. Default: no encryption.
	Secret *privacy.Secret
	// Keys bounds the use of a key. Default: the limits in PROTOCOL.md.
	Keys privacy.Limits
	// Readable encrypts payload alone: headers are authenticated, and a capture can read them.
	Readable bool
}

// Endpoint implements transports.Endpoint. Make one with Open.
type Endpoint struct {
	config      Config
	self        address
	workers     []*worker
	completions *completion.Queue
	turn        atomic.Uint32 // selects the engine of the next message
	running     sync.WaitGroup

	// Engines and posts read these without a lock. They change under mu.
	regions atomic.Pointer[map[uint64]*region] // by key; each change makes a new map
	known   atomic.Int32                       // peers that all engines have
	closed  atomic.Bool

	// mu is taken before a worker's, and never by a working engine.
	mu     sync.Mutex
	peers  []*peer
	byLife map[uint64]transports.Peer
}

// peer is another endpoint that was added.
type peer struct {
	address
	failed bool // under Endpoint.mu
}

var _ transports.Endpoint = (*Endpoint)(nil)

// Open opens an endpoint and binds its ports on the address. It fails when they are not free.
func Open(config Config) (*Endpoint, error) {
	if !config.Addr.IsValid() || config.Addr.IsUnspecified() {
		return nil, fmt.Errorf("open rd endpoint: address %v is unspecified, want the address of a NIC",
			config.Addr)
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&config.Engines, 1}, {&config.Paths, defaultPaths}, {&config.MTU, defaultMTU},
		{&config.Grain, defaultGrain}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if config.Clock == nil {
		config.Clock = clock.New(1)
	}
	if _, err := path.New(config.Choose, config.Paths, path.Options{Weights: config.Weights}); err != nil {
		return nil, fmt.Errorf("open rd endpoint: %w", err)
	}
	payload := config.payload()
	blocks := wire.PortsRDPath / (wire.PortsRD / wire.RDEngines)
	if config.Engines > wire.RDEngines || config.Engines < 1 || config.Paths < 1 ||
		config.Engines*config.Paths > blocks || payload < 1 {
		return nil, fmt.Errorf("open rd endpoint: %d engines of %d paths at an MTU of %d: want 1 to %d "+
			"engines, at most %d paths in all, and an MTU above %d",
			config.Engines, config.Paths, config.MTU, wire.RDEngines, blocks, config.MTU-payload)
	}
	e := &Endpoint{config: config, completions: completion.New(), byLife: make(map[uint64]transports.Peer)}
	e.regions.Store(&map[uint64]*region{})
	if err := e.open(payload); err != nil {
		for _, w := range e.workers {
			w.socket.close()
		}
		return nil, fmt.Errorf("open rd endpoint on %v: %w", config.Addr, err)
	}
	for _, w := range e.workers {
		e.running.Go(w.run)
	}
	return e, nil
}

// payload is how many bytes of a message fit a packet. Above 512 bytes it is rounded down to whole
// cache lines.
func (c *Config) payload() int {
	payload := c.MTU + wire.EthernetLen - headers(c.Addr) - wire.RDDataLen - c.sealed()
	if payload > 512 {
		payload &^= 63
	}
	return payload
}

// sealed is how many bytes encryption adds to a packet.
func (c *Config) sealed() int {
	if c.Secret == nil {
		return 0
	}
	return wire.RDSealedLen
}

// headers is the length in bytes of the headers below rd.
func headers(addr netip.Addr) int {
	if addr.Is6() {
		return wire.EthernetLen + wire.IPv6Len + wire.UDPLen
	}
	return wire.EthernetLen + wire.IPv4MinLen + wire.UDPLen
}

// open makes the engines.
func (e *Endpoint) open(payload int) error {
	var life [8]byte
	rand.Read(life[:])
	e.self = address{life: binary.BigEndian.Uint64(life[:]), at: e.config.Addr,
		engines: uint8(e.config.Engines), encrypts: e.config.Secret != nil}
	sockets, slot, err := openSockets(&e.config)
	if err != nil {
		return err
	}
	e.self.port = uint8(slot * wire.RDEngines)
	var pacer *engine.Pacer
	var slack, ahead time.Duration
	if e.config.Rate > 0 {
		pacer = engine.NewPacer(e.config.Rate)
		each := time.Duration(uint64(e.config.MTU) * 8 * uint64(time.Second) / e.config.Rate)
		slack, ahead = min(mostSlack, each*slackPackets), datagram.Ahead(e.config.MTU, e.config.Rate)
	}
	if e.config.Bypass {
		slack = 0
	} else {
		ahead = 0
	}
	for i, s := range sockets {
		w := &worker{endpoint: e, socket: s,
			size: payload + wire.RDDataLen + e.config.sealed() + wire.INTLen + 255*4}
		room := s.room(payload + e.config.sealed())
		e.self.room = uint16(min(room/2, 64))
		w.engine = engine.New(engine.Config{
			Life:        e.self.life,
			Port:        e.self.port + uint8(i),
			Payload:     payload,
			Pacer:       pacer,
			Room:        room,
			PeerTimeout: e.config.PeerTimeout,
			Slack:       slack, Ahead: ahead, Overhead: headers(e.config.Addr) + e.config.Overhead,
			FirstPath: s.firstPath, Paths: w.chooser, Grain: e.config.Grain, Control: e.control(i),
			Secret: e.config.Secret, Keys: e.config.Keys, Readable: e.config.Readable,
		}, w)
		e.workers = append(e.workers, w)
	}
	return nil
}

// control returns Config.Control for one engine.
func (e *Endpoint) control(i int) func(transports.Peer) rate.Controller {
	if e.config.Control == nil {
		return nil
	}
	return func(to transports.Peer) rate.Controller { return e.config.Control(i, to) }
}

// Change calls f while no engine works, so that f may change controllers. Then all engines check
// again what they may send.
func (e *Endpoint) Change(f func()) {
	for _, w := range e.workers {
		w.mu.Lock()
		defer w.sendIfIdle()
	}
	f()
	for _, w := range e.workers {
		w.posted = true
		w.mu.Unlock()
	}
}

// DeviceBound reports whether the sockets are bound to Config.Device.
func (e *Endpoint) DeviceBound() bool { return e.workers[0].socket.deviceBound }

// Life is a random number that distinguishes the endpoint from all others, also at its address.
func (e *Endpoint) Life() uint64 { return e.self.life }

// Engines is the number of engines.
func (e *Endpoint) Engines() int { return len(e.workers) }

// Address implements transports.Endpoint.
func (e *Endpoint) Address() []byte { return e.self.encode() }

// AddPeer implements transports.Endpoint. A peer that had the same address and ports before has
// failed. So an owner that adds a restarted peer ends the requests outstanding to the old peer.
// Where packets are encrypted, nothing that the new peer sends could end them.
func (e *Endpoint) AddPeer(raw []byte) (transports.Peer, error) {
	to, err := decodeAddress(raw)
	switch {
	case err != nil:
	case to.at.Is4() != e.config.Addr.Is4():
		err = fmt.Errorf("it has address %v, and this endpoint %v: want one IP version", to.at, e.config.Addr)
	case to.encrypts && !e.self.encrypts:
		err = errors.New("it encrypts, and this endpoint has no secret: want one secret for both")
	case !to.encrypts && e.self.encrypts:
		err = errors.New("it does not encrypt, and this endpoint does: want one secret for both")
	}
	if err != nil {
		return 0, fmt.Errorf("add peer: %w", err)
	}
	n, gone, err := e.addPeer(to)
	if err != nil {
		return 0, fmt.Errorf("add peer: %w", err)
	}
	for _, p := range gone {
		e.fail(p, fmt.Errorf("%w: another endpoint has its address", transports.ErrPeerFailed))
	}
	return n, nil
}

// addPeer adds a peer. It also returns the peers that had its address and ports, which two
// endpoints cannot have at the same time.
func (e *Endpoint) addPeer(to address) (n transports.Peer, gone []transports.Peer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return 0, nil, transports.ErrClosed
	}
	if p, found := e.byLife[to.life]; found {
		return p, nil, nil
	}
	for i, p := range e.peers {
		if p.at == to.at && p.port == to.port && !p.failed {
			gone = append(gone, transports.Peer(i))
		}
	}
	n = transports.Peer(len(e.peers))
	e.peers = append(e.peers, &peer{address: to})
	e.byLife[to.life] = n
	for _, w := range e.workers {
		w.addPeer(to)
	}
	e.known.Store(int32(len(e.peers)))
	return n, gone, nil
}

// Register implements transports.Endpoint.
func (e *Endpoint) Register(buf []byte, access transports.Access) (transports.Region, error) {
	if len(buf) == 0 {
		return nil, errors.New("register region: it has no bytes, want at least 1")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, fmt.Errorf("register region: %w", transports.ErrClosed)
	}
	regions := maps.Clone(*e.regions.Load())
	r := &region{endpoint: e, Region: engine.Region{Memory: buf,
		Writable: access&transports.RemoteWrite != 0}}
	r.key = transports.NewKey(func(key uint64) bool { return regions[key] != nil })
	regions[r.key] = r
	e.regions.Store(&regions)
	return r, nil
}

// region is registered memory.
type region struct {
	engine.Region
	endpoint *Endpoint
	key      uint64
}

// Remote implements transports.Region.
func (r *region) Remote() []byte { return binary.BigEndian.AppendUint64(nil, r.key) }

// Close implements transports.Region. Messages in flight to the region are refused.
func (r *region) Close() error {
	e := r.endpoint
	e.mu.Lock()
	regions := maps.Clone(*e.regions.Load())
	delete(regions, r.key)
	e.regions.Store(&regions)
	e.mu.Unlock()
	r.Closed.Store(true)
	for _, w := range e.workers {
		w.pass() // a worker may be placing bytes
	}
	return nil
}

// Post implements transports.Endpoint.
func (e *Endpoint) Post(ctx context.Context, requests []transports.Request) (int, error) {
	return transports.PostEach(ctx, requests, e.postOne)
}

func (e *Endpoint) postOne(r *transports.Request) (bool /* taken */, error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	switch {
	case e.closed.Load():
		return false, transports.ErrClosed
	case int64(r.Peer) >= int64(e.known.Load()):
		return false, fmt.Errorf("unknown peer %d: want a number from AddPeer", r.Peer)
	}
	m := engine.Message{
		ID:        r.ID,
		Op:        r.Op,
		Local:     r.Local,
		More:      r.More,
		Inline:    r.Inline,
		Imm:       r.Imm,
		Class:     r.Class,
		Droppable: r.Droppable,
	}
	if size := r.Size(); size > 0 {
		if len(r.Remote) != transports.KeyLen {
			return false, fmt.Errorf("%v %d bytes: %w: handle of %d bytes, want the handle of an rd region",
				r.Op, size, transports.ErrAccess, len(r.Remote))
		}
		m.Key, m.Offset = binary.BigEndian.Uint64(r.Remote), r.Offset
	}
	// Messages go to the engines in turn. If an engine is full, the next one takes the message.
	first := e.turn.Add(1)
	for i := range uint32(len(e.workers)) {
		w := e.workers[(first+i)%uint32(len(e.workers))]
		if taken, err := w.post(r.Peer, &m, r.Context); taken || err != nil {
			return taken, err
		}
	}
	return false, nil
}

// Poll implements transports.Endpoint.
func (e *Endpoint) Poll(completions []transports.Completion) int {
	return e.completions.Poll(completions)
}

// Wait implements transports.Endpoint.
func (e *Endpoint) Wait(ctx context.Context) error { return e.completions.Wait(ctx) }

// Counters returns the sum of the engines' counters. It is safe to call at any time, also after
// Close.
func (e *Endpoint) Counters() engine.Counters {
	var all engine.Counters
	for _, w := range e.workers {
		w.mu.Lock()
		c := w.engine.Counters()
		w.mu.Unlock()
		all.Add(&c)
	}
	return all
}

// fail ends a peer in all engines and then reports it down.
func (e *Endpoint) fail(n transports.Peer, err error) {
	e.mu.Lock()
	p := e.peers[n]
	again := p.failed || e.closed.Load()
	p.failed = true
	e.mu.Unlock()
	if again {
		return
	}
	for _, w := range e.workers {
		w.fail(n, err)
	}
	e.completions.Push(transports.Completion{Peer: n, Op: transports.OpPeerDown, Err: err})
}

// Close implements transports.Endpoint.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed.Swap(true) { // from here on Post, AddPeer and Register refuse
		e.mu.Unlock()
		e.running.Wait()
		return nil
	}
	peers := len(e.peers)
	e.mu.Unlock()
	// First all workers stop receiving, so that no worker processes the answer to another worker's
	// CLOSE. Then each worker completes its outstanding requests, sends its CLOSEs and ends. After
	// that, no worker writes into regions any more.
	for _, w := range e.workers {
		w.discardArrivals()
	}
	for _, w := range e.workers {
		w.end(peers)
	}
	e.running.Wait()
	e.completions.Close()
	var errs []error
	for _, w := range e.workers {
		errs = append(errs, w.close(), w.err)
	}
	return errors.Join(errs...)
}
