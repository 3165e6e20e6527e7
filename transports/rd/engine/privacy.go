package engine

import (
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
)

const (
	// hints is the most trimmed headers that are reported to a peer in each hintTime, since they
	// are not authenticated: more than a queue that trims at 1 Gbit/s produces.
	hints    = 64
	hintTime = time.Millisecond
)

// pairing holds the keys with one engine of a peer, for as long as both live. It stays when the
// peer has failed: a counter that began again would reuse nonces.
type pairing struct {
	seal privacy.Sealer
	open privacy.Opener
}

// encrypts reports whether packets are encrypted. It holds for all packets and all peers.
func (e *Engine) encrypts() bool { return e.config.Secret != nil }

// pairing returns the keys with an engine that the peer has.
func (e *Engine) pairing(p *peer, port uint8) *pairing {
	n := port - p.Port
	if p.pairings[n] == nil {
		d := privacy.Direction{From: e.config.Life, To: p.Life, Source: e.config.Port, Destination: port}
		p.pairings[n] = &pairing{
			seal: *privacy.NewSealer(e.config.Secret, d, e.config.Keys),
			open: *privacy.NewOpener(e.config.Secret, d.Back(), e.config.Keys),
		}
	}
	return p.pairings[n]
}

// seal encrypts a packet that Next wrote. It returns false if the keys with the peer are used up;
// then the peer has failed.
func (e *Engine) seal(now clock.Time, packet *Packet) bool {
	if packet.Peer < 0 {
		return true // a reject, whose receiver may have no key
	}
	p := e.peers[packet.Peer]
	if cap(packet.sealed) == 0 {
		packet.sealed = make([]byte, max(len(packet.memory),
			wire.RDDataLen+e.config.Payload)+wire.RDSealedLen)
	}
	k := e.pairing(p, packet.Port)
	_, heard := k.open.Heard()
	b, err := k.seal.Seal(packet.sealed, packet.Header, packet.Payload, e.config.Readable, heard, now)
	if err != nil {
		e.fail(p, "%v", err)
		return false
	}
	packet.Header, packet.Payload = b, nil
	return true
}

// open decrypts a packet of a known peer. It returns false for a packet that is discarded.
func (e *Engine) open(p *peer, b wire.RD, base wire.RDBase, a Arrival, now clock.Time) (wire.RD, bool) {
	c := &e.counters
	if n := int(base.Source) - int(p.Port); n < 0 || n >= p.Engines {
		c.Hostile++
		return nil, false
	}
	if len(b) < wire.RDSealedLeast+wire.RDTagLen {
		c.Corrupt++
		return nil, false
	}
	if b.SealedTrimmed() {
		e.hint(p, base, a, now)
		return nil, false
	}
	k := e.pairing(p, base.Source)
	heard := b.Security().Heard
	plain, what := k.open.Open(b, now)
	switch what {
	case privacy.Opened:
		k.seal.Confirm(heard)
		return plain, true
	case privacy.Replayed:
		c.Replayed++
	case privacy.Stale:
		c.Stale++
	case privacy.Forged:
		c.Forged++
	default:
		c.Corrupt++
	}
	return nil, false
}

// hint processes a trimmed header. It has lost its tag, so any host may have made it. It only lets
// the sender retransmit a packet that has not arrived, once for each packet and at a limited rate.
func (e *Engine) hint(p *peer, base wire.RDBase, a Arrival, now clock.Time) {
	e.counters.Trimmed++
	if p.err != nil {
		return
	}
	in := e.inbound(p, base.Source)
	psn := PSN(base.PSN)
	if distance := psn.From(in.next); distance < 0 || distance >= Window || in.has(psn) || in.isHinted(psn) {
		return
	}
	if now.Sub(p.hintsFrom) >= hintTime {
		p.hintsFrom, p.hints = now, 0
	}
	if p.hints == hints {
		return
	}
	p.hints++
	in.hinted[psn.slot()/64] |= 1 << (63 - psn.slot()%64)
	e.counters.Hints++
	in.nack(psn, 0, wire.RDTrimmed, a.Path, 0)
}

func (in *inbound) isHinted(psn PSN) bool {
	s := psn.slot()
	return in.hinted[s/64]>>(63-s%64)&1 != 0
}

// hinted processes a peer's report of an unauthenticated trimmed header. The packet is sent again,
// the first time. It does not count as lost, so it is not given up. The path gets a mark, as any
// switch could set, but no evidence for or against it.
func (o *outbound) hinted(slot uint16, now clock.Time) {
	k := &o.packets[slot]
	if k.hinted || now.Sub(k.sent) < o.late.shortest/2 {
		return
	}
	k.hinted, k.why = true, byTrimming
	o.paths.Feedback(path.Report{Path: int(k.path), Event: path.Marked}, now)
	o.unlink(slot)
	o.link(&o.lost, slot, isLost)
}

// suspected records a reject of an encrypting peer. Any host can have made it, so it does not fail
// the peer. It is added to the error when the peer fails by silence.
func (o *outbound) suspected(why wire.RDRejection, now clock.Time) {
	heard, _ := o.engine.pairing(o.peer, o.port).open.Heard()
	if why == wire.RDRejectStranger && !heard {
		o.pause(now) // a peer whose packets were opened has added this endpoint
		return
	}
	o.engine.counters.Foreign++
	o.peer.suspicion = why
}

// suspects returns the suspected reason for a peer's silence.
func (p *peer) suspects() string {
	if p.suspicion == 0 {
		return ""
	}
	return " but a reject that any host can have sent: " + p.suspicion.String()
}
