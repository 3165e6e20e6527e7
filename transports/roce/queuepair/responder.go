package queuepair

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"railbed/internal/infiniband"
)

// responder is the half that executes the peer's requests.
type responder struct {
	expected infiniband.PSN
	msn      uint32 // completed messages
	refusing bool   // a NAK was sent for expected: other early packets get none
	receives []receive
	current  message
	repeats  []repeat                             // of READs and atomic operations, the latest last
	pending  []answer                             // to be sent, in order
	stash    map[infiniband.PSN]infiniband.Packet // selective: packets that arrived early
}

// receive is memory for a SEND, or for the immediate of a WRITE.
type receive struct {
	id     uint64
	memory [][]byte
	size   int
}

// message is the received part of a message of several packets.
type message struct {
	open  bool
	write bool
	left  int    // of a WRITE, bytes still missing
	got   int    // bytes received, of a WRITE or SEND
	at    uint64 // of a WRITE, the address of its first byte
	rkey  uint32
}

// repeat is a request whose answer has data, and may be requested again.
type repeat struct {
	first    infiniband.PSN
	packets  int
	atomic   bool
	original uint64
}

func (r *responder) start(psn infiniband.PSN) { r.expected = psn }

func (r *responder) flush(host Host) {
	for _, one := range r.receives {
		host.Complete(Completion{ID: one.id, Op: Receive, Err: ErrFlushed})
	}
	r.receives, r.stash, r.repeats = nil, nil, nil
}

// PostReceive posts memory for the next SEND, or for the immediate of a WRITE_IMM, which leaves the
// memory as it is.
func (q *QP) PostReceive(id uint64, memory [][]byte) error {
	if q.err != nil {
		return q.err
	}
	size := 0
	for _, piece := range memory {
		size += len(piece)
	}
	q.receives = append(q.receives, receive{id, memory, size})
	return nil
}

// Receives is the number of posted receives that are not used yet.
func (q *QP) Receives() int { return len(q.receives) }

// serve processes a request.
func (q *QP) serve(p infiniband.Packet) {
	psn := p.BTH().PSN()
	switch ahead := psn.From(q.expected); {
	case ahead < 0:
		q.counters.Duplicates++
		q.repeat(p)
	case ahead > 0:
		q.counters.Early++
		q.tooEarly(p, ahead)
	default:
		q.carryOut(p)
		for len(q.stash) > 0 && q.err == nil {
			kept, ok := q.stash[q.expected]
			if !ok {
				break
			}
			delete(q.stash, q.expected)
			before := q.expected
			if q.carryOut(kept); q.expected == before {
				break
			}
		}
	}
}

// tooEarly processes a request that arrived before earlier ones.
func (q *QP) tooEarly(p infiniband.Packet, ahead int) {
	if q.config.Selective && ahead < q.config.Window {
		psn := p.BTH().PSN()
		if _, twice := q.stash[psn]; !twice {
			if q.stash == nil {
				q.stash = map[infiniband.PSN]infiniband.Packet{}
			}
			q.stash[psn] = slices.Clone(p)
		}
		if !q.refusing {
			q.counters.Naks++
			q.push(answer{kind: infiniband.Acknowledge, psn: q.expected, syndrome: infiniband.NakSelective,
				msn: uint32(psn)})
		}
		return
	}
	if !q.refusing {
		q.nak(infiniband.NakSequence)
	}
}

// nak queues a NAK that says why the expected packet was not accepted.
func (q *QP) nak(why infiniband.Syndrome) {
	q.refusing = true
	if why.Kind() == infiniband.RNRNak {
		q.counters.RNRNaks++
	} else {
		q.counters.Naks++
	}
	q.push(answer{kind: infiniband.Acknowledge, psn: q.expected, syndrome: why, msn: q.msn})
}

// refuse is nak for an error that cannot be retried: the queue pair breaks.
func (q *QP) refuse(why infiniband.Syndrome, err error) {
	q.nak(why)
	q.fail(err)
}

// carryOut executes the expected packet.
func (q *QP) carryOut(p infiniband.Packet) {
	o := p.Opcode()
	if q.current.open != !o.Starts() || q.current.open && q.current.write != o.IsWrite() {
		q.refuse(infiniband.NakInvalid, sequenceError(o))
		return
	}
	switch {
	case o == infiniband.ReadRequest:
		q.read(p)
	case o.IsAtomic():
		q.atomic(p)
	case o.IsWrite():
		q.placed(p, q.written(p))
	default:
		q.placed(p, q.sent(p))
	}
}

