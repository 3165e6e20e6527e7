package quic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
)

// origin is the endpoint that dialed a connection.
type origin int

const (
	dialed   origin = iota // this endpoint
	accepted               // the peer
)

// link is a connection with a peer. Messages may come on each; they are sent on the peer's out.
type link struct {
	peer *peer
	conn *quicgo.Conn
	by   origin

	mu      sync.Mutex // for one reply at a time
	replies *quicgo.SendStream
}

// run reads the peer's streams until the connection ends.
func (l *link) run() { l.broken(l.accept()) }

func (l *link) accept() (err error) {
	never := context.Background() // the end of the connection ends each wait
	if l.replies, err = l.conn.OpenUniStreamSync(never); err != nil {
		return err
	}
	if err := l.reply(reply{code: replyWelcome}); err != nil {
		return err
	}
	for read := l.readReplies; ; read = l.receive {
		stream, err := l.conn.AcceptUniStream(never)
		if err != nil {
			return err
		}
		l.peer.endpoint.goroutines.Go(func() { l.broken(read(stream)) })
	}
}

// broken fails the peer for an error of the connection or of its content.
func (l *link) broken(err error) {
	if err != nil {
		l.peer.fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, reason(err)), codeBroken)
	}
}

// reason names the codes with which the peer closes connections.
func reason(err error) error {
	closed := (*quicgo.ApplicationError)(nil)
	if !errors.As(err, &closed) || !closed.Remote {
		return err
	}
	switch closed.ErrorCode {
	case codeClosed:
		return errors.New("it closed the connection")
	case codeRefused:
		return errors.New("it refused the connection")
	}
	return errors.New("it closed the connection because of an error")
}

func (l *link) reply(r reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	transports.BeforeWrite()
	_, err := l.replies.Write(r.append(make([]byte, 0, replyLen)))
	return err
}

// receive places one message, delivers its immediate and replies.
func (l *link) receive(stream *quicgo.ReceiveStream) error {
	r, err := l.message(stream)
	if reset := (*quicgo.StreamError)(nil); errors.As(err, &reset) {
		r, err = reply{code: replyDiscarded}, nil
	}
	if err != nil {
		return err
	}
	if r.code != replyPlaced {
		stream.CancelRead(codeReset)
	}
	r.stream = stream.StreamID()
	if err := l.reply(r); err != nil || r.code != replyPlaced {
		return err
	}
	// The stream's memory is free once its end was read. A reset comes too late.
	var more [1]byte
	n, err := stream.Read(more[:])
	if n > 0 {
		return errors.New("a message is longer than its header says")
	}
	if errors.Is(err, io.EOF) || errors.As(err, new(*quicgo.StreamError)) {
		return nil
	}
	return err
}

// message reads a message and returns the reply. Its error may be that of a reset.
func (l *link) message(stream *quicgo.ReceiveStream) (reply, error) {
	var raw [headerLen]byte
	if err := readFull(stream, raw[:]); err != nil {
		return reply{}, err
	}
	transports.AfterRead()
	h, err := decodeHeader(&raw)
	if err != nil {
		return reply{}, err
	}
	if refused, err := l.place(h, stream); err != nil || refused.code != replyPlaced {
		return refused, err
	}
	if h.op == transports.OpWriteImm {
		if err := l.deliver(h); err != nil {
			return reply{}, err
		}
	}
	l.peer.endpoint.received.Add(uint64(h.length))
	return reply{code: replyPlaced}, nil
}

func readFull(stream *quicgo.ReceiveStream, buf []byte) error {
	_, err := io.ReadFull(stream, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("a message ends early")
	}
	return err
}

// place reads the payload into the region, or refuses it.
func (l *link) place(h header, stream *quicgo.ReceiveStream) (refused reply, err error) {
	if h.length == 0 {
		return reply{}, nil
	}
	r, place, refusal, size := l.peer.endpoint.regions.Enter(l.peer, h.key, h.offset, int(h.length))
	if refusal != 0 {
		return reply{code: replyDiscarded + byte(refusal), detail: size}, nil
	}
	defer r.Leave(l.peer)
	return reply{}, readFull(stream, place)
}

// Break implements memory.User.
func (p *peer) Break(err error) { p.fail(err, codeBroken) }

// deliver delivers the immediate, once there is room for it.
func (l *link) deliver(h header) error {
	c := transports.Completion{Peer: l.peer.number, Op: transports.OpReceive, Imm: h.imm,
		Bytes: int(h.length)}
	for {
		delivered, err := l.peer.receive(c)
		if err != nil || delivered {
			return err
		}
		if !l.peer.endpoint.completions.AwaitRoom() {
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
