package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
)

// TestDeadPeer checks when the death of a peer is noticed: its timeout after the last packet from
// it, whatever is posted meanwhile. While nothing is outstanding, it is not noticed.
func TestDeadPeer(t *testing.T) {
	for name, every := range map[string]time.Duration{"one message": 0,
		"more all the time": 200 * time.Millisecond, "more often": 300 * time.Microsecond} {
		w := newWorld(t, 1)
		a, b := w.pair()
		_, key := b.region(512)
		m := Message{ID: 1, Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key}
		a.post(0, m)
		w.runFor(time.Second)
		b.dead = true
		w.runFor(time.Hour)
		if len(a.failed) != 0 || a.Deadline() != clock.Never {
			t.Fatalf("%s: with nothing outstanding: %v, deadline %v", name, a.failed, a.Deadline())
		}
		died, o := w.now, a.peers[0].out
		var noticed clock.Time
		a.onDone = func(c transports.Completion) {
			if noticed = w.now; !errors.Is(c.Err, transports.ErrPeerFailed) {
				t.Errorf("%s: completion %+v", name, c)
			}
		}
		posted := 1
		var more func()
		more = func() {
			if len(a.failed) == 0 {
				if a.post(0, m) {
					posted++
				}
				w.at(w.now.Add(every), more)
			}
		}
		if a.post(0, m); every > 0 {
			w.at(w.now.Add(every), more)
		}
		w.runFor(time.Minute)
		if took := noticed.Sub(died); took != defaultPeerTimeout || len(a.failed) != 1 ||
			len(a.completed) != 1+posted {
			t.Errorf("%s: noticed after %v, failed %v, %d completions for %d posts", name, took, a.failed,
				len(a.completed), posted)
		}
		if o.silence < int(defaultPeerTimeout/mostProbe) {
			t.Errorf("%s: it was asked %d times", name, o.silence)
		}
		if _, err := a.Post(a.clock(), 0, &m); !errors.Is(err, transports.ErrPeerFailed) {
			t.Errorf("%s: post: %v", name, err)
		}
	}
}

// TestSlowPaceIsNoDeath checks that a peer does not fail because packets waited at the sender.
func TestSlowPaceIsNoDeath(t *testing.T) {
	w := newWorld(t, 1)
	pacer := NewPacer(500) // 10 s for each packet
	a, b := w.pair(func(c *Config) { c.Pacer = pacer })
	_, key := b.region(5120)
	for range 3 {
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 5120), Key: key})
	}
	w.runFor(time.Hour)
	if len(a.failed) != 0 || len(b.received) != 3 || a.Counters().Repeated != 0 {
		t.Errorf("failed %v, %d received, %+v", a.failed, len(b.received), a.Counters())
	}
}

// TestIdleIsSilent holds that nothing is sent while nothing is outstanding, by
// either side, though a path was bad when the last message ended.
func TestIdleIsSilent(t *testing.T) {
	w := newWorld(t, 1)
	w.net.loss, w.net.trim = 0.05, 0.05
	a, b := w.pair()
	w.fate = func(from, _ *testNode, _ wire.RD, by int) fate {
		f := w.chances()
		f.lost = f.lost || from == a && by == 2
		return f
	}
	_, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 20, 4)
	w.runFor(10 * time.Second)
	if a.peers[0].out.paths.Paths().State(2) != path.Bad {
		t.Fatal("the path is not bad")
	}
	if len(b.received) != 20 || a.Counters().Repeated == 0 {
		t.Fatalf("%d received", len(b.received))
	}
	w.saw = func(_, _ *testNode, p wire.RD) { t.Errorf("at %v: %x", w.now, []byte(p)) }
	w.runFor(time.Hour)
	if a.Deadline() != clock.Never || b.Deadline() != clock.Never {
		t.Errorf("deadlines %v, %v", a.Deadline(), b.Deadline())
	}
}

