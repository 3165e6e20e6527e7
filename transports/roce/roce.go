// Package roce is the transports.Endpoint of RoCEv2: reliable connections (RC) that speak the
// protocol of rdma_rxe and RDMA NICs, in a process, over sockets of its own. Package queuepair
// implements the rules of a queue pair. Package cm makes connections as rdma_cm does. This package
// drives both. A Device offers individual queue pairs, for callers that use them as programs of
// verbs do.
//
// An endpoint connects to a peer when it first posts to it. A connection carries messages one way,
// so two endpoints that start at once need no tie-break. A WRITE is sent as RDMA WRITE, a WRITE_IMM
// as RDMA WRITE with immediate data. A connection breaks when its receiver refuses a message or
// never acknowledges one: then the peer has failed. A request can be canceled only while it waits
// for earlier requests. Droppable messages arrive whole, and every Class shares the connection.
//
// Opening its raw and packet sockets needs CAP_NET_RAW in the network's user namespace, which
// programs in nodes have.
package roce

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/transports"
	"railbed/transports/completion"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/dcqcn"
	"railbed/transports/roce/queuepair"
)

const (
	defaultMTU         = 1500
	defaultPeerTimeout = 5 * time.Second
	// defaultDSCP is AF31, the customary value for RoCE.
	defaultDSCP = 26
	// queueDepth bounds the requests outstanding to one peer. handed and handedSize bound those of
	// them that the queue pair has: later ones can still be canceled.
	queueDepth = 256
	handed     = 64
	handedSize = 8 << 20
	// receives is how many receives are posted for immediates of one sending peer, as long as there
	// is room for their completions.
	receives = 4
	// tcpOf is the first service port of communication management.
	tcpOf = 20_000
)

// Config configures an endpoint. Only Addr is required.
type Config struct {
	// Addr is the address of the NIC. An unspecified address is refused.
	Addr netip.Addr
	// Device is the NIC's name. The socket is bound to it where the kernel permits this process to;
	// see Endpoint.DeviceBound. Default: not bound.
	Device string
	// MTU is the link's MTU. The path MTU is the largest of InfiniBand's that fits. Default 1500,
	// which gives 1,024.
	MTU int
	// Clock is the testbed's clock. Default: a clock without dilation.
	Clock *clock.Clock
	// PeerTimeout is the time for which a peer may be silent while a request to it is outstanding.
	// Default 5 s.
	PeerTimeout time.Duration
	// Timeout is the time after which a queue pair retransmits unacknowledged packets. Default 67
	// ms.
	Timeout time.Duration
	// Selective makes queue pairs retransmit only the missing packets, instead of all packets from
	// the first missing packet on. All peers need the same setting.
	Selective bool
	// Congestion, if set, makes rates follow the fabric's marks. All peers need the same setting.
	Congestion *dcqcn.Params
	// Overhead is the number of bytes that rates count for each packet in addition to its Ethernet frame.
	// Default 0.
	Overhead int
	// DSCP is the DSCP of all packets but CNPs, which have 48. Default 26.
	DSCP uint8
	// Bypass is as in DeviceConfig.
	Bypass bool
	// Block selects the 4,096 of the 2^24 queue pair numbers that the endpoint claims. Blocks count
	// from 1, modulo 4,095; if the block is taken, the next free one is claimed. With different
	// blocks, endpoints that follow each other at an address have different numbers in a recording.
	// Default: any block.
	Block uint32
}

// Endpoint implements transports.Endpoint. Make one with Open.
type Endpoint struct {
	driver
	config      Config
	self        address
	completions *completion.Queue

	// Under the driver's lock.
	peers  []*peer
	byLife map[uint64]*peer
	links  map[infiniband.QPN]*link
	pairs  map[infiniband.QPN]transports.Peer // of all links, also those that are gone
	byConn map[cm.Conn]*link
	early  map[cm.Conn]stranger    // connections requested by endpoints that were not added yet
	done   []transports.Completion // to be reported
}

// Counters are the counts of an endpoint's queue pairs, plus two counts of its socket. BadICRC
// counts packets whose ICRC was wrong. Overruns counts packets that found the ring full, because
// the host let the endpoint read too late.
type Counters struct {
	queuepair.Counters
	BadICRC, Overruns uint64
}

// stranger is a request for a connection.
type stranger struct {
	life  uint64
	from  netip.Addr
	offer cm.Offer
}

var _ transports.Endpoint = (*Endpoint)(nil)

// Open opens an endpoint and claims a block of queue pair numbers at the address.
func Open(config Config) (*Endpoint, error) {
	config.PeerTimeout = cmp.Or(config.PeerTimeout, defaultPeerTimeout)
	config.Timeout = cmp.Or(config.Timeout, infiniband.AckTimeout(14))
	e := &Endpoint{
		config:      config,
		completions: completion.New(),
		byLife:      map[uint64]*peer{},
		links:       map[infiniband.QPN]*link{},
		pairs:       map[infiniband.QPN]transports.Peer{},
		byConn:      map[cm.Conn]*link{}, early: map[cm.Conn]stranger{},
	}
	e.driver.advance, e.driver.report, e.driver.gaveUp = e.advancePeers, e.reportDone, e.failAll
	life := random()
	at := DeviceConfig{Addr: config.Addr, NIC: config.Device, MTU: config.MTU, Clock: config.Clock,
		DSCP: config.DSCP, Bypass: config.Bypass, block: config.Block}
	if err := e.open(&at, life, cm.Config{Timeout: config.Timeout}, managed{e}); err != nil {
		return nil, fmt.Errorf("open roce endpoint on %v: %w", config.Addr, err)
	}
	e.self = address{life: life, at: config.Addr, port: tcpOf + uint16(e.socket.block),
		mtu: infiniband.MTUCode(e.mtu), selective: config.Selective}
	e.manager.Listen(e.self.port)
	e.start()
	return e, nil
}

