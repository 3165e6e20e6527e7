package rocechecks

import (
	"fmt"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/plural"
	"railbed/plan/spec"
)

// writes checks that the packets of a WRITE are the message that its RETH announces, and are
// segmented according to IBTA 9.7.4 to 9.7.6:
//
//   - A message that is no longer than the path MTU is one packet. A longer one begins with FIRST and
//     ends with LAST.
//   - FIRST and MIDDLE carry exactly the path MTU, which is 256 to 4,096 bytes and the same for all
//     messages of a queue pair. LAST carries at least one byte.
//   - The payloads of a WRITE together have the length in its RETH. The message is no longer than 2^31
//     bytes and does not extend past the last address.
//   - Padding is zeros.
//
// The segmentation of SENDs is judged alike, and so are READs. A READ's RETH has the same limits. A
// RETH that asks for a part again names the bytes of that part, and each packet of the answer
// carries the bytes of its place in the READ.
//
// The check judges the requests of connections, each once, where they leave the sender's NIC, and
// answers where they arrive there. It applies to messages of which every packet was seen.
type writes struct {
	follower[writeFlow]
	writes, sends, bytes      uint64
	order, size, total, extra uint64 // violations, by kind
	padding, beyond           uint64
	partial                   uint64 // messages with missing packets
	reads                     readCounts
	found                     evidence.Tally
}

// writeFlow is a message that is being sent.
type writeFlow struct {
	inside bool
	lost   bool // a packet of it was not seen
	write  bool
	length uint64 // as announced in the RETH
	va     uint64
	sum    uint64
	psn    infiniband.PSN // of its first packet

	reads []readState // not answered yet, the oldest first
}

// newWrites makes the check.
func newWrites() *writes {
	return &writes{follower: newFollower[writeFlow](atRequester)}
}

// Begin implements Check.
func (k *writes) Begin(c *evidence.Capture) { k.capture = c }

// Packet implements Check.
func (k *writes) Packet(p *evidence.Packet) {
	f, place := k.walk(p)
	if place == placeFirst { // READs of the previous life get no more answers
		k.partial += uint64(len(f.own.reads))
		starts := p.RoCE.BTH.Opcode.Starts()
		f.own = writeFlow{lost: !starts, inside: !starts}
	}
	if f != nil && p.RoCE.BTH.Opcode == infiniband.ReadRequest {
		k.asks(f, p.RoCE, place)
	}
	switch place {
	case placeNone, placeAgain, placeFilled:
		return
	case placeAnswer:
		k.answers(f, p.RoCE)
		f.acknowledge(acknowledged(p.RoCE))
		return
	case placeGap:
		if f.own.inside || !p.RoCE.BTH.Opcode.Starts() {
			f.own.lost, f.own.inside = true, true
		}
	}
	if o := p.RoCE.BTH.Opcode; o.HasPayload() {
		k.piece(f, p)
		k.pad(f, p)
	} else if f.own.inside && !f.own.lost {
		k.order++
		k.found.Exemplify("%s: PSN %d is %v within a message", f.name, p.RoCE.BTH.PSN, o)
		f.own.inside = false
	}
}

// piece adds a packet of a message.
func (k *writes) piece(f *flow[writeFlow], p *evidence.Packet) {
	r, m := p.RoCE, &f.own
	o := r.BTH.Opcode
	switch {
	case o.Starts() && m.inside && m.lost: // the end of the previous message was not seen
		k.partial++
	case o.Starts() == m.inside || m.inside && !m.lost && o.IsWrite() != m.write:
		k.order++
		k.found.Exemplify("%s: PSN %d is %v (a message was under way: %t)", f.name, r.BTH.PSN, o, m.inside)
		m.inside = !o.Ends()
		m.lost = m.inside
		return
	}
	if o.Starts() {
		*m = writeFlow{inside: true, write: o.IsWrite(), length: uint64(r.RETH.Length), va: r.RETH.VA,
			psn: r.BTH.PSN, reads: m.reads}
	}
	m.sum += uint64(r.Payload)
	k.cut(f, r)
	if !o.Ends() {
		return
	}
	k.whole(f, r)
	m.inside, m.lost = false, false
}

