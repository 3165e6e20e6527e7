package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"railbed/transports"
)

// ending is the way in which a peer's connections end.
type ending int

const (
	abrupt ending = iota // at once; a reset tells the peer
	polite               // with a goodbye, if nothing is outstanding
)

// peer is another endpoint, with the connection that carries messages to it and the connection that
// carries messages from it.
type peer struct {
	endpoint *Endpoint
	number   transports.Peer
	to       address
	wake     chan struct{} // to the sender: a message was posted or err was set

	mu sync.Mutex
	// Messages are numbered from 1; ring slot n % queueDepth holds number n.
	// acked <= taken <= posted, and posted - acked <= queueDepth.
	ring    []outgoingMessage
	acked   uint64 // completed
	taken   uint64 // passed to the socket
	posted  uint64
	orders  uint64 // requests posted so far
	err     error  // why the peer is down; set once
	writing bool   // the sender reads callers' buffers
	started bool   // the sender runs or ran
	ended   chan struct{}
	out     *net.TCPConn
	in      *incoming
	known   []Flow
	watched []int32 // of its connections, in busyPoll
	running int     // goroutines of both connections
	how     ending
}

func newPeer(e *Endpoint, number transports.Peer, to address) *peer {
	return &peer{
		endpoint: e, number: number, to: to,
		wake:  make(chan struct{}, 1),
		ended: make(chan struct{}),
		ring:  make([]outgoingMessage, queueDepth),
	}
}

// post queues one message, and starts the sender with the first one.
func (p *peer) post(h header, request *transports.Request) (bool /* taken */, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false, p.err
	}
	if p.posted-p.acked == queueDepth {
		return false, nil
	}
	p.posted++
	slot := &p.ring[p.posted%queueDepth]
	p.orders++
	slot.set(request, p.orders)
	h.encode(&slot.header)
	if ctx, order := request.Context, p.orders; ctx != nil {
		p.endpoint.goroutines.Add(1)
		slot.stop = context.AfterFunc(ctx, func() {
			defer p.endpoint.goroutines.Done()
			p.withdraw(order, transports.Canceled(ctx))
		})
	}
	if !p.started {
		p.started = true
		p.goLocked(p.send)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return true, nil
}

// goLocked starts a goroutine of one of the connections.
func (p *peer) goLocked(run func()) {
	p.running++
	p.endpoint.goroutines.Go(func() {
		run()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.running--; p.running == 0 && p.err != nil {
			close(p.ended)
		}
	})
}

// awaitEnd waits until the peer's goroutines have ended or ctx ends.
func (p *peer) awaitEnd(ctx context.Context) {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == 0 {
		return
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
	}
}

// fail ends all exchange with the peer: outstanding requests complete with err, and later posts are
// refused with it. Only the first call has an effect.
func (p *peer) fail(err error, how ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	p.endpoint.busy.forget(p.watched)
	if p.posted > p.acked {
		how = abrupt // replies may still arrive and would be left unread
	}
	p.how = how
	if how == abrupt {
		p.cutLocked()
	}
	// A sender within a write still reads the buffers. It completes their requests when the write
	// returns, which the cut causes.
	if !p.writing {
		p.completeRestLocked()
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// unwatch stops the polling of the peer's connections, one of which is about to end.
func (p *peer) unwatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoint.busy.forget(p.watched)
	p.watched = nil
}

// completeRestLocked completes all outstanding requests with p.err and then reports the peer down.
func (p *peer) completeRestLocked() {
	done := make([]transports.Completion, 0, p.posted-p.acked+1)
	for p.acked < p.posted {
		p.acked++
		slot := &p.ring[p.acked%queueDepth]
		done = append(done, transports.Completion{ID: slot.id, Peer: p.number, Op: slot.op, Err: p.err})
		p.releaseLocked(slot)
	}
	if !errors.Is(p.err, transports.ErrClosed) {
		done = append(done, transports.Completion{Peer: p.number, Op: transports.OpPeerDown, Err: p.err})
	}
	p.endpoint.completions.Push(done...)
}

func (p *peer) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
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
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Flow(nil), p.known...)
}

