package transportstest

import (
	"bytes"
	"context"
	"time"

	"railbed/transports"
)

func testAddresses(r *rig) {
	a, b := r.open(), r.open()
	if bytes.Equal(a.Address(), b.Address()) {
		r.Fatalf("two endpoints have the address %x", a.Address())
	}
	if len(a.Address()) > 128 {
		r.Errorf("address of %d bytes, limit 128", len(a.Address()))
	}
	if first, again := a.add(b), a.add(b); first != again {
		r.Errorf("the same address added twice is peer %d and peer %d", first, again)
	}
	address := b.Address()
	for _, bad := range [][]byte{nil, {}, {0}, address[:len(address)-1], append(bytes.Clone(address), 0),
		make([]byte, 4096)} {
		if peer, err := a.AddPeer(bad); err == nil {
			r.Errorf("invalid address %x was accepted as peer %d", bad, peer)
		}
	}
	for _, size := range []int{0} {
		if _, err := a.Register(make([]byte, size), transports.RemoteWrite); err == nil {
			r.Errorf("a region of %d bytes was registered, want an error", size)
		}
	}
	one, two := a.area(64), a.area(64)
	if bytes.Equal(one.remote, two.remote) {
		r.Errorf("two regions have the handle %x", one.remote)
	}
}

func testPlacement(r *rig) {
	a, b, ab, _ := r.pair()
	const size = 300_000
	for i, at := range []struct{ offset, length int }{
		{0, 1}, {1, 1}, {size - 1, 1}, {0, size}, {0, 4096}, {4095, 4098}, {65_535, 131_073},
		{size - 8193, 8193}, {7, 20_001},
	} {
		target := b.area(size)
		local := make([]byte, at.length)
		fill(local, i)
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Local: local,
			Remote: target.remote, Offset: uint64(at.offset), Imm: uint32(i)})
		r.until("a placed message", func() bool { return len(b.received) == i+1 && len(a.sent) == i+1 })
		if c := b.received[i]; c.Imm != uint32(i) || c.Bytes != at.length || c.ID != 0 || c.Err != nil {
			r.Fatalf("received %+v, want immediate %d with %d bytes", c, i, at.length)
		}
		if c := a.sent[i]; c.Op != transports.OpWriteImm || c.Peer != ab || c.Bytes != at.length {
			r.Fatalf("completed %+v, want WRITE_IMM to %d of %d bytes", c, ab, at.length)
		}
		r.holds(target.buf[at.offset:][:at.length], i)
		target.untouched(0, at.offset)
		target.untouched(at.offset+at.length, size)
	}
	a.succeeded(9)
	r.quiet()
}

func testWriteIsSilent(r *rig) {
	a, b, ab, _ := r.pair()
	const count, size = 50, 10_000
	target := b.area(count * size)
	for i := range count {
		local := make([]byte, size)
		fill(local, i)
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWrite, Peer: ab, Local: local,
			Remote: target.remote, Offset: uint64(i * size), Imm: 99})
	}
	r.until("completions of all writes", func() bool { return len(a.sent) >= count })
	a.succeeded(count)
	for i := range count {
		r.holds(target.buf[i*size:][:size], i)
	}
	r.quiet()
	if len(b.received) != 0 {
		r.Errorf("the receiver has a completion for a WRITE: %+v", b.received[0])
	}
	target.untouched(0, 0)
}

func testEmptyMessages(r *rig) {
	a, b, ab, ba := r.pair()
	imms := []uint32{0, 1, 0x80000000, 0xffffffff}
	for i, imm := range imms {
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Imm: imm,
			Offset: 1 << 60})
	}
	a.post(transports.Request{ID: uint64(len(imms)), Op: transports.OpWrite, Peer: ab})
	r.until("empty messages", func() bool { return len(b.received) >= len(imms) && len(a.sent) > len(imms) })
	a.succeeded(len(imms) + 1)
	seen := make(map[uint32]bool)
	for _, c := range b.received {
		if c.Bytes != 0 || c.Peer != ba {
			r.Errorf("received %+v, want 0 bytes from peer %d", c, ba)
		}
		seen[c.Imm] = true
	}
	for _, imm := range imms {
		if !seen[imm] {
			r.Errorf("immediate %#x was not delivered", imm)
		}
	}
	r.quiet()
}

// testImmediateAfterBytes checks a message's memory at the moment its immediate arrives, a few
// hundred times, beginning with its last byte.
func testImmediateAfterBytes(r *rig) {
	a, b, ab, _ := r.pair()
	const rounds, size = 200, 50_000
	target := b.area(size)
	local := make([]byte, size)
	for i := range rounds {
		fill(local, i)
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Local: local,
			Remote: target.remote, Imm: uint32(i)})
		r.until("an immediate", func() bool { return b.poll() || len(b.received) > i })
		if target.buf[size-1] != pattern(i, size-1) {
			r.Fatalf("message %d: its immediate came before its last byte", i)
		}
		r.holds(target.buf, i)
		r.until("the completion", func() bool { return len(a.sent) > i })
	}
	a.succeeded(rounds)
	r.quiet()
}

