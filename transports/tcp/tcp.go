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
	"cmp"
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"railbed/transports"
	"railbed/transports/streams"
)

// farewell is how long Close waits for peers to close first; see Goodbye.
const farewell = 100 * time.Millisecond

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
	*streams.Endpoint[*peer, *net.TCPConn]
	config     Config
	listener   *net.TCPListener
	busy       busyPoll
	handshakes chan struct{} // one token per hello being read

	streamSent, streamReceived atomic.Uint64
}

var _ transports.Endpoint = (*Endpoint)(nil)

// Open listens on the address. It fails when the address or port is not free.
func Open(config Config) (*Endpoint, error) {
	config.PeerTimeout = cmp.Or(config.PeerTimeout, streams.DefaultPeerTimeout)
	e := &Endpoint{config: config, handshakes: make(chan struct{}, maxHandshakes)}
	var err error
	if e.Endpoint, err = streams.New(config.Addr, streams.Transport[*peer, *net.TCPConn]{
		Name:   "tcp",
		Format: streams.FormatTCP,
		IDLen:  idLen,
		Peer:   e.newPeer,
		Refuse: func(conn *net.TCPConn) { conn.Close() },
		Stop:   func() error { return e.listener.Close() },
		End:    end,
	}); err != nil {
		return nil, err
	}
	var id [idLen]byte
	rand.Read(id[:])
	if err := e.Listen(config.Device, id[:], e.listen); err != nil {
		return nil, err
	}
	e.Go(e.acceptLoop)
	return e, nil
}

func (e *Endpoint) listen(device string) (net.Addr, error) {
	options := streams.SocketOptions{Device: device, DSCP: e.config.DSCP, V6: e.config.Addr.Is6()}
	config := net.ListenConfig{Control: options.Control, KeepAlive: -1}
	listener, err := config.Listen(e.Ctx, "tcp", netip.AddrPortFrom(e.config.Addr, e.config.Port).String())
	if err != nil {
		return nil, err
	}
	e.listener = listener.(*net.TCPListener)
	return listener.Addr(), nil
}

// Wait implements transports.Endpoint.
func (e *Endpoint) Wait(ctx context.Context) error {
	e.poll(ctx)
	return e.Endpoint.Wait(ctx)
}

// Counters returns the counts. It is safe to call at any time, also after Close.
func (e *Endpoint) Counters() Counters {
	sent, received := e.Placed()
	return Counters{PayloadSent: sent, PayloadReceived: received,
		StreamSent: e.streamSent.Load(), StreamReceived: e.streamReceived.Load()}
}

// Flows lists the connections that the endpoint has or had with its peers.
func (e *Endpoint) Flows() []Flow {
	var flows []Flow
	for _, p := range e.Peers() {
		flows = append(flows, p.flows()...)
	}
	return flows
}

// end ends the connections. It waits for peers to answer a goodbye.
func end(peers []*peer) error {
	patience, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	for _, p := range peers {
		p.awaitEnd(patience)
	}
	for _, p := range peers {
		p.cut()
	}
	return nil
}
