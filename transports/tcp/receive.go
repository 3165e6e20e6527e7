package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"railbed/transports"
)

const (
	// maxHandshakes and maxStrangers bound the connections of endpoints that were not added: those
	// without a hello, and those with one.
	maxHandshakes = 64
	maxStrangers  = 4096
	// handshakeTimeout is generous, because a hello is sent with the connect.
	handshakeTimeout = 5 * time.Second
	// A reply is sent when the socket is empty, or after so many messages or bytes. On a loaded
	// link that is much rarer than a reply for each message. For unsignaled messages only the
	// number of messages counts.
	messagesPerReply = 64
	bytesPerReply    = 1 << 20
)

func (e *Endpoint) acceptLoop() {
	for {
		conn, err := e.listener.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Out of descriptors or memory: the peer waits in the backlog.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-e.ctx.Done():
				return
			}
			continue
		}
		select {
		case e.handshakes <- struct{}{}:
		case <-e.ctx.Done():
			conn.Close()
			return
		}
		e.goroutines.Go(func() {
			defer func() { <-e.handshakes }()
			e.handshake(conn)
		})
	}
}

// handshake reads the hello and passes the connection to its peer, or keeps it until that peer is
// added.
func (e *Endpoint) handshake(conn *net.TCPConn) {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(e.ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	var raw [helloLen]byte
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		conn.Close()
		return
	}
	e.counters.streamReceived.Add(helloLen)
	from, to, err := decodeHello(&raw)
	if err == nil && to != e.self.id {
		conn.Write(reply{code: replyStranger}.append(nil))
		err = errors.New("the message is for another endpoint")
	}
	if err == nil {
		err = setTimeouts(conn, e.config.PeerTimeout)
	}
	conn.SetDeadline(time.Time{})
	e.mu.Lock()
	defer e.mu.Unlock()
	p, known := e.byID[from]
	_, waiting := e.strangers[from]
	switch {
	case err != nil, e.closed, !known && (waiting || len(e.strangers) >= maxStrangers):
		conn.Close()
	case known:
		p.accept(conn)
	default:
		e.strangers[from] = conn
	}
}

// incoming is the connection that carries a peer's messages.
type incoming struct {
	peer *peer
	conn *net.TCPConn
	in   *stream
	out  *sink
	// number counts the messages. Those up to replied were reported, and unreported is the payload
	// of the others.
	number, replied uint64
	unreported      int
	// awaited is set if a message that was not reported is signaled.
	awaited bool
	replies []byte
}

// accept starts reading a peer's messages. It closes a second connection from the same life of an
// endpoint.
func (p *peer) accept(conn *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.in != nil {
		conn.Close()
		return
	}
	in := &incoming{peer: p, conn: conn}
	var err error
	if in.in, err = newStream(conn, &p.endpoint.counters.streamReceived, in.answer); err == nil {
		in.out, err = newSink(conn, &p.endpoint.counters.streamSent)
	}
	if err != nil {
		conn.Close() // its peer sees that it ended
		return
	}
	p.in = in
	p.recordLocked(conn, false)
	p.goLocked(in.run)
}

var errGoodbye = errors.New("it closed its endpoint")

// run reads messages until the connection or the endpoint ends. On a goodbye it closes first, as
// the sender asked.
func (in *incoming) run() {
	err := in.readLoop()
	in.peer.unwatch() // the descriptor may belong to another connection right after
	in.conn.Close()
	how := abrupt
	if errors.Is(err, errGoodbye) {
		how = polite
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it closed the connection")
	}
	in.peer.fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, err), how)
}

func (in *incoming) readLoop() error {
	for {
		raw, err := in.in.peek(headerLen)
		if err != nil {
			return err
		}
		h, err := decodeHeader(raw)
		if err != nil {
			return err
		}
		if h.op == opGoodbye {
			return errGoodbye
		}
		in.in.skip(headerLen)
		if in.peer.failed() {
			return net.ErrClosed
		}
		if err := in.message(h); err != nil {
			return err
		}
		if in.number-in.replied >= messagesPerReply || in.awaited && in.unreported >= bytesPerReply {
			if err := in.flush(); err != nil {
				return err
			}
		}
	}
}

// message places one message, delivers its immediate and counts it.
func (in *incoming) message(h header) error {
	refused, err := in.place(h)
	if err != nil {
		return err
	}
	if refused.code != replyPlaced {
		if in.peer.failed() { // the endpoint closes; that is no refusal
			return net.ErrClosed
		}
		if err := in.flush(); err != nil {
			return err
		}
		in.number++
		refused.number = in.number
		in.replied = in.number
		return in.write(refused)
	}
	if h.op == transports.OpWriteImm {
		if err := in.deliver(h); err != nil {
			return err
		}
	}
	in.number++
	in.awaited = in.awaited || !h.unsignaled
	in.unreported += int(h.length)
	in.peer.endpoint.counters.payloadReceived.Add(uint64(h.length))
	return nil
}

// place reads the payload into the region, or discards it.
func (in *incoming) place(h header) (refused reply, err error) {
	if h.length == 0 {
		return reply{}, nil
	}
	r, place, refusal, size := in.peer.endpoint.regions.Enter(in, h.key, h.offset, int(h.length))
	if refusal != 0 {
		return reply{code: byte(refusal), detail: size}, in.in.discard(int(h.length))
	}
	defer r.Leave(in)
	return reply{}, in.in.readFull(place)
}

// Break implements memory.User.
func (in *incoming) Break(err error) { in.peer.fail(err, abrupt) }

// deliver delivers the immediate, once there is room for it.
func (in *incoming) deliver(h header) error {
	c := transports.Completion{Peer: in.peer.number, Op: transports.OpReceive, Imm: h.imm,
		Bytes: int(h.length)}
	for {
		sent, err := in.peer.receive(c)
		if err != nil || sent {
			return err
		}
		// The messages before this one are placed; report that to their sender.
		if err := in.flush(); err != nil {
			return err
		}
		if !in.peer.endpoint.completions.AwaitRoom() {
			return net.ErrClosed
		}
	}
}

// receive delivers an immediate unless the peer has failed: after a peer was reported down, no
// message of it is delivered.
func (p *peer) receive(c transports.Completion) (bool /* there was room */, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false, net.ErrClosed
	}
	return p.endpoint.completions.TryReceive(c), nil
}

func (p *peer) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil
}

// answer sends a reply if a signaled message was not reported yet.
func (in *incoming) answer() error {
	if !in.awaited {
		return nil
	}
	return in.flush()
}

// flush reports every message that was not reported yet.
func (in *incoming) flush() error {
	if in.number == in.replied {
		return nil
	}
	in.replied, in.unreported, in.awaited = in.number, 0, false
	return in.write(reply{code: replyPlaced, number: in.number})
}

func (in *incoming) write(r reply) error {
	in.replies = r.append(in.replies[:0])
	return in.out.write(in.replies)
}