// testCompletionAfterBytes checks the receiver's memory at the moment of the sender's completion.
func testCompletionAfterBytes(r *rig) {
	a, b, ab, _ := r.pair()
	const rounds, size = 200, 50_000
	target := b.area(size)
	local := make([]byte, size)
	for i := range rounds {
		fill(local, i)
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWrite, Peer: ab, Local: local,
			Remote: target.remote})
		r.until("a completion", func() bool { return a.poll() || len(a.sent) > i })
		if target.buf[size-1] != pattern(i, size-1) {
			r.Fatalf("message %d: its completion came before its last byte was placed", i)
		}
		r.holds(target.buf, i)
	}
	a.succeeded(rounds)
	r.quiet()
}

// testBufferOwnership reuses one buffer, and the handle's bytes, as soon as the contract allows.
func testBufferOwnership(r *rig) {
	a, b, ab, _ := r.pair()
	const rounds, size = 200, 20_000
	target := b.area(rounds * size)
	local := make([]byte, size)
	for i := range rounds {
		fill(local, i)
		handle := bytes.Clone(target.remote)
		a.post(transports.Request{ID: uint64(i), Op: transports.OpWrite, Peer: ab, Local: local,
			Remote: handle, Offset: uint64(i * size)})
		clear(handle)
		r.until("a completion", func() bool { return len(a.sent) > i })
		clear(local)
	}
	a.succeeded(rounds)
	for i := range rounds {
		r.holds(target.buf[i*size:][:size], i)
	}
	r.quiet()
}

func testManyOutstanding(r *rig) {
	a, b, ab, ba := r.pair()
	const count, size = 5000, 100
	target := b.area(count * size)
	locals := make([]byte, count*size)
	requests := make([]transports.Request, count)
	for i := range requests {
		local := locals[i*size:][:i%(size+1)]
		fill(local, i)
		requests[i] = transports.Request{ID: uint64(i), Op: transports.OpWriteImm, Peer: ab, Local: local,
			Remote: target.remote, Offset: uint64(i * size), Imm: uint32(i)}
	}
	a.post(requests...)
	r.until("all messages", func() bool { return len(a.sent) >= count && len(b.received) >= count })
	r.quiet()
	a.succeeded(count)
	seen := make([]bool, count)
	for _, c := range b.received {
		if c.Imm >= count || seen[c.Imm] || c.Bytes != int(c.Imm)%(size+1) || c.Peer != ba {
			r.Fatalf("immediate delivered twice, never sent, or with wrong fields: %+v", c)
		}
		seen[c.Imm] = true
	}
	for i := range requests {
		n := i % (size + 1)
		r.holds(target.buf[i*size:][:n], i)
		target.untouched(i*size+n, (i+1)*size)
	}
}

// testBackPressure does not poll the receiver. The sender must be held back in bounded memory, and
// no message may be lost once the receiver polls.
func testBackPressure(r *rig) {
	a, b, ab, _ := r.pair()
	const most = 1 << 17
	b.deaf = true
	posted := 0
	batch := make([]transports.Request, 64)
	// A sender that is refused for this long is held back rather than slow.
	for refused := time.Now(); time.Since(refused) < 200*time.Millisecond; {
		for i := range batch {
			batch[i] = transports.Request{ID: uint64(posted + i), Op: transports.OpWriteImm, Peer: ab,
				Imm: uint32(posted + i)}
		}
		n, err := a.Post(context.Background(), batch)
		if err != nil {
			r.Fatalf("post to a peer that does not poll: %v", err)
		}
		posted += n
		if n > 0 {
			refused = time.Now()
		}
		if posted > most {
			r.Fatalf("endpoint accepted %d requests for a peer that does not poll, want at most %d", posted,
				most)
		}
		r.pollAll()
		if n == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	b.deaf = false
	r.until("everything that was posted", func() bool {
		return len(b.received) >= posted && len(a.sent) >= posted
	})
	a.succeeded(posted)
	r.quiet()
}

func testLargeMessage(r *rig) {
	a, b, ab, _ := r.pair()
	const size = 9<<20 + 5
	target := b.area(size)
	local := make([]byte, size)
	fill(local, 3)
	a.post(transports.Request{Op: transports.OpWriteImm, Peer: ab, Local: local, Remote: target.remote,
		Imm: 3})
	r.until("a large message", func() bool { return len(b.received) == 1 && len(a.sent) == 1 })
	a.succeeded(1)
	r.holds(target.buf, 3)
	target.untouched(0, 0)
	r.quiet()
}
