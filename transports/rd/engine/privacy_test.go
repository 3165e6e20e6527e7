package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"railbed/fabric/clock"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
	"railbed/transports/wire"
)

func testSecret(t testing.TB) *privacy.Secret {
	t.Helper()
	s, err := privacy.New(bytes.Repeat([]byte{0x5E}, privacy.SecretLen))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// encrypt makes nodes from now on encrypt, half of the worlds with headers that
// can be read, and keys that do not last.
func (w *world) encrypt() {
	w.secret = testSecret(w)
	w.readable = w.random.IntN(2) == 0
	w.keys = privacy.Limits{Packets: 20 + w.random.Uint64N(1000), Overlap: time.Millisecond}
}

// sealedPair is a pair that encrypts, with keys that last.
func sealedPair(t testing.TB) (w *world, a, b *testNode) {
	w = newWorld(t, 1)
	w.secret = testSecret(t)
	a, b = w.pair()
	return w, a, b
}

// TestKeysRotate holds that a transfer goes through many epochs and loses nothing
// by it but what the network loses.
func TestKeysRotate(t *testing.T) {
	for _, loss := range []float64{0, 0.05} {
		w := newWorld(t, 1)
		w.secret, w.keys = testSecret(t), privacy.Limits{Packets: 100}
		w.net = weather{delay: 10 * time.Microsecond, jitter: 5 * time.Microsecond, loss: loss}
		a, b := w.pair()
		region, key := b.region(1 << 16)
		seen := make(map[[3]uint64]bool)
		w.saw = func(_, _ *testNode, p wire.RD) {
			base, f := p.Base(), p.Security()
			at := [3]uint64{base.Life, uint64(f.Epoch), f.Counter}
			if seen[at] {
				t.Fatalf("%+v: a nonce twice", f)
			}
			seen[at] = true
		}
		a.sends(0, key, 1<<16, 100, 2)
		w.runFor(time.Minute)
		c := b.Counters()
		if epoch := a.peers[0].pairings[0].seal.Epoch(); epoch < 40 || len(b.received) != 100 || !bytes.Equal(region.Memory, fill(make([]byte, 1<<16), 1)) {
			t.Errorf("epoch %d, %d received", epoch, len(b.received))
		}
		if loss == 0 && (a.Counters().Repeated != 0 || c.Stale+c.Forged+c.Replayed != 0) {
			t.Errorf("%d repeated, %+v", a.Counters().Repeated, c)
		}
	}
}

// TestUnprotected holds that nothing in the clear, in the name of a peer that
// encrypts, does anything; nor anything encrypted in the name of one that does
// not.
func TestUnprotected(t *testing.T) {
	for name, make := range clearPackets {
		w, a, b := sealedPair(t)
		x := &attackCase{a: a, b: b}
		_, key := b.region(4096)
		a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: fill(make1(4096), 1), Key: key})
		before := *a.peers[0].out
		a.Receive(a.clock(), Arrival{Data: make(x), Path: wire.PortRDPath, From: b.addr})
		after := *a.peers[0].out
		before.engine, after.engine = nil, nil
		if c := a.Counters(); c.Unprotected != 1 || after.una != before.una || after.limit != before.limit || after.room != before.room ||
			after.progress != before.progress || after.flight != before.flight || a.peers[0].in != [wire.RDEngines]*inbound{} {
			t.Errorf("%s: %+v", name, c)
		}
		w.runFor(time.Second)
		if len(b.received) != 1 || len(a.completed) != 1 || len(a.failed)+len(b.failed) != 0 {
			t.Errorf("%s: %d received, failed %v, %v", name, len(b.received), a.failed, b.failed)
		}
	}
	w := newWorld(t, 1)
	a, b := w.pair()
	p := clearPackets["CLOSE"](&attackCase{a: a, b: b})
	p = append(p, make([]byte, wire.RDSealedLen)...)
	p.EncodeSecurity(&wire.RDSecurity{})
	a.Receive(a.clock(), Arrival{Data: p, From: b.addr})
	if len(a.failed) != 0 || a.Counters().Unprotected != 1 {
		t.Errorf("encrypted where nothing is: %v, %+v", a.failed, a.Counters())
	}
}

func make1(n int) []byte { return make([]byte, n) }

// clearPackets are packets of b for a that would each do something if they were
// believed.
var clearPackets = map[string]func(x *attackCase) wire.RD{
	"DATA": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDDataLen+1)
		base := x.base(x.b, x.a, uint32(firstPSN(x.b.life)))
		base.Length = 1
		p.EncodeData(base, &wire.RDDataFields{Message: firstMessage(x.b.life), Total: 1, Sum: wire.RDSum([]byte{0})})
		return p
	},
	"SKIP": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDSkipLen)
		p.EncodeSkip(x.base(x.b, x.a, uint32(firstPSN(x.b.life))), &wire.RDSkipFields{Count: 1, Message: firstMessage(x.b.life)})
		return p
	},
	"ACK": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDAckLen)
		p.EncodeAck(x.base(x.b, x.a, uint32(x.a.peers[0].out.next)), &wire.RDAckFields{Limit: uint32(x.a.peers[0].out.next + Window), Room: 1}, nil, nil)
		return p
	},
	"NACK": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDNackLen)
		p.EncodeNack(x.base(x.b, x.a, uint32(firstPSN(x.a.life))), &wire.RDNackFields{Reason: wire.RDNoRegion, Message: firstMessage(x.a.life)})
		return p
	},
	"PROBE": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDProbeLen)
		p.EncodeProbe(x.base(x.b, x.a, 0), 5)
		return p
	},
	"CLOSE": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDBaseLen)
		p.EncodeClose(x.base(x.b, x.a, uint32(firstPSN(x.a.life))))
		return p
	},
}

