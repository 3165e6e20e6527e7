// Package cm connects queue pairs by the communication management of rdma_cm over RoCEv2. It sends
// REQ, REP and RTU between the general services (QP1) of two addresses, with an IP port for the
// service. Its source is the InfiniBand Architecture Specification, volume 1, release 1.4, chapter
// 12 and Annex A11. A Manager has no socket, no goroutine and no clock. Its driver passes in
// management datagrams with their time of arrival, takes datagrams out, and calls again at the
// manager's deadline.
//
// # Connecting
//
// Connect offers a queue pair to the listener at a port of an address. The listening host receives
// the event Requested. It answers with Accept or Reject, at once or later, as long as the peer
// still asks. The event Ended reports that the peer gave up. Both hosts receive Connected: the active
// side when its request is granted, the passive side when its peer is known to be ready. If the
// attempt fails, they receive Ended. A message that is not answered is sent again.
//
// A slow host sends no MRA of its own: the active side goes on for as long as its retries last,
// which are 15 after 4 s each with rdma_cm. A received MRA is honoured, once for each message.
//
// # Ending
//
// Disconnect tells the peer, whose host receives Ended.
//
// A Manager is not safe for concurrent use.
package cm

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// Errors of Ended.
var (
	// ErrTimeout: the peer did not answer.
	ErrTimeout = errors.New("no answer")
	// ErrRejected: the peer rejected the connection; a *RejectError says why.
	ErrRejected = errors.New("rejected")
	// ErrDisconnected: the peer has ended the connection.
	ErrDisconnected = errors.New("disconnected by the peer")
)

// RejectError is a REJ of the peer. It wraps ErrRejected.
type RejectError struct {
	Reason  uint16 // infiniband.RejectNoQP and so on
	Private []byte
}

func (e *RejectError) Error() string { return fmt.Sprintf("%v, reason %d", ErrRejected, e.Reason) }

// Unwrap returns ErrRejected.
func (e *RejectError) Unwrap() error { return ErrRejected }

// Conn names a connection at this end.
type Conn uint32

// Offer describes the queue pair of one end of a connection to the other end.
type Offer struct {
	QPN infiniband.QPN
	// PSN is the first PSN that the other end must send (12.6.5, starting PSN).
	PSN infiniband.PSN
	// Resources is the number of READs and atomics that the queue pair accepts at once, and Depth
	// the number that it wants to have in flight.
	Resources, Depth uint8
	// Retries and RNRRetries have 3 bits. 7 RNR retries stand for no limit. Only the active side
	// sets Retries.
	Retries, RNRRetries uint8
	// AckTimeout is a code of infiniband.AckTimeout and MTU one of infiniband.MTU. The active side
	// sets them.
	AckTimeout, MTU uint8
	// Private is the user's data: at most MaxRequestPrivate bytes from the active side, and
	// infiniband.REPPrivate bytes from the passive side. It arrives padded with zeros.
	Private []byte
}

// MaxRequestPrivate is the number of bytes of private data in a request, after rdma_cm's own bytes.
const MaxRequestPrivate = infiniband.REQPrivate - infiniband.IPServiceLen

// Host receives the manager's events. The Manager's methods call its methods, which may call
// Accept, Reject and Disconnect.
type Host interface {
	// Requested is the event that a peer requests a connection at a port that the manager listens at.
	Requested(c Conn, from netip.AddrPort, port uint16, offer Offer)
	// Connected is the event that a connection is ready. The offer is the peer's. At the passive side it is
	// the offer of Requested.
	Connected(c Conn, offer Offer)
	// Ended is the event that a connection has ended, or failed to be made. It is the connection's last
	// event.
	Ended(c Conn, why error)
}

