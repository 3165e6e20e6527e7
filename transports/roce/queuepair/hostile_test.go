package queuepair

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"railbed/internal/infiniband"
)

// rig is a queue pair whose peer is the test. It has a region in the middle of memory that must
// stay unchanged, and outstanding work of every kind.
type rig struct {
	*end
	around  []byte // the region is its middle third
	guarded []byte
	local   []byte // of requests; its first and last bytes must not change
}

const guard = 64

func newRig(t testing.TB, selective bool) *rig {
	w := newWorld(t, 5, func(c *Config) { c.Selective, c.Congestion = selective, nil })
	r := &rig{end: w.ends[0], around: bytes.Repeat([]byte{0xA5}, 1024+2*guard),
		local: bytes.Repeat([]byte{0xA5}, 1024+2*guard)}
	r.guarded = bytes.Clone(r.around)
	r.regions[1] = &Region{Base: 0x1000, Memory: r.around[guard:][:1024],
		Rights: RemoteWrite | RemoteRead | RemoteAtomic}
	r.regions[2] = &Region{Base: 0x9000, Memory: r.around[:guard]} // no rights
	for id := range 2 {
		if err := r.PostReceive(uint64(id), [][]byte{make([]byte, 600)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []Request{
		{Op: Write, Local: [][]byte{pattern(700, 1)}},
		{Op: Read, Local: [][]byte{r.local[guard:][:700]}, RKey: 3},
		{Op: FetchAdd, RKey: 3},
		{Op: Send, Local: [][]byte{pattern(10, 1)}},
	} {
		r.post(q)
	}
	r.drain()
	return r
}

// drain takes what it sends, and checks that it is packets.
func (r *rig) drain() (sent []infiniband.Packet) {
	for {
		memory := make([]byte, mtu+infiniband.MaxOverhead)
		n := r.Next(r.w.now, memory)
		if n == 0 {
			return sent
		}
		p := infiniband.Packet(memory[:n])
		if !p.Valid() || p.BTH().DestQP() != r.config.Remote {
			r.w.Fatalf("sent %x", []byte(p))
		}
		if sent = append(sent, p); len(sent) > 10_000 {
			r.w.Fatal("it sends without end")
		}
	}
}

// check is that nothing was touched that the peer has no right to, and that nothing
// grew.
func (r *rig) check(t testing.TB) {
	t.Helper()
	if !bytes.Equal(r.around[:guard], r.guarded[:guard]) ||
		!bytes.Equal(r.around[guard+1024:], r.guarded[:guard]) {
		t.Fatal("bytes around the region were written")
	}
	if !bytes.Equal(r.local[:guard], r.guarded[:guard]) ||
		!bytes.Equal(r.local[guard+700:], r.guarded[:guard+1024-700]) {
		t.Fatal("bytes around a READ's memory were written")
	}
	if len(r.stash) > r.config.Window || len(r.repeats) > r.config.RemoteReads ||
		len(r.pending) > r.pendingBound() {
		t.Fatalf("%d packets kept, %d repeats, %d answers", len(r.stash), len(r.repeats), len(r.pending))
	}
	if len(r.selected)+len(r.kept) > 2*r.QP.requester.end.From(r.una) {
		t.Fatalf("%d requests and %d answers are noted", len(r.selected), len(r.kept))
	}
}

// FuzzReceive: whatever packets come, with numbers near those that are expected,
// nothing is written outside what the peer may write, nothing grows, nothing
// panics. The input is a series of packets: opcode, where its PSN is, a field, and
// how many bytes follow.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{6, 0, 0, 255, 7, 1, 0, 255, 8, 2, 0, 9})
	f.Add([]byte{0x0c, 0, 3, 0, 0x0c, 0, 3, 0, 0x14, 1, 8, 0, 0x13, 0, 8, 0})
	f.Add([]byte{0x11, 3, 0x1f, 0, 0x11, 4, 0x60, 0, 0x11, 2, 0x7f, 9, 0x12, 9, 0, 0})
	f.Add([]byte{0x0d, 3, 0, 255, 0x0e, 4, 0, 255, 0x0f, 5, 0, 188, 0x81, 0, 0, 0})
	f.Add([]byte{4, 0, 0, 0, 5, 1, 0, 40, 0x0b, 2, 0, 1, 0x0a, 9, 0, 1, 0x0a, 5, 1, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 1000 {
			return
		}
		for _, selective := range []bool{false, true} {
			r := newRig(t, selective)
			requests, answers := r.config.ReceivePSN, r.config.SendPSN
			for input := input; len(input) >= 4; input = input[4:] {
				o := infiniband.Opcode(input[0])
				if !o.Known() {
					continue
				}
				n := 0
				if o.HasPayload() {
					n = int(input[3]) + int(input[2]&1)
				}
				psn := requests
				if o.Response() {
					psn = answers
				}
				field := uint64(int8(input[2])) * 8
				p := infiniband.Packet(make([]byte, infiniband.Len(o, n)))
				p.Encode(&infiniband.Fields{
					BTH: infiniband.BTHFields{Opcode: o, PKey: infiniband.PKey, DestQP: r.config.Number,
						PSN: psn.Add(int(int8(input[1]))), AckReq: input[2]&2 != 0},
					RETH: infiniband.RETHFields{VA: 0x1000 + field, RKey: 1 + uint32(input[2]>>6&1),
						Length: uint32(input[3]) * 5},
					AtomicETH: infiniband.AtomicETHFields{VA: 0x1000 + field, RKey: 1, SwapAdd: 1},
					AETH: infiniband.AETHFields{Syndrome: infiniband.Syndrome(input[2]),
						MSN: uint32(answers.Add(int(input[3])))},
				}, n)
				r.w.now = r.w.now.Add(time.Duration(input[3]) * time.Microsecond)
				r.Receive(r.w.now, p, input[2]&4 != 0)
				if input[1]&0x40 == 0 {
					r.drain()
				}
				r.Expire(r.w.now)
				r.check(t)
			}
			r.drain()
			r.check(t)
		}
	})
}

// TestEarlyWithinARead: early packets are dropped if a READ takes their PSNs later. No correct peer
// sends such packets. A hostile one could send so many that memory is exhausted, or have one
// executed when PSNs have wrapped around.
func TestEarlyWithinARead(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Selective = true })
	for at := 0; at < 4*100; at += 4 {
		for i := 1; i < 4; i++ {
			s.give(part{opcode: infiniband.WriteOnly, bytes: 4, message: 4, ahead: at + i})
		}
		if s.give(part{opcode: infiniband.ReadRequest, message: 4 * mtu, ahead: at}); s.Err() != nil {
			t.Fatal(s.Err())
		}
	}
	if len(s.stash) != 0 || !bytes.Equal(s.region.Memory, make([]byte, 4*mtu)) {
		t.Errorf("%d packets are kept, memory begins with %x", len(s.stash), s.region.Memory[:4])
	}
}

// TestForgedPackets: packets with any bytes behind a header that is right do no
// more harm than the fuzzer's.
func TestForgedPackets(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t, seed)
		r := newRig(t, seed%2 == 1)
		for range 100 {
			p := make(infiniband.Packet, (16+w.random.IntN(mtu+60))&^3)
			for i := range p {
				p[i] = byte(w.random.Uint32())
			}
			p[0], p[1] = byte(w.random.IntN(0x18)), 0
			binary.BigEndian.PutUint32(p[8:], uint32(r.config.ReceivePSN.Add(w.random.IntN(8)-4)))
			if w.random.IntN(2) == 0 {
				binary.BigEndian.PutUint32(p[8:], uint32(r.config.SendPSN.Add(w.random.IntN(8))))
			}
			if p.Valid() {
				r.Receive(r.w.now, p, false)
				r.drain()
				r.check(t)
			}
		}
	}
}
