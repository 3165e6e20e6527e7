package rocechecks

import (
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
)

// answered returns the flow to which a packet from a responder refers, or nil where the flow is
// unknown.
func (v *follower[S]) answered(p *evidence.Packet) *flow[S] {
	key := keyOf(p)
	mate, known := v.reverse[key]
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

// answer returns the flow that an answer belongs to, as answered does. It returns nil also for
// answers that the requester discards, and for packets that are not answers.
func (v *follower[S]) answer(p *evidence.Packet) *flow[S] {
	if !p.RoCE.BTH.Opcode.Response() || v.side == atRequester && !v.came(p) {
		return nil
	}
	f := v.answered(p)
	if f == nil && !v.precedes(p) {
		v.orphans++
	}
	return f
}

// precedes reports whether an answer may belong to a request from before the capture.
func (v *follower[S]) precedes(p *evidence.Packet) bool {
	return slices.ContainsFunc(v.between[p.Addresses.Reversed()], func(f *flow[S]) bool {
		return !f.paired && f.follows(p.RoCE.BTH.PSN)
	})
}

// follows reports whether a PSN may belong to the flow, from before its first captured packet.
func (f *flow[S]) follows(psn infiniband.PSN) bool {
	behind := f.base.From(psn)
	return behind > 0 && behind <= psnWindow
}

// guess finds the only flow to which a packet can refer. An answer may also belong to a flow whose
// first requests were not seen. Such a flow is not known to await the answer.
func (v *follower[S]) guess(p *evidence.Packet) (found pairKey, only bool) {
	candidates, holds := 0, false
	for _, f := range v.between[p.Addresses.Reversed()] {
		_, mated := v.reverse[f.key]
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

// pair records that two directions belong to one connection, and removes their earlier pairings.
func (v *follower[S]) pair(a, b pairKey) {
	for _, key := range []pairKey{a, b} {
		if mate, known := v.reverse[key]; known {
			delete(v.reverse, mate)
			delete(v.reverse, key)
		}
	}
	if len(v.reverse) < 4*maxFlows {
		v.reverse[a], v.reverse[b] = b, a
	}
}

// asked is a requested connection: the requests back to the side that asked, and the PSN at
// which they are to start.
type asked struct {
	back pairKey
	psn  infiniband.PSN
}

// beginning is the beginning of a connection: the PSN of its first request, and the connection numbers
// of both ends in the messages that connected them.
type beginning struct {
	psn             infiniband.PSN
	asker, answerer uint32
}

// started records how a connection began. The previous life of its queue pair is then over. A
// retransmission of the same messages starts no new life. Nor does a message that the tap of the other end
// shows a little after the first requests of the connection.
func (v *follower[S]) started(key pairKey, start beginning, at int64) {
	before, known := v.starts[key]
	if known && before == start || !known && len(v.starts) >= 2*maxFlows {
		return
	}
	v.starts[key] = start
	f := v.flows[key]
	if f == nil {
		return
	}
	ahead := f.first.From(start.psn)
	f.over = known || ahead < 0 || ahead > psnWindow ||
		at-f.began > v.capture.Linger()+int64(evidence.StampSlack)
}

// ended records that the sender to a queue pair asked to end the connection.
func (v *follower[S]) ended(key pairKey, at int64) {
	for _, key := range []pairKey{key, v.reverse[key]} {
		if f := v.flows[key]; f != nil && !f.closing {
			f.closing, f.closed = true, at
		}
	}
}

// begun starts a flow at its first request that arrived. The messages that connected the ends tell
// which requests were lost before it. These are included in the flow.
func (v *follower[S]) begun(f *flow[S], first infiniband.PSN) {
	start, known := v.starts[f.key]
	lost := first.From(start.psn)
	if !known || v.side != atResponder || lost <= 0 || lost > psnWindow {
		return
	}
	f.start(start.psn)
	for range lost {
		f.push(sentPSN{})
	}
}

// learn takes the queue pairs of a connection from the messages that make it, and the PSNs at which
// their requests start. Each message holds the starting PSN of the packets that its sender is to
// receive (IBTA, 12.6.5, starting PSN). learn also takes the end of a connection.
func (v *follower[S]) learn(p *evidence.Packet) {
	r := p.RoCE
	if r.BTH.DestQP != infiniband.GSI || !r.Whole {
		return
	}
	m := infiniband.MAD(r.Bytes.Payload())
	if !m.Valid() || !m.IsCM() {
		return
	}
	switch m.Attribute() {
	case infiniband.AttributeREQ:
		f := infiniband.REQ(m.CM()).Fields()
		comm := commKey{p.Addresses.Src, f.LocalComm}
		if _, again := v.asking[comm]; again || len(v.asking) < maxFlows {
			v.asking[comm] = asked{pairKey{p.Addresses.Reversed(), f.QPN}, f.PSN}
		}
	case infiniband.AttributeREP:
		f := infiniband.REP(m.CM()).Fields()
		comm := commKey{p.Addresses.Dst, f.RemoteComm}
		if asked, known := v.asking[comm]; known && asked.back.addresses.Src == p.Addresses.Src {
			there := pairKey{p.Addresses.Reversed(), f.QPN}
			v.pair(asked.back, there)
			v.started(there, beginning{f.PSN, f.RemoteComm, f.LocalComm}, p.Time)
			v.started(asked.back, beginning{asked.psn, f.RemoteComm, f.LocalComm}, p.Time)
			v.learned = true
			delete(v.asking, comm)
		}
	case infiniband.AttributeDREQ:
		v.learned = true
		v.ended(pairKey{p.Addresses, infiniband.DREQ(m.CM()).Fields().QPN}, p.Time)
	}
}
