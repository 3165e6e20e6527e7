package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"railbed/transports/streams"
)

const (
	// maxHandshakes bounds the connections without a hello.
	maxHandshakes = 64
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
			case <-e.Ctx.Done():
				return
			}
			continue
		}
		select {
		case e.handshakes <- struct{}{}:
		case <-e.Ctx.Done():
			conn.Close()
			return
		}
		e.Go(func() {
			defer func() { <-e.handshakes }()
			e.handshake(conn)
		})
	}
}

// handshake reads the hello and passes the connection to its peer, or keeps it until that peer is
// added.
func (e *Endpoint) handshake(conn *net.TCPConn) {
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(e.Ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	var raw [helloLen]byte
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		conn.Close()
		return
	}
	e.streamReceived.Add(helloLen)
	from, to, err := decodeHello(&raw)
	if err == nil && to != e.Self.ID {
		conn.Write(streams.Reply{Code: replyStranger}.Append(nil))
		err = errors.New("the message is for another endpoint")
	}
	if err == nil {
		err = setTimeouts(conn, e.config.PeerTimeout)
	}
	if err != nil {
		conn.Close()
		return
	}
	conn.SetDeadline(time.Time{})
	e.Admit(from, conn)
}

// incoming is the connection that carries a peer's messages.
type incoming struct {
	peer *peer
	conn *net.TCPConn
	in   *stream
	out  *sink
	read func([]byte) error // of in
	// number counts the messages. Those up to replied were reported, and unreported is the payload
	// of the others.
	number, replied uint64
	unreported      int
	// awaited is set if a message that was not reported is signaled.
	awaited bool
	replies []byte
}

// Accept implements streams.Links: it starts to read the peer's messages.
func (p *peer) Accept(conn *net.TCPConn) bool {
	p.Lock()
	defer p.Unlock()
	if p.Err != nil || p.in != nil {
		return false
	}
	in := &incoming{peer: p, conn: conn}
	var err error
	if in.in, err = newStream(conn, &p.endpoint.streamReceived, in.answer); err == nil {
		in.out, err = newSink(conn, &p.endpoint.streamSent)
	}
	if err != nil {
		return false // its peer sees that it ended
	}
	in.read = in.in.readFull
	p.in = in
	p.recordLocked(conn, false)
	p.goLocked(in.run)
	return true
}

var errGoodbye = errors.New("it closed its endpoint")

// run reads messages until the connection or the endpoint ends. On a goodbye it closes first, as
// the sender asked.
func (in *incoming) run() {
	err := in.readLoop()
	in.peer.unwatch() // the descriptor may belong to another connection right after
	in.conn.Close()
	if errors.Is(err, io.EOF) {
		err = errors.New("it closed the connection")
	}
	in.peer.Broken(err)
}

func (in *incoming) readLoop() error {
	for {
		raw, err := in.in.peek(headerLen)
		if err != nil {
			return err
		}
		if bytes.Equal(raw, goodbye[:]) {
			return errGoodbye
		}
		h, err := streams.FormatTCP.Decode((*[headerLen]byte)(raw))
		if err != nil {
			return err
		}
		in.in.skip(headerLen)
		if in.peer.Failed() {
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
func (in *incoming) message(h streams.Header) error {
	// While there is no room for the immediate, the messages before it are reported: they are placed.
	refused, size, err := in.peer.Receive(h, in.read, in.flush)
	if err != nil {
		return err
	}
	if refused != 0 {
		return in.refuse(int(h.Length), streams.Reply{Code: byte(refused), Detail: size})
	}
	in.number++
	in.awaited = in.awaited || !h.Unsignaled
	in.unreported += int(h.Length)
	return nil
}

// refuse discards a message and reports it, after those before it.
func (in *incoming) refuse(length int, r streams.Reply) error {
	if err := in.in.discard(length); err != nil {
		return err
	}
	if in.peer.Failed() { // the endpoint closes; that is no refusal
		return net.ErrClosed
	}
	if err := in.flush(); err != nil {
		return err
	}
	in.number++
	in.replied, r.Number = in.number, in.number
	return in.write(r)
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
	return in.write(streams.Reply{Code: replyPlaced, Number: in.number})
}

func (in *incoming) write(r streams.Reply) error {
	in.replies = r.Append(in.replies[:0])
	return in.out.write(in.replies)
}
