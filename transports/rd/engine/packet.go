package engine

import (
	"net/netip"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
)

// Packet is a packet to send: a header in its own memory and a payload in the caller's. Read the
// payload before you call Receive or Post again. Otherwise the caller may own the bytes again and
// may have changed them. The peer ignores the content of such a packet, because it has received the
// packet before.
type Packet struct {
	// Peer is the destination peer. With -1 the destination is To, and Port is the port of its
	// engine.
	Peer int
	To   netip.Addr
	// Port is the destination engine's port, relative to wire.PortRD.
	Port uint8
	// Path is the index of the source port, counted from the first.
	Path int
	// Class is the traffic class of data. Control packets have their own class.
	Class   transports.Class
	Control bool
	// Departs is when the packet is to leave, at most Config.Ahead from now. A time that has passed means
	// at once.
	Departs clock.Time
	Header  []byte
	Payload []byte

	gathered []byte // the payload, if it spans several pieces
	memory   [wire.RDAckLen + 8*wire.RDMaxWords + 4*wire.RDMaxEchoes]byte
	sealed   []byte // memory for the whole packet, encrypted
}

// header returns memory for a header.
func (p *Packet) header(length int) wire.RD {
	p.Header = p.memory[:length]
	return p.Header
}

func (p *Packet) control(to *peer, port uint8) {
	p.Peer, p.Port, p.Control, p.Path, p.Class, p.Payload, p.Departs = -1, port, true, -1, 0, nil, 0
	if to != nil {
		p.Peer = int(to.number)
	}
}

// Next writes the next packet that may be sent now, or returns false. Control packets go before
// data and are not paced. A Path of -1 leaves the path to the driver, which must use all paths in
// turn.
func (e *Engine) Next(now clock.Time, p *Packet) bool {
	for e.next(now, p) {
		if !e.encrypts() || e.seal(now, p) {
			return true
		}
	}
	return false
}

// next is Next without encryption.
func (e *Engine) next(now clock.Time, p *Packet) bool {
	e.paced = 0
	if e.nextControl(p) {
		return true
	}
	e.due = e.oweDue(now)
	if e.nextAck(now, p) {
		return true
	}
	e.tick(now)
	if e.nextProbe(now, p) {
		return true
	}
	if e.nextData(now, p) {
		e.sent = true
		return true
	}
	// After data, send also the acknowledgements that are not yet due: one packet more in a batch
	// is cheaper than a wake-up later.
	if e.sent {
		e.sent = false
		e.due = e.oweDue(clock.Never)
		return e.nextAck(now, p)
	}
	return false
}

// nextAck writes the next acknowledgement that is owed.
func (e *Engine) nextAck(now clock.Time, p *Packet) bool {
	for in := e.owing; in != nil; in = e.owing {
		e.owing, in.after = in.after, nil
		if in.peer.err == nil {
			in.acknowledge(p, now)
			return true
		}
		in.owes = false
	}
	return false
}

// tick runs the sequence spaces whose deadline has come, and drops those with nothing outstanding
// from the list.
func (e *Engine) tick(now clock.Time) {
	kept := e.active[:0]
	for _, o := range e.active {
		if o.peer.err == nil && o.deadline <= now {
			o.tick(now)
		}
		if o.peer.err == nil && !o.idle() {
			kept = append(kept, o)
			continue
		}
		o.active = false
	}
	clear(e.active[len(kept):])
	e.active = kept
}

// nextProbe writes a probe if one is due. Probes are few and not paced.
func (e *Engine) nextProbe(now clock.Time, p *Packet) bool {
	for _, o := range e.active {
		if (o.probing || o.paths.NextProbe() <= now) && o.probe(p, now) {
			return true
		}
	}
	return false
}

// nextData writes a data packet; the peers take turns.
func (e *Engine) nextData(now clock.Time, p *Packet) bool {
	if e.turned >= quantum {
		e.turn, e.turned = e.turn+1, 0
	}
	for range e.active {
		if e.turn >= len(e.active) {
			e.turn = 0
		}
		o := e.active[e.turn]
		if o.sendable(now) && o.allowed(now) {
			departs, ok := e.pace(now, o)
			if !ok {
				return false
			}
			p.Departs = departs
			o.send(p, max(now, departs))
			e.turned++
			return true
		}
		e.turn, e.turned = e.turn+1, 0
	}
	if e.pacing {
		e.pacing = false
		e.config.Pacer.end()
	}
	return false
}

// Deadline is the time at which to call Next again, or clock.Never. Until then only an arrival or a
// Post can give Next a packet.
func (e *Engine) Deadline() clock.Time {
	at := e.due
	if e.paced != 0 {
		at = min(at, e.paced)
	}
	for _, o := range e.active {
		at = min(at, o.deadline)
	}
	return at
}
