// Package engine is one engine of an endpoint of reliable datagrams: the state of its sequence
// spaces to and from the engines of its peers. The rules are in transports/rd/PROTOCOL.md. An
// Engine has no socket, no goroutine and no clock. Its driver passes in packets with their time of
// arrival, takes packets out, and calls again at the engine's deadline. So an Engine runs the same
// in a test that simulates the network and the time.
//
// # Sending
//
// A message is cut into packets. Each packet contains the region and the offset at which it is
// placed. Packets are numbered (PSN) in the order in which they are first sent, may take any path
// and arrive in any order.
//
// A packet is retransmitted in two cases: its trimmed header was reported, or it is late. It is
// late when a packet sent after it has arrived, and it has been in flight longer than packets that
// arrived lately. That bound follows the reordering that is present, so reordering alone causes no
// retransmission. When the peer is silent, the engine sends a probe, never data: the answer to the
// probe reports which packets are missing.
//
// # Receiving
//
// A packet's bytes are copied once, when its PSN arrives for the first time, after the whole
// message was checked against its region. The message's immediate is delivered after its last byte.
//
// An Engine is not safe for concurrent use.
package engine

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate"
)

const (
	// Window is the largest difference of the PSNs in flight of one sequence space: the bitmap of
	// an acknowledgement covers no more.
	Window = 64 * wire.RDMaxWords
	// Messages is the largest number of messages that one sequence space has outstanding.
	Messages = 256
	// quantum is how many packets of one message, and to one peer, are sent before those of the
	// next.
	quantum = 16

	defaultPeerTimeout = 5 * time.Second
	// minRoom is the least that a sender may have in flight, in packets, however many senders there
	// are.
	minRoom = 2
	// defaultRoom is how many packets of 4 KiB fit in the memory that Linux gives a socket by
	// default (net.core.rmem_default, 212,992 bytes).
	defaultRoom = 24
	// An acknowledgement is sent after ackEvery packets, or ackDelay after the first of them. It is
	// sent at once if the packet requests it. It is also sent at once for a packet that was
	// overtaken, so that its sender does not take it for lost.
	ackEvery = 8
	ackDelay = AckDelay
	// endDelay replaces ackDelay once a message is complete: its receiver gets time to answer it,
	// so that the acknowledgement goes with the answer.
	endDelay = 50 * time.Microsecond
	// activity is how long a sender counts among those that share the room.
	activity = 10 * time.Millisecond
)

// AckDelay is the longest time for which a packet that arrived is not acknowledged.
const AckDelay = time.Millisecond

// Config configures an engine. Life, Payload and Paths are required.
type Config struct {
	// Life is the random number that identifies the endpoint, the same for all of its engines.
	Life uint64
	// Port is the engine's port relative to wire.PortRD.
	Port uint8
	// Payload is the largest number of bytes of a message in a packet.
	Payload int
	// Paths makes the chooser of the paths to a peer.
	Paths func() path.Chooser
	// Grain is the number of consecutive packets on one path. They can leave together. Default 1.
	Grain int
	// FirstPath is the source port of path 0; the others follow.
	FirstPath uint16
	// Pacer determines when packets may be sent. Default: at once.
	Pacer *Pacer
	// Control makes the controller for the packets to a peer. It may be nil, and may return nil.
	// Default: only the Pacer's rate bounds sending.
	Control func(to transports.Peer) rate.Controller
	// Slack is the time for which a packet may wait, after its scheduled time, so that later packets
	// leave together with it. Default 0.
	Slack time.Duration
	// Ahead is the time before its departure at which a packet may be passed to a driver that holds it until
	// then (Packet.Departs). The engine passes the packets of half that time together. Default 0: the driver
	// holds none.
	Ahead time.Duration
	// Overhead is the number of bytes that a pacer counts for each packet in addition to header and
	// payload. Default: the headers of Ethernet, IPv4 and UDP.
	Overhead int
	// Room is the number of packets that can wait for the engine. Default 24.
	Room int
	// PeerTimeout is the time for which a peer may be silent while a request to it is outstanding.
	// Default 5 s.
	PeerTimeout time.Duration
	// Secret is shared by all peers and makes the engine encrypt packets. Default: packets are not
	// encrypted, and encrypted packets are rejected.
	Secret *privacy.Secret
	// Keys bounds the use of a key.
	Keys privacy.Limits
	// Readable leaves headers readable: only payload is encrypted.
	Readable bool
}

