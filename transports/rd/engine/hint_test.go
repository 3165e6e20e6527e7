package engine

import (
	"bytes"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
)

// trimmedOf is the header that trimming would leave of a packet of a's, made by
// somebody who has no key.
func (x *attackCase) trimmedOf(psn PSN) wire.RD {
	p := make(wire.RD, wire.RDDataLen)
	base := x.base(x.a, x.b, uint32(psn))
	base.Length = 512
	p.EncodeData(base, &wire.RDDataFields{})
	p.EncodeSecurity(&wire.RDSecurity{Epoch: 7, Counter: 1 << 40})
	return p
}

// warm lets two nodes know each other, and how long a round trip takes: four
// messages go into a region of 64 KiB.
func (w *world) warm(a, b *testNode) (key uint64) {
	_, key = b.region(1 << 16)
	a.sends(0, key, 1<<16, 4, 1)
	w.runFor(time.Second)
	a.onDone = nil
	return key
}

// TestForgedTrims checks the effect of forged headers without a tag: at most one early transmission
// of each outstanding packet. There is no acknowledgement and no completion, no window moves, and
// no path becomes bad. Headers are reported no oftener than permitted.
func TestForgedTrims(t *testing.T) {
	w, a, b := sealedPair(t)
	x := &attackCase{a: a, b: b}
	warm := w.warm(a, b)
	o, in := a.peers[0].out, b.peers[0].in[0]
	start := a.Counters()
	quiet := b.Counters()

	// Nothing is outstanding: hints have no effect.
	for round := range 50 {
		for i := range PSN(2 * Window) {
			b.Receive(b.clock(), Arrival{Data: x.trimmedOf(o.una - Window/2 + i), Path: wire.PortRDPath,
				From: a.addr})
		}
		b.drive()
		w.runFor(10 * time.Microsecond)
		if c := b.Counters(); c.Hints-quiet.Hints > hints || c.Nacks-quiet.Nacks > hints ||
			c.Acks != quiet.Acks {
			t.Fatalf("round %d: %+v in half a millisecond", round, c)
		}
	}
	w.runFor(time.Second)
	if c := a.Counters(); c.Sent != start.Sent || c.Repeated != 0 || in.highest != in.next {
		t.Errorf("sent %d, repeated %d; packets to %d came, next is %d", c.Sent-start.Sent, c.Repeated,
			in.highest, in.next)
	}

	// The next packets have had their hint; those behind them have not.
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 1<<16), Key: warm})
	w.runFor(time.Second)

	// A message is under way, for less than makes anybody ask, and trims are forged
	// of all of its packets, all the time.
	w.fate = func(from, _ *testNode, p wire.RD, _ int) fate {
		if p.Type() == wire.RDData {
			return fate{delay: 400 * time.Microsecond}
		}
		return fate{delay: w.net.delay}
	}
	quiet = b.Counters()
	sends := make(map[uint32]int)
	w.saw = func(from, _ *testNode, p wire.RD) {
		if from == a && p.Type() == wire.RDData {
			sends[p.Base().PSN]++
		}
	}
	region, key := b.region(40 * 512)
	first := o.next
	a.post(0, Message{ID: 7, Op: transports.OpWriteImm, Local: fill(make([]byte, 40*512), 3), Key: key,
		Imm: 7})
	before := o.snapshot()
	began := w.now
	for w.now.Sub(began) < 340*time.Microsecond {
		for i := range PSN(60) {
			b.Receive(b.clock(), Arrival{Data: x.trimmedOf(first + i), Path: wire.PortRDPath, From: a.addr})
		}
		b.drive()
		w.runFor(20 * time.Microsecond)
		if after := o.snapshot(); after != before {
			t.Fatalf("after %v: %+v, want %+v", w.now.Sub(began), after, before)
		}
	}
	if len(a.completed) != 5 || len(b.received) != 5 || b.Counters().Acks != quiet.Acks {
		t.Errorf("%d completed, %d received", len(a.completed), len(b.received))
	}
	w.runFor(time.Second)
	early := 0
	for psn, n := range sends {
		if early += n - 1; n > 2 {
			t.Errorf("packet %d was sent %d times", psn, n)
		}
	}
	if early == 0 || early > 40 || len(sends) != 40 {
		t.Errorf("%d packets, %d early", len(sends), early)
	}
	if len(b.received) != 6 || len(a.completed) != 6 ||
		!bytes.Equal(region.Memory, fill(make([]byte, 40*512), 3)) || len(a.failed)+len(b.failed) != 0 {
		t.Errorf("%d received, %d completed; failed %v, %v", len(b.received), len(a.completed), a.failed,
			b.failed)
	}
	if c := b.Counters(); c.Hints-quiet.Hints > 60 || c.Duplicates-quiet.Duplicates != uint64(early) {
		t.Errorf("%d hints, %d came twice", c.Hints-quiet.Hints, c.Duplicates-quiet.Duplicates)
	}
	if o.late.margin != before.late.margin {
		t.Errorf("the bound's margin is %d, was %d", o.late.margin, before.late.margin)
	}
}