// Config configures a Manager. Addr is required.
type Config struct {
	Addr netip.Addr
	// GUID names the adapter. Default 0.
	GUID uint64
	// Timeout is the time after which a message is sent again, and Retries the number of
	// repetitions, at most 15. Default: 67 ms and 15 retries, as rdma_cm has. REQs announce the
	// least code that is not shorter than Timeout.
	Timeout time.Duration
	Retries int
	// Most is the largest number of connections at once, requested connections included. Default
	// 4,096.
	Most int
	// Shared is set if other managers have the same address. Messages for ports and connections
	// that this manager does not have are then ignored rather than rejected.
	Shared bool
	// First is the first connection's name at this end. It should differ from the names that an
	// earlier manager at the address used, so that late messages to that manager match no connection.
	First Conn
}

// state of a connection.
type state uint8

const (
	asking    state = iota // a REQ was sent
	asked                  // a REQ arrived, and the host has not answered
	granted                // a REP was sent
	connected              // both are ready
	leaving                // a DREQ was sent
)

// conn is one connection.
type conn struct {
	state       state
	to          netip.Addr
	local       Conn
	remote      uint32
	number      infiniband.QPN // of the queue pair at this end; 0 before it is known
	transaction uint64
	message     [infiniband.MADLen]byte // the latest that was sent, to be sent again
	offer       Offer                   // the peer's
	tries       int
	delayed     bool // an MRA for the message arrived
	timer       clock.Time
}

// outgoing is a datagram to be sent.
type outgoing struct {
	to      netip.Addr
	message [infiniband.MADLen]byte
}

// Manager is the communication manager of one address.
type Manager struct {
	config Config
	host   Host
	next   Conn
	conns  map[Conn]*conn
	asked  map[origin]*conn // requested by peers, until they end
	ports  map[uint16]bool
	out    []outgoing
}

// origin identifies a REQ that is received again.
type origin struct {
	addr netip.Addr
	comm uint32
}

const (
	defaultTimeout = 67108864 * time.Nanosecond // code 14
	mostRetries    = 15
	// mostOut bounds the answers that wait to be sent. Further answers are dropped, and sent when
	// the peer asks again.
	mostOut = 1024
)