// Host is the part of an endpoint that an engine calls.
type Host interface {
	// Region returns the region with a key, or nil.
	Region(key uint64) *Region
	// Reserve reserves room for the next Deliver. It returns false if there is none.
	Reserve() bool
	// Deliver reports an OpReceive for which room is reserved.
	Deliver(c transports.Completion)
	// Complete reports the end of a request.
	Complete(c transports.Completion)
	// Failed reports that a peer failed in this engine. The endpoint must call Fail in its other
	// engines, and reports the failure once all have failed it.
	Failed(peer transports.Peer, err error)
}

// Region is registered memory.
type Region struct {
	Memory   []byte
	Writable bool
	// Closed is set before the memory is returned to its owner. An engine that runs at that moment
	// may still write until it returns.
	Closed atomic.Bool
}

// Peer is the content of an endpoint's address.
type Peer struct {
	Life    uint64
	Port    uint8 // of its engine 0, relative to wire.PortRD
	Engines int
	Room    int // packets that each of its engines can hold at first
}

// Message is a request, in the form that an engine takes.
type Message struct {
	ID          uint64
	Op          transports.Op
	Local       []byte
	More        [][]byte // pieces behind Local; Post reads the list
	Inline      bool     // Post copies the bytes
	Key, Offset uint64
	Imm         uint32
	Class       transports.Class
	Droppable   int // bytes that may be left out
	// Release, if set, is called when the message completes.
	Release func()
	// Number is set by Post, for Cancel.
	Number uint32
}

// peer is another endpoint.
type peer struct {
	Peer
	number transports.Peer
	out    *outbound
	in     [wire.RDEngines]*inbound // by its engine
	err    error

	pairings  [wire.RDEngines]*pairing // by its engine, where packets are encrypted
	suspicion wire.RDRejection         // the latest reject, which is not authenticated
	hintsFrom clock.Time
	hints     int // since hintsFrom
}

// Engine is one engine.
type Engine struct {
	config   Config
	host     Host
	peers    []*peer
	byLife   map[uint64]*peer
	counters Counters

	order    uint64      // of the latest transmission
	active   []*outbound // with a message outstanding
	turn     int         // in active
	turned   int         // packets sent in this turn.
	owing    *inbound    // the first that owes an acknowledgement
	later    []*inbound  // that owe one at their due time
	begun    []*inbound  // with a message that has begun
	due      clock.Time  // the earliest of these times
	controls ring
	sent     bool       // data, since Next last returned false
	pacing   bool       // the pacer counts this engine as sending
	paced    clock.Time // when the next paced packet may go; 0 if no packet waits for that

	parting       []control  // closes, of Goodbye
	secret        uint64     // see tile
	epoch         clock.Time // of activity
	senders, last int        // in this and the last epoch
}

// New makes an engine.
func New(config Config, host Host) *Engine {
	if config.Payload <= 0 || config.Payload > 0xFFFF || config.Paths == nil {
		panic(fmt.Sprintf("rd engine with %d bytes of payload, want 1 to 65535, and Paths", config.Payload))
	}
	if config.PeerTimeout == 0 {
		config.PeerTimeout = defaultPeerTimeout
	}
	if config.Overhead == 0 {
		config.Overhead = wire.EthernetLen + wire.IPv4MinLen + wire.UDPLen
	}
	if config.Secret != nil {
		config.Overhead += wire.RDSealedLen
	}
	if config.Grain == 0 {
		config.Grain = 1
	}
	if config.Room == 0 {
		config.Room = defaultRoom
	}
	return &Engine{config: config, host: host, byLife: make(map[uint64]*peer), secret: rand.Uint64(),
		due: clock.Never}
}

