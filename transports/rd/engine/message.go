package engine

import (
	"fmt"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
)

// outMessage is a request from Post to the end of its last packet.
type outMessage struct {
	Message
	total   uint32 // bytes
	sent    uint32 // bytes with a PSN
	begun   bool   // its first packet has a PSN
	packets uint32 // packets that are not over.
	missing uint32 // bytes given up
	over    bool   // completed; packets may still be in flight
	err     error  // why it was given up
	closed  bool   // the peer has confirmed it
	told    bool   // a skip of it, which ends it, was sent
}

// whole reports that every byte has a PSN, or never will.
func (m *outMessage) whole() bool {
	if m.err != nil {
		return m.closed
	}
	return m.begun && m.sent == m.total
}

// take copies a message to its place in messages.
func (o *outbound) take(given *Message) *outMessage {
	m := &o.messages[o.last%Messages]
	more := append(m.More[:0], given.More...)
	*m = outMessage{Message: *given}
	m.More = more
	m.total = uint32(len(m.Local))
	for _, piece := range more {
		m.total += uint32(len(piece))
	}
	if m.Inline {
		if o.inline == nil {
			o.inline = make([]byte, Messages*transports.MaxInline)
		}
		memory := o.inline[o.last%Messages*transports.MaxInline:][:0:transports.MaxInline]
		memory = append(memory, m.Local...)
		for _, piece := range more {
			memory = append(memory, piece...)
		}
		m.Local = memory
		m.forgetMore()
	}
	return m
}

// forgetMore drops the references to the pieces behind Local, and keeps the list's memory.
func (m *outMessage) forgetMore() {
	clear(m.More)
	m.More = m.More[:0]
}

// bytes returns n bytes of the message. If they span several pieces, they are copied to the
// packet's memory.
func (m *outMessage) bytes(p *Packet, at, n int) []byte {
	if at+n <= len(m.Local) {
		return m.Local[at:][:n]
	}
	p.gathered = p.gathered[:0]
	piece := m.Local
	for next := 0; ; next++ {
		if at < len(piece) {
			part := piece[at:min(at+n, len(piece))]
			if len(part) == n && len(p.gathered) == 0 {
				return part
			}
			p.gathered = append(p.gathered, part...)
			if n -= len(part); n == 0 {
				return p.gathered
			}
		}
		at = max(at-len(piece), 0)
		piece = m.More[next]
	}
}

// finish completes a message whose packets are over.
func (o *outbound) finish(m *outMessage) {
	err := m.err
	if m.sent == m.total && !m.told {
		err = nil // it arrived whole before it could be called back
	}
	o.complete(m, err)
	for o.first != o.last {
		m := &o.messages[o.first%Messages]
		if !m.over || m.packets > 0 || !m.whole() {
			return
		}
		*m = outMessage{Message: Message{More: m.More}}
		o.first++
	}
}

// complete reports a message once.
func (o *outbound) complete(m *outMessage, err error) {
	if m.over {
		return
	}
	m.over = true
	c := transports.Completion{ID: m.ID, Peer: o.peer.number, Op: m.Op, Err: err}
	if err == nil {
		c.Bytes, c.Missing = int(m.total-m.missing), int(m.missing)
	}
	m.Local = nil // the memory belongs to the caller again
	m.forgetMore()
	o.engine.host.Complete(c)
	if m.Release != nil {
		m.Release()
	}
}

// abandon completes all messages with an error.
func (o *outbound) abandon(err error) {
	for ; o.first != o.last; o.first++ {
		o.complete(&o.messages[o.first%Messages], err)
	}
}

// giveUp abandons a message: it completes with err, and skips replace its packets that have not
// arrived.
func (o *outbound) giveUp(m *outMessage, err error) {
	if !m.whole() {
		o.withdraw(m.Number)
	}
	m.err, m.closed = err, true
	o.complete(m, err)
	o.skipRest(m)
}

// cancel cancels a message for its owner. Skips of packets that have not arrived inform the peer.
// If some bytes have no PSN yet, one more skip with a new PSN informs it when their turn comes.
func (o *outbound) cancel(number uint32, err error, now clock.Time) {
	m := &o.messages[number%Messages]
	if number-o.first >= o.last-o.first || m.over || m.err != nil {
		return
	}
	m.err, m.closed = err, m.whole()
	if !m.begun {
		o.complete(m, err)
	}
	o.skipRest(m)
	o.schedule(now)
}

// skipRest replaces a message's packets that have not arrived by skips.
func (o *outbound) skipRest(m *outMessage) {
	for psn := o.una; psn != o.next; psn++ {
		k := &o.packets[psn.slot()]
		if k.state == done || k.message != m.Number {
			continue
		}
		k.skip = true
		if k.state != isLost {
			o.unlink(psn.slot())
			o.link(&o.lost, psn.slot(), isLost)
		}
	}
}

// refusal returns the error of a message that the peer refused.
func refusal(m *outMessage, f *wire.RDNackFields) error {
	why := map[wire.RDReason]string{
		wire.RDNoRegion: "it has no such region", wire.RDNotWritable: "the region is not writable for peers",
		wire.RDBounds: fmt.Sprintf("the region has %d bytes, and the message begins at byte %d", f.Detail,
			m.Offset),
	}[f.Reason]
	return fmt.Errorf("%v %d bytes: %w: %s", m.Op, m.total, transports.ErrAccess, why)
}
