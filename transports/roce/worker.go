package roce

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/fabric/clock"
	"railbed/transports"
	"railbed/transports/infiniband"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
	"railbed/transports/wire"
)

// newLink makes a link of a peer, without a queue pair.
func (e *Endpoint) newLink(p *peer, ours bool) *link {
	for {
		e.numbers++
		number := e.device.number(e.numbers)
		if e.links[number] == nil {
			l := &link{peer: p, number: number, psn: infiniband.PSN(random()) & infiniband.MaxPSN, ours: ours}
			e.links[number] = l
			return l
		}
	}
}

// connected makes the link's queue pair.
func (e *Endpoint) connected(l *link, offer cm.Offer) error {
	l.remote = offer.QPN
	retries := max(int(e.config.PeerTimeout/e.config.Timeout), 1)
	var err error
	l.qp, err = queuepair.New(queuepair.Config{
		Number: l.number, Remote: l.remote, MTU: infiniband.MTU(min(e.self.mtu, l.peer.mtu)), SendPSN: offer.PSN, ReceivePSN: l.psn, Rights: queuepair.RemoteWrite,
		Timeout: e.config.Timeout, Retries: retries, Selective: e.config.Selective, Congestion: e.config.Congestion, Overhead: wire.EthernetLen + e.device.headersLen() + e.config.Overhead,
	}, l)
	e.order = nil
	return err
}

// grant answers who asks for a connection and is known.
func (e *Endpoint) grant(conn cm.Conn, p *peer, offer cm.Offer) {
	if p.err != nil {
		e.manager.Reject(conn, infiniband.RejectConsumer)
		return
	}
	l := e.newLink(p, false)
	l.conn = conn
	e.byConn[conn] = l
	err := e.connected(l, offer)
	if err == nil {
		err = e.manager.Accept(e.config.Clock.Now(), conn, cm.Offer{QPN: l.number, PSN: l.psn, Resources: 16, Depth: 16, RNRRetries: 7, AckTimeout: 14})
	}
	if err != nil {
		delete(e.links, l.number)
		delete(e.byConn, conn)
		e.order = nil
		e.manager.Reject(conn, infiniband.RejectNoQP)
		return
	}
	p.in = append(p.in, l)
}

// managed is the host of the communication manager.
type managed struct{ e *Endpoint }

