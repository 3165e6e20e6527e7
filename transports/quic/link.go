package quic

import (
	"context"
	"errors"
	"io"
	"sync"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
	"railbed/transports/streams"
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
	if err := l.reply(streams.Reply{Code: replyWelcome}); err != nil {
		return err
	}
	for read := l.readReplies; ; read = l.receive {
		stream, err := l.conn.AcceptUniStream(never)
		if err != nil {
			return err
		}
		l.peer.Go(func() { l.broken(read(stream)) })
	}
}

// broken fails the peer for an error of the connection or of its content.
func (l *link) broken(err error) {
	if err != nil {
		l.peer.Broken(reason(err))
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

func (l *link) reply(r streams.Reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	transports.BeforeWrite()
	_, err := l.replies.Write(r.Append(make([]byte, 0, replyLen)))
	return err
}

// receive places one message, delivers its immediate and replies.
func (l *link) receive(stream *quicgo.ReceiveStream) error {
	r, err := l.message(stream)
	if reset := (*quicgo.StreamError)(nil); errors.As(err, &reset) {
		r, err = streams.Reply{Code: replyDiscarded}, nil
	}
	if err != nil {
		return err
	}
	if r.Code != replyPlaced {
		stream.CancelRead(codeReset)
	}
	r.Number = uint64(stream.StreamID())
	if err := l.reply(r); err != nil || r.Code != replyPlaced {
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
func (l *link) message(stream *quicgo.ReceiveStream) (r streams.Reply, err error) {
	var raw [headerLen]byte
	if err := readFull(stream, raw[:]); err != nil {
		return r, err
	}
	transports.AfterRead()
	h, err := streams.FormatQUIC.Decode(&raw)
	if err != nil {
		return r, err
	}
	refused, size, err := l.peer.Receive(h, func(place []byte) error { return readFull(stream, place) },
		func() error { return nil })
	if refused != 0 {
		r = streams.Reply{Code: replyDiscarded + byte(refused), Detail: size}
	}
	return r, err
}

func readFull(stream *quicgo.ReceiveStream, buf []byte) error {
	_, err := io.ReadFull(stream, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("a message ends early")
	}
	return err
}
