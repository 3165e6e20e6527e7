package engine

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
)

// TestReplayWritesNothing holds that all packets of a run, doubled and come again
// later in another order, write nothing and deliver nothing.
func TestReplayWritesNothing(t *testing.T) {
	w := newWorld(t, 1)
	w.net = conditions{delay: 10 * time.Microsecond, jitter: 50 * time.Microsecond, loss: 0.05, trim: 0.05,
		twice: 0.5}
	a, b := w.pair()
	var past []wire.RD
	var at []*testNode
	w.saw = func(_, to *testNode, p wire.RD) { past, at = append(past, bytes.Clone(p)), append(at, to) }
	region, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 8, 3)
	w.runFor(time.Minute)
	if len(b.received) != 8 || len(a.completed) != 8 {
		t.Fatalf("%d received, %d completed", len(b.received), len(a.completed))
	}
	for i := range region.Memory {
		region.Memory[i] = 0xAA
	}
	written := b.Counters().Received
	w.random.Shuffle(len(past), func(i, j int) {
		past[i], past[j], at[i], at[j] = past[j], past[i], at[j], at[i]
	})
	for i, p := range past {
		w.deliver(at[i], Arrival{Data: p, Path: wire.PortRDPath, From: a.addr},
			time.Duration(i)*time.Microsecond)
	}
	w.saw = nil
	w.runFor(time.Minute)
	if len(bytes.Trim(region.Memory, "\xAA")) != 0 || b.Counters().Received != written ||
		len(b.received) != 8 || len(a.completed) != 8 || len(a.failed)+len(b.failed) != 0 {
		t.Errorf("%d packets placed again, %d received, failed %v %v", b.Counters().Received-written,
			len(b.received), a.failed, b.failed)
	}
}

// TestImmediateAfterBytes holds that the immediate comes with the last byte, the
// completion after it, and that messages do not wait for each other.
func TestImmediateAfterBytes(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	region, key := b.region(4 * 512)
	const late = 3 * time.Microsecond // less than takes it for lost
	var placed, seen, told clock.Time
	w.watch(a, func(at uint32, _ int) fate {
		if at == 1 { // the second packet of the first message
			placed = w.now.Add(w.net.delay + late)
			return fate{delay: late}
		}
		return fate{}
	})
	b.onReceive = func(c transports.Completion) {
		if c.Imm == 1 {
			seen = w.now
			if !bytes.Equal(region.Memory[:1536], fill(make([]byte, 1536), 1)) {
				t.Error("the immediate came before the bytes")
			}
		}
	}
	a.onDone = func(c transports.Completion) {
		if c.ID == 1 {
			told = w.now
		}
	}
	a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: fill(make([]byte, 1536), 1), Key: key, Imm: 1})
	a.post(0, Message{ID: 2, Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key, Offset: 1536,
		Imm: 2})
	w.runFor(time.Second)
	if seen != placed || told <= seen || len(b.received) != 2 || b.received[0].Imm != 2 {
		t.Errorf("placed at %v, delivered at %v, completed at %v: %+v", placed, seen, told, b.received)
	}
}

// TestNoRoomForImmediates checks a receiver whose owner does not poll immediates. It loses nothing
// and does not fail. Messages without immediates pass, within the window. The test also checks how
// soon it continues.
func TestNoRoomForImmediates(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	region, key := b.region(1 << 20)
	b.full = true
	for i := range 10 {
		a.post(0, Message{ID: uint64(i), Op: transports.OpWriteImm, Local: fill(make([]byte, 1500), i),
			Key: key, Offset: uint64(i * 1500)})
	}
	w.runFor(time.Second)
	large := fill(make([]byte, (Window-100)*512), 99)
	a.post(0, Message{ID: 99, Op: transports.OpWrite, Local: large, Key: key, Offset: 100_000})
	w.runFor(time.Millisecond * 100)
	if len(a.completed) != 1 || a.completed[0].ID != 99 ||
		!bytes.Equal(region.Memory[100_000:][:len(large)], large) {
		t.Errorf("completed %+v", a.completed)
	}
	w.runFor(10 * defaultPeerTimeout)
	if len(a.failed) != 0 || len(b.received) != 0 {
		t.Fatalf("failed %v, %d received", a.failed, len(b.received))
	}
	b.full = false
	w.runFor(mostBusy + 2*w.net.delay + ackDelay)
	if len(b.received) != 10 || len(a.completed) != 11 ||
		!bytes.Equal(region.Memory[1500:3000], fill(make([]byte, 1500), 1)) {
		t.Errorf("%d received, %d completed", len(b.received), len(a.completed))
	}
}

