package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"railbed/transports"
)

// links are the connections with a peer, whatever their type is.
type links interface {
	// ConnectLocked begins to make the connection that carries messages. It is called once, by the first
	// request, unless Connecting is set.
	ConnectLocked()
	// End ends the connections because the peer has failed.
	End()
}

// Peer is another endpoint, with the requests that are outstanding to it.
type Peer struct {
	Number transports.Peer
	To     Address
	// Ctx ends when the peer has failed.
	Ctx    context.Context
	cancel context.CancelFunc
	core   *core
	links  links
	wake   chan struct{} // to the sender: a message waits, or the peer has failed

	// The lock guards the fields below, and the links. Transports set only Connecting.
	sync.Mutex
	// Connecting is set if a connection for messages is there or being made.
	Connecting bool
	// requests are outstanding, in the order of Post. The sender has begun to write the first of them.
	requests []*Message
	begun    int
	// Writing is set while the sender reads the buffers of requests that have begun.
	Writing bool
	// Err is why the peer is down. It is set once. Idle is set if no request was outstanding then.
	Err  error
	Idle bool

	free []*Message
	done []transports.Completion // memory of CompleteLocked
}

// Message is one request from Post to its completion.
type Message struct {
	// Header is the encoded header.
	Header [HeaderLen]byte
	// Pieces are the payload, without empty pieces. The list's memory stays with the message.
	Pieces [][]byte
	// Size is the length of the payload.
	Size int
	// Number identifies the message among those that have begun. The transport sets it, if it wants.
	Number uint64
	// Reset cancels a message that has begun. The transport sets it, if it can. Canceled is the error then:
	// the message completes with the receiver's reply.
	Reset    func()
	Canceled error

	id     uint64
	op     transports.Op
	inline []byte      // of an inline message; the memory stays with the message
	stop   func() bool // stops watching the request's context; nil without a context
}

func newPeer(c *core, number transports.Peer, to Address) *Peer {
	p := &Peer{Number: number, To: to, core: c, wake: make(chan struct{}, 1)}
	p.Ctx, p.cancel = context.WithCancel(c.Ctx)
	return p
}

// Base returns the peer, for the endpoint.
func (p *Peer) Base() *Peer { return p }

// Go starts a goroutine that the endpoint's Close waits for.
func (p *Peer) Go(run func()) { p.core.goroutines.Go(run) }

// post queues one message. The first one connects.
func (p *Peer) post(h Header, request *transports.Request) (bool /* taken */, error) {
	p.Lock()
	defer p.Unlock()
	if p.Err != nil {
		return false, p.Err
	}
	if len(p.requests) == QueueDepth {
		return false, nil
	}
	m := p.newMessageLocked(h, request)
	p.requests = append(p.requests, m)
	if ctx := request.Context; ctx != nil {
		p.core.goroutines.Add(1)
		m.stop = context.AfterFunc(ctx, func() {
			defer p.core.goroutines.Done()
			p.withdraw(m, transports.Canceled(ctx))
		})
	}
	if !p.Connecting {
		p.Connecting = true
		p.links.ConnectLocked()
	}
	p.wakeSender()
	return true, nil
}

func (p *Peer) newMessageLocked(h Header, request *transports.Request) *Message {
	if len(p.free) == 0 {
		p.free = append(p.free, &Message{})
	}
	last := len(p.free) - 1
	m := p.free[last]
	p.free = p.free[:last]
	m.id, m.op, m.Size = request.ID, request.Op, int(h.Length)
	m.Header = p.core.format.Encode(h)
	if request.Inline {
		m.inline = request.Gather(m.inline[:0])
		m.add(m.inline)
		return m
	}
	m.add(request.Local)
	for _, piece := range request.More {
		m.add(piece)
	}
	return m
}

func (m *Message) add(piece []byte) {
	if len(piece) > 0 {
		m.Pieces = append(m.Pieces, piece)
	}
}

// releaseLocked drops the references of a completed message. The function that withdraws a message may still
// hold one with a context.
func (p *Peer) releaseLocked(m *Message) {
	if m.stop != nil {
		if m.stop() {
			p.core.goroutines.Done() // else withdraw runs, and finds nothing
		}
		return
	}
	clear(m.Pieces)
	*m = Message{Pieces: m.Pieces[:0], inline: m.inline}
	p.free = append(p.free, m)
}

func (p *Peer) wakeSender() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// withdraw completes a request with err if it waits, and resets a request that has begun.
func (p *Peer) withdraw(m *Message, err error) {
	p.Lock()
	i := slices.Index(p.requests, m)
	var reset func()
	switch {
	case i >= p.begun:
		p.CompleteLocked(i, i+1, err)
	case i >= 0 && m.Reset != nil:
		m.Canceled, reset = err, m.Reset
	}
	p.Unlock()
	if reset != nil {
		reset()
	}
}