// Requested implements cm.Host.
func (m managed) Requested(conn cm.Conn, _ netip.AddrPort, _ uint16, offer cm.Offer) {
	e := m.e
	life, meant := binary.BigEndian.Uint64(offer.Private), binary.BigEndian.Uint64(offer.Private[8:])
	switch p := e.byLife[life]; {
	case meant != e.self.life || e.closed:
		e.manager.Reject(conn, infiniband.RejectStale)
	case p != nil:
		e.grant(conn, p, offer)
	default:
		e.early[conn] = stranger{life, offer}
	}
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
	now := e.config.Clock.Now()
	if l.ours && l.qp == nil && errors.Is(why, cm.ErrTimeout) && now.Sub(p.asked) < e.config.PeerTimeout {
		delete(e.links, l.number)
		p.out = nil // and again
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
	now := e.config.Clock.Now()
	for number, l := range e.links {
		if l.peer == p {
			e.order = nil
			if l.qp != nil {
				e.counters.Add(l.qp.Counters())
			}
			e.manager.Disconnect(now, l.conn, l.remote)
			delete(e.byConn, l.conn)
			delete(e.links, number)
		}
	}
	e.push(transports.Completion{Peer: p.number, Op: transports.OpPeerDown, Err: why})
}

// run is the worker.
func (e *Endpoint) run() {
	for {
		list, err := e.device.receive()
		deadline, ended, busy := clock.Never, false, false
		if err == nil {
			e.mu.Lock()
			deadline, ended = e.round(list)
			e.report()
			busy = e.device.out.count > 0
			e.asleep = !busy && !ended && len(list) == 0
			e.mu.Unlock()
			err = e.device.send()
		}
		if err != nil {
			e.giveUp(err)
			return
		}
		if ended && !busy {
			return
		}
		if !busy && len(list) == 0 && e.device.waiter.Arm(e.config.Clock, deadline) {
			e.device.waiter.Wait()
		}
	}
}

// giveUp fails all peers: the socket cannot be used.
func (e *Endpoint) giveUp(err error) {
	e.mu.Lock()
	defer e.unlock()
	e.err = err
	for _, p := range e.peers {
		e.fail(p, fmt.Errorf("%w: %w", transports.ErrPeerFailed, err))
	}
}

// round takes in what came, does what is due, and fills the batch with what goes.
func (e *Endpoint) round(list []arrival) (deadline clock.Time, ended bool) {
	now := e.config.Clock.Now()
	for _, a := range list {
		e.take(now, a)
	}
	e.manager.Expire(now)
	deadline = clock.Never
	for _, p := range e.peers {
		p.advance(now)
	}
	e.sendManagement()
	for _, l := range e.linksInTurn() {
		if l.peer.err != nil {
			continue // it failed in this round
		}
		l.qp.Expire(now)
		e.sendFrom(l, now)
		if err := l.qp.Err(); err != nil {
			e.fail(l.peer, peerError(err, nil))
			continue
		}
		deadline = min(deadline, l.qp.Deadline())
	}
	return min(deadline, e.manager.Deadline()), e.closed
}

// linksInTurn are all links that have a queue pair, another one first each time.
func (e *Endpoint) linksInTurn() []*link {
	if e.order == nil {
		for _, l := range e.links {
			if l.qp != nil {
				e.order = append(e.order, l)
			}
		}
		slices.SortFunc(e.order, func(a, b *link) int { return cmp.Compare(a.number, b.number) })
	}
	if n := len(e.order); n > 1 {
		first := e.order[0]
		copy(e.order, e.order[1:])
		e.order[n-1] = first
	}
	return e.order
}

// take takes in one packet.
func (e *Endpoint) take(now clock.Time, a arrival) {
	b := a.packet.BTH()
	if b.DestQP() == infiniband.GSI {
		if h := a.packet.DETH(); h != nil && h.Fields().QKey == infiniband.GSIQKey {
			e.manager.Receive(now, a.from, infiniband.MAD(a.packet.Payload()))
		}
		return
	}
	l := e.links[b.DestQP()]
	if l == nil || l.qp == nil || l.peer.at != a.from {
		return
	}
	if !l.ours {
		l.prepare()
		if !l.heard {
			l.heard = true
			e.manager.Established(l.conn)
		}
	}
	l.qp.Receive(now, a.packet, a.marked)
}

// sendManagement puts datagrams of communication management into the batch.
func (e *Endpoint) sendManagement() {
	var message [infiniband.MADLen]byte
	for {
		p := e.device.room()
		if p == nil {
			return
		}
		to, ok := e.manager.Next(&message)
		if !ok {
			return
		}
		e.gsi = e.gsi.Add(1)
		e.device.add(to, sourcePort(infiniband.GSI), datagramOf(p, e.gsi, &message))
	}
}

// datagramOf writes the packet that carries a management datagram to the general
// services, and returns its length.
func datagramOf(p infiniband.Packet, psn infiniband.PSN, message *[infiniband.MADLen]byte) int {
	p = p[:infiniband.Len(infiniband.UDSendOnly, infiniband.MADLen)]
	p.Encode(&infiniband.Fields{
		BTH:  infiniband.BTHFields{Opcode: infiniband.UDSendOnly, PKey: infiniband.PKey, DestQP: infiniband.GSI, PSN: psn},
		DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey, SrcQP: infiniband.GSI},
	}, infiniband.MADLen)
	copy(p.Payload(), message[:])
	return len(p)
}

// share is how many packets of one link go before those of the next.
const share = 16

// sendFrom puts packets of a link into the batch.
func (e *Endpoint) sendFrom(l *link, now clock.Time) {
	for range share {
		p := e.device.room()
		if p == nil {
			return
		}
		n := l.qp.Next(now, p)
		if n == 0 {
			return
		}
		e.device.add(l.peer.at, sourcePort(l.number), n)
	}
}