// TestRefused holds that a message which points where it may not lands nowhere
// and says why, and that all others go on.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *testNode, r *Region, m *Message)
		middle bool // after some bytes came
		reason string
	}{
		"no such key": {change: func(_ *testNode, _ *Region, m *Message) { m.Key++ },
			reason: "no such region"},
		"not writable": {change: func(_ *testNode, r *Region, _ *Message) {
			r.Writable = false
		}, reason: "is not writable"},
		"one byte too long": {change: func(_ *testNode, _ *Region, m *Message) { m.Offset = 1 },
			reason: "has 51200 bytes, and the message begins at byte 1"},
		"far behind": {change: func(_ *testNode, _ *Region, m *Message) {
			m.Offset = 1 << 40
		}, reason: "has 51200 bytes"},
		"wraps around": {change: func(_ *testNode, _ *Region, m *Message) {
			m.Offset = 1<<64 - 1
		}, reason: "has 51200 bytes"},
		"closed": {change: func(_ *testNode, r *Region, _ *Message) {
			r.Closed.Store(true)
		}, reason: "no such region"},
		"closed in the middle": {change: func(_ *testNode, r *Region, _ *Message) {
			r.Closed.Store(true)
		}, middle: true, reason: "no such region"},
	} {
		for seed := range uint64(20) {
			w := newWorld(t, seed)
			w.net.jitter = 20 * time.Microsecond
			if seed > 0 {
				w.net.loss = 0.1
			}
			a, b := w.pair()
			bad, badKey := b.region(51_200)
			good, goodKey := b.region(51_200)
			m := Message{ID: 1, Op: transports.OpWriteImm, Local: fill(make([]byte, 51_200), 1), Key: badKey,
				Imm: 1}
			if !c.middle {
				c.change(b, bad, &m)
			}
			a.post(0, Message{ID: 2, Op: transports.OpWriteImm, Local: fill(make([]byte, 25_000), 2),
				Key: goodKey, Imm: 2})
			a.post(0, m)
			a.post(0, Message{ID: 3, Op: transports.OpWriteImm, Local: fill(make([]byte, 26_200), 3),
				Key: goodKey, Offset: 25_000, Imm: 3})
			if c.middle {
				for range 1000 {
					if w.runFor(time.Microsecond); bad.Memory[1000] != 0 || bad.Memory[45_000] != 0 {
						break
					}
				}
				c.change(b, bad, &m)
			}
			memory := bytes.Clone(bad.Memory)
			w.runFor(5 * time.Second)
			a.post(0, Message{ID: 4, Op: transports.OpWriteImm, Local: []byte{1}, Key: goodKey, Imm: 4})
			w.runFor(5 * time.Second)
			var refused error
			for _, c := range a.completed {
				if c.ID == 1 {
					refused = c.Err
				} else if c.Err != nil {
					t.Errorf("%s, seed %d: %+v", name, seed, c)
				}
			}
			if !errors.Is(refused, transports.ErrAccess) ||
				!bytes.Contains([]byte(refused.Error()), []byte(c.reason)) || len(a.completed) != 4 ||
				len(b.received) != 3 || len(a.failed) != 0 {
				t.Errorf("%s, seed %d: %v; %d completed, %d received, failed %v", name, seed, refused,
					len(a.completed), len(b.received), a.failed)
			}
			if good.Memory[0] = good.Memory[8]; !bytes.Equal(bad.Memory, memory) ||
				!bytes.Equal(good.Memory[25_000:], fill(make([]byte, 26_200), 3)) {
				t.Errorf("%s, seed %d: wrong bytes", name, seed)
			}
			w.checkGuards()
			if a.state() != "" || b.peers[0].in[0].message != firstMessage(a.life)+4 {
				t.Errorf("%s, seed %d: not over: %s", name, seed, a.state())
			}
		}
	}
}