// Fail ends all exchange with the peer: outstanding requests complete with err, and later posts are refused
// with it. Only the first call has an effect.
func (p *Peer) Fail(err error) {
	p.Lock()
	if p.Err != nil {
		p.Unlock()
		return
	}
	p.Err, p.Idle = err, len(p.requests) == 0
	p.cancel()
	// A sender within a write still reads the buffers. It completes their requests when the write returns,
	// which the end of the connection causes.
	if !p.Writing {
		p.completeRestLocked()
	}
	p.wakeSender()
	p.Unlock()
	p.links.End()
}

// Broken fails the peer for an error of its connection or of its messages.
func (p *Peer) Broken(err error) { p.Fail(fmt.Errorf("%w: %w", transports.ErrPeerFailed, err)) }

// Failed reports whether the peer has failed.
func (p *Peer) Failed() bool {
	p.Lock()
	defer p.Unlock()
	return p.Err != nil
}

// completeRestLocked completes all outstanding requests with p.Err and then reports the peer down.
func (p *Peer) completeRestLocked() {
	p.CompleteLocked(0, len(p.requests), p.Err)
	if !errors.Is(p.Err, transports.ErrClosed) {
		p.core.completions.Push(transports.Completion{Peer: p.Number, Op: transports.OpPeerDown, Err: p.Err})
	}
}

// CompleteLocked completes the outstanding requests from one number, from 0 on, up to another.
func (p *Peer) CompleteLocked(from, to int, err error) {
	done := p.done[:0]
	for _, m := range p.requests[from:to] {
		c := transports.Completion{ID: m.id, Peer: p.Number, Op: m.op, Err: err}
		if err == nil {
			c.Bytes = m.Size
			p.core.sent.Add(uint64(m.Size))
		}
		done = append(done, c)
		p.releaseLocked(m)
	}
	p.core.completions.Push(done...)
	clear(done)
	p.done = done
	p.requests = slices.Delete(p.requests, from, to)
	p.begun -= max(min(to, p.begun)-from, 0)
}

// RefuseLocked completes an outstanding request that the receiver refused. size is the region's size.
func (p *Peer) RefuseLocked(i int, why Refusal, size uint64) {
	m := p.requests[i]
	p.CompleteLocked(i, i+1, fmt.Errorf("%v %d bytes: %w: %s", m.op, m.Size, transports.ErrAccess,
		why.text(size)))
}

// BegunLocked returns the requests that the sender has begun to write, in this order. They are the first of
// the outstanding requests.
func (p *Peer) BegunLocked() []*Message { return p.requests[:p.begun] }

// Await waits until a message waits. It returns false when the peer has failed.
func (p *Peer) Await() bool {
	for {
		p.Lock()
		failed, waiting := p.Err != nil, p.begun < len(p.requests)
		p.Unlock()
		if failed || waiting {
			return !failed
		}
		<-p.wake
	}
}

// Begin calls take, with the lock, for messages that wait, as long as it returns true. Until WrittenLocked
// the sender may read their bytes.
func (p *Peer) Begin(take func(*Message) (more bool)) {
	p.Lock()
	defer p.Unlock()
	for more := p.Err == nil; more && p.begun < len(p.requests); {
		m := p.requests[p.begun]
		p.begun++
		p.Writing = true
		more = take(m)
	}
}

// WrittenLocked ends the use of the buffers that Begin began.
func (p *Peer) WrittenLocked() {
	if p.Writing && p.Err != nil {
		p.completeRestLocked()
	}
	p.Writing = false
}

// Receive places a message, whose payload read reads, and delivers its immediate. While there is no room for
// the immediate it calls full. If it refuses the message, the payload is unread; size is the region's size.
func (p *Peer) Receive(h Header, read func([]byte) error, full func() error) (refused Refusal, size uint64,
	err error) {
	if h.Length > 0 {
		if refused, size, err = p.place(h, read); err != nil || refused != 0 {
			return refused, size, err
		}
	}
	if h.Op == transports.OpWriteImm {
		if err := p.deliver(h, full); err != nil {
			return 0, 0, err
		}
	}
	p.core.received.Add(uint64(h.Length))
	return 0, 0, nil
}

func (p *Peer) place(h Header, read func([]byte) error) (Refusal, uint64, error) {
	r, place, refused, size := p.core.regions.enter(p, h.Key, h.Offset, int(h.Length))
	if refused != 0 {
		return refused, size, nil
	}
	defer r.leave(p)
	return 0, 0, read(place)
}

// deliver delivers the immediate, once there is room for it.
func (p *Peer) deliver(h Header, full func() error) error {
	c := transports.Completion{Peer: p.Number, Op: transports.OpReceive, Imm: h.Imm, Bytes: int(h.Length)}
	for {
		delivered, err := p.tryDeliver(c)
		if err != nil || delivered {
			return err
		}
		if err := full(); err != nil {
			return err
		}
		if !p.core.completions.AwaitRoom() {
			return net.ErrClosed
		}
	}
}

// tryDeliver delivers an immediate unless the peer has failed: after a peer was reported down, no message of
// it is delivered.
func (p *Peer) tryDeliver(c transports.Completion) (bool /* there was room */, error) {
	p.Lock()
	defer p.Unlock()
	if p.Err != nil {
		return false, net.ErrClosed
	}
	return p.core.completions.TryReceive(c), nil
}