func (p *peer) recordLocked(conn *net.TCPConn, connecting bool) {
	p.known = append(p.known, Flow{
		Peer: p.number, Connecting: connecting,
		Local:  addrPort(conn.LocalAddr()),
		Remote: addrPort(conn.RemoteAddr()),
	})
	if p.err == nil {
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
		p.fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, err), abrupt)
		return
	}
	p.mu.Lock()
	p.out = conn
	p.recordLocked(conn, true)
	if p.err != nil { // cut came before there was a connection to cut
		p.cutLocked()
	}
	p.goLocked(func() { p.readReplies(conn) })
	p.mu.Unlock()
	if err := p.writeLoop(conn); err != nil {
		p.fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, err), abrupt)
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
	hello := encodeHello(p.endpoint.self.id, p.to.id)
	out, err := newSink(conn, &p.endpoint.counters.streamSent)
	if err != nil {
		return err
	}
	vectors := make([][]byte, 0, 2*writeBatch+transports.MaxPieces)
	vectors = append(vectors, hello)
	for {
		var goodbye bool
		if vectors, goodbye = p.gather(vectors); goodbye {
			return p.sayGoodbye(conn)
		}
		err := out.write(vectors...)
		p.written()
		if err != nil {
			return err
		}
		clear(vectors)
		vectors = vectors[:0]
	}
}

// written ends the use of the callers' buffers that gather began.
func (p *peer) written() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
	if p.err != nil {
		p.completeRestLocked()
	}
}

// gather waits for messages and appends their vectors. It reports whether the connection must end:
// no messages follow.
func (p *peer) gather(vectors [][]byte) ([][]byte, bool) {
	for {
		p.mu.Lock()
		if p.err != nil {
			p.mu.Unlock()
			return vectors[:0], true
		}
		for bytes := 0; p.taken < p.posted && len(vectors) < 2*writeBatch && bytes < writeBytes; {
			p.taken++
			slot := &p.ring[p.taken%queueDepth]
			bytes += slot.size
			vectors = append(vectors, slot.header[:])
			vectors = append(vectors, slot.pieces...)
		}
		p.writing = len(vectors) > 0
		p.mu.Unlock()
		if len(vectors) > 0 {
			return vectors, false
		}
		<-p.wake
	}
}

// sayGoodbye asks the peer to close first. It bounds the time for which the reply reader waits for
// that.
func (p *peer) sayGoodbye(conn *net.TCPConn) error {
	p.mu.Lock()
	how := p.how
	p.mu.Unlock()
	if how == abrupt {
		return nil
	}
	var last [headerLen]byte
	header{op: opGoodbye}.encode(&last)
	conn.SetDeadline(time.Now().Add(farewell))
	n, err := conn.Write(last[:])
	p.endpoint.counters.streamSent.Add(uint64(n))
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
	p.fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, err), abrupt)
	conn.Close()
}

func (p *peer) replyLoop(conn *net.TCPConn) error {
	buffered, err := newStream(conn, &p.endpoint.counters.streamReceived, func() error { return nil })
	if err != nil {
		return err
	}
	for {
		raw, err := buffered.peek(replyLen)
		if err != nil {
			return err
		}
		r := decodeReply((*[replyLen]byte)(raw))
		buffered.skip(replyLen)
		if r.code == replyStranger {
			return errors.New("another endpoint has the peer's address now")
		}
		if err := p.settle(r); err != nil {
			return err
		}
	}
}

// settle completes every message up to the reply's number.
func (p *peer) settle(r reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil // completed by fail
	}
	if r.number > p.taken || r.number < p.acked || r.code > replyBounds {
		return fmt.Errorf("it replied with code %d to message %d, after %d messages", r.code, r.number,
			p.taken)
	}
	var batch [16]transports.Completion
	done := batch[:0]
	for p.acked < r.number {
		p.acked++
		slot := &p.ring[p.acked%queueDepth]
		c := transports.Completion{ID: slot.id, Peer: p.number, Op: slot.op, Bytes: slot.size}
		if p.acked == r.number && r.code != replyPlaced {
			c.Bytes = 0
			c.Err = fmt.Errorf("%v %d bytes: %w: %s", slot.op, slot.size, transports.ErrAccess, r.refusal())
		}
		p.endpoint.counters.payloadSent.Add(uint64(c.Bytes))
		done = append(done, c)
		p.releaseLocked(slot)
	}
	p.endpoint.completions.Push(done...)
	return nil
}