// placed ends the processing of a packet that carried bytes.
func (q *QP) placed(p infiniband.Packet, ok bool) {
	if !ok {
		return
	}
	b := p.BTH()
	q.refusing = false
	q.counters.ReceivedBytes += uint64(len(p.Payload()))
	q.expected = q.expected.Add(1)
	if p.Opcode().Ends() {
		q.msn = (q.msn + 1) & uint32(infiniband.MaxPSN)
		q.current = message{}
	}
	if b.AckReq() {
		q.push(answer{kind: infiniband.Acknowledge, psn: b.PSN(), syndrome: infiniband.AckUnlimited,
			msn: q.msn})
	}
}

// fits reports whether a packet has as many bytes as its position in the message requires (IBTA
// 9.7.4.1.5).
func (q *QP) fits(o infiniband.Opcode, length int) bool {
	if !o.Ends() {
		return length == q.config.MTU
	}
	return length <= q.config.MTU && (o.Starts() || length > 0)
}

// sent processes a part of a SEND.
func (q *QP) sent(p infiniband.Packet) bool {
	o, payload := p.Opcode(), p.Payload()
	if o.Has(infiniband.HasIETH) || !q.fits(o, len(payload)) {
		q.refuse(infiniband.NakInvalid, lengthError(o, len(payload)))
		return false
	}
	if len(q.receives) == 0 {
		q.notReady()
		return false
	}
	r := &q.receives[0]
	m := &q.current
	if m.got+len(payload) > r.size {
		q.host.Complete(Completion{ID: r.id, Op: Receive, Err: ErrLength})
		q.receives = slices.Delete(q.receives, 0, 1)
		q.refuse(infiniband.NakInvalid, ErrLength)
		return false
	}
	scatter(r.memory, m.got, payload)
	m.open, m.got = true, m.got+len(payload)
	if o.Ends() {
		q.received(p, m.got, false)
	}
	return true
}

// received completes the oldest receive.
func (q *QP) received(p infiniband.Packet, length int, written bool) {
	c := Completion{ID: q.receives[0].id, Op: Receive, Bytes: length, Written: written}
	if h := p.ImmDt(); h != nil {
		c.Imm, c.HasImm = h.Imm(), true
	}
	q.host.Complete(c)
	q.receives = slices.Delete(q.receives, 0, 1)
}

// notReady asks the peer to try again later.
func (q *QP) notReady() { q.nak(infiniband.RNRNak | infiniband.Syndrome(q.config.RNRTimer)) }

// written processes a part of a WRITE.
func (q *QP) written(p infiniband.Packet) bool {
	o, payload := p.Opcode(), p.Payload()
	m := q.current
	if o.Starts() {
		f := p.RETH().Fields()
		m = message{open: true, write: true, left: int(f.Length), at: f.VA, rkey: f.RKey}
		if f.Length > infiniband.MaxMessage {
			q.refuse(infiniband.NakInvalid, lengthError(o, int(f.Length)))
			return false
		}
	}
	var place []byte // looked up for each packet: the region may have been closed
	if m.left > 0 {
		if place = q.memory(m.rkey, m.at+uint64(m.got), m.left, RemoteWrite); place == nil {
			q.refuse(infiniband.NakAccess, accessError(o))
			return false
		}
	}
	if !q.fits(o, len(payload)) || len(payload) > m.left || o.Ends() != (len(payload) == m.left) {
		q.refuse(infiniband.NakInvalid, lengthError(o, len(payload)))
		return false
	}
	if o.Has(infiniband.HasImmDt) && len(q.receives) == 0 {
		q.notReady()
		return false
	}
	copy(place, payload)
	m.got, m.left = m.got+len(payload), m.left-len(payload)
	q.current = m
	if o.Has(infiniband.HasImmDt) {
		q.received(p, m.got, true)
	}
	return true
}

// memory returns the memory if the peer has the wanted right to it, or nil.
func (q *QP) memory(rkey uint32, address uint64, length int, wanted Rights) []byte {
	r := q.host.Region(rkey)
	if r == nil || r.Rights&q.config.Rights&wanted == 0 {
		return nil
	}
	return r.find(address, length)
}

// read begins the answer to a READ.
func (q *QP) read(p infiniband.Packet) {
	f := p.RETH().Fields()
	why, err := q.readable(p)
	if err == nil && q.tooMany() {
		why, err = infiniband.NakInvalid, errTooMany
	}
	if err != nil {
		q.refuse(why, err)
		return
	}
	packets := packetsOf(int(f.Length), q.config.MTU)
	psn := q.expected
	q.done(repeat{first: psn, packets: packets})
	q.push(answer{kind: infiniband.ReadResponseFirst, psn: psn, msn: q.msn, at: f.VA, rkey: f.RKey,
		bytes: int(f.Length), packets: packets})
}

// readable returns the reason why a READ is refused, or nil if it is answered.
func (q *QP) readable(p infiniband.Packet) (why infiniband.Syndrome, err error) {
	f := p.RETH().Fields()
	if f.Length > infiniband.MaxMessage {
		return infiniband.NakInvalid, lengthError(p.Opcode(), int(f.Length))
	}
	if f.Length > 0 && q.memory(f.RKey, f.VA, int(f.Length), RemoteRead) == nil {
		return infiniband.NakAccess, accessError(p.Opcode())
	}
	return 0, nil
}