// Counters returns the counts so far.
func (e *Engine) Counters() Counters { return e.counters }

// AddPeer adds a peer. Peers are numbered from 0 in the order in which they are added.
func (e *Engine) AddPeer(p Peer) transports.Peer {
	n := transports.Peer(len(e.peers))
	added := &peer{Peer: p, number: n}
	added.Engines = min(max(added.Engines, 1), wire.RDEngines)
	e.peers = append(e.peers, added)
	e.byLife[p.Life] = added
	return n
}

// Post queues a message. It returns false when the peer has the largest number of outstanding
// messages. If the peer has failed, it returns the peer's error.
func (e *Engine) Post(now clock.Time, to transports.Peer, m *Message) (bool, error) {
	p := e.peers[to]
	if p.err != nil {
		return false, p.err
	}
	if p.out == nil {
		p.out = e.newOutbound(p)
	}
	if !p.out.post(m, now) {
		return false, nil
	}
	e.activate(p.out)
	return true, nil
}

// Cancel cancels a message that Post accepted, unless it has completed. The message completes with
// err once the peer is known to have discarded it, or at once if its sending never began. If the
// message turns out to have arrived whole, it completes without an error.
func (e *Engine) Cancel(now clock.Time, to transports.Peer, number uint32, err error) {
	if p := e.peers[to]; p.out != nil {
		p.out.cancel(number, err, now)
	}
}

func (e *Engine) activate(o *outbound) {
	if !o.active {
		o.active, o.lane.busy = true, false
		e.active = append(e.active, o)
	}
}

// Fail ends a peer: the messages outstanding to it complete with err, and packets from it are not
// accepted any more. A second call does nothing.
func (e *Engine) Fail(to transports.Peer, err error) {
	p := e.peers[to]
	if p.err != nil {
		return
	}
	p.err = err
	if p.out != nil {
		p.out.abandon(err)
	}
	p.out, p.in = nil, [wire.RDEngines]*inbound{}
}

// fail is Fail for a failure that the engine itself detected.
func (e *Engine) fail(p *peer, format string, args ...any) {
	if p.err != nil {
		return
	}
	err := fmt.Errorf("%w: %s", transports.ErrPeerFailed, fmt.Sprintf(format, args...))
	e.Fail(p.number, err)
	e.host.Failed(p.number, err)
}

// Arrival is a received packet.
type Arrival struct {
	Data []byte // the UDP payload, without an INT block
	// Path is the UDP source port.
	Path uint16
	// Marked is true if the packet arrived with congestion experienced (RFC 3168).
	Marked bool
	// From is the sender's address, to which a reject is sent.
	From netip.Addr
	// At is when the packet arrived, by the stamp of a NIC. Default: when Receive is called.
	At clock.Time
}

// at returns when a packet arrived that is processed now.
func (a *Arrival) at(now clock.Time) clock.Time {
	if a.At == 0 {
		return now
	}
	return min(a.At, now)
}

// Receive processes a packet. It keeps no reference to it.
func (e *Engine) Receive(now clock.Time, a Arrival) {
	b := wire.RD(a.Data)
	if !b.HasBase() {
		e.counters.Corrupt++
		return
	}
	if b.Version() != wire.RDVersion {
		e.counters.Foreign++
		base := b.Base()
		e.reject(a.From, base, wire.RDRejectVersion)
		return
	}
	if !b.Valid() {
		e.counters.Corrupt++
		return
	}
	base := b.Base()
	if base.Type == wire.RDReject && !b.Sealed() { // its sender need not have a key
		e.rejected(b, base, now)
		return
	}
	if b.Sealed() != e.encrypts() {
		e.counters.Unprotected++
		e.reject(a.From, base, wire.RDRejectSecurity)
		return
	}
	if base.Tag != uint32(e.config.Life) || base.Destination != e.config.Port {
		e.counters.Foreign++
		e.reject(a.From, base, wire.RDRejectLife)
		return
	}
	p := e.byLife[base.Life]
	if p == nil {
		e.counters.Foreign++
		e.reject(a.From, base, wire.RDRejectStranger)
		return
	}
	if e.encrypts() {
		var ok bool
		if b, ok = e.open(p, b, base, a, now); !ok {
			return
		}
		base.Flags = b.Flags()
	}
	e.from(p, b, base, a, now)
}

