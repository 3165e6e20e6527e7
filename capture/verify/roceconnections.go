package verify

import (
	"slices"

	"railbed/transports/infiniband"
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
		behind := f.base.From(p.RoCE.BTH.PSN)
		return !f.paired && behind > 0 && behind <= roceWindow
	})
}

// guess finds the only flow that a packet can be about.
func (v *roceFlows[S]) guess(p *Packet) (found roceKey, only bool) {
	for _, f := range v.between[addresses(p.key.dst, p.key.src)] {
		if _, mated := v.mates[f.key]; mated || p.RoCE.BTH.Opcode.Response() && !f.holds(p.RoCE.BTH.PSN) {
			continue
		}
		if only {
			return roceKey{}, false
		}
		found, only = f.key, true
	}
	return found, only
}

// pair says that two directions are of one connection.
func (v *roceFlows[S]) pair(a, b roceKey) {
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

// begun begins a flow where its first request came that was not lost on its way: with those
// that were, by the messages that connected.
func (v *roceFlows[S]) begun(f *roceFlow[S], first infiniband.PSN) {
	start, known := v.starts[f.key]
	lost := first.From(start)
	if !known || v.side != atResponder || lost <= 0 || lost > roceWindow {
		return
	}
	f.begin(start)
	for range lost {
		f.push(roceSent{})
	}
}

// learn takes the queue pairs of a connection from the messages that make it, and the PSNs at
// which their requests start: each message has that of the packets that its sender is to get
// (IBTA, 12.6.5, starting PSN).
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
		if len(v.asking) < maxRoCEFlows {
			v.asking[roceComm{p.key.src, f.LocalComm}] = roceAsked{roceKey{src: p.key.dst, dst: p.key.src, qp: f.QPN}, f.PSN}
		}
	case infiniband.AttributeREP:
		f := infiniband.REP(m.CM()).Fields()
		comm := roceComm{p.key.dst, f.RemoteComm}
		if asked, known := v.asking[comm]; known {
			there := roceKey{src: p.key.dst, dst: p.key.src, qp: f.QPN}
			v.pair(asked.back, there)
			if len(v.starts) < 2*maxRoCEFlows {
				v.starts[there], v.starts[asked.back] = f.PSN, asked.psn
			}
			delete(v.asking, comm)
		}
	}
}
