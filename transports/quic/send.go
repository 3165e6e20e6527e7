package quic

import (
	"context"
	"errors"
	"fmt"
	"slices"

	quicgo "github.com/quic-go/quic-go"

	"railbed/transports"
)

// joined is the longest payload that is copied behind its header, so that both are in one packet.
const joined = 1024

// message is one request from Post to its completion.
type message struct {
	id     uint64
	header header
	pieces [][]byte
	stop   func() bool // stops watching the request's context; it may be nil

	// The peer's lock guards these.
	stream   *quicgo.SendStream // nil while the message waits
	canceled error              // set if its stream was reset
	written  bool               // the sender no longer reads pieces
	answer   *reply             // the receiver's, which may come before the sender is done
}

func newMessage(h header, r *transports.Request) *message {
	m := &message{id: r.ID, header: h}
	if r.Inline {
		m.pieces = [][]byte{r.Gather(nil)}
		return m
	}
	m.pieces = append(append(m.pieces, r.Local), r.More...)
	return m
}

// send writes messages until the peer fails.
func (p *peer) send(l *link) {
	var stream *quicgo.SendStream
	for p.await() {
		if stream == nil {
			// The peer permits more streams than there are outstanding requests, so this hardly waits.
			// Meanwhile requests can still be withdrawn. Then the stream is for the next request.
			var err error
			if stream, err = l.conn.OpenUniStreamSync(context.Background()); err != nil {
				l.broken(err)
				return
			}
		}
		m := p.take(stream)
		if m == nil {
			continue
		}
		stream = nil
		err := m.write()
		p.written(m)
		// The stream of a canceled or refused message was reset. The reply says which.
		if reset := (*quicgo.StreamError)(nil); err != nil && !errors.As(err, &reset) {
			l.broken(err)
			return
		}
	}
}

// await waits for messages. It returns false when the peer has failed.
func (p *peer) await() bool {
	for {
		p.mu.Lock()
		failed, waiting := p.err != nil, len(p.queue) > 0
		p.mu.Unlock()
		if failed || waiting {
			return !failed
		}
		<-p.wake
	}
}

// take begins the first message that waits, if there is one.
func (p *peer) take(stream *quicgo.SendStream) *message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || len(p.queue) == 0 {
		return nil
	}
	m := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	m.stream, p.moving[stream.StreamID()], p.writing = stream, m, m
	return m
}

// write writes a message to its stream.
func (m *message) write() error {
	transports.BeforeWrite()
	start, pieces := m.header.append(make([]byte, 0, headerLen+joined)), m.pieces
	if m.header.length <= joined {
		for _, piece := range pieces {
			start = append(start, piece...)
		}
		pieces = nil
	}
	if _, err := m.stream.Write(start); err != nil {
		return err
	}
	for _, piece := range pieces {
		if _, err := m.stream.Write(piece); err != nil {
			return err
		}
	}
	_ = m.stream.Close() // fails only if the stream was reset
	return nil
}

// written ends the use of a message's buffers.
func (p *peer) written(m *message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, m.written = nil, true
	switch {
	case p.err != nil:
		p.completeRestLocked()
	case m.answer != nil:
		p.completeLocked(m, m.result())
	}
}

// readReplies completes messages as the peer reports them placed, discarded or refused.
func (l *link) readReplies(stream *quicgo.ReceiveStream) error {
	var raw [replyLen]byte
	for {
		if err := readFull(stream, raw[:]); err != nil {
			return err
		}
		transports.AfterRead()
		if err := l.settle(decodeReply(&raw)); err != nil {
			return err
		}
	}
}

// settle completes the message that a reply names.
func (l *link) settle(r reply) error {
	if r.code == replyWelcome {
		l.peer.ready(l)
		return nil
	}
	p := l.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil // completed by fail
	}
	m := p.moving[r.stream]
	if l != p.out || m == nil || m.answer != nil || r.code > replyBounds ||
		r.code == replyDiscarded && m.canceled == nil {
		return fmt.Errorf("it replied with code %d to message %d", r.code, r.stream)
	}
	m.answer = &r
	if m.written {
		p.completeLocked(m, m.result())
	}
	return nil
}

// result returns the error with which an answered message completes.
func (m *message) result() error {
	switch m.answer.code {
	case replyPlaced:
		return nil
	case replyDiscarded:
		return m.canceled
	}
	return fmt.Errorf("%v %d bytes: %w: %s", m.header.op, m.header.length, transports.ErrAccess,
		m.answer.refusal())
}