// TestRestartedPeer holds that two lives at one address are never taken for each
// other, whatever of the old one is still under way in either direction.
func TestRestartedPeer(t *testing.T) {
	w := newWorld(t, 1)
	var past []struct {
		to *testNode
		b  wire.RD
	}
	a, b := w.pair()
	w.saw = func(_, to *testNode, p wire.RD) {
		past = append(past, struct {
			to *testNode
			b  wire.RD
		}{to, bytes.Clone(p)})
	}
	_, keyB := b.region(51_200)
	_, keyA := a.region(51_200)
	for range 3 {
		a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: fill(make([]byte, 51_200), 1), Key: keyB})
		b.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: fill(make([]byte, 51_200), 1), Key: keyA})
	}
	w.runFor(25 * time.Microsecond) // some have come, and nothing is over
	b2 := b.restart()
	b2.regions = make(map[uint64]*Region)
	r2 := &Region{Memory: make([]byte, 51_200), Writable: true}
	b2.regions[keyB] = r2 // the worst case: even the key is the same
	w.runFor(2*w.net.delay + leastProbe)
	if len(a.failed) != 1 || len(a.completed) != 3 ||
		!errors.Is(a.completed[0].Err, transports.ErrPeerFailed) {
		t.Fatalf("failed %v, %d completed", a.failed, len(a.completed))
	}
	// Both learn of the new life, and talk; then everything of the old one comes.
	peerB, peerA := a.add(b2), b2.add(a)
	region2, key2 := b2.region(20_000)
	a.sends(peerB, key2, 20_000, 50, 2)
	regionA, keyA2 := a.region(20_000)
	b2.sends(peerA, keyA2, 20_000, 50, 2)
	before := bytes.Clone(a.regions[keyA].Memory)
	for _, p := range past[:len(past):len(past)] {
		to := p.to
		if to == b {
			to = b2
		}
		w.deliver(to, Arrival{Data: p.b, Path: wire.PortRDPath, From: a.addr},
			time.Duration(w.random.Int64N(int64(time.Millisecond))))
	}
	received := len(a.received)
	w.runFor(time.Minute)
	if !bytes.Equal(r2.Memory, make([]byte, 51_200)) || !bytes.Equal(a.regions[keyA].Memory, before) {
		t.Error("bytes of another life were written")
	}
	if len(b2.received) != 50 || len(a.received)-received != 50 || len(b2.failed) != 0 || len(a.failed) != 1 {
		t.Errorf("the new life received %d, the other %d; failed %v, %v", len(b2.received),
			len(a.received)-received, a.failed, b2.failed)
	}
	if want := fill(make([]byte, 20_000), 1); !bytes.Equal(region2.Memory, want) ||
		!bytes.Equal(regionA.Memory, want) {
		t.Error("bytes are missing")
	}
	for _, c := range b2.received {
		if c.Peer != peerA {
			t.Errorf("%+v", c)
		}
	}
}

// TestStranger holds that messages to a peer that was not told yet wait, and
// arrive soon after it was, however late that is.
func TestStranger(t *testing.T) {
	for _, later := range []time.Duration{100 * time.Microsecond, 30 * time.Millisecond, time.Second,
		10 * defaultPeerTimeout} {
		w := newWorld(t, 1)
		a, b := w.node(), w.node()
		a.add(b)
		_, key := b.region(51_200)
		var came clock.Time
		b.onReceive = func(transports.Completion) { came = w.now }
		for range 3 {
			a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 51_200), Key: key})
		}
		w.runFor(later)
		packets := a.Counters().Sent + a.Counters().Repeated
		b.add(a)
		told := w.now
		w.runFor(10 * time.Second)
		if len(b.received) != 3 || len(a.failed) != 0 ||
			came.Sub(told) > min(mostPause, max(later, time.Millisecond))+time.Millisecond {
			t.Errorf("told after %v: %d came, the last after %v; %v", later, len(b.received), came.Sub(told),
				a.failed)
		}
		if most := 64 * uint64(10+later/mostPause); packets > most {
			t.Errorf("told after %v: %d packets till then", later, packets)
		}
	}
}

