package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"railbed/transports"
)

// TestCanceled holds when a canceled message completes, what the peer may have
// seen of it, and that all others go on.
func TestCanceled(t *testing.T) {
	const size = 300 * 512
	for name, c := range map[string]struct {
		after      time.Duration // of Post, until the message is canceled
		size       int           // default: size
		conditions conditions
		discards   bool          // the receiver takes no immediates
		slow       bool          // no skip goes before the answer
		before     bool          // another message as long goes first
		succeeds   bool          // it came whole before
		delivered  bool          // its immediate was
		within     time.Duration // it completes; 0 is at once
	}{
		"before its first packet": {before: true},
		"half sent":               {after: 5 * time.Microsecond, within: 100 * time.Microsecond},
		"half come":               {after: 15 * time.Microsecond, within: 100 * time.Microsecond},
		"half acknowledged": {after: 25 * time.Microsecond, within: 100 * time.Microsecond,
			delivered: true},
		"sent, not come": {size: 40 * 512, after: 5 * time.Microsecond,
			within: 100 * time.Microsecond, delivered: true},
		"come, not acknowledged": {size: 40 * 512, after: 19 * time.Microsecond,
			within: 100 * time.Microsecond, delivered: true},
		"acknowledged before the skip": {size: 8 * 512, after: 5 * time.Microsecond,
			within: 100 * time.Microsecond, delivered: true, slow: true, succeeds: true},
		"most lost": {after: 200 * time.Microsecond, conditions: conditions{loss: 0.8},
			within: time.Second},
		"kept back": {size: 40 * 512, after: 5 * time.Millisecond, discards: true,
			within: 2 * mostBusy},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.net = c.conditions
			w.net.delay = 10 * time.Microsecond
			a, b := w.pair()
			region, key := b.region(3 * size)
			if c.size == 0 {
				c.size = size
			}
			if b.full = c.discards; c.before {
				a.post(0, Message{ID: 1, Op: transports.OpWrite, Local: fill(make([]byte, size), 1),
					Key: key})
			}
			number, _ := a.postNumber(0, Message{ID: 2, Op: transports.OpWriteImm,
				Local: fill(make([]byte, c.size), 2), Key: key, Offset: size, Imm: 2})
			a.post(0, Message{ID: 3, Op: transports.OpWriteImm, Local: fill(make([]byte, size), 3), Key: key,
				Offset: 2 * size, Imm: 3})
			w.runFor(c.after)
			if a.Cancel(a.clock(), 0, number, errTestCanceled); !c.slow {
				a.cancel(0, number) // a second time does nothing
			}
			end := func() *transports.Completion {
				for i := range a.completed {
					if a.completed[i].ID == 2 {
						return &a.completed[i]
					}
				}
				return nil
			}
			if w.runFor(c.within); end() == nil {
				t.Fatalf("not over %v after it was canceled:%s", c.within, a.state())
			}
			if err := end().Err; c.succeeds != (err == nil) ||
				err != nil && !errors.Is(err, transports.ErrCanceled) {
				t.Errorf("completed with %v", err)
			}
			place := region.Memory[size:][:c.size]
			for i := range place {
				place[i] = 0xAA
			}
			b.full, w.net.loss = false, 0
			w.runFor(10 * time.Second)
			delivered := false
			for _, r := range b.received {
				delivered = delivered || r.Imm == 2
			}
			if delivered != c.delivered || len(bytes.Trim(place, "\xAA")) != 0 ||
				!bytes.Equal(region.Memory[2*size:], fill(make([]byte, size), 3)) {
				t.Errorf("delivered %v, want %v; or wrong bytes", delivered, c.delivered)
			}
			if text := a.state(); text != "" || len(a.failed) != 0 ||
				b.peers[0].in[0].message != a.peers[0].out.last {
				t.Errorf("not over: %s; failed %v", text, a.failed)
			}
			for _, n := range []*testNode{a, b} {
				if err := n.consistent(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestCanceledBehindMany holds that messages which never began leave no gap in
// the numbers of messages, however many there are.
func TestCanceledBehindMany(t *testing.T) {
	w := newWorld(t, 1)
	w.net.loss = 0.05
	a, b := w.pair()
	_, key := b.region(1 << 20)
	for round := range 10 {
		a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, 1<<20), Key: key})
		var numbers []uint32
		for {
			number, ok := a.postNumber(
				0, Message{ID: 1, Op: transports.OpWriteImm, Local: make([]byte, 100_000), Key: key})
			if !ok {
				break
			}
			numbers = append(numbers, number)
		}
		if len(numbers) != Messages-1 {
			t.Fatalf("round %d: %d messages were taken", round, len(numbers))
		}
		for _, n := range numbers {
			a.cancel(0, n)
		}
		w.runFor(10 * time.Second)
		if a.state() != "" || len(a.completed) != Messages*(round+1) {
			t.Fatalf("round %d: %d of %d completed:%s", round, len(a.completed), Messages*(round+1),
				a.state())
		}
	}
	if len(b.received) != 0 || len(a.failed) != 0 {
		t.Errorf("%d received, failed %v", len(b.received), a.failed)
	}
}

// TestCanceledAfterOthers checks that a message which never began keeps its place until the peer
// was notified, even though all messages before it are over.
func TestCanceledAfterOthers(t *testing.T) {
	w := newWorld(t, 1)
	// a packet in 0.5 ms, so that each is acknowledged before the next goes
	a, b := w.pair(func(c *Config) { c.Pacer = NewPacer(10_000_000) })
	region, key := b.region(20 * 512)
	a.post(0, Message{ID: 1, Op: transports.OpWrite, Local: make([]byte, 20*512), Key: key})
	for range 10 {
		number, _ := a.postNumber(
			0, Message{ID: 2, Op: transports.OpWriteImm, Local: make([]byte, 20*512), Key: key, Imm: 2})
		a.cancel(0, number)
	}
	local := fill(make([]byte, 20*512), 3)
	a.post(0, Message{ID: 3, Op: transports.OpWriteImm, Local: local, Key: key, Imm: 3})
	w.runFor(time.Second)
	if o := a.peers[0].out; len(a.completed) != 12 || len(b.received) != 1 || b.received[0].Imm != 3 ||
		!bytes.Equal(region.Memory, local) || b.peers[0].in[0].message != o.last ||
		o.next-firstPSN(a.life) != 50 {
		t.Errorf("completed %+v, received %+v, packets to %d:%s", a.completed, b.received,
			o.next-firstPSN(a.life), a.state())
	}
}

// TestReleased checks that Release is called once for a message, when it completes, however it
// does.
func TestReleased(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	_, key := b.region(100)
	var released [4]int
	post := func(i int, key uint64) uint32 {
		n, _ := a.postNumber(0, Message{ID: uint64(i), Op: transports.OpWrite, Local: make([]byte, 100),
			Key: key, Release: func() { released[i]++ }})
		return n
	}
	post(0, key)
	post(1, key+1)
	a.cancel(0, post(2, key))
	w.runFor(time.Second)
	post(3, key)
	a.Fail(0, transports.ErrClosed)
	w.runFor(time.Second)
	if released != [4]int{1, 1, 1, 1} || len(a.completed) != 4 {
		t.Errorf("released %v times; completed %+v", released, a.completed)
	}
}

// TestGathered holds that packets are cut out of pieces of any lengths, and that
// those which lie in one piece are not copied.
func TestGathered(t *testing.T) {
	w := newWorld(t, 1)
	whole := fill(make([]byte, 5000), 1)
	for range 2000 {
		m, left := &outMessage{total: uint32(len(whole))}, whole
		cut := func() []byte {
			n := min(w.random.IntN(1<<w.random.IntN(12)), len(left))
			piece := left[:n:n]
			left = left[n:]
			return piece
		}
		m.Local = cut()
		for range w.random.IntN(transports.MaxPieces - 1) {
			m.More = append(m.More, cut())
		}
		m.More = append(m.More, left)
		at := w.random.IntN(len(whole))
		n := 1 + w.random.IntN(len(whole)-at)
		if got := m.bytes(&Packet{}, at, n); !bytes.Equal(got, whole[at:][:n]) {
			t.Fatalf("%d bytes at %d of pieces %d are others", n, at, len(m.More))
		}
	}
	m := &outMessage{Message: Message{Local: whole[:1000], More: [][]byte{whole[1000:3000], whole[3000:]}}}
	var p Packet
	for _, at := range []int{0, 999, 1000, 2999, 3000, 4999} {
		if got := m.bytes(&p, at, 1); &got[0] != &whole[at] {
			t.Errorf("the byte at %d was copied", at)
		}
	}
}