// TestHintsOfOnePacket holds that a sender takes one hint of a packet, however many
// its peer passes on, and that it is no evidence for the packet's path.
func TestHintsOfOnePacket(t *testing.T) {
	w, a, b := sealedPair(t)
	key := w.warm(a, b)
	o := a.peers[0].out
	psn, end := o.next, w.now.Add(310*time.Microsecond)
	w.fate = func(_, _ *testNode, p wire.RD, _ int) fate {
		if p.Type() == wire.RDData {
			return fate{delay: 400 * time.Microsecond}
		}
		// they would tell of the path
		return fate{delay: w.net.delay, lost: p.Type() == wire.RDProbe && w.now < end}
	}
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
	by := int(o.packets[psn.slot()].path)
	o.paths.Feedback(path.Report{Path: by, Event: path.Lost, Sent: a.clock(), Packets: 9}, a.clock())
	before := o.paths.Paths().State(by)
	if before == path.Good || before == path.Skip {
		t.Fatalf("path %d is %v", by, before)
	}
	for range 10 {
		b.peers[0].in[0].nack(psn, 0, wire.RDTrimmed, 0, 0)
		b.drive()
		w.runFor(30 * time.Microsecond)
	}
	if after := o.paths.Paths().State(by); after != before {
		t.Errorf("path %d is %v, was %v", by, after, before)
	}
	w.runFor(time.Second)
	if c := a.Counters(); c.Repeated != 1 || len(b.received) != 5 {
		t.Errorf("%d repeated, %d received", c.Repeated, len(b.received))
	}
}

// outState is the state that a forged header must not change.
type outState struct {
	una, limit PSN
	room       int
	first      uint32
	newest     uint64
	late       lateness
	paths      [4]path.State
}

func (o *outbound) snapshot() outState {
	s := outState{una: o.una, limit: o.limit, room: o.room, first: o.first, newest: o.newest, late: o.late}
	for i := range s.paths {
		if s.paths[i] = o.paths.Paths().State(i); s.paths[i] == path.Skip {
			s.paths[i] = path.Good // it was marked, and sits out a turn
		}
	}
	return s
}

// TestTrimmedHint holds that a packet which was trimmed is sent again within a
// round trip, as where nothing is encrypted.
func TestTrimmedHint(t *testing.T) {
	w, a, b := sealedPair(t)
	key := w.warm(a, b)
	var first, again clock.Time
	w.fate = func(from, _ *testNode, p wire.RD, _ int) fate {
		f := fate{delay: w.net.delay}
		if p.Type() == wire.RDData {
			if p.Flags()&wire.RDRepeat != 0 {
				again = w.now
			} else if first == 0 {
				first, f.trim = w.now, true
			}
		}
		return f
	}
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
	w.runFor(time.Second)
	if again.Sub(first) != 2*w.net.delay || len(b.received) != 5 || a.Counters().Probes != 0 ||
		b.Counters().Hints != 1 {
		t.Errorf("again after %v, %d received, %d probes", again.Sub(first), len(b.received),
			a.Counters().Probes)
	}
}