// cut judges the length of a single packet.
func (k *writes) cut(f *flow[writeFlow], r *evidence.RoCE) {
	o, mtu := r.BTH.Opcode, f.mtu
	if mtu == 0 {
		mtu = infiniband.MTU(5)
	}
	wrong := ""
	switch {
	case !o.Ends() && infiniband.MTUCode(r.Payload) == 0:
		wrong = "which is not a path MTU"
	case !o.Ends() && r.Payload != mtu:
		wrong = fmt.Sprintf("where others carry %d", mtu)
	case r.Payload > mtu:
		wrong = fmt.Sprintf("more than the path MTU, %d", mtu)
	case o.Ends() && !o.Starts() && r.Payload == 0:
		wrong = "want at least 1"
	default:
		return
	}
	k.size++
	k.found.Exemplify("%s: PSN %d, %v, carries %d bytes, %s", f.name, r.BTH.PSN, o, r.Payload, wrong)
}

// whole judges a message at its last packet.
func (k *writes) whole(f *flow[writeFlow], r *evidence.RoCE) {
	m := &f.own
	switch {
	case m.lost:
		k.partial++
		return
	case !m.write:
		k.sends++
		return
	}
	k.writes++
	k.bytes += m.sum
	if m.sum != m.length {
		k.total++
		k.found.Exemplify("%s: the WRITE of PSNs %d to %d carries %d bytes, its RETH says %d", f.name, m.psn,
			r.BTH.PSN, m.sum, m.length)
	}
	k.limits(f, "WRITE", m.psn, m.va, m.length)
}

// limits judges the address range in a RETH.
func (k *writes) limits(f *flow[writeFlow], what string, psn infiniband.PSN, va, length uint64) {
	if length > infiniband.MaxMessage {
		k.extra++
		k.found.Exemplify("%s: the %s of PSN %d has a RETH of %d bytes", f.name, what, psn, length)
	}
	if length > 0 && va+(length-1) < va {
		k.beyond++
		k.found.Exemplify("%s: the %s of PSN %d has a RETH of %d bytes from address %#x on", f.name, what,
			psn, length, va)
	}
}

// pad looks for padding that is not zeros.
func (k *writes) pad(f *flow[writeFlow], p *evidence.Packet) {
	r := p.RoCE
	if n := int(r.BTH.Pad); n > 0 && r.Whole {
		end := len(r.Bytes) - infiniband.ICRCLen
		for _, b := range r.Bytes[end-n : end] {
			if b != 0 {
				k.padding++
				k.found.Exemplify("%s: PSN %d is padded with other bytes than zeros", f.name, r.BTH.PSN)
				return
			}
		}
	}
}

// Result implements Check.
func (k *writes) Result() evidence.Result {
	r := evidence.Result{Name: title(spec.RoCERuleWrites)}
	unclear := k.doubts()
	k.found.Count(k.total, "WRITEs carried a different number of bytes than the RETH announced")
	k.found.Count(k.extra, "requests announced more than 2^31 bytes")
	k.found.Count(k.beyond, "requests went beyond the last address")
	k.found.Count(k.size, "packets are longer or shorter than the path MTU allows")
	k.found.Count(k.order, "packets are out of the order FIRST, MIDDLE, LAST")
	k.found.Count(k.padding, "packets have padding that is not zeros")
	for _, f := range k.ordered {
		k.partial += uint64(len(f.own.reads))
	}
	k.found.Count(k.reads.asked, "READs were repeated for bytes that the first copy had not asked for")
	k.found.Count(k.reads.size, "answers carried a different number of bytes than the part of the READ")
	f, placed := evidence.Finding{Wrong: k.found.Lines, Unclear: unclear}, evidence.Tally{}
	placed.Count(k.reads.order, "answers did not match the READ or the part of the READ")
	k.addAbsent(&f, placed.Lines...) // the request for that part may be missing
	switch {
	case len(f.Wrong) > 0:
		f.Wrong = append(f.Wrong, k.found.Examples...)
	case len(f.Absent) > 0:
		f.Absent = append(f.Absent, k.found.Examples...)
	default:
		r.Details = append(r.Details, k.found.Examples...)
	}
	if k.writes+k.sends+k.reads.whole == 0 {
		f.Unclear = append(f.Unclear, notApplicable(
			"no WRITE, SEND or READ was seen whole; %d had missing packets", k.partial))
	}
	r.Measured = map[string]float64{
		"writes": float64(k.writes), "sends": float64(k.sends), "bytes": float64(k.bytes),
		"reads": float64(k.reads.whole), "read-bytes": float64(k.reads.bytes),
		"not-applicable": float64(k.partial),
	}
	r.Summary = plural.Text(
		"%d WRITEs of %d bytes, %d SENDs and %d READs of %d bytes were seen whole, %d not",
		k.writes, k.bytes, k.sends, k.reads.whole, k.reads.bytes, k.partial)
	k.capture.Conclude(&r, k.need(), f)
	return r
}