// TestClose holds that a peer which says goodbye is known to be gone at once, that
// what it had taken counts, and that it is said to everybody, however many.
func TestClose(t *testing.T) {
	w := newWorld(t, 1)
	b := w.node()
	var others []*testNode
	for range 300 {
		n := w.node()
		n.add(b)
		b.add(n)
		others = append(others, n)
		_, key := b.region(1)
		n.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: []byte{1}, Key: key})
	}
	w.runFor(time.Second)
	w.fate = func(from, _ *testNode, p wire.RD, _ int) fate { // the last acknowledgement is lost
		return fate{delay: w.net.delay, lost: from == b && p.Type() == wire.RDAck}
	}
	_, key := b.region(1)
	others[7].post(0, Message{ID: 2, Op: transports.OpWriteImm, Local: []byte{1}, Key: key})
	w.runFor(15 * time.Microsecond)
	b.Goodbye()
	for i := range others {
		b.Fail(transports.Peer(i), transports.ErrClosed)
	}
	b.drive()
	w.runFor(w.net.delay)
	for i, n := range others {
		if len(n.failed) != 1 {
			t.Fatalf("peer %d does not know that it closed", i)
		}
	}
	if c := others[7].completed; len(c) != 2 || c[1].Err != nil {
		t.Errorf("completions %+v", c)
	}
}

// TestCloseIsSaidOnce checks that each engine that sent here gets one close, even if packets went
// back to it.
func TestCloseIsSaidOnce(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	_, keyA := a.region(512)
	_, keyB := b.region(512)
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: keyB})
	b.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: keyA})
	w.runFor(time.Second)
	closes := 0
	w.saw = func(from, _ *testNode, p wire.RD) {
		if p.Type() == wire.RDClose {
			closes++
		}
	}
	b.Goodbye()
	b.drive()
	w.runFor(time.Second)
	if closes != 1 || len(a.failed) != 1 {
		t.Errorf("%d times, failed %v", closes, a.failed)
	}
}

// TestRejects holds which rejects are believed, and what each does.
func TestRejects(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a, b *testNode, base *wire.RDBase, f *wire.RDRejectFields)
		fails  bool
	}{
		"life": {nil, true},
		"security": {func(_, _ *testNode, _ *wire.RDBase, f *wire.RDRejectFields) {
			f.Reason = wire.RDRejectSecurity
		}, true},
		"version": {func(_, _ *testNode, _ *wire.RDBase, f *wire.RDRejectFields) {
			f.Reason, f.Least, f.Most = wire.RDRejectVersion, 2, 3
		}, true},
		"version that it has": {func(_, _ *testNode, _ *wire.RDBase, f *wire.RDRejectFields) {
			f.Reason, f.Least, f.Most = wire.RDRejectVersion, 1, 3
		}, false},
		"stranger": {func(_, _ *testNode, _ *wire.RDBase, f *wire.RDRejectFields) {
			f.Reason = wire.RDRejectStranger
		}, false},
		"to another life": {func(a, _ *testNode, _ *wire.RDBase, f *wire.RDRejectFields) {
			f.To = a.life ^ 1<<63
		}, false},
		"of a tag never used": {func(_, b *testNode, _ *wire.RDBase,
			f *wire.RDRejectFields) {
			f.Meant++
		}, false},
		"from an engine not asked": {func(_, _ *testNode, base *wire.RDBase,
			_ *wire.RDRejectFields) {
			base.Source++
		}, false},
		"of an unknown reason": {func(_, _ *testNode, _ *wire.RDBase,
			f *wire.RDRejectFields) {
			f.Reason = 77
		}, true},
	} {
		w := newWorld(t, 1)
		a, b := w.pair()
		_, key := b.region(512)
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
		base := wire.RDBase{Source: b.config.Port, Destination: a.config.Port, Tag: uint32(a.life),
			Life: b.life}
		f := wire.RDRejectFields{Reason: wire.RDRejectLife, Least: 1, Most: 1, Meant: uint32(b.life),
			To: a.life}
		if c.change != nil {
			c.change(a, b, &base, &f)
		}
		p := make(wire.RD, wire.RDRejectLen)
		p.EncodeReject(base, &f)
		a.Receive(a.clock(), Arrival{Data: p, From: b.addr})
		a.drive()
		w.runFor(time.Second)
		if fails := len(a.failed) == 1; fails != c.fails || !fails && len(b.received) != 1 {
			t.Errorf("%s: failed %v, %d received", name, a.failed, len(b.received))
		}
	}
}
