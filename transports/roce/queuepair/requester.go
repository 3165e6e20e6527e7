package queuepair

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// requester is the half that sends requests. PSNs wrap around. una is the oldest outstanding PSN,
// and tx the next to be sent. top is the first that was never sent, and end the first of the next
// request to be posted.
type requester struct {
	queue               []work // in order, the oldest first
	near                int    // index of the request that was looked up last
	una, tx, top, end   infiniband.PSN
	unasked             int // packets since an acknowledgement was last requested
	retries, rnrRetries int // consecutive
	reread              bool
	timer               clock.Time // when the timeout expires
	ready               clock.Time // when the requester may try again after an RNR NAK
	paced               clock.Time // when the rate allows the next packet
	departs             clock.Time // see Departs
	refusal             refusal

	recovery
}

// refusal is the peer's refusal of a request while answers to earlier requests are missing: they
// may be in flight, or lost for ever.
type refusal struct {
	psn infiniband.PSN
	why error
}

func (r *requester) start(psn infiniband.PSN) {
	r.una, r.tx, r.top, r.end = psn, psn, psn, psn
	r.timer = clock.Never
	r.served = psn
}

// flush completes all posted requests: the one with index fault with err, the others with
// ErrFlushed.
func (r *requester) flush(host Host, err error, fault int) {
	for i := range r.queue {
		w, why := &r.queue[i], ErrFlushed
		if i == fault {
			why = err
		}
		host.Complete(Completion{ID: w.ID, Op: w.Op, Err: why})
	}
	r.queue, r.recovery = nil, recovery{served: r.end}
	r.una, r.tx, r.top, r.timer = r.end, r.end, r.end, clock.Never
}

// at returns the request of a PSN, which must be from una to before end.
func (r *requester) at(psn infiniband.PSN) *work { return &r.queue[r.index(psn)] }

// index first checks the request of the last lookup and the one after it.
func (r *requester) index(psn infiniband.PSN) int {
	at := psn.From(r.una)
	for i := r.near; i < min(r.near+2, len(r.queue)); i++ {
		if w := &r.queue[i]; w.first.From(r.una) <= at && at < w.end().From(r.una) {
			r.near = i
			return i
		}
	}
	r.near = sort.Search(len(r.queue), func(i int) bool { return at < r.queue[i].end().From(r.una) })
	return r.near
}

// waits reports whether a packet could be sent, apart from its time.
func (q *QP) waits() bool { return q.choose() != nil }

// choose returns the place of the next PSN to send, or nil if there is none. The sender advances
// the PSN there.
func (q *QP) choose() *infiniband.PSN {
	if again := q.missing(); again != nil {
		return again
	}
	if q.tx == q.end || q.tx.From(q.una) >= q.config.Window {
		return nil
	}
	if w := q.at(q.tx); w.Op.answers() && q.tx.From(q.top) >= 0 && q.reading() >= q.config.Reads {
		return nil
	}
	return &q.tx
}

// reading is the number of requests in flight that are answered with data.
func (q *QP) reading() (n int) {
	for i := range q.queue {
		w := &q.queue[i]
		if w.first.From(q.top) >= 0 {
			break
		}
		if w.Op.answers() {
			n++
		}
	}
	return n
}

// request writes the requester's next packet.
func (q *QP) request(now clock.Time, into []byte) int {
	if now < q.ready || !q.mayPass(now) {
		return 0
	}
	place := q.choose()
	if place == nil {
		return 0
	}
	psn := *place
	w := q.at(psn)
	n, next := q.write(into, w, psn)
	if psn.From(q.top) < 0 {
		q.counters.Resent++
	} else if !w.Op.answers() {
		q.counters.SentBytes += uint64(min(w.size-psn.From(w.first)*q.config.MTU, q.config.MTU))
	}
	*place = next
	if next.From(q.top) > 0 {
		q.top = next
	}
	q.pace(now, n)
	q.timer = max(now, q.departs).Add(q.config.Timeout) // waiting for a slow rate must not count as silence
	return n
}

// mayPass reports whether the rate lets the next packet of data be passed to the driver.
func (q *QP) mayPass(now clock.Time) bool { return q.paced <= now.Add(q.config.Ahead) }

// pace advances the schedule of the rate. Sending is never ahead of it by more than a packet, and
// never catches up.
func (q *QP) pace(now clock.Time, bytes int) {
	if q.reaction == nil {
		return
	}
	bytes += q.config.Overhead
	q.reaction.Sent(now, bytes)
	took := time.Duration(uint64(bytes) * 8 * uint64(time.Second) / max(q.reaction.Rate(), 1))
	q.departs = max(q.paced, now)
	q.paced = q.departs.Add(took)
}