// TestTrimmedTwice holds when a packet is sent again whose second transmission was
// trimmed, too: as soon as loss shows it, since it had its one hint.
func TestTrimmedTwice(t *testing.T) {
	w, a, b := sealedPair(t)
	key := w.warm(a, b)
	o := a.peers[0].out
	for _, last := range []int{0, 9} { // others follow it; it is the last of all
		first, hints := uint32(o.next-firstPSN(a.life)), b.Counters().Hints
		g := w.watch(a, func(at uint32, n int) fate { return fate{trim: at == first+uint32(last) && n <= 2} })
		bound, probe := o.late.bound(), o.late.probe()
		if last == 0 {
			// What comes until then is behind it.
			for range 40 {
				w.at(w.now.Add(time.Duration(w.random.Int64N(int64(100*time.Microsecond)))), func() {
					a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, 512), Key: key})
				})
			}
		}
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 5120), Key: key})
		w.runFor(time.Second)
		sent, trip := g.sent[first+uint32(last)], 2*w.net.delay
		most := bound + 10*time.Microsecond
		if last > 0 {
			most = probe + endDelay + trip
		}
		if len(sent) != 3 || sent[1].Sub(sent[0]) != trip || sent[2].Sub(sent[1]) < bound ||
			sent[2].Sub(sent[1]) > most || b.Counters().Hints != hints+1 {
			t.Errorf("packet %d of 10 was sent at %v, want the third at most %v after the second; %d hints",
				last, sent, most, b.Counters().Hints-hints)
		}
	}
}

// TestShortHint holds that what is shorter than an encrypted packet can be is no
// trimmed one.
func TestShortHint(t *testing.T) {
	w, a, b := sealedPair(t)
	w.warm(a, b)
	x := &attackCase{a: a, b: b}
	next := a.peers[0].out.next
	for psn, length := range []int{24, 35, 36, 51, 52, 64} {
		before := b.Counters()
		b.Receive(b.clock(), Arrival{Data: x.trimmedOf(next + PSN(psn))[:length], Path: wire.PortRDPath,
			From: a.addr})
		after := b.Counters()
		if hint := after.Hints > before.Hints; hint != (length >= 52) ||
			hint == (after.Corrupt > before.Corrupt) {
			t.Errorf("%d bytes: %d hints, %d corrupt", length, after.Hints-before.Hints,
				after.Corrupt-before.Corrupt)
		}
	}
}

// TestHintsInTime checks that a receiver reports no hint for a packet that has arrived. A sender
// ignores hints that arrive sooner than the header can have.
func TestHintsInTime(t *testing.T) {
	w, a, b := sealedPair(t)
	key := w.warm(a, b)
	o := a.peers[0].out
	first := o.next
	w.fate = func(from, _ *testNode, p wire.RD, _ int) fate {
		return fate{delay: w.net.delay, lost: from == b || p.Base().PSN == uint32(first)}
	}
	a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, 1024), Key: key})
	w.runFor(w.net.delay)
	x := &attackCase{a: a, b: b}
	for psn, want := range []uint64{1, 1} { // the first has not come, the second has
		b.Receive(b.clock(), Arrival{Data: x.trimmedOf(first + PSN(psn)), Path: wire.PortRDPath,
			From: a.addr})
		if got := b.Counters().Hints; got != want {
			t.Errorf("%d hints of packet %d, want %d", got, psn, want)
		}
	}
	k := &o.packets[first.slot()]
	for _, sooner := range []time.Duration{1, 0} {
		at := k.sent.Add(o.late.shortest/2 - sooner)
		if o.hinted(first.slot(), at); k.hinted == (sooner > 0) {
			t.Errorf("a hint %v after it was sent, of %v: taken %v", at.Sub(k.sent), o.late.shortest,
				k.hinted)
		}
	}
}

// TestHintIsNoHole holds that a forged header does not make bytes be given up of a
// message that may have holes.
func TestHintIsNoHole(t *testing.T) {
	w, a, b := sealedPair(t)
	x := &attackCase{a: a, b: b}
	key := w.warm(a, b)
	o := a.peers[0].out
	w.net.delay = time.Millisecond
	first := o.next
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 5120), Key: key, Droppable: 5120})
	w.net.delay = 10 * time.Microsecond
	w.runFor(100 * time.Microsecond)
	for i := range PSN(10) {
		b.Receive(b.clock(), Arrival{Data: x.trimmedOf(first + i), Path: wire.PortRDPath, From: a.addr})
	}
	b.drive()
	w.runFor(time.Second)
	if c := a.completed[len(a.completed)-1]; c.Missing != 0 || c.Bytes != 5120 ||
		a.Counters().Repeated == 0 || a.Counters().Skipped != 0 {
		t.Errorf("%+v, %+v", c, a.Counters())
	}
}