// TestDroppable holds that lost bytes of a message that may have holes are not
// sent again, and that the receiver knows how many are missing.
func TestDroppable(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed)
		w.net.trim = 0.2 // trimmed ones are lost for certain, late ones are not
		a, b := w.pair()
		lost, arrived := 0, 0
		w.fate = func(from, _ *testNode, p wire.RD, _ int) fate {
			f := w.chances()
			if p.Type() == wire.RDData {
				if f.lost = w.chance(0.1); f.lost || f.trim {
					lost += p.Length()
				} else {
					arrived += p.Length()
				}
			}
			return f
		}
		region, key := b.region(100_000)
		a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: bytes.Repeat([]byte{1}, 100_000), Key: key,
			Droppable: 100_000})
		w.runFor(time.Second)
		if len(b.received) != 1 || len(a.completed) != 1 || a.Counters().Repeated != 0 {
			t.Fatalf("seed %d: received %+v, completed %+v, %d repeated", seed, b.received, a.completed,
				a.Counters().Repeated)
		}
		r, c := b.received[0], a.completed[0]
		if placed := bytes.Count(region.Memory, []byte{1}); lost == 0 || r.Missing != lost ||
			r.Bytes != arrived || placed != arrived || c.Bytes != r.Bytes || c.Missing != r.Missing {
			t.Errorf("seed %d: lost %d, arrived %d, placed %d; received %+v, completed %+v", seed, lost,
				arrived, placed, r, c)
		}
		checkHoles(t, region.Memory, r)
	}
}

// checkHoles holds that a message of ones that was written over zeros has its
// holes where it says, in order, and no others.
func checkHoles(t *testing.T, memory []byte, c transports.Completion) {
	t.Helper()
	at, sum := 0, 0
	for _, h := range append(slices.Clone(c.Holes), transports.Hole{Offset: len(memory)}) {
		if h.Offset < at || at > 0 && h.Offset == at && h.Bytes > 0 ||
			len(bytes.Trim(memory[at:h.Offset], "\x01")) > 0 ||
			len(bytes.Trim(memory[h.Offset:end(h)], "\x00")) > 0 {
			t.Fatalf("the bytes are others than holes %v say at %d", c.Holes, at)
		}
		at = end(h)
		sum += h.Bytes
	}
	if sum != c.Missing {
		t.Errorf("holes of %d bytes, %d are missing", sum, c.Missing)
	}
}

// TestDroppableBound holds that no more is given up than the sender allows, and
// the rest is sent again.
func TestDroppableBound(t *testing.T) {
	for seed := range uint64(50) {
		w := newWorld(t, seed)
		w.net = conditions{delay: 10 * time.Microsecond, loss: 0.1, jitter: 10 * time.Microsecond}
		a, b := w.pair()
		region, key := b.region(100_000)
		const bound = 2000 // of some 10,000 that are lost at first, not a multiple of a packet
		a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: bytes.Repeat([]byte{1}, 100_000), Key: key,
			Droppable: bound})
		w.runFor(time.Second)
		if len(b.received) != 1 || len(a.completed) != 1 || a.Counters().Repeated == 0 {
			t.Fatalf("seed %d: received %+v, completed %+v, %d repeated", seed, b.received, a.completed,
				a.Counters().Repeated)
		}
		if r, c := b.received[0], a.completed[0]; r.Missing == 0 || r.Missing > c.Missing ||
			c.Missing > bound || c.Missing < bound-512+1 {
			t.Errorf("seed %d: received %+v, completed %+v", seed, r, c)
		}
		checkHoles(t, region.Memory, b.received[0])
	}
}

