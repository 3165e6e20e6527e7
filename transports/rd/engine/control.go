package engine

import (
	"net/netip"

	"railbed/internal/wire"
)

// control is a negative acknowledgement, a reject or a close that waits to be sent.
type control struct {
	kind wire.RDType
	peer *peer // nil for a reject
	port uint8 // of the destination engine
	psn  PSN
	nack wire.RDNackFields
	// For a reject.
	to     netip.Addr
	reject wire.RDRejectFields
}

// ring holds the waiting controls, the oldest first. Controls that do not fit are discarded: the
// peer requests them again.
type ring struct {
	entries [256]control
	first   int
	count   int
}

func (r *ring) push(c *control) {
	if r.count < len(r.entries) {
		r.entries[(r.first+r.count)%len(r.entries)] = *c
		r.count++
	}
}

func (r *ring) pop() *control {
	if r.count == 0 {
		return nil
	}
	c := &r.entries[r.first]
	r.first = (r.first + 1) % len(r.entries)
	r.count--
	return c
}

// reject answers a packet whose sender this engine cannot communicate with: one reject of 40 bytes
// for each packet. The packet has 24 bytes at least.
func (e *Engine) reject(to netip.Addr, base wire.RDBase, why wire.RDRejection) {
	if base.Type == wire.RDClose || base.Type == wire.RDReject {
		return
	}
	e.controls.push(&control{
		kind: wire.RDReject, to: to, port: base.Source,
		reject: wire.RDRejectFields{Reason: why, Least: wire.RDVersion, Most: wire.RDVersion, Meant: base.Tag,
			To: base.Life},
	})
}

// nextControl writes the oldest control into a packet.
func (e *Engine) nextControl(p *Packet) bool {
	c := e.controls.pop()
	if c == nil {
		if len(e.parting) == 0 {
			return false
		}
		c, e.parting = &e.parting[0], e.parting[1:]
	}
	p.control(c.peer, c.port)
	switch c.kind {
	case wire.RDNack:
		e.counters.Nacks++
		base := e.base(c.peer, c.port)
		base.PSN = uint32(c.psn)
		p.header(wire.RDNackLen).EncodeNack(base, &c.nack)
	case wire.RDClose:
		base := e.base(c.peer, c.port)
		base.PSN = uint32(c.psn)
		p.header(wire.RDBaseLen).EncodeClose(base)
	default:
		p.To = c.to
		base := wire.RDBase{Source: e.config.Port, Destination: c.port, Tag: uint32(c.reject.To),
			Life: e.config.Life}
		p.header(wire.RDRejectLen).EncodeReject(base, &c.reject)
	}
	return true
}
