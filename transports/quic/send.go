package quic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
	"railbed/transports/streams"
)

// joined is the longest payload that is copied behind its header, so that both are in one packet.
const joined = 1024

// send writes messages until the peer fails.
func (p *peer) send(l *link) error {
	var stream *quicgo.SendStream
	for p.Await() {
		if stream == nil {
			// The peer permits more streams than there are outstanding requests, so this hardly waits.
			// Meanwhile requests can still be withdrawn. Then the stream is for the next request.
			var err error
			if stream, err = l.conn.OpenUniStreamSync(context.Background()); err != nil {
				return err
			}
		}
		var m *streams.Message
		p.Begin(func(next *streams.Message) (more bool) {
			reset := stream // stream is for the next message by then
			m, next.Number = next, uint64(stream.StreamID())
			next.Reset = func() { reset.CancelWrite(codeReset) }
			return false
		})
		if m == nil {
			continue
		}
		err := write(stream, m)
		stream = nil
		p.written()
		// The stream of a canceled or refused message was reset. The reply says which.
		if reset := (*quicgo.StreamError)(nil); err != nil && !errors.As(err, &reset) {
			return err
		}
	}
	return nil
}

// write writes a message to its stream.
func write(stream *quicgo.SendStream, m *streams.Message) error {
	transports.BeforeWrite()
	start, pieces := m.Header[:], m.Pieces
	if m.Size <= joined {
		start, pieces = slices.Concat(append([][]byte{start}, pieces...)...), nil
	}
	if _, err := stream.Write(start); err != nil {
		return err
	}
	for _, piece := range pieces {
		if _, err := stream.Write(piece); err != nil {
			return err
		}
	}
	_ = stream.Close() // fails only if the stream was reset
	return nil
}

// written ends the use of a message's buffers.
func (p *peer) written() {
	p.Lock()
	defer p.Unlock()
	p.WrittenLocked()
	if p.Err == nil && p.early != nil {
		p.endLocked(len(p.BegunLocked())-1, *p.early)
	}
	p.early = nil
}

// readReplies completes messages as the peer reports them placed, discarded or refused.
func (l *link) readReplies(stream *quicgo.ReceiveStream) error {
	var raw [replyLen]byte
	for {
		if err := readFull(stream, raw[:]); err != nil {
			return err
		}
		transports.AfterRead()
		if err := l.settle(streams.DecodeReply(&raw)); err != nil {
			return err
		}
	}
}

// settle completes the message that a reply names.
func (l *link) settle(r streams.Reply) error {
	if r.Code == replyWelcome {
		l.peer.ready(l)
		return nil
	}
	p := l.peer
	p.Lock()
	defer p.Unlock()
	if p.Err != nil {
		return nil // completed by then
	}
	begun := p.BegunLocked()
	i := slices.IndexFunc(begun, func(m *streams.Message) bool { return m.Number == r.Number })
	writing := p.Writing && i == len(begun)-1
	if l != p.out || i < 0 || writing && p.early != nil || r.Code > replyBounds ||
		r.Code == replyDiscarded && begun[i].Canceled == nil {
		return fmt.Errorf("it replied with code %d to message %d", r.Code, r.Number)
	}
	if writing {
		p.early = &r
		return nil
	}
	p.endLocked(i, r)
	return nil
}

// endLocked completes one of the messages that have begun.
func (p *peer) endLocked(i int, r streams.Reply) {
	switch r.Code {
	case replyPlaced:
		p.CompleteLocked(i, i+1, nil)
	case replyDiscarded:
		p.CompleteLocked(i, i+1, p.BegunLocked()[i].Canceled)
	default:
		p.RefuseLocked(i, streams.Refusal(r.Code-replyDiscarded), r.Detail)
	}
}
