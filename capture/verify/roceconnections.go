package verify

import (
	"slices"

	"railbed/internal/infiniband"
)

// answered is the flow that a packet from a responder speaks of, nil where that is
// not known.
func (v *roceFlows[S]) answered(p *Packet) *roceFlow[S] {
	key := p.roceKey()
	mate, known := v.mates[key]
	if !known {
		if mate, known = v.guess(p); !known {
			return nil
		}
		v.pair(key, mate)
	}
	f := v.flows[mate]
	if f == nil {
		return nil
	}
	f.paired = true
	if o := p.RoCE.BTH.Opcode; o.IsRead() {
		switch more := p.RoCE.BTH.PSN.From(f.next) + 1; {
		case !o.Ends():
			f.learnFrom(p)
		case f.open && more >= 0 && more < readPSNs(f.openRead, infiniband.MTU(1)):
			f.extendRead(more)
		}
	}
	return f
}

// answer is answered of what answers a request. It is nil also for what its
// requester throws away.
func (v *roceFlows[S]) answer(p *Packet) *roceFlow[S] {
	if !p.RoCE.BTH.Opcode.Response() || v.side == atRequester && !v.came(p) {
		return nil
	}
	f := v.answered(p)
	if f == nil && !v.precedes(p) {
		v.orphans++
	}
	return f
}

// precedes says that an answer may be to a request from before the capture.
func (v *roceFlows[S]) precedes(p *Packet) bool {
	return slices.ContainsFunc(v.between[addresses(p.key.dst, p.key.src)], func(f *roceFlow[S]) bool {
		return !f.paired && f.follows(p.RoCE.BTH.PSN)
	})
}

// follows says that a PSN may be of the flow, from before its first packet that was seen.
func (f *roceFlow[S]) follows(psn infiniband.PSN) bool {
	behind := f.base.From(psn)
	return behind > 0 && behind <= roceWindow
}

// guess finds the only flow that a packet can be about. An answer may also be about one
// whose first requests were not seen, and that then is not known to await it.
func (v *roceFlows[S]) guess(p *Packet) (found roceKey, only bool) {
	candidates, holds := 0, false
	for _, f := range v.between[addresses(p.key.dst, p.key.src)] {
		_, mated := v.mates[f.key]
		switch {
		case mated:
		case !p.RoCE.BTH.Opcode.Response() || f.holds(p.RoCE.BTH.PSN):
			found, holds = f.key, true
			candidates++
		case f.follows(p.RoCE.BTH.PSN):
			candidates++
		}
	}
	return found, holds && candidates == 1
}

// pair says that two directions are of one connection, and no longer of the ones before.
func (v *roceFlows[S]) pair(a, b roceKey) {
	for _, key := range []roceKey{a, b} {
		if mate, known := v.mates[key]; known {
			delete(v.mates, mate)
			delete(v.mates, key)
		}
	}
	if len(v.mates) < 4*maxRoCEFlows {
		v.mates[a], v.mates[b] = b, a
	}
}

// roceAsked is a connection that was asked for: the requests to who asked, and the PSN at which
// they are to start.
type roceAsked struct {
	back roceKey
	psn  infiniband.PSN
}

// roceStart is how a connection began: the PSN of its first request, and the numbers that its
// two ends have in the messages that connected them.
type roceStart struct {
	psn             infiniband.PSN
	asker, answerer uint32
}

// started notes how a connection began. A life that its queue pair had before is over; the same
// messages, sent again, begin none.
func (v *roceFlows[S]) started(key roceKey, start roceStart) {
	before, known := v.starts[key]
	if known && before == start || !known && len(v.starts) >= 2*maxRoCEFlows {
		return
	}
	v.starts[key] = start
	if f := v.flows[key]; f != nil {
		f.over = true
	}
}

// ended notes that who sends to a queue pair asked to end the connection.
func (v *roceFlows[S]) ended(key roceKey, at int64) {
	for _, key := range []roceKey{key, v.mates[key]} {
		if f := v.flows[key]; f != nil && !f.closing {
			f.closing, f.closed = true, at
		}
	}
}

// begun begins a flow where its first request came that was not lost on its way: with those
// that were, by the messages that connected.
func (v *roceFlows[S]) begun(f *roceFlow[S], first infiniband.PSN) {
	start, known := v.starts[f.key]
	lost := first.From(start.psn)
	if !known || v.side != atResponder || lost <= 0 || lost > roceWindow {
		return
	}
	f.start(start.psn)
	for range lost {
		f.push(roceSent{})
	}
}

// learn takes the queue pairs of a connection from the messages that make it, and the PSNs at
// which their requests start: each message has that of the packets that its sender is to get
// (IBTA, 12.6.5, starting PSN). It takes the end of a connection, too.
func (v *roceFlows[S]) learn(p *Packet) {
	r := p.RoCE
	if r.BTH.DestQP != infiniband.GSI || !r.whole {
		return
	}
	m := infiniband.MAD(r.Bytes.Payload())
	if !m.Valid() || !m.IsCM() {
		return
	}
	switch m.Attribute() {
	case infiniband.AttributeREQ:
		f := infiniband.REQ(m.CM()).Fields()
		comm := roceComm{p.key.src, f.LocalComm}
		if _, again := v.asking[comm]; again || len(v.asking) < maxRoCEFlows {
			v.asking[comm] = roceAsked{roceKey{src: p.key.dst, dst: p.key.src, qp: f.QPN}, f.PSN}
		}
	case infiniband.AttributeREP:
		f := infiniband.REP(m.CM()).Fields()
		comm := roceComm{p.key.dst, f.RemoteComm}
		if asked, known := v.asking[comm]; known && asked.back.src == p.key.src {
			there := roceKey{src: p.key.dst, dst: p.key.src, qp: f.QPN}
			v.pair(asked.back, there)
			v.started(there, roceStart{f.PSN, f.RemoteComm, f.LocalComm})
			v.started(asked.back, roceStart{asked.psn, f.RemoteComm, f.LocalComm})
			delete(v.asking, comm)
		}
	case infiniband.AttributeDREQ:
		v.ended(roceKey{src: p.key.src, dst: p.key.dst, qp: infiniband.DREQ(m.CM()).Fields().QPN}, p.Time)
	}
}
