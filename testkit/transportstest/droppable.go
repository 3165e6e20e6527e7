package transportstest

import (
	"bytes"

	"railbed/transports"
)

// holesLocked draws the holes of a message, at most as many bytes as it allows, and returns how
// many bytes they have.
func (f *Fabric) holesLocked(r *transports.Request) (holes []transports.Hole, missing int) {
	size, most := r.Size(), r.Droppable
	if f.flaws.dropMore {
		most *= 2
	}
	if f.flaws.dropAnything {
		most = max(most, size/10)
	}
	for at := 0; at < size && most > 0; {
		at += f.random.IntN(size) / 4
		n := min(1+f.random.IntN(size)/8, most-missing, size-at)
		if n <= 0 {
			break
		}
		holes, missing = append(holes, transports.Hole{Offset: at, Bytes: n}), missing+n
		at += n + 1
	}
	return holes, missing
}

// placeAround places a message except for its holes.
func placeAround(holes []transports.Hole, place func([]byte), memory []byte) {
	before := bytes.Clone(memory)
	place(memory)
	for _, h := range holes {
		copy(memory[h.Offset:], before[h.Offset:][:h.Bytes])
	}
}

// testDroppable sends messages that may have holes. Bytes reported as missing must not be placed,
// all others must be, and no more than the allowed bytes may be missing.
func testDroppable(r *rig) {
	a, b, ab, _ := r.pair()
	const count, size = 100, 30_000
	target := b.area(count * size)
	allowed := func(i int) int { return []int{0, 1, 700, size / 10, size}[i%5] }
	for i := range count {
		local := make([]byte, size)
		fill(local, i)
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Local: local,
			Droppable: allowed(i),
			Remote:    target.remote, Offset: uint64(i * size), Imm: uint32(i)})
	}
	r.until("messages with holes", func() bool { return len(b.received) >= count && len(a.sent) >= count })
	r.quiet()
	counted := make([]int, count)
	for _, c := range a.sent {
		counted[c.ID] = c.Missing
		if c.Err != nil || c.Bytes+c.Missing != size || c.Missing > allowed(int(c.ID)) {
			r.Errorf("request %d: %+v, want at most %d bytes missing", c.ID, c, allowed(int(c.ID)))
		}
	}
	for _, c := range b.received {
		message, at, missing := int(c.Imm), 0, 0
		if c.Bytes+c.Missing != size || c.Missing > counted[message] {
			r.Errorf("message %d: received %+v, but its sender counted %d bytes as missing", message, c,
				counted[message])
		}
		for _, h := range c.Holes {
			if h.Offset < at || h.Bytes <= 0 || h.Offset+h.Bytes > size {
				r.Fatalf("message %d has holes %v", message, c.Holes)
			}
			r.holdsFrom(target.buf[message*size:][:h.Offset], message, at)
			target.untouched(message*size+h.Offset, message*size+h.Offset+h.Bytes)
			at, missing = h.Offset+h.Bytes, missing+h.Bytes
		}
		r.holdsFrom(target.buf[message*size:][:size], message, at)
		if missing != c.Missing {
			r.Errorf("message %d has holes of %d bytes, but misses %d bytes", message, missing, c.Missing)
		}
	}
}

// holdsFrom checks that buf holds a message from a byte on.
func (r *rig) holdsFrom(buf []byte, message, from int) {
	r.Helper()
	for i := from; i < len(buf); i++ {
		if buf[i] != pattern(message, i) {
			r.Fatalf("message %d: byte %d is %#x, want %#x", message, i, buf[i], pattern(message, i))
		}
	}
}
