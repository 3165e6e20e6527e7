package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"railbed/transports"
	"railbed/transports/streams"
)

// peer has the connection that carries messages to another endpoint and the connection that carries messages
// from it.
type peer struct {
	*streams.Peer
	endpoint *Endpoint
	ended    chan struct{}

	// The Peer's lock guards these.
	acked   uint64 // messages completed; they are numbered from 1
	out     *net.TCPConn
	in      *incoming
	known   []Flow
	watched []int32 // of its connections, in busyPoll
	running int     // goroutines of both connections
}

func (e *Endpoint) newPeer(p *streams.Peer) (*peer, error) {
	return &peer{Peer: p, endpoint: e, ended: make(chan struct{})}, nil
}

// ConnectLocked implements streams.Links.
func (p *peer) ConnectLocked() { p.goLocked(p.send) }

// goLocked starts a goroutine of one of the connections.
func (p *peer) goLocked(run func()) {
	p.running++
	p.Go(func() {
		run()
		p.Lock()
		defer p.Unlock()
		if p.running--; p.running == 0 && p.Err != nil {
			close(p.ended)
		}
	})
}

// awaitEnd waits until the peer's goroutines have ended or ctx ends.
func (p *peer) awaitEnd(ctx context.Context) {
	p.Lock()
	running := p.running
	p.Unlock()
	if running == 0 {
		return
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
}

// End implements streams.Links.
func (p *peer) End() {
	p.Lock()
	defer p.Unlock()
	p.endpoint.busy.forget(p.watched)
	if !p.politeLocked() {
		p.cutLocked()
	}
}

// politeLocked reports whether the connections end with a goodbye, and not at once, by a reset. One of the
// endpoints closes then, and no message is outstanding: its reply might still arrive and be left unread.
func (p *peer) politeLocked() bool {
	return p.Idle && (errors.Is(p.Err, transports.ErrClosed) || errors.Is(p.Err, errGoodbye))
}

// unwatch stops the polling of the peer's connections, one of which is about to end.
func (p *peer) unwatch() {
	p.Lock()
	defer p.Unlock()
	p.endpoint.busy.forget(p.watched)
	p.watched = nil
}

func (p *peer) cut() {
	p.Lock()
	defer p.Unlock()
	p.cutLocked()
}

// cutLocked closes both connections, which ends their goroutines. Zero linger sends a reset, which
// leaves no TIME_WAIT on the source port.
func (p *peer) cutLocked() {
	if p.out != nil {
		p.out.SetLinger(0)
		p.out.Close()
	}
	if p.in != nil {
		p.in.conn.Close()
	}
}

func (p *peer) flows() []Flow {
	p.Lock()
	defer p.Unlock()
	return append([]Flow(nil), p.known...)
}

func (p *peer) recordLocked(conn *net.TCPConn, connecting bool) {
	p.known = append(p.known, Flow{
		Peer: p.Number, Connecting: connecting,
		Local:  addrPort(conn.LocalAddr()),
		Remote: addrPort(conn.RemoteAddr()),
	})
	if p.Err == nil {
		p.watched = append(p.watched, p.endpoint.busy.watch(conn))
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// send connects and writes messages until the peer fails.
func (p *peer) send() {
	conn, err := p.connect()
	if err != nil {
		p.Broken(err)
		return
	}
	p.Lock()
	p.out = conn
	p.recordLocked(conn, true)
	if p.Err != nil { // cut came before there was a connection to cut
		p.cutLocked()
	}
	p.goLocked(func() { p.readReplies(conn) })
	p.Unlock()
	if err := p.writeLoop(conn); err != nil {
		p.Broken(err)
	}
}

const (
	// writeBatch is how many messages of one piece are written by one writev. They take two vectors
	// each, half of the kernel's limit of 1,024 (UIO_MAXIOV), so that messages of more pieces have
	// room, too.
	writeBatch = 256
	// writeBytes is how many bytes end a writev. Beside so many bytes the cost of a system call
	// does not show, and messages that are not yet taken can still be canceled.
	writeBytes = 1 << 20
)

func (p *peer) writeLoop(conn *net.TCPConn) error {
	out, err := newSink(conn, &p.endpoint.streamSent)
	if err != nil {
		return err
	}
	vectors := make([][]byte, 0, 2*writeBatch+transports.MaxPieces)
	vectors = append(vectors, encodeHello(p.endpoint.Self.ID, p.To.ID))
	bytes := 0
	take := func(m *streams.Message) (more bool) {
		bytes += m.Size
		vectors = append(vectors, m.Header[:])
		vectors = append(vectors, m.Pieces...)
		return len(vectors) < 2*writeBatch && bytes < writeBytes
	}
	for {
		if p.Begin(take); len(vectors) == 0 {
			if !p.Await() {
				return p.sayGoodbye(conn)
			}
			continue
		}
		err := out.write(vectors...)
		p.written()
		if err != nil {
			return err
		}
		clear(vectors)
		vectors, bytes = vectors[:0], 0
	}
}

// written ends the use of the callers' buffers.
func (p *peer) written() {
	p.Lock()
	defer p.Unlock()
	p.WrittenLocked()
}

// sayGoodbye asks the peer to close first. It bounds the time for which the reply reader waits for
// that.
func (p *peer) sayGoodbye(conn *net.TCPConn) error {
	p.Lock()
	polite := p.politeLocked()
	p.Unlock()
	if !polite {
		return nil
	}
	conn.SetDeadline(time.Now().Add(farewell))
	n, err := conn.Write(goodbye[:])
	p.endpoint.streamSent.Add(uint64(n))
	return err
}

// readReplies completes messages as the peer reports them placed or refused.
func (p *peer) readReplies(conn *net.TCPConn) {
	err := p.replyLoop(conn)
	if errors.Is(err, io.EOF) {
		err = errors.New("it closed the connection")
	} else {
		conn.SetLinger(0)
	}
	p.Broken(err)
	conn.Close()
}

func (p *peer) replyLoop(conn *net.TCPConn) error {
	buffered, err := newStream(conn, &p.endpoint.streamReceived, func() error { return nil })
	if err != nil {
		return err
	}
	for {
		raw, err := buffered.peek(streams.ReplyLen)
		if err != nil {
			return err
		}
		r := streams.DecodeReply((*[streams.ReplyLen]byte)(raw))
		buffered.skip(streams.ReplyLen)
		if r.Code == replyStranger {
			return errors.New("another endpoint has the peer's address now")
		}
		if err := p.settle(r); err != nil {
			return err
		}
	}
}

// settle completes every message up to the reply's number.
func (p *peer) settle(r streams.Reply) error {
	p.Lock()
	defer p.Unlock()
	if p.Err != nil {
		return nil // completed by then
	}
	begun := p.acked + uint64(len(p.BegunLocked()))
	if r.Number > begun || r.Number < p.acked || r.Code > replyBounds {
		return fmt.Errorf("it replied with code %d to message %d, after %d messages", r.Code, r.Number, begun)
	}
	count := int(r.Number - p.acked)
	p.acked = r.Number
	if r.Code == replyPlaced || count == 0 {
		p.CompleteLocked(0, count, nil)
		return nil
	}
	p.CompleteLocked(0, count-1, nil)
	p.RefuseLocked(0, streams.Refusal(r.Code), r.Detail)
	return nil
}