// write writes one packet of a request, and returns its length and the next PSN.
func (q *QP) write(into []byte, w *work, psn infiniband.PSN) (length int, next infiniband.PSN) {
	f := infiniband.Fields{BTH: infiniband.BTHFields{PKey: infiniband.PKey, DestQP: q.config.Remote,
		PSN: psn}, Imm: w.Imm}
	index := psn.From(w.first)
	at := index * q.config.MTU
	if w.Op.answers() {
		next = w.end()
		f.BTH.AckReq = true
		if w.Op == Read {
			next = q.readUntil(psn, next)
			f.BTH.Opcode = infiniband.ReadRequest
			length := min(next.From(psn)*q.config.MTU, w.size-at)
			f.RETH = infiniband.RETHFields{VA: w.Address + uint64(at), RKey: w.RKey, Length: uint32(length)}
		} else {
			f.BTH.Opcode = infiniband.FetchAdd
			if w.Op == CompareSwap {
				f.BTH.Opcode = infiniband.CompareSwap
			}
			f.AtomicETH = infiniband.AtomicETHFields{VA: w.Address, RKey: w.RKey, SwapAdd: w.Operand,
				Compare: w.Compare}
		}
		q.unasked = 0
		n := infiniband.Len(f.BTH.Opcode, 0)
		infiniband.Packet(into[:n]).Encode(&f, 0)
		return n, next
	}
	next = psn.Add(1)
	last := index == w.packets-1
	f.BTH.Opcode = opcodeOf(w.Op, index == 0, last)
	f.BTH.Solicited = last && w.Solicited
	f.RETH = infiniband.RETHFields{VA: w.Address, RKey: w.RKey, Length: uint32(w.size)}
	q.unasked++
	if last || q.unasked >= q.config.AckEvery || next.From(q.una) >= q.config.Window {
		f.BTH.AckReq, q.unasked = true, 0
	}
	payload := min(w.size-at, q.config.MTU)
	p := infiniband.Packet(into[:infiniband.Len(f.BTH.Opcode, payload)])
	p.Encode(&f, payload)
	gather(p.Payload(), w.Local, at)
	return len(p), next
}

// opcodeOf returns the opcode of a packet that carries a request's bytes.
func opcodeOf(op Op, first, last bool) infiniband.Opcode {
	write, imm := op == Write || op == WriteImm, op == SendImm || op == WriteImm
	pick := func(send, wrote infiniband.Opcode) infiniband.Opcode {
		if write {
			return wrote
		}
		return send
	}
	switch {
	case first && last && imm:
		return pick(infiniband.SendOnlyImm, infiniband.WriteOnlyImm)
	case first && last:
		return pick(infiniband.SendOnly, infiniband.WriteOnly)
	case last && imm:
		return pick(infiniband.SendLastImm, infiniband.WriteLastImm)
	case last:
		return pick(infiniband.SendLast, infiniband.WriteLast)
	case first:
		return pick(infiniband.SendFirst, infiniband.WriteFirst)
	}
	return pick(infiniband.SendMiddle, infiniband.WriteMiddle)
}

// answered processes a response.
func (q *QP) answered(now clock.Time, p infiniband.Packet) {
	psn := p.BTH().PSN()
	if psn.From(q.una) < 0 || psn.From(q.top) >= 0 {
		q.counters.Ignored++ // late, or of no request
		return
	}
	switch p.Opcode() {
	case infiniband.Acknowledge:
		q.acknowledgement(now, psn, p.AETH().Fields())
	case infiniband.AtomicAcknowledge:
		q.atomicResult(now, psn, p)
	default:
		q.readResponse(now, psn, p)
	}
}

func (q *QP) acknowledgement(now clock.Time, psn infiniband.PSN, f infiniband.AETHFields) {
	switch s := f.Syndrome; s.Kind() {
	case infiniband.Ack:
		if !q.advance(now, psn.Add(1)) {
			q.lostResponse()
		}
	case infiniband.RNRNak:
		if !q.advance(now, psn) && !q.config.Selective {
			// goBack retransmits it below, with all that follows
			q.lostResponse()
			return
		}
		if q.config.RNRRetries < endless {
			if q.rnrRetries++; q.rnrRetries > max(q.config.RNRRetries, 0) {
				q.fail(fmt.Errorf("%v: the peer was not ready: %w", q.queue[0].Op, ErrRNRRetries))
				return
			}
		}
		q.ready = now.Add(infiniband.RNRTimer(s.Value()))
		q.timer = q.ready.Add(q.config.Timeout)
		q.goBack()
	case infiniband.Nak:
		q.refused(now, psn, f)
	default:
		q.counters.Ignored++
	}
}

// refused processes a NAK, which acknowledges all packets before its PSN.
func (q *QP) refused(now clock.Time, psn infiniband.PSN, f infiniband.AETHFields) {
	if f.Syndrome == infiniband.NakSelective {
		q.selectedEarly(now, psn, infiniband.PSN(f.MSN))
		return
	}
	done := q.advance(now, psn)
	var why error
	switch f.Syndrome {
	case infiniband.NakSequence:
		if !done {
			q.lostResponse()
		} else if q.again() {
			q.goBack()
		}
		return
	case infiniband.NakInvalid:
		why = ErrInvalid
	case infiniband.NakAccess:
		why = ErrAccess
	case infiniband.NakOperation:
		why = ErrOperation
	default:
		q.counters.Ignored++
		return
	}
	if q.refusal = (refusal{psn, why}); done {
		q.giveUp()
	}
}

