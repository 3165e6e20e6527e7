package quic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
	"railbed/transports/streams"
)

// peer has the connections with another endpoint.
type peer struct {
	*streams.Peer
	endpoint *Endpoint

	// The Peer's lock guards these.
	links []*link // at most a dialed and an accepted connection
	out   *link   // of the links, for messages
	// early is the reply to the message that the sender still writes.
	early *streams.Reply
}

func (e *Endpoint) newPeer(p *streams.Peer) (*peer, error) {
	if at := p.To.At; at.Addr().Is4() != e.config.Addr.Is4() {
		return nil, fmt.Errorf("it is at %v, and this endpoint at %v: want one IP version", at, e.config.Addr)
	}
	return &peer{Peer: p, endpoint: e}, nil
}

// ConnectLocked implements streams.Links.
func (p *peer) ConnectLocked() { p.Go(p.dial) }

// dial makes a connection to the peer.
func (p *peer) dial() {
	e := p.endpoint
	ctx, cancel := context.WithTimeoutCause(p.Ctx, e.config.PeerTimeout,
		fmt.Errorf("no answer from %v within %v", p.To.At, e.config.PeerTimeout))
	defer cancel()
	conn, err := e.transport.Dial(ctx, net.UDPAddrFromAddrPort(p.To.At), clientTLS(e.certificate, p.To.ID),
		e.settings())
	if err != nil {
		p.Broken(reason(err))
		return
	}
	if !p.attach(conn, dialed) {
		_ = conn.CloseWithError(codeClosed, "")
	}
}

// Accept implements streams.Links.
func (p *peer) Accept(conn *quicgo.Conn) bool { return p.attach(conn, accepted) }

// attach starts to use a connection. It returns false if the peer has failed, or has such a
// connection already.
func (p *peer) attach(conn *quicgo.Conn, by origin) bool {
	p.Lock()
	defer p.Unlock()
	if p.Err != nil || slices.ContainsFunc(p.links, func(l *link) bool { return l.by == by }) {
		return false
	}
	l := &link{peer: p, conn: conn, by: by}
	p.links = append(p.links, l)
	p.Connecting = true
	p.Go(l.run)
	return true
}

// ready starts the sender on the first connection whose other end reads messages.
func (p *peer) ready(l *link) {
	p.Lock()
	defer p.Unlock()
	if p.out == nil {
		p.out = l
		p.Go(func() { l.broken(p.send(l)) })
	}
}

// End implements streams.Links.
func (p *peer) End() {
	p.Lock()
	err, links := p.Err, p.links
	p.Unlock()
	code := codeBroken
	if errors.Is(err, transports.ErrClosed) {
		code = codeClosed
	}
	for _, l := range links {
		_ = l.conn.CloseWithError(code, "")
	}
}
