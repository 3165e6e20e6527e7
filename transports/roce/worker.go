package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/datagram"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// newLink makes a link to a peer, without a queue pair.
func (e *Endpoint) newLink(p *peer, ours bool) (*link, error) {
	number, err := e.newNumber(func(n infiniband.QPN) bool { return e.links[n] != nil })
	if err != nil {
		return nil, err
	}
	l := &link{peer: p, psn: infiniband.PSN(random()) & infiniband.MaxPSN, ours: ours}
	l.number, l.at = number, p.at
	if !ours {
		l.onPacket = l.packetArrived
	}
	l.broken = func(err error) { e.fail(p, peerError(err, nil)) }
	e.links[number], e.pairs[number] = l, p.number
	return l, nil
}

// connected makes the link's queue pair.
func (e *Endpoint) connected(l *link, offer cm.Offer) error {
	l.remote = offer.QPN
	mtu := infiniband.MTU(min(e.self.mtu, l.peer.mtu))
	var ahead time.Duration
	if e.config.Bypass && e.config.Congestion != nil {
		ahead = datagram.Ahead(mtu, e.config.Congestion.Line)
	}
	retries := max(int(e.config.PeerTimeout/e.config.Timeout), 1)
	var err error
	l.qp, err = queuepair.New(queuepair.Config{
		Number:     l.number,
		Remote:     l.remote,
		MTU:        mtu,
		SendPSN:    offer.PSN,
		ReceivePSN: l.psn,
		Rights:     queuepair.RemoteWrite,
		Timeout:    e.config.Timeout,
		Retries:    retries,
		Selective:  e.config.Selective,
		Congestion: e.config.Congestion,
		Overhead:   wire.EthernetLen + e.socket.headersLen() + e.config.Overhead,
		Ahead:      ahead,
	}, l)
	if err == nil {
		e.attach(&l.line)
	}
	return err
}

// grant answers a known peer that requests a connection.
func (e *Endpoint) grant(conn cm.Conn, p *peer, offer cm.Offer) {
	if p.err != nil {
		e.manager.Reject(conn, infiniband.RejectConsumer)
		return
	}
	l, err := e.newLink(p, false)
	if err != nil {
		e.manager.Reject(conn, infiniband.RejectNoQP)
		return
	}
	l.conn = conn
	e.byConn[conn] = l
	if err = e.connected(l, offer); err == nil {
		err = e.manager.Accept(e.clock.Now(), conn,
			cm.Offer{QPN: l.number, PSN: l.psn, Resources: 16, Depth: 16, RNRRetries: 7, AckTimeout: 14})
	}
	if err != nil {
		e.remove(l)
		e.manager.Reject(conn, infiniband.RejectNoQP)
		return
	}
	p.in = append(p.in, l)
}

// remove removes a link.
func (e *Endpoint) remove(l *link) {
	if l.qp != nil {
		e.detach(&l.line)
	}
	delete(e.byConn, l.conn)
	delete(e.links, l.number)
}

// managed is the endpoint's cm.Host.
type managed struct{ e *Endpoint }

// Requested implements cm.Host.
func (m managed) Requested(conn cm.Conn, from netip.AddrPort, _ uint16, offer cm.Offer) {
	e := m.e
	s := stranger{life: binary.BigEndian.Uint64(offer.Private), from: from.Addr(), offer: offer}
	switch p := e.byLife[s.life]; {
	case binary.BigEndian.Uint64(offer.Private[8:]) != e.self.life || e.closed:
		e.manager.Reject(conn, infiniband.RejectStale)
	case p != nil:
		e.consider(conn, p, s)
	default:
		e.early[conn] = s
	}
}

// consider grants a peer's request. It rejects a request in the peer's name from another address:
// the end of such a connection would count as the peer's failure.
func (e *Endpoint) consider(conn cm.Conn, p *peer, s stranger) {
	if s.from != p.at {
		e.manager.Reject(conn, infiniband.RejectConsumer)
		return
	}
	e.grant(conn, p, s.offer)
}

// Connected implements cm.Host.
func (m managed) Connected(conn cm.Conn, offer cm.Offer) {
	l := m.e.byConn[conn]
	if l == nil || !l.ours {
		return
	}
	if err := m.e.connected(l, offer); err != nil {
		m.e.fail(l.peer, fmt.Errorf("%w: %w", transports.ErrPeerFailed, err))
	}
}

// Ended implements cm.Host.
func (m managed) Ended(conn cm.Conn, why error) {
	e := m.e
	delete(e.early, conn)
	l := e.byConn[conn]
	if l == nil {
		return
	}
	delete(e.byConn, conn)
	p := l.peer
	now := e.clock.Now()
	if l.ours && l.qp == nil && errors.Is(why, cm.ErrTimeout) && now.Sub(p.asked) < e.config.PeerTimeout {
		delete(e.links, l.number)
		p.out = nil // try again
		return
	}
	if !l.ours && errors.Is(why, cm.ErrTimeout) {
		// Granted, but never ready: no packet arrived by it, and the peer may have asked again.
		l.qp.Close()
		e.remove(l)
		p.in = slices.DeleteFunc(p.in, func(in *link) bool { return in == l })
		return
	}
	e.fail(p, fmt.Errorf("%w: %w", transports.ErrPeerFailed, why))
}

// fail ends a peer and then reports it down.
func (e *Endpoint) fail(p *peer, why error) {
	if p.err != nil || e.closed {
		return
	}
	p.end(why)
	now := e.clock.Now()
	for _, l := range e.links {
		if l.peer == p {
			e.manager.Disconnect(now, l.conn, l.remote)
			e.remove(l)
		}
	}
	e.push(transports.Completion{Peer: p.number, Op: transports.OpPeerDown, Err: why})
}

// failAll fails all peers: the socket cannot be used.
func (e *Endpoint) failAll(err error) {
	for _, p := range e.peers {
		e.fail(p, fmt.Errorf("%w: %w", transports.ErrPeerFailed, err))
	}
}

// advancePeers calls advance for all peers.
func (e *Endpoint) advancePeers(now clock.Time) {
	for _, p := range e.peers {
		p.advance(now)
	}
}
