package engine

import (
	"net/netip"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
)

// Packet is a packet to send: a header in its own memory and a payload in the
// caller's. The payload is to be read before Receive or Post is called again,
// or the packet may carry bytes that no longer are its message's; such a packet
// has come before and is not looked at, but the caller may own them again.
type Packet struct {
	// Peer is who it goes to; -1 is To, whose engine's port is Port too.
	Peer int
	To   netip.Addr
	// Port is the engine that it goes to, behind wire.PortRD.
	Port uint8
	// Path is the source port that it goes from, counted from the first.
	Path int
	// Class is the traffic class of data. Control packets have their own.
	Class   transports.Class
	Control bool
	Header  []byte
	Payload []byte

	gathered []byte // the payload, where it is of several pieces
	memory   [wire.RDAckLen + 8*wire.RDMaxWords + 4*wire.RDMaxEchoes]byte
	sealed   []byte // memory for the whole packet, encrypted
}

// header is memory for a header.
func (p *Packet) header(length int) wire.RD {
	p.Header = p.memory[:length]
	return p.Header
}

func (p *Packet) control(to *peer, port uint8) {
	p.Peer, p.Port, p.Control, p.Path, p.Class, p.Payload = -1, port, true, -1, 0, nil
	if to != nil {
		p.Peer = int(to.number)
	}
}

// Next writes the next packet that may go now; false is none. Control packets
// go before data and are not paced. A Path of -1 leaves the path to the driver,
// which is to use all of them in turn.
func (e *Engine) Next(now clock.Time, p *Packet) bool {
	for e.next(now, p) {
		if !e.encrypts() || e.seal(now, p) {
			return true
		}
	}
	return false
}

// next is Next in the clear.
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
	// Behind data go the acknowledgements that have time: one packet more
	// where some are on their way is cheaper than a wake-up later.
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

// tick lets sequence spaces find out what time says, and drops those with
// nothing outstanding from the list.
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

// nextProbe writes a probe where one is due. Probes are few, and wait for no pace.
func (e *Engine) nextProbe(now clock.Time, p *Packet) bool {
	for _, o := range e.active {
		if (o.probing || o.paths.NextProbe() <= now) && o.probe(p, now) {
			return true
		}
	}
	return false
}

// nextData takes turns among the peers.
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
			if !e.pace(now, o) {
				return false
			}
			o.send(p, now)
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

// Deadline is when Next may have something that it does not have now, as far as
// the engine knows; clock.Never without packets from outside.
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
