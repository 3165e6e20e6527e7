package roce

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/transports"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// peer is another endpoint that was added. All fields are under the endpoint's lock.
type peer struct {
	address
	endpoint *Endpoint
	number   transports.Peer
	err      error // why it failed
	out      *link // posted requests are sent by it; nil before the first
	in       []*link
	waiting  []outbound // for the queue pair
	moving   []outbound // that the queue pair has, in order
	bytes    int        // of moving
	asked    clock.Time // since when a connection is requested
}

// outbound is a request.
type outbound struct {
	id      uint64
	op      transports.Op
	size    int
	request queuepair.Request
	ctx     context.Context
	stop    func() bool // stops watching ctx
}

// settled stops watching a request's context: the request completes, or cannot be called back any
// more.
func (o *outbound) settled() {
	if o.stop != nil {
		o.stop()
	}
}

// link is one connection: a queue pair and the peer at its other end.
type link struct {
	line   // its queue pair is nil before it is granted
	peer   *peer
	remote infiniband.QPN
	psn    infiniband.PSN
	conn   cm.Conn
	ours   bool // this endpoint sends requests by it
	awake  bool // a packet arrived by it
}

// post accepts a request, or returns false when the queue is full.
func (p *peer) post(r *transports.Request) (taken bool, err error) {
	if p.err != nil {
		return false, p.err
	}
	if len(p.waiting)+len(p.moving) >= queueDepth {
		return false, nil
	}
	o := outbound{id: r.ID, op: r.Op, size: r.Size(), ctx: r.Context}
	o.request = queuepair.Request{Op: queuepair.Write, Imm: r.Imm}
	if r.Op == transports.OpWriteImm {
		o.request.Op = queuepair.WriteImm
	}
	if o.size > 0 {
		if len(r.Remote) != remoteLen {
			return false, fmt.Errorf("%v %d bytes: %w: handle of %d bytes, want the handle of a roce region",
				r.Op, o.size, transports.ErrAccess, len(r.Remote))
		}
		base := uint64(binary.BigEndian.Uint32(r.Remote[4:])) << baseShift
		o.request.RKey, o.request.Address = binary.BigEndian.Uint32(r.Remote), base+r.Offset
		if r.Offset >= 1<<62 { // beyond any region; must not wrap around to one
			o.request.RKey = 0
		}
		if r.Inline {
			o.request.Local = [][]byte{r.Gather(nil)}
		} else {
			o.request.Local = append([][]byte{r.Local}, r.More...)
		}
	}
	if r.Context != nil {
		o.stop = context.AfterFunc(r.Context, func() {
			p.endpoint.mu.Lock()
			p.endpoint.unlock()
		})
	}
	p.waiting = append(p.waiting, o)
	return true, nil
}

// advance connects, completes canceled requests, and passes requests to the queue pair while it has
// room.
func (p *peer) advance(now clock.Time) {
	if p.err != nil {
		return
	}
	p.cancel()
	if len(p.waiting) > 0 && p.out == nil {
		p.connect(now)
	}
	if p.out == nil || p.out.qp == nil {
		return
	}
	for len(p.waiting) > 0 && len(p.moving) < handed && (p.bytes < handedSize || len(p.moving) == 0) {
		o := p.waiting[0]
		if err := p.out.qp.Post(o.request); err != nil {
			p.endpoint.fail(p, fmt.Errorf("%w: %w", transports.ErrPeerFailed, err))
			return
		}
		o.settled()
		p.waiting = slices.Delete(p.waiting, 0, 1)
		p.moving = append(p.moving, o)
		p.bytes += o.size
	}
}

// cancel completes waiting requests whose context is done.
func (p *peer) cancel() {
	p.waiting = slices.DeleteFunc(p.waiting, func(o outbound) bool {
		if o.ctx == nil || o.ctx.Err() == nil {
			return false
		}
		p.endpoint.push(transports.Completion{ID: o.id, Peer: p.number, Op: o.op,
			Err: transports.Canceled(o.ctx)})
		return true
	})
}

// connect requests the connection for requests to the peer.
func (p *peer) connect(now clock.Time) {
	e := p.endpoint
	l, err := e.newLink(p, true)
	if err != nil {
		e.fail(p, fmt.Errorf("%w: %w", transports.ErrPeerFailed, err))
		return
	}
	var private [cm.MaxRequestPrivate]byte
	binary.BigEndian.PutUint64(private[:], e.self.life)
	binary.BigEndian.PutUint64(private[8:], p.life)
	conn, err := e.manager.Connect(now, netip.AddrPortFrom(p.at, p.port), e.self.port, cm.Offer{
		QPN:        l.number,
		PSN:        l.psn,
		Resources:  16,
		Depth:      16,
		Retries:    7,
		RNRRetries: 7,
		AckTimeout: 14,
		MTU:        min(e.self.mtu, p.mtu),
		Private:    private[:16],
	})
	if err != nil {
		e.fail(p, fmt.Errorf("%w: %w", transports.ErrPeerFailed, err))
		return
	}
	if p.asked == 0 {
		p.asked = now
	}
	l.conn = conn
	e.byConn[conn] = l
	p.out = l
}

// Complete implements queuepair.Host. Completions are of requests that this link sends, and of
// immediates that arrived by it.
func (l *link) Complete(c queuepair.Completion) {
	p := l.peer
	e := p.endpoint
	if c.Op == queuepair.Receive {
		if c.Err != nil {
			e.completions.Unreserve()
			return
		}
		e.push(transports.Completion{Peer: p.number, Op: transports.OpReceive, Imm: c.Imm, Bytes: c.Bytes})
		return
	}
	o := p.moving[0]
	p.moving = slices.Delete(p.moving, 0, 1)
	p.bytes -= o.size
	done := transports.Completion{ID: o.id, Peer: p.number, Op: o.op, Bytes: c.Bytes}
	if c.Err != nil {
		done.Bytes, done.Err = 0, peerError(c.Err, p.err)
	}
	e.push(done)
}

// peerError converts a request's error to one of package transports.
func peerError(err, why error) error {
	switch {
	case errors.Is(err, queuepair.ErrAccess):
		return fmt.Errorf("%w: %w", transports.ErrAccess, err)
	case why != nil:
		return why
	}
	return fmt.Errorf("%w: %w", transports.ErrPeerFailed, err)
}

// Region implements queuepair.Host.
func (l *link) Region(rkey uint32) *queuepair.Region {
	return l.peer.endpoint.region(rkey)
}

// packetArrived is called before each packet that arrives by a link of the peer.
func (l *link) packetArrived() {
	l.prepare()
	if !l.awake {
		l.awake = true
		l.peer.endpoint.manager.Established(l.conn)
	}
}

// prepare posts receives for immediates while there is room to report them. A peer that finds none
// tries again later (RNR NAK).
func (l *link) prepare() {
	e := l.peer.endpoint
	for l.qp.Receives() < receives && e.completions.Reserve() {
		if l.qp.PostReceive(0, nil) != nil { // it is broken
			e.completions.Unreserve()
			return
		}
	}
}

// end completes all requests with an error and closes the queue pairs.
func (p *peer) end(why error) {
	if p.err != nil {
		return
	}
	p.err = why
	for _, l := range append(p.in, p.out) {
		if l != nil && l.qp != nil {
			l.qp.Close()
		}
	}
	for _, o := range append(p.moving, p.waiting...) {
		o.settled()
		p.endpoint.push(transports.Completion{ID: o.id, Peer: p.number, Op: o.op, Err: why})
	}
	p.moving, p.waiting, p.bytes = nil, nil, 0
}
