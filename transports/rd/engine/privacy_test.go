package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"railbed/internal/wire"
	"railbed/testkit/privacytest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
)

// encrypt makes nodes from now on encrypt, half of the worlds with headers that
// can be read, and keys that do not last.
func (w *world) encrypt() {
	w.secret = privacytest.Secret()
	w.readable = w.random.IntN(2) == 0
	w.keys = privacy.Limits{Packets: 20 + w.random.Uint64N(1000), Overlap: time.Millisecond}
}

// sealedPair is a pair that encrypts, with keys that last.
func sealedPair(t testing.TB) (w *world, a, b *testNode) {
	w = newWorld(t, 1)
	w.secret = privacytest.Secret()
	a, b = w.pair()
	return w, a, b
}

// TestKeysRotate holds that a transfer goes through many epochs and loses nothing
// by it but what the network loses.
func TestKeysRotate(t *testing.T) {
	for _, loss := range []float64{0, 0.05} {
		w := newWorld(t, 1)
		w.secret, w.keys = privacytest.Secret(), privacy.Limits{Packets: 100}
		w.net = conditions{delay: 10 * time.Microsecond, jitter: 5 * time.Microsecond, loss: loss}
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
		if epoch := a.peers[0].pairings[0].seal.Epoch(); epoch < 40 || len(b.received) != 100 ||
			!bytes.Equal(region.Memory, fill(make([]byte, 1<<16), 1)) {
			t.Errorf("epoch %d, %d received", epoch, len(b.received))
		}
		if loss == 0 && (a.Counters().Repeated != 0 || c.Stale+c.Forged+c.Replayed != 0) {
			t.Errorf("%d repeated, %+v", a.Counters().Repeated, c)
		}
	}
}

// TestUnprotected checks that a plain packet in the name of an encrypting peer has no effect.
// Neither has an encrypted packet in the name of a peer that does not encrypt.
func TestUnprotected(t *testing.T) {
	for name, forge := range clearPackets {
		w, a, b := sealedPair(t)
		x := &attackCase{a: a, b: b}
		_, key := b.region(4096)
		a.post(0, Message{ID: 1, Op: transports.OpWriteImm, Local: fill(make([]byte, 4096), 1), Key: key})
		before := *a.peers[0].out
		a.Receive(a.clock(), Arrival{Data: forge(x), Path: wire.PortRDPath, From: b.addr})
		after := *a.peers[0].out
		before.engine, after.engine = nil, nil
		if c := a.Counters(); c.Unprotected != 1 || after.una != before.una || after.limit != before.limit ||
			after.room != before.room ||
			after.progress != before.progress || after.flight != before.flight ||
			a.peers[0].in != [wire.RDEngines]*inbound{} {
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

// clearPackets are packets of b for a that would each do something if they were
// believed.
var clearPackets = map[string]func(x *attackCase) wire.RD{
	"DATA": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDDataLen+1)
		base := x.base(x.b, x.a, uint32(firstPSN(x.b.life)))
		base.Length = 1
		p.EncodeData(base, &wire.RDDataFields{Message: firstMessage(x.b.life), Total: 1,
			Sum: wire.RDSum([]byte{0})})
		return p
	},
	"SKIP": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDSkipLen)
		p.EncodeSkip(x.base(x.b, x.a, uint32(firstPSN(x.b.life))),
			&wire.RDSkipFields{Count: 1, Message: firstMessage(x.b.life)})
		return p
	},
	"ACK": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDAckLen)
		p.EncodeAck(x.base(x.b, x.a, uint32(x.a.peers[0].out.next)),
			&wire.RDAckFields{Limit: uint32(x.a.peers[0].out.next + Window), Room: 1}, nil, nil)
		return p
	},
	"NACK": func(x *attackCase) wire.RD {
		p := make(wire.RD, wire.RDNackLen)
		p.EncodeNack(x.base(x.b, x.a, uint32(firstPSN(x.a.life))),
			&wire.RDNackFields{Reason: wire.RDNoRegion, Message: firstMessage(x.a.life)})
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
			p.EncodeReject((&attackCase{}).base(b, a, 0),
				&wire.RDRejectFields{Reason: why, Least: 2, Most: 3, Meant: uint32(b.life), To: a.life})
			for range 100 {
				a.Receive(a.clock(), Arrival{Data: p, From: b.addr})
			}
			o := a.peers[0].out
			if paused := o.pauseUntil > a.clock(); paused != (!met && why == wire.RDRejectStranger) ||
				o.flight.count == 0 && met {
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
			if err := a.failed[0]; err == nil ||
				why == wire.RDRejectLife && !strings.Contains(err.Error(),
					"reject that any host can have sent: life") {
				t.Errorf("%v, met %v: %v", why, met, err)
			}
		}
	}
}

// TestReplays holds that packets which come again, in any order and from any time,
// do nothing at all: the other's window keeps them out.
func TestReplays(t *testing.T) {
	w := newWorld(t, 1)
	w.secret = privacytest.Secret()
	w.net = conditions{delay: 10 * time.Microsecond, jitter: 50 * time.Microsecond, loss: 0.05, twice: 0.5}
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
	if o.una != una || o.progress != progress || o.flight.count != inFlight ||
		a.Counters().Replayed-replayed != count || count < 100 {
		t.Errorf("%d of %d packets counted; una %d, want %d, %d in flight, want %d",
			a.Counters().Replayed-replayed, count, o.una, una, o.flight.count, inFlight)
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
	if c := b2.Counters(); c.Forged != uint64(len(past)) || b2.peers[0].in != [wire.RDEngines]*inbound{} ||
		old == b2.life {
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

// TestFailedPeerKeepsCounters holds that nothing is sealed twice by a nonce after a
// peer has failed, who is answered all the same.
func TestFailedPeerKeepsCounters(t *testing.T) {
	w, a, b := sealedPair(t)
	_, key := b.region(1 << 16)
	seen, closes := make(map[[3]uint64]bool), 0
	w.saw = func(from, _ *testNode, p wire.RD) {
		at := [3]uint64{p.Base().Life, uint64(p.Security().Epoch), p.Security().Counter}
		if seen[at] {
			t.Errorf("%v: %+v twice", p.Type(), p.Security())
		}
		if seen[at] = true; p.Type() == wire.RDClose {
			closes++
		}
	}
	m := Message{Op: transports.OpWriteImm, Local: make([]byte, 51_200), Key: key}
	a.post(0, m)
	w.runFor(15 * time.Microsecond)
	b.Fail(0, transports.ErrPeerFailed)
	a.post(0, m)
	w.runFor(time.Second)
	if closes == 0 || len(a.failed) != 1 {
		t.Errorf("%d answers, failed %v", closes, a.failed)
	}
}