// from processes a packet of a known peer.
func (e *Engine) from(p *peer, b wire.RD, base wire.RDBase, a Arrival, now clock.Time) {
	if p.err != nil {
		if base.Type != wire.RDClose {
			e.controls.push(&control{kind: wire.RDClose, peer: p, port: base.Source, psn: firstPSN(p.Life)})
		}
		return
	}
	switch base.Type {
	case wire.RDData, wire.RDSkip, wire.RDProbe:
		in := e.inbound(p, base.Source)
		if in == nil {
			e.counters.Hostile++
			return
		}
		in.arrived(b, base, a, now)
	case wire.RDAck:
		if p.out != nil && base.Source == p.out.port {
			p.out.acknowledged(b, base, a.at(now), now)
		}
	case wire.RDNack:
		if p.out != nil && base.Source == p.out.port {
			p.out.refused(b.Nack(), PSN(base.PSN), now)
		}
	case wire.RDClose:
		if p.out != nil && base.Source == p.out.port {
			p.out.upTo(PSN(base.PSN), now) // packets that arrived before it closed are no failure
		}
		e.fail(p, "it closed its endpoint")
	}
}

// Goodbye makes Next send closes to all peers with which there was traffic. A close acknowledges
// the peer's packets that have arrived.
func (e *Engine) Goodbye() {
	for _, p := range e.peers {
		if p.err != nil {
			continue
		}
		told := false
		for _, in := range p.in {
			if in != nil {
				e.parting = append(e.parting, control{kind: wire.RDClose, peer: p, port: in.port,
					psn: in.next})
				told = true
			}
		}
		if p.out != nil && !told {
			e.parting = append(e.parting, control{kind: wire.RDClose, peer: p, port: p.out.port,
				psn: firstPSN(p.Life)})
		}
	}
}

// inbound returns the sequence space from a peer's engine, or nil if the peer has no such engine.
func (e *Engine) inbound(p *peer, port uint8) *inbound {
	n := int(port) - int(p.Port)
	if n < 0 || n >= p.Engines {
		return nil
	}
	if p.in[n] == nil {
		p.in[n] = e.newInbound(p, port)
	}
	return p.in[n]
}

// rejected processes a reject. The engine accepts it when it names this life and comes from a peer
// and engine with messages outstanding.
func (e *Engine) rejected(b wire.RD, base wire.RDBase, now clock.Time) {
	r := b.Reject()
	if r.To != e.config.Life {
		e.counters.Foreign++
		return
	}
	for _, o := range e.active {
		p := o.peer
		if p.err != nil || o.port != base.Source || r.Meant != uint32(p.Life) {
			continue
		}
		if e.encrypts() {
			o.suspected(r.Reason, now)
			return
		}
		switch r.Reason {
		case wire.RDRejectStranger:
			o.pause(now)
		case wire.RDRejectLife:
			e.fail(p, "another endpoint has the peer's address now")
		case wire.RDRejectVersion:
			if r.Least <= wire.RDVersion && wire.RDVersion <= r.Most {
				return // it read another version in a packet that was damaged
			}
			e.fail(p, "it speaks versions %d to %d of the protocol, not %d", r.Least, r.Most, wire.RDVersion)
		default:
			e.fail(p, "it rejects packets: %v", r.Reason)
		}
		return
	}
	e.counters.Foreign++
}

// base returns the base header of a packet to a peer's engine.
func (e *Engine) base(p *peer, port uint8) wire.RDBase {
	return wire.RDBase{Source: e.config.Port, Destination: port, Tag: uint32(p.Life), Life: e.config.Life}
}

// room is how many packets each sender may have in flight, so that all senders together do not
// overrun the receive buffer.
func (e *Engine) room() int {
	return max(minRoom, e.config.Room/max(e.senders, e.last, 1))
}