// TestAddHole compares holes with marks on all bytes.
func TestAddHole(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t, seed)
		var holes []transports.Hole
		memory := bytes.Repeat([]byte{1}, 20_000)
		missing, separate, most := 0, 0, 0
		for _, i := range w.random.Perm(2000)[:w.random.IntN(2000)] {
			clear(memory[i*10:][:10])
			if separate++; i > 0 && memory[i*10-1] == 0 {
				separate--
			}
			if i < 1999 && memory[i*10+10] == 0 {
				separate--
			}
			most = max(most, separate)
			missing += 10
			holes = addHole(holes, transports.Hole{Offset: i * 10, Bytes: 10})
		}
		switch {
		case len(holes) > transports.MaxHoles:
			t.Fatalf("%d holes", len(holes))
		case most <= transports.MaxHoles: // so few that there were never too many
			checkHoles(t, memory, transports.Completion{Holes: holes, Missing: missing})
		default: // all that is missing is in them
			for _, h := range holes {
				for i := range memory[h.Offset:end(h)] {
					memory[h.Offset+i] = 1
				}
			}
			if bytes.Contains(memory, []byte{0}) {
				t.Fatalf("seed %d: bytes are missing outside of %d holes", seed, len(holes))
			}
		}
	}
}

// TestLateIsNotMissing holds that a packet which was taken for lost, and comes
// before a skip went in its place, is not counted as missing.
func TestLateIsNotMissing(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	_, key := b.region(5120)
	a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: make([]byte, 5120), Key: key, Droppable: 5120})
	o := a.peers[0].out
	w.at(w.now.Add(2*w.net.delay-1), func() { // the acknowledgement of the first 8 is there next
		o.lose((o.una + 3).slot(), byArrivals)
	})
	w.runFor(time.Second)
	if c := a.completed; len(c) != 1 || c[0].Missing != 0 || c[0].Bytes != 5120 ||
		b.received[0].Missing != 0 || a.Counters().Skipped != 0 {
		t.Errorf("completed %+v, received %+v, %+v", c, b.received, a.Counters())
	}
}

// TestRoom checks that a sender has no more in flight than the receiver can hold. Senders share
// that room, and each always has its minimum.
func TestRoom(t *testing.T) {
	for _, senders := range []int{1, 4, 10} {
		w := newWorld(t, 1)
		const room = 40
		b := w.node(func(c *Config) { c.Room = room })
		inside, most := 0, 0
		w.fate = func(_, _ *testNode, p wire.RD, _ int) fate {
			if p.Type() == wire.RDData {
				inside++
				w.at(w.now.Add(w.net.delay-1), func() { inside-- })
				if w.now > clock.Time(time.Millisecond) {
					most = max(most, inside) // when all know of each other
				}
			}
			return fate{delay: w.net.delay}
		}
		for range senders {
			a := w.node()
			a.AddPeer(Peer{Life: b.life, Port: b.config.Port, Engines: 1, Room: 8})
			b.add(a)
			_, key := b.region(1 << 16)
			a.sends(0, key, 1<<16, 50, 2)
		}
		w.runFor(time.Minute)
		if len(b.received) != 50*senders || most > room || most < room-senders {
			t.Errorf("%d senders: %d received, %d packets under way at most, of %d", senders, len(b.received),
				most, room)
		}
	}
}

// TestNumbersWrap holds that packets and messages are numbered across 2^32.
func TestNumbersWrap(t *testing.T) {
	w := newWorld(t, 1)
	w.net = conditions{delay: 10 * time.Microsecond, jitter: 30 * time.Microsecond, loss: 0.02, trim: 0.02,
		twice: 0.02}
	n := 0
	a, b := w.pair(func(c *Config) {
		n++
		c.Life = 0xFFFFFE00_FFFFFFE0 | uint64(n) // 512 packets and 31 messages before the end
	})
	_, key := b.region(5120)
	a.sends(0, key, 5120, 200, 8)
	w.runFor(time.Minute)
	o, in := a.peers[0].out, b.peers[0].in[0]
	if len(b.received) != 200 || o.next > 1<<16 || o.last > 1<<16 || in.next != o.next ||
		in.message != o.last {
		t.Errorf("%d received; packets to %d, messages to %d", len(b.received), o.next, o.last)
	}
}