// giveUp breaks the queue pair at the request that the peer refused.
func (q *QP) giveUp() {
	i := q.index(q.refusal.psn)
	q.failAt(i, fmt.Errorf("%v at PSN %d: refused by the peer: %w", q.queue[i].Op, q.refusal.psn,
		q.refusal.why))
}

// advance records that the peer received everything before a PSN. It returns false if that is
// impossible yet, because an answer with data is missing.
func (q *QP) advance(now clock.Time, to infiniband.PSN) bool {
	q.carriedOut(to)
	before, done := q.una, 0
	for ; done < len(q.queue); done++ {
		w := &q.queue[done]
		if w.Op.answers() || w.end().From(to) > 0 {
			if !w.Op.answers() && to.From(q.una) > 0 {
				q.una = to
			}
			break
		}
		q.una = w.end()
		q.host.Complete(Completion{ID: w.ID, Op: w.Op, Bytes: w.size})
	}
	q.queue = slices.Delete(q.queue, 0, done)
	q.progress(now, before)
	return to.From(q.una) <= 0
}

// progress restarts the timer when una has advanced.
func (q *QP) progress(now clock.Time, before infiniband.PSN) {
	if q.una == before {
		return
	}
	q.retries, q.rnrRetries, q.reread = 0, 0, false
	if q.tx.From(q.una) < 0 {
		q.tx = q.una
	}
	q.timer = clock.Never
	if q.una != q.top {
		q.timer = now.Add(q.config.Timeout)
	}
	q.forget(before)
}

// goBack retransmits everything outstanding.
func (q *QP) goBack() { q.tx = q.una }

// again counts a retry, and breaks the queue pair when there were too many.
func (q *QP) again() bool {
	if q.retries++; q.retries > max(q.config.Retries, 0) {
		q.fail(fmt.Errorf("%v: %w", q.queue[0].Op, ErrRetries))
		return false
	}
	return true
}

// lostResponse is called when an answer shows that an earlier answer with data was lost. It
// requests that answer again, once until there is progress (IBTA 9.7.5.1.1).
func (q *QP) lostResponse() {
	if q.config.Selective {
		q.answers.begin(q.una, q.served, q.top)
		return
	}
	if q.reread {
		return
	}
	if q.reread = true; q.again() {
		q.goBack()
	}
}

// silent is called when nothing arrived for the timeout.
func (q *QP) silent(now clock.Time) {
	q.counters.Timeouts++
	if q.refusal.why != nil && q.refusal.psn.From(q.una) >= 0 { // after a refusal the peer answers nothing
		q.giveUp()
		return
	}
	q.reread = false
	q.timer = now.Add(q.config.Timeout)
	if !q.again() {
		return
	}
	if q.config.Selective {
		q.restart()
		return
	}
	q.goBack()
}

// readResponse processes a part of a READ's answer.
func (q *QP) readResponse(now clock.Time, psn infiniband.PSN, p infiniband.Packet) {
	w := q.at(psn)
	if w.Op != Read {
		q.counters.Ignored++
		return
	}
	index, payload := psn.From(w.first), p.Payload()
	if want := min(w.size-index*q.config.MTU, q.config.MTU); len(payload) != want {
		q.fail(fmt.Errorf("READ: %w: %d bytes in packet %d, want %d", ErrResponse, len(payload), index, want))
		return
	}
	first := w.first
	q.advance(now, first) // all before it was executed
	if w = q.at(psn); psn == q.una {
		scatter(w.Local, index*q.config.MTU, payload)
		q.arrived(now)
	} else if !q.config.Selective {
		q.lostResponse()
	} else if q.early(w, psn) {
		scatter(w.Local, index*q.config.MTU, payload)
	}
}

func (q *QP) atomicResult(now clock.Time, psn infiniband.PSN, p infiniband.Packet) {
	w := q.at(psn)
	if !w.Op.atomic() {
		q.counters.Ignored++
		return
	}
	original := p.AtomicAckETH().Original()
	q.advance(now, psn)
	if w = q.at(psn); psn == q.una {
		w.original = original
		q.arrived(now)
	} else if !q.config.Selective {
		q.lostResponse()
	} else if q.early(w, psn) {
		w.original = original
	}
}

// arrived advances una over the answer with data that has arrived, and over known answers after it.
func (q *QP) arrived(now clock.Time) {
	before := q.una
	q.una = q.una.Add(1)
	for {
		if w := &q.queue[0]; q.una == w.end() {
			q.host.Complete(Completion{ID: w.ID, Op: w.Op, Bytes: w.size, Original: w.original})
			q.queue = slices.Delete(q.queue, 0, 1)
		}
		if len(q.queue) == 0 || !q.knows(&q.queue[0]) {
			break
		}
		q.una = q.una.Add(1)
	}
	q.progress(now, before)
}