// reads is the number of answers with data that wait to be sent.
func (q *QP) reads() (n int) {
	for i := range q.pending {
		if q.pending[i].data() {
			n++
		}
	}
	return n
}

// tooMany reports whether a requester has more READs and atomics in flight than this end announced,
// whichever of them are repetitions.
func (q *QP) tooMany() bool { return q.reads() >= 2*q.config.RemoteReads }

var errTooMany = fmt.Errorf("too many READs at once: %w", ErrInvalid)

// done ends a request whose answer has data, and keeps it for its repetition.
func (q *QP) done(r repeat) {
	q.refusing = false
	q.expected = q.expected.Add(r.packets)
	// Early packets with the PSNs of the answer belong to no request.
	maps.DeleteFunc(q.stash, func(psn infiniband.PSN, _ infiniband.Packet) bool {
		return psn.From(q.expected) < 0
	})
	q.msn = (q.msn + 1) & uint32(infiniband.MaxPSN)
	if len(q.repeats) == q.config.RemoteReads {
		q.repeats = slices.Delete(q.repeats, 0, 1)
	}
	q.repeats = append(q.repeats, r)
}

// atomic executes an atomic operation, on memory in the host's byte order (IBTA 9.4.5 leaves the
// order to implementations; rdma_rxe and x86 have little endian).
func (q *QP) atomic(p infiniband.Packet) {
	f := p.AtomicETH().Fields()
	if f.VA%8 != 0 || q.tooMany() {
		q.refuse(infiniband.NakInvalid, fmt.Errorf("%v at %#x: %w", p.Opcode(), f.VA, ErrInvalid))
		return
	}
	memory := q.memory(f.RKey, f.VA, 8, RemoteAtomic)
	if memory == nil {
		q.refuse(infiniband.NakAccess, accessError(p.Opcode()))
		return
	}
	original := binary.NativeEndian.Uint64(memory)
	switch {
	case p.Opcode() == infiniband.FetchAdd:
		binary.NativeEndian.PutUint64(memory, original+f.SwapAdd)
	case original == f.Compare:
		binary.NativeEndian.PutUint64(memory, f.SwapAdd)
	}
	psn := q.expected
	q.done(repeat{first: psn, packets: 1, atomic: true, original: original})
	q.push(answer{kind: infiniband.AtomicAcknowledge, psn: psn, msn: q.msn, original: original})
}

// repeat answers a request that was executed already (IBTA 9.7.5.1.5, 9.7.5.1.6).
func (q *QP) repeat(p infiniband.Packet) {
	o, psn := p.Opcode(), p.BTH().PSN()
	if o != infiniband.ReadRequest && !o.IsAtomic() {
		if o.Ends() || p.BTH().AckReq() {
			q.push(answer{kind: infiniband.Acknowledge, psn: q.expected.Add(-1),
				syndrome: infiniband.AckUnlimited, msn: q.msn})
		}
		return
	}
	i := slices.IndexFunc(q.repeats, func(r repeat) bool {
		return psn.From(r.first) >= 0 && psn.From(r.first) < r.packets
	})
	if i < 0 {
		return
	}
	r := q.repeats[i]
	if r.atomic != o.IsAtomic() {
		return
	}
	if !q.config.Selective { // a repeated request implies a repetition of all that follows
		q.pending = slices.DeleteFunc(q.pending, func(a answer) bool {
			return a.kind != infiniband.CNP && a.psn.Add(max(a.packets-1, 0)).From(psn) >= 0
		})
	}
	if slices.ContainsFunc(q.pending, func(a answer) bool { return a.data() && a.psn == psn }) {
		return // its answer waits to be sent
	}
	if r.atomic {
		q.push(answer{kind: infiniband.AtomicAcknowledge, psn: psn, msn: q.msn, original: r.original})
		return
	}
	_, err := q.readable(p)
	f := p.RETH().Fields()
	packets := packetsOf(int(f.Length), q.config.MTU)
	if err != nil || psn.From(r.first)+packets > r.packets {
		return
	}
	q.push(answer{kind: infiniband.ReadResponseFirst, psn: psn, msn: q.msn, at: f.VA, rkey: f.RKey,
		bytes: int(f.Length), packets: packets})
}

func sequenceError(o infiniband.Opcode) error {
	return fmt.Errorf("%v out of place in its message: %w", o, ErrInvalid)
}

func lengthError(o infiniband.Opcode, length int) error {
	return fmt.Errorf("%v with a payload of %d bytes: %w", o, length, ErrInvalid)
}

func accessError(o infiniband.Opcode) error {
	return fmt.Errorf("%v: wrong key, range or rights: %w", o, ErrAccess)
}
