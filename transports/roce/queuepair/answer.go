package queuepair

import (
	"slices"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// answer is a packet or packets to send: an acknowledgement, the answer to a READ or an atomic
// operation, or a CNP.
type answer struct {
	// Acknowledge, AtomicAcknowledge, ReadResponseFirst for all parts of a READ's answer, or CNP
	kind     infiniband.Opcode
	psn      infiniband.PSN
	syndrome infiniband.Syndrome
	msn      uint32
	original uint64
	at       uint64 // of a READ, the address of the rest
	rkey     uint32
	bytes    int // of the rest
	packets  int // packets that are left
	begun    bool
}

// data reports whether the answer is one to a READ or an atomic operation.
func (a *answer) data() bool {
	return a.kind == infiniband.ReadResponseFirst || a.kind == infiniband.AtomicAcknowledge
}

// notify queues a CNP.
func (q *QP) notify() {
	if len(q.pending) >= q.pendingBound() {
		return
	}
	q.counters.CNPsSent++
	q.pending = slices.Insert(q.pending, 0, answer{kind: infiniband.CNP})
}

// pendingBound is the most answers that wait. Further answers are dropped, and the peer asks for
// them again.
func (q *QP) pendingBound() int { return q.config.Window + 2*q.config.RemoteReads }

// push queues an answer. Of consecutive acknowledgements the later one replaces the earlier one.
func (q *QP) push(a answer) {
	if n := len(q.pending); n > 0 && a.kind == infiniband.Acknowledge {
		if l := &q.pending[n-1]; l.kind == infiniband.Acknowledge && l.syndrome == infiniband.AckUnlimited &&
			a.syndrome != infiniband.NakSelective {
			*l = a
			return
		}
	}
	if len(q.pending) < q.pendingBound() {
		q.pending = append(q.pending, a)
	}
}

// respond writes the next answer. Data waits for the rate, and answers behind data wait for their
// turn.
func (q *QP) respond(now clock.Time, into []byte) int {
	if len(q.pending) == 0 {
		return 0
	}
	a := &q.pending[0]
	if a.kind == infiniband.ReadResponseFirst && q.err == nil && !q.mayPass(now) {
		return 0
	}
	f := infiniband.Fields{BTH: infiniband.BTHFields{Opcode: a.kind, PKey: infiniband.PKey,
		DestQP: q.config.Remote, PSN: a.psn}}
	f.AETH = infiniband.AETHFields{Syndrome: a.syndrome, MSN: a.msn}
	if a.kind != infiniband.Acknowledge {
		f.AETH.Syndrome = infiniband.AckUnlimited
	}
	f.Original = a.original
	var memory []byte
	switch a.kind {
	case infiniband.CNP:
		p := infiniband.Packet(into[:infiniband.CNPLen])
		p.EncodeCNP(q.config.Remote)
		q.drop()
		return len(p)
	case infiniband.ReadResponseFirst:
		if a.bytes > 0 {
			if memory = q.memory(a.rkey, a.at, min(a.bytes, q.config.MTU), RemoteRead); memory == nil {
				// the region was closed
				q.counters.Naks++
				q.pending = []answer{{kind: infiniband.Acknowledge, psn: a.psn,
					syndrome: infiniband.NakAccess, msn: q.msn}}
				q.fail(accessError(infiniband.ReadRequest))
				return q.respond(now, into)
			}
		}
		f.BTH.Opcode = partOf(!a.begun, a.packets == 1)
	}
	p := infiniband.Packet(into[:infiniband.Len(f.BTH.Opcode, len(memory))])
	p.Encode(&f, len(memory))
	if len(memory) > 0 {
		copy(p.Payload(), memory)
		q.pace(now, len(p))
	}
	if a.packets > 1 {
		a.begun, a.packets, a.bytes, a.at, a.psn = true, a.packets-1, a.bytes-len(memory),
			a.at+uint64(len(memory)), a.psn.Add(1)
	} else {
		q.drop()
	}
	return len(p)
}

func (q *QP) drop() { q.pending = slices.Delete(q.pending, 0, 1) }

// partOf returns the opcode of a part of a READ's answer.
func partOf(first, last bool) infiniband.Opcode {
	switch {
	case first && last:
		return infiniband.ReadResponseOnly
	case first:
		return infiniband.ReadResponseFirst
	case last:
		return infiniband.ReadResponseLast
	}
	return infiniband.ReadResponseMiddle
}