// New makes a manager.
func New(config Config, host Host) (*Manager, error) {
	if !config.Addr.IsValid() {
		return nil, errors.New("communication manager: the address is missing")
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.Retries == 0 {
		config.Retries = mostRetries
	}
	if config.Most == 0 {
		config.Most = 4096
	}
	if config.Timeout < 0 || config.Retries < 0 || config.Retries > mostRetries || config.Most < 0 {
		return nil, fmt.Errorf("communication manager: timeout %v, %d retries and %[4]d connections: want "+
			"none below 0, and at most %[3]d retries", config.Timeout, config.Retries, mostRetries,
			config.Most)
	}
	return &Manager{config: config, host: host, next: config.First, conns: map[Conn]*conn{},
		asked: map[origin]*conn{}, ports: map[uint16]bool{}}, nil
}

// Listen lets peers ask for connections at a port.
func (m *Manager) Listen(port uint16) { m.ports[port] = true }

// Connect requests a connection with the listener at an address and port. from is the source port,
// which only the peer's user interprets.
func (m *Manager) Connect(now clock.Time, to netip.AddrPort, from uint16, offer Offer) (Conn, error) {
	if len(offer.Private) > MaxRequestPrivate {
		return 0, fmt.Errorf("connect: %d bytes of private data, limit %d", len(offer.Private),
			MaxRequestPrivate)
	}
	if to.Addr().Is4() != m.config.Addr.Is4() {
		return 0, fmt.Errorf("connect: %v from %v: want addresses of one IP version", to, m.config.Addr)
	}
	c, err := m.add(to.Addr(), asking)
	if err != nil {
		return 0, err
	}
	c.transaction, c.number = uint64(c.local)<<32|uint64(c.local), offer.QPN
	f := infiniband.REQFields{
		LocalComm:     uint32(c.local),
		Service:       infiniband.TCPService | uint64(to.Port()),
		CAGUID:        m.config.GUID,
		QPN:           offer.QPN,
		PSN:           offer.PSN,
		Resources:     offer.Resources,
		Depth:         offer.Depth,
		Retries:       offer.Retries,
		RNRRetries:    offer.RNRRetries,
		PKey:          infiniband.PKey,
		MTU:           offer.MTU,
		RemoteTimeout: timeoutCode(m.config.Timeout),
		LocalTimeout:  timeoutCode(m.config.Timeout),
		MaxRetries:    uint8(m.config.Retries),
		Primary: infiniband.Path{LocalGID: m.config.Addr.As16(), RemoteGID: to.Addr().As16(),
			LocalLID: 0xFFFF, RemoteLID: 0xFFFF, HopLimit: 64, AckTimeout: offer.AckTimeout},
	}
	service := infiniband.IPServiceFields{Version: 6, Port: from, Source: m.config.Addr.As16(),
		Destination: to.Addr().As16()}
	if to.Addr().Is4() {
		service.Version, service.Source, service.Destination = 4, four(m.config.Addr), four(to.Addr())
	}
	infiniband.IPService(f.Private[:]).Encode(&service)
	copy(f.Private[infiniband.IPServiceLen:], offer.Private)
	mad := infiniband.MAD(c.message[:])
	mad.EncodeCM(infiniband.AttributeREQ, c.transaction)
	infiniband.REQ(mad.CM()).Encode(&f)
	m.sendAgain(now, c)
	return c.local, nil
}

// four returns an IPv4 address in the form of an IPService.
func four(a netip.Addr) (b [16]byte) {
	v := a.As4()
	copy(b[12:], v[:])
	return b
}

// timeoutCode returns the least code of a timeout that is not shorter than d.
func timeoutCode(d time.Duration) uint8 {
	code := uint8(1)
	for code < 31 && infiniband.AckTimeout(code) < d {
		code++
	}
	return code
}

func (m *Manager) add(to netip.Addr, s state) (*conn, error) {
	if len(m.conns) >= m.config.Most {
		return nil, fmt.Errorf("%d connections, limit %d", len(m.conns), m.config.Most)
	}
	for m.conns[m.next] != nil {
		m.next++
	}
	c := &conn{state: s, to: to, local: m.next, timer: clock.Never}
	m.conns[c.local] = c
	m.next++
	return c, nil
}

// Accept grants a connection that Requested announced. For other connections it returns an error.
func (m *Manager) Accept(now clock.Time, name Conn, offer Offer) error {
	c := m.conns[name]
	if c == nil || c.state != asked {
		return fmt.Errorf("accept connection %d: no peer requests it", name)
	}
	if len(offer.Private) > infiniband.REPPrivate {
		return fmt.Errorf("accept connection %d: %d bytes of private data, limit %d", name,
			len(offer.Private), infiniband.REPPrivate)
	}
	f := infiniband.REPFields{
		LocalComm:  uint32(c.local),
		RemoteComm: c.remote,
		QPN:        offer.QPN,
		PSN:        offer.PSN,
		Resources:  offer.Resources,
		Depth:      offer.Depth,
		RNRRetries: offer.RNRRetries, CAGUID: m.config.GUID, AckDelay: offer.AckTimeout,
	}
	copy(f.Private[:], offer.Private)
	mad := infiniband.MAD(c.message[:])
	mad.EncodeCM(infiniband.AttributeREP, c.transaction)
	infiniband.REP(mad.CM()).Encode(&f)
	c.state, c.number = granted, offer.QPN
	m.sendAgain(now, c)
	return nil
}

// Reject refuses a connection that Requested announced. It does nothing for other connections.
func (m *Manager) Reject(name Conn, reason uint16) {
	if c := m.conns[name]; c != nil && c.state == asked {
		m.reject(c.to, c.transaction, infiniband.REJFields{Comm: infiniband.Comm{Local: uint32(c.local),
			Remote: c.remote}, Reason: reason})
		m.remove(c)
	}
}

// Established records that the peer is known to be ready although its RTU was lost: a packet arrived
// over the connection.
func (m *Manager) Established(name Conn) {
	if c := m.conns[name]; c != nil && c.state == granted {
		m.ready(c)
	}
}

// Disconnect ends a connection, or gives up a request for a connection. The host receives no event.
func (m *Manager) Disconnect(now clock.Time, name Conn, remote infiniband.QPN) {
	c := m.conns[name]
	if c == nil || c.state == leaving {
		return
	}
	if c.state == asking || c.state == asked {
		m.reject(c.to, c.transaction, infiniband.REJFields{Comm: infiniband.Comm{Local: uint32(c.local),
			Remote: c.remote}, Reason: infiniband.RejectConsumer, About: infiniband.AboutOther})
		m.remove(c)
		return
	}
	mad := infiniband.MAD(c.message[:])
	mad.EncodeCM(infiniband.AttributeDREQ, c.transaction)
	infiniband.DREQ(mad.CM()).Encode(&infiniband.DREQFields{Comm: infiniband.Comm{Local: uint32(c.local),
		Remote: c.remote}, QPN: remote})
	c.state = leaving
	m.sendAgain(now, c)
}

// sendAgain sends a message that expects an answer, for the first time.
func (m *Manager) sendAgain(now clock.Time, c *conn) {
	c.tries, c.delayed, c.timer = 0, false, now.Add(m.config.Timeout)
	m.send(c.to, &c.message)
}

func (m *Manager) send(to netip.Addr, message *[infiniband.MADLen]byte) {
	if len(m.out) < mostOut {
		m.out = append(m.out, outgoing{to, *message})
	}
}

// answer sends a message that expects no answer.
func (m *Manager) answer(to netip.Addr, a infiniband.Attribute, transaction uint64, encode func(cm []byte)) {
	var message [infiniband.MADLen]byte
	mad := infiniband.MAD(message[:])
	mad.EncodeCM(a, transaction)
	encode(mad.CM())
	m.send(to, &message)
}

func (m *Manager) reject(to netip.Addr, transaction uint64, f infiniband.REJFields) {
	m.answer(to, infiniband.AttributeREJ, transaction, func(b []byte) { infiniband.REJ(b).Encode(&f) })
}

// Idle reports that there is no connection, neither ready nor being made or ended.
func (m *Manager) Idle() bool { return len(m.conns) == 0 }

// Next takes a datagram to send now, and returns its destination. It returns false when there is
// none.
func (m *Manager) Next(into *[infiniband.MADLen]byte) (to netip.Addr, ok bool) {
	if len(m.out) == 0 {
		return netip.Addr{}, false
	}
	to, *into = m.out[0].to, m.out[0].message
	m.out = append(m.out[:0], m.out[1:]...)
	return to, true
}

// Deadline is the time at which Expire has work to do, or clock.Never.
func (m *Manager) Deadline() clock.Time {
	at := clock.Never
	for _, c := range m.conns {
		at = min(at, c.timer)
	}
	return at
}

// patience is how long an unanswered request is kept after it was last received. A peer that still
// wants it asks again before that.
func (m *Manager) patience() time.Duration { return 4 * m.config.Timeout }

// Expire sends due messages again, and gives up messages that were sent Retries times again.
func (m *Manager) Expire(now clock.Time) {
	for _, c := range m.conns {
		if c.timer > now {
			continue
		}
		if c.state == asked {
			m.end(c, fmt.Errorf("%v: %w", c.to, ErrTimeout))
			continue
		}
		if c.tries++; c.tries > m.config.Retries {
			m.end(c, fmt.Errorf("%v: %w", c.to, ErrTimeout))
			continue
		}
		c.timer = now.Add(m.config.Timeout)
		m.send(c.to, &c.message)
	}
}

// end removes a connection, and reports this to the host unless the host ended it.
func (m *Manager) end(c *conn, why error) {
	m.remove(c)
	if c.state != leaving {
		m.host.Ended(c.local, why)
	}
}

func (m *Manager) remove(c *conn) {
	delete(m.conns, c.local)
	if at := (origin{c.to, c.remote}); m.asked[at] == c {
		delete(m.asked, at)
	}
}

// ready is called when both ends are ready.
func (m *Manager) ready(c *conn) {
	c.state, c.timer = connected, clock.Never
	m.host.Connected(c.local, c.offer)
}
