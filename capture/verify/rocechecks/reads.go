package rocechecks

import (
	"slices"

	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
)

// readCounts has the findings of writes about READs.
type readCounts struct {
	whole, bytes uint64
	asked        uint64 // asked for again with other bytes
	order        uint64 // answers whose opcode does not match their place
	size         uint64 // answers whose length does not match their place
}

const (
	// maxReads is the largest number of a flow's READs that wait for their answers. rdma_rxe
	// and NICs allow 16 to 128. Beyond the limit the oldest is given up.
	maxReads = 256
	// maxParts is how often parts of a READ may be asked for again. Up to this limit, all
	// opcodes that the READ's answers may have are known.
	maxParts = 64
)

// readState is a READ whose answer has not arrived.
type readState struct {
	first  infiniband.PSN
	va     uint64
	rkey   uint32
	length uint32
	came   []uint64 // a bit for each part of the answer seen so far
	left   int      // parts not seen yet, 0 before their number is known
	parts  []readPart
}

// readPart is a range of a READ that was asked for, in parts of the answer: from the first part to
// one past the last.
type readPart struct{ from, to int }

// size returns the bytes of a part of the answer. Each part but the last has mtu bytes.
func (r *readState) size(part, mtu int) int { return min(int(r.length)-part*mtu, mtu) }

// asks adds a READ request.
func (k *writes) asks(f *flow[writeFlow], r *evidence.RoCE, place place) {
	m := &f.own
	if place != placeAgain {
		if len(m.reads) >= maxReads {
			m.reads = slices.Delete(m.reads, 0, 1)
			k.partial++
		}
		m.reads = append(m.reads, readState{first: r.BTH.PSN, va: r.RETH.VA, rkey: r.RETH.RKey,
			length: r.RETH.Length})
		k.limits(f, "READ", r.BTH.PSN, r.RETH.VA, uint64(r.RETH.Length))
		return
	}
	one, part := m.read(r.BTH.PSN, f.mtu)
	if one == nil { // the READ is over, or of another life
		return
	}
	if f.mtu == 0 { // the bounds of its parts are not known
		one.parts = slices.Grow(one.parts, maxParts+1)[:maxParts+1]
		return
	}
	at := part * f.mtu
	if r.RETH.RKey != one.rkey || r.RETH.VA != one.va+uint64(at) || at > int(one.length) ||
		int(r.RETH.Length) > int(one.length)-at {
		k.reads.asked++
		k.found.Exemplify("%s: the READ of PSN %d asks for %d bytes at %#x, which are outside those at "+
			"%#x that it asked for before", f.name, r.BTH.PSN, r.RETH.Length, r.RETH.VA, one.va)
		return
	}
	if len(one.parts) <= maxParts {
		one.parts = append(one.parts, readPart{part, part + readPSNs(r.RETH.Length, f.mtu)})
	}
}

// read returns the READ to which a PSN belongs, or nil for none, and the part of its answer that
// has the PSN.
func (m *writeFlow) read(psn infiniband.PSN, mtu int) (one *readState, part int) {
	for i := len(m.reads) - 1; i >= 0; i-- {
		one = &m.reads[i]
		psns := readPSNs(one.length, max(mtu, infiniband.MTU(1)))
		if part = psn.From(one.first); part >= 0 && part < psns {
			return one, part
		}
	}
	return nil, 0
}

// answers adds an answer. Only answers to READs are judged.
func (k *writes) answers(f *flow[writeFlow], r *evidence.RoCE) {
	o := r.BTH.Opcode
	if !o.IsRead() {
		return
	}
	one, part := f.own.read(r.BTH.PSN, f.mtu)
	if f.vague {
		return
	}
	if one == nil {
		if s := f.at(r.BTH.PSN); s != nil && s.seen && s.opcode.Operation() != infiniband.ReadRequest {
			k.reads.order++
			k.found.Exemplify("%s: %v of PSN %d answers %v", f.name, o, r.BTH.PSN, s.opcode)
		}
		return
	}
	if !o.Ends() && infiniband.MTUCode(r.Payload) == 0 {
		k.reads.size++
		k.found.Exemplify("%s: %v of PSN %d carries %d bytes, which is not a path MTU", f.name, o, r.BTH.PSN,
			r.Payload)
		return
	}
	mtu := f.mtu
	if mtu == 0 && (part > 0 || !o.Ends()) { // it ends a READ whose other parts were lost
		return
	}
	if mtu == 0 { // a READ of one part, of any length
		mtu = infiniband.MTU(5)
	}
	psns := readPSNs(one.length, mtu)
	if want := one.size(part, mtu); r.Payload != want {
		k.reads.size++
		k.found.Exemplify("%s: %v of PSN %d carries %d bytes, and the READ of PSN %d has %d there", f.name, o,
			r.BTH.PSN, r.Payload, one.first, want)
	} else if !one.begins(o, part, psns) {
		k.reads.order++
		k.found.Exemplify("%s: %v of PSN %d is part %d of %d of the READ of PSN %d, want another opcode",
			f.name, o, r.BTH.PSN,
			part+1, psns, one.first)
	}
	k.complete(f, one, part, psns)
}

// begins reports whether a part of the answer may have an opcode. The answer to a repeated request
// begins and ends anew.
func (r *readState) begins(o infiniband.Opcode, part, psns int) bool {
	fits := func(p readPart) bool {
		return part >= p.from && part < p.to && o.Starts() == (part == p.from) && o.Ends() == (part == p.to-1)
	}
	return len(r.parts) > maxParts || fits(readPart{0, psns}) || slices.ContainsFunc(r.parts, fits)
}

// complete records a part of an answer, and forgets the READ after its last part.
func (k *writes) complete(f *flow[writeFlow], one *readState, part, psns int) {
	if psns > maxSent {
		return
	}
	if one.came == nil {
		one.came, one.left = make([]uint64, (psns+63)/64), psns
	}
	if word, bit := &one.came[part/64], uint64(1)<<(part%64); *word&bit == 0 {
		*word |= bit
		one.left--
	}
	if one.left == 0 {
		k.reads.whole++
		k.reads.bytes += uint64(one.length)
		i := slices.IndexFunc(f.own.reads, func(r readState) bool { return r.first == one.first })
		f.own.reads = slices.Delete(f.own.reads, i, i+1)
	}
}