// TestForgedRejects holds that a reject, which anybody can make, ends no peer, and
// what it says when silence has.
func TestForgedRejects(t *testing.T) {
	for _, met := range []bool{false, true} {
		for why := range wire.RDRejection(wire.RDRejections + 1) {
			w, a, b := sealedPair(t)
			_, key := b.region(4096)
			m := Message{ID: 1, Op: transports.OpWriteImm, Local: make([]byte, 4096), Key: key}
			if met {
				a.post(0, m)
				w.runFor(time.Second)
			}
			a.post(0, m)
			p := make(wire.RD, wire.RDRejectLen)
			p.EncodeReject((&attackCase{}).base(b, a, 0), &wire.RDRejectFields{Reason: why, Least: 2, Most: 3, Meant: uint32(b.life), To: a.life})
			for range 100 {
				a.Receive(a.clock(), Arrival{Data: p, From: b.addr})
			}
			o := a.peers[0].out
			if paused := o.pauseUntil > a.clock(); paused != (!met && why == wire.RDRejectStranger) || o.flight.count == 0 && met {
				t.Errorf("%v, met %v: paused %v, %d in flight", why, met, paused, o.flight.count)
			}
			a.drive()
			w.runFor(100 * time.Millisecond)
			if len(a.failed) != 0 || a.state() != "" {
				t.Errorf("%v, met %v: failed %v%s", why, met, a.failed, a.state())
			}
			b.dead = true
			a.post(0, m)
			a.Receive(a.clock(), Arrival{Data: p, From: b.addr})
			w.runFor(2 * defaultPeerTimeout)
			if err := a.failed[0]; err == nil || why == wire.RDRejectLife && !strings.Contains(err.Error(), "reject that anybody can have made: life") {
				t.Errorf("%v, met %v: %v", why, met, err)
			}
		}
	}
}

// TestReplays holds that packets which come again, in any order and from any time,
// do nothing at all: the other's window keeps them out.
func TestReplays(t *testing.T) {
	w := newWorld(t, 1)
	w.secret = testSecret(t)
	w.net = weather{delay: 10 * time.Microsecond, jitter: 50 * time.Microsecond, loss: 0.05, twice: 0.5}
	a, b := w.pair()
	type sent struct {
		to *testNode
		b  wire.RD
	}
	var past []sent
	w.saw = func(_, to *testNode, p wire.RD) { past = append(past, sent{to, bytes.Clone(p)}) }
	w.fate = func(from, _ *testNode, p wire.RD, _ int) fate {
		f := w.chances()
		f.lost = f.lost && p.Type() == wire.RDData // all others come, so that none is new later
		return f
	}
	_, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 8, 3)
	w.runFor(time.Minute)
	if len(b.received) != 8 || b.Counters().Replayed == 0 {
		t.Fatalf("%d received, %+v", len(b.received), b.Counters())
	}
	// One message is outstanding while all of it comes again.
	b.dead = true
	a.post(0, Message{ID: 99, Op: transports.OpWriteImm, Local: make([]byte, 4096), Key: key})
	b.dead = false
	o := a.peers[0].out
	una, progress, inFlight, replayed := o.una, o.progress, o.flight.count, a.Counters().Replayed
	w.random.Shuffle(len(past), func(i, j int) { past[i], past[j] = past[j], past[i] })
	count := uint64(0)
	for _, p := range past {
		if p.to == a {
			count++
			a.Receive(a.clock(), Arrival{Data: p.b, Path: wire.PortRDPath, From: b.addr})
		}
	}
	if o.una != una || o.progress != progress || o.flight.count != inFlight || a.Counters().Replayed-replayed != count || count < 100 {
		t.Errorf("%d of %d packets counted; una %d, want %d, %d in flight, want %d", a.Counters().Replayed-replayed, count, o.una, una, o.flight.count, inFlight)
	}
	w.runFor(time.Minute)
	if len(b.received) != 9 || len(a.failed)+len(b.failed) != 0 {
		t.Errorf("%d received", len(b.received))
	}
}

