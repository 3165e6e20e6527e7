package quic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
)

// peer is another endpoint, with the messages to it and the connections with it.
type peer struct {
	endpoint *Endpoint
	number   transports.Peer
	to       address
	wake     chan struct{} // to the sender, for a message or a failure
	ctx      context.Context
	cancel   context.CancelFunc // ends a dial

	mu sync.Mutex
	// A request is in queue before it has a stream, and in moving from then until its completion.
	queue  []*message
	moving map[quicgo.StreamID]*message
	// writing is the message whose buffers the sender reads.
	writing *message
	// err is why the peer is down. It is set once.
	err error
	// dialing is set once a dial has begun, or is not needed.
	dialing bool
	// links are at most a dialed and an accepted connection. Messages go to out.
	links []*link
	out   *link
}

func newPeer(e *Endpoint, number transports.Peer, to address) *peer {
	p := &peer{endpoint: e, number: number, to: to, wake: make(chan struct{}, 1),
		moving: make(map[quicgo.StreamID]*message)}
	p.ctx, p.cancel = context.WithCancel(e.ctx)
	return p
}

// post queues one message. The first message dials, unless the peer did.
func (p *peer) post(h header, request *transports.Request) (bool /* taken */, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false, p.err
	}
	if len(p.queue)+len(p.moving) >= queueDepth {
		return false, nil
	}
	m := newMessage(h, request)
	p.queue = append(p.queue, m)
	if ctx := request.Context; ctx != nil {
		p.endpoint.goroutines.Add(1)
		m.stop = context.AfterFunc(ctx, func() {
			defer p.endpoint.goroutines.Done()
			p.withdraw(m, transports.Canceled(ctx))
		})
	}
	if !p.dialing {
		p.dialing = true
		p.endpoint.goroutines.Go(p.dial)
	}
	p.wakeSender()
	return true, nil
}

func (p *peer) wakeSender() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// dial makes a connection to the peer.
func (p *peer) dial() {
	e := p.endpoint
	ctx, cancel := context.WithTimeoutCause(p.ctx, e.config.PeerTimeout,
		fmt.Errorf("no answer from %v within %v", p.to.at, e.config.PeerTimeout))
	defer cancel()
	conn, err := e.transport.Dial(ctx, net.UDPAddrFromAddrPort(p.to.at), clientTLS(e.certificate, p.to.id),
		e.settings())
	if err != nil {
		p.fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, reason(err)), codeBroken)
		return
	}
	if !p.attach(conn, dialed) {
		_ = conn.CloseWithError(codeClosed, "")
	}
}

// attach starts to use a connection. It returns false if the peer has failed, or has such a
// connection already.
func (p *peer) attach(conn *quicgo.Conn, by origin) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || slices.ContainsFunc(p.links, func(l *link) bool { return l.by == by }) {
		return false
	}
	l := &link{peer: p, conn: conn, by: by}
	p.links = append(p.links, l)
	p.dialing = true
	p.endpoint.goroutines.Go(l.run)
	return true
}

// ready starts the sender on the first connection whose other end reads messages.
func (p *peer) ready(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		p.out = l
		p.endpoint.goroutines.Go(func() { p.send(l) })
	}
}

// fail ends all exchange with the peer: outstanding requests complete with err, and later posts are
// refused with it. Only the first call has an effect.
func (p *peer) fail(err error, code quicgo.ApplicationErrorCode) {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.err = err
	p.cancel()
	// A sender within a write still reads the buffers. It completes their requests when the write
	// returns, which the end of the connection causes.
	if p.writing == nil {
		p.completeRestLocked()
	}
	links := p.links
	p.wakeSender()
	p.mu.Unlock()
	for _, l := range links {
		_ = l.conn.CloseWithError(code, "")
	}
}

// completeRestLocked completes all outstanding requests with p.err and then reports the peer down.
func (p *peer) completeRestLocked() {
	for _, m := range p.moving {
		p.completeLocked(m, p.err)
	}
	for _, m := range p.queue {
		p.completeLocked(m, p.err)
	}
	p.queue = nil
	if !errors.Is(p.err, transports.ErrClosed) {
		p.endpoint.completions.Push(
			transports.Completion{Peer: p.number, Op: transports.OpPeerDown, Err: p.err})
	}
}

// completeLocked completes one request. The caller removes it from the queue.
func (p *peer) completeLocked(m *message, err error) {
	if m.stream != nil {
		delete(p.moving, m.stream.StreamID())
	}
	if m.stop != nil && m.stop() {
		p.endpoint.goroutines.Done() // else withdraw runs, and finds nothing
	}
	c := transports.Completion{ID: m.id, Peer: p.number, Op: m.header.op, Err: err}
	if err == nil {
		c.Bytes = int(m.header.length)
		p.endpoint.sent.Add(uint64(m.header.length))
	}
	p.endpoint.completions.Push(c)
}

// withdraw completes a request that waits. It resets the stream of a request that has begun: the
// receiver's reply then says whether the message was placed.
func (p *peer) withdraw(m *message, err error) {
	p.mu.Lock()
	if i := slices.Index(p.queue, m); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
		p.completeLocked(m, err)
		p.mu.Unlock()
		return
	}
	begun := m.stream != nil && p.moving[m.stream.StreamID()] == m
	if begun {
		m.canceled = err
	}
	p.mu.Unlock()
	if begun {
		m.stream.CancelWrite(codeReset)
	}
}