func random() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// Address implements transports.Endpoint.
func (e *Endpoint) Address() []byte { return e.self.encode() }

// DeviceBound reports whether the socket is bound to Config.Device.
func (e *Endpoint) DeviceBound() bool { return e.socket.bound }

// QueuePairs returns the numbers of all queue pairs that the endpoint can have: count numbers from
// first on.
func (e *Endpoint) QueuePairs() (first infiniband.QPN, count int) {
	return e.socket.number(0), 1 << blockBits
}

// Connected returns the peer of each queue pair that the endpoint has had, by the queue pair's number.
func (e *Endpoint) Connected() map[infiniband.QPN]transports.Peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.pairs)
}

// PathMTU is the payload of a packet in bytes.
func (e *Endpoint) PathMTU() int { return e.mtu }

// AddPeer implements transports.Endpoint.
func (e *Endpoint) AddPeer(raw []byte) (transports.Peer, error) {
	to, err := decodeAddress(raw)
	switch {
	case err != nil:
	case to.at.Is4() != e.config.Addr.Is4():
		err = fmt.Errorf("it has address %v, and this endpoint %v: want one IP version", to.at, e.config.Addr)
	case to.selective != e.self.selective:
		err = errors.New("only one of the two endpoints retransmits selectively: want one setting for both")
	}
	if err != nil {
		return 0, fmt.Errorf("add peer: %w", err)
	}
	e.mu.Lock()
	defer e.unlock()
	if e.closed {
		return 0, fmt.Errorf("add peer: %w", transports.ErrClosed)
	}
	if p := e.byLife[to.life]; p != nil {
		return p.number, nil
	}
	p := &peer{endpoint: e, address: to, number: transports.Peer(len(e.peers))}
	e.peers = append(e.peers, p)
	e.byLife[to.life] = p
	for conn, s := range e.early {
		if s.life == to.life {
			delete(e.early, conn)
			e.consider(conn, p, s)
		}
	}
	return p.number, nil
}

// push keeps a completion until reportDone, so that simultaneous events are reported together: a
// refused request, and the failure of its peer.
func (e *Endpoint) push(c transports.Completion) { e.done = append(e.done, c) }

// reportDone reports the kept completions.
func (e *Endpoint) reportDone() {
	if len(e.done) > 0 {
		e.completions.Push(e.done...)
		clear(e.done)
		e.done = e.done[:0]
	}
}

// Register implements transports.Endpoint.
func (e *Endpoint) Register(buf []byte, access transports.Access) (transports.Region, error) {
	rights := queuepair.Rights(0)
	if access&transports.RemoteWrite != 0 {
		rights = queuepair.RemoteWrite
	}
	r, err := e.register(buf, rights)
	if err != nil { // else a nil *region would be a non-nil interface
		return nil, err
	}
	return r, nil
}

const (
	// remoteLen is the length in bytes of a handle: R_Key, and the address in units of 4 GiB.
	remoteLen = 8
	baseShift = 32
)

// Remote implements transports.Region.
func (r *region) Remote() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, r.key), uint32(r.Base>>baseShift))
}

// Post implements transports.Endpoint.
func (e *Endpoint) Post(ctx context.Context, requests []transports.Request) (int, error) {
	e.mu.Lock()
	defer e.unlock()
	return transports.PostEach(ctx, requests, e.postLocked)
}

func (e *Endpoint) postLocked(r *transports.Request) (taken bool, err error) {
	if err := r.Check(); err != nil {
		return false, err
	}
	switch {
	case e.closed:
		return false, transports.ErrClosed
	case int64(r.Peer) >= int64(len(e.peers)):
		return false, fmt.Errorf("unknown peer %d: want a number from AddPeer", r.Peer)
	}
	return e.peers[r.Peer].post(r)
}

// Poll implements transports.Endpoint.
func (e *Endpoint) Poll(completions []transports.Completion) int {
	return e.completions.Poll(completions)
}

// Wait implements transports.Endpoint.
func (e *Endpoint) Wait(ctx context.Context) error { return e.completions.Wait(ctx) }

// Counters returns the counts of the queue pairs. It is safe to call at any time, also after Close.
func (e *Endpoint) Counters() Counters { return e.count() }

// Close implements transports.Endpoint.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.running.Wait()
		return nil
	}
	e.closed = true
	now := e.clock.Now()
	for _, p := range e.peers {
		p.end(transports.ErrClosed)
	}
	for _, l := range e.links {
		e.manager.Disconnect(now, l.conn, l.remote)
	}
	e.unlock()
	err := e.stop()
	e.completions.Close()
	return err
}