// TestSealedLives holds that nothing of an old life opens in a new one, though
// secret, address and ports are the same, and that the old one's peers give it
// up.
func TestSealedLives(t *testing.T) {
	w, a, b := sealedPair(t)
	var past []wire.RD
	w.saw = func(_, to *testNode, p wire.RD) {
		if to == b {
			past = append(past, bytes.Clone(p))
		}
	}
	_, key := b.region(51_200)
	a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: make([]byte, 51_200), Key: key})
	w.runFor(time.Second)
	old := b.life
	b2 := b.restart()
	b2.add(a)
	for _, p := range past { // with the tag that the new life has
		base := p.Base()
		base.Tag = uint32(b2.life)
		f := p.Security()
		relabel(p, base, &f)
		b2.Receive(b2.clock(), Arrival{Data: p, From: a.addr})
	}
	if c := b2.Counters(); c.Forged != uint64(len(past)) || b2.peers[0].in != [wire.RDEngines]*inbound{} || old == b2.life {
		t.Errorf("%d packets: %+v", len(past), c)
	}
	a.post(0, Message{ID: 2, Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
	w.runFor(2 * defaultPeerTimeout)
	if err := a.failed[0]; err == nil || !strings.Contains(err.Error(), "life") || len(a.completed) != 2 {
		t.Errorf("failed: %v", err)
	}
}

// relabel writes another base into an encrypted packet.
func relabel(p wire.RD, base wire.RDBase, f *wire.RDSecurity) {
	clear := make(wire.RD, wire.RDDataLen)
	switch base.Type {
	case wire.RDData:
		clear.EncodeData(base, &wire.RDDataFields{})
	case wire.RDProbe:
		clear.EncodeProbe(base, 0)
	default:
		clear.EncodeNack(base, &wire.RDNackFields{})
		clear[0] = p[0]
	}
	copy(p, clear[:wire.RDBaseLen])
	p.EncodeSecurity(f)
}

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

// TestForgedTrims holds what forged headers without a tag come to: at most one
// early transmission of each packet that is outstanding, and nothing else: no
// acknowledgement, no completion, no window moves, no path goes bad, and they
// are passed on no oftener than they may.
func TestForgedTrims(t *testing.T) {
	w, a, b := sealedPair(t)
	x := &attackCase{a: a, b: b}
	// Warm: both know each other, and how long a round trip takes.
	_, warm := b.region(1 << 16)
	a.sends(0, warm, 1<<16, 4, 1)
	w.runFor(time.Second)
	a.onDone = nil
	o, in := a.peers[0].out, b.peers[0].in[0]
	start := a.Counters()
	quiet := b.Counters()

	// Nothing is outstanding: hints move nobody.
	for round := range 50 {
		for i := range PSN(2 * Window) {
			b.Receive(b.clock(), Arrival{Data: x.trimmedOf(o.una - Window/2 + i), Path: wire.PortRDPath, From: a.addr})
		}
		b.drive()
		w.runFor(10 * time.Microsecond)
		if c := b.Counters(); c.Hints-quiet.Hints > hints || c.Nacks-quiet.Nacks > hints || c.Acks != quiet.Acks {
			t.Fatalf("round %d: %+v in half a millisecond", round, c)
		}
	}
	w.runFor(time.Second)
	if c := a.Counters(); c.Sent != start.Sent || c.Repeated != 0 || in.highest != in.next {
		t.Errorf("sent %d, repeated %d; packets to %d came, next is %d", c.Sent-start.Sent, c.Repeated, in.highest, in.next)
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
	a.post(0, Message{ID: 7, Op: transports.OpWriteImm, Local: fill(make([]byte, 40*512), 3), Key: key, Imm: 7})
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
	if len(b.received) != 6 || len(a.completed) != 6 || !bytes.Equal(region.Memory, fill(make([]byte, 40*512), 3)) || len(a.failed)+len(b.failed) != 0 {
		t.Errorf("%d received, %d completed; failed %v, %v", len(b.received), len(a.completed), a.failed, b.failed)
	}
	if c := b.Counters(); c.Hints-quiet.Hints > 60 {
		t.Errorf("%d hints", c.Hints-quiet.Hints)
	}
}

// outState is what a forged header must not move.
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
	_, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 4, 1)
	w.runFor(time.Second)
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
	a.onDone = nil
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
	w.runFor(time.Second)
	if again.Sub(first) != 2*w.net.delay || len(b.received) != 5 || a.Counters().Probes != 0 || b.Counters().Hints != 1 {
		t.Errorf("again after %v, %d received, %d probes", again.Sub(first), len(b.received), a.Counters().Probes)
	}
}

// TestHintIsNoHole holds that a forged header does not make bytes be given up of a
// message that may have holes.
func TestHintIsNoHole(t *testing.T) {
	w, a, b := sealedPair(t)
	x := &attackCase{a: a, b: b}
	_, key := b.region(1 << 16)
	a.sends(0, key, 1<<16, 4, 1)
	w.runFor(time.Second)
	a.onDone = nil
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
	if c := a.completed[len(a.completed)-1]; c.Missing != 0 || c.Bytes != 5120 || a.Counters().Repeated == 0 || a.Counters().Skipped != 0 {
		t.Errorf("%+v, %+v", c, a.Counters())
	}
}
