package tcp

import (
	"railbed/transports"
)

// outgoingMessage is one request from Post to its completion.
type outgoingMessage struct {
	id     uint64
	op     transports.Op
	pieces [][]byte // not empty; the list's memory stays with the slot
	size   int
	header [headerLen]byte
	inline []byte // of an inline message; the memory stays with the slot
	// order identifies the request among all to its peer.
	order uint64
	// stop stops watching the request's context; it may be nil.
	stop func() bool
}

// set fills a slot from a request.
func (m *outgoingMessage) set(r *transports.Request, order uint64) {
	m.id, m.op, m.size, m.order, m.stop = r.ID, r.Op, r.Size(), order, nil
	if r.Inline {
		m.inline = r.Gather(m.inline[:0])
		m.add(m.inline)
		return
	}
	m.add(r.Local)
	for _, piece := range r.More {
		m.add(piece)
	}
}

func (m *outgoingMessage) add(piece []byte) {
	if len(piece) > 0 {
		m.pieces = append(m.pieces, piece)
	}
}

// releaseLocked drops the references of a completed message.
func (p *peer) releaseLocked(m *outgoingMessage) {
	clear(m.pieces)
	m.pieces = m.pieces[:0]
	if m.stop != nil && m.stop() {
		p.endpoint.goroutines.Done() // else withdraw runs, and finds nothing
	}
	m.stop = nil
}

// withdraw completes a request with err if none of its bytes was passed to the socket. Requests
// behind it move up, since the numbering of the stream has no gaps.
func (p *peer) withdraw(order uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := p.taken + 1; n <= p.posted; n++ {
		m := &p.ring[n%queueDepth]
		if m.order != order {
			continue
		}
		p.endpoint.completions.Push(transports.Completion{ID: m.id, Peer: p.number, Op: m.op, Err: err})
		p.releaseLocked(m)
		for ; n < p.posted; n++ {
			here, behind := &p.ring[n%queueDepth], &p.ring[(n+1)%queueDepth]
			*here, *behind = *behind, *here
		}
		p.posted--
		return
	}
}
