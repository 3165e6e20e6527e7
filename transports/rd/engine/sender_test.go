package engine

import (
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/rd/rate"
)

// deafened is a sender that has measured the round trip, and whose packets are all lost from now
// on. The test supplies every answer.
type deafened struct {
	*attackCase
	*world
	o     *outbound
	key   uint64
	first PSN // the PSN of its next packet
	sent  []wire.RD
}

func newDeafened(t *testing.T, packets int, change func(m *Message)) *deafened {
	w := newWorld(t, 1)
	d := &deafened{attackCase: &attackCase{}, world: w}
	d.a, d.b = w.pair()
	d.key = w.warm(d.a, d.b)
	d.o = d.a.peers[0].out
	d.first = d.o.next
	w.fate = func(*testNode, *testNode, wire.RD, int) fate { return fate{lost: true} }
	w.saw = func(_, _ *testNode, b wire.RD) { d.sent = append(d.sent, slices.Clone(b)) }
	m := Message{ID: 9, Op: transports.OpWriteImm, Local: make([]byte, 512*packets), Key: d.key}
	if change != nil {
		change(&m)
	}
	d.a.post(0, m)
	return d
}

// ack hands a an acknowledgement of all before packet n of the message, changed.
func (d *deafened) ack(n PSN, change func(base *wire.RDBase, f *wire.RDAckFields), words ...uint64) {
	base := d.base(d.b, d.a, uint32(d.first+n))
	f := wire.RDAckFields{Limit: uint32(d.first + n + Window), Timestamp: uint32(d.a.clock()), Room: 64}
	if change != nil {
		change(&base, &f)
	}
	b := make(wire.RD, wire.RDAckBytes(len(words), 1))
	b.EncodeAck(base, &f, words, []wire.RDEcho{{Path: wire.PortRDPath + 1, Packets: 1, Marked: 1}})
	d.a.Receive(d.a.clock(), Arrival{Data: b, From: d.b.addr})
}

// nack hands a a negative acknowledgement of packet n.
func (d *deafened) nack(n PSN, why wire.RDReason, change func(base *wire.RDBase)) {
	base := d.base(d.b, d.a, uint32(d.first+n))
	if change != nil {
		change(&base)
	}
	b := make(wire.RD, wire.RDNackLen)
	b.EncodeNack(base, &wire.RDNackFields{Reason: why, Message: d.o.packets[(d.first + n).slot()].message})
	d.a.Receive(d.a.clock(), Arrival{Data: b, From: d.b.addr})
}

func (d *deafened) state(n PSN) packetState { return d.o.packets[(d.first + n).slot()].state }

// TestOtherEngines holds that a sequence goes to one engine of a peer, by the number
// of the sender's, and that no other engine of the peer speaks for that one.
func TestOtherEngines(t *testing.T) {
	w := newWorld(t, 1)
	b := w.node(func(c *Config) { c.Port = 34 })
	for engine, want := range map[uint8]uint8{0: 32, 1: 33, 2: 34, 3: 32, 15: 32} {
		a := w.node(func(c *Config) { c.Port += engine })
		a.AddPeer(Peer{Life: b.life, Port: 32, Engines: 3, Room: 8})
		if o := a.newOutbound(a.peers[0]); o.port != want {
			t.Errorf("engine %d sends to port %d, want %d", engine, o.port, want)
		}
	}
	for name, say := range map[string]func(d *deafened, other func(*wire.RDBase)){
		"ACK": func(d *deafened, other func(*wire.RDBase)) {
			d.ack(4, func(b *wire.RDBase, _ *wire.RDAckFields) { other(b) })
		},
		"NACK": func(d *deafened, other func(*wire.RDBase)) { d.nack(0, wire.RDTrimmed, other) },
		"CLOSE": func(d *deafened, other func(*wire.RDBase)) {
			base := d.base(d.b, d.a, uint32(d.first+4))
			other(&base)
			b := make(wire.RD, wire.RDBaseLen)
			b.EncodeClose(base)
			d.a.Receive(d.a.clock(), Arrival{Data: b, From: d.b.addr})
		},
	} {
		for _, other := range []bool{false, true} {
			d := newDeafened(t, 4, nil)
			d.a.peers[0].Engines = 2
			d.runFor(time.Millisecond)
			say(d, func(b *wire.RDBase) {
				if other {
					b.Source++
				}
			})
			if heeded := d.state(0) != inFlight &&
				!(name == "CLOSE" && d.a.completed[len(d.a.completed)-1].Err != nil); heeded == other {
				t.Errorf("%s of another engine %v: heeded %v", name, other, heeded)
			}
		}
	}
}

// TestSenderHeeds checks a sender's reaction to answers, rule by rule of sections 4, 5.5 and 6.
func TestSenderHeeds(t *testing.T) {
	const trip = 20 * time.Microsecond
	for name, c := range map[string]struct {
		change func(m *Message)
		play   func(d *deafened)
		holds  func(d *deafened) bool
	}{
		"a smaller limit": {nil, func(d *deafened) {
			d.ack(1, func(_ *wire.RDBase, f *wire.RDAckFields) { f.Limit = uint32(d.first) + 500 })
		}, func(d *deafened) bool { return d.o.limit == d.first+Window && d.o.una == d.first+1 }},
		"a limit that is too large": {nil, func(d *deafened) {
			d.ack(1, func(_ *wire.RDBase, f *wire.RDAckFields) { f.Limit = uint32(d.first) + 2 + Window })
		}, func(d *deafened) bool { return d.o.limit == d.first+Window }},
		"the largest limit": {nil, func(d *deafened) {
			d.ack(1, func(_ *wire.RDBase, f *wire.RDAckFields) { f.Limit = uint32(d.first) + 1 + Window })
		}, func(d *deafened) bool { return d.o.limit == d.first+1+Window }},
		"no room": {nil, func(d *deafened) {
			d.ack(1, func(_ *wire.RDBase, f *wire.RDAckFields) { f.Room = 0 })
		},
			func(d *deafened) bool { return d.o.room == 1 }},
		"the whole bitmap, of packets that were never sent": {nil, func(d *deafened) {
			d.ack(0, nil, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
		}, func(d *deafened) bool { return d.state(0) == inFlight && d.o.una == d.first }},
		"a round trip of a second": {nil, func(d *deafened) {
			d.ack(1, func(_ *wire.RDBase, f *wire.RDAckFields) { f.Timestamp -= uint32(time.Second) })
		}, func(d *deafened) bool { return d.o.late.longest[0] < time.Millisecond }},
		"a round trip of less": {nil, func(d *deafened) {
			d.ack(1, func(_ *wire.RDBase, f *wire.RDAckFields) { f.Timestamp -= uint32(time.Second) - 1 })
		}, func(d *deafened) bool { return d.o.late.longest[0] == time.Second-1 }},
		"an ACK of an older transmission": {nil, func(d *deafened) {
			d.runFor(trip)
			d.nack(0, wire.RDTrimmed, nil)
			d.a.drive()
			d.runFor(trip - 1)
			d.ack(1, nil)
		}, func(d *deafened) bool { return d.o.newest < d.o.packets[(d.first+1).slot()].order }},
		"an ACK of the latest transmission": {nil, func(d *deafened) {
			d.runFor(trip)
			d.nack(0, wire.RDTrimmed, nil)
			d.a.drive()
			d.runFor(trip)
			d.ack(1, nil)
		}, func(d *deafened) bool { return d.o.newest > d.o.packets[(d.first+3).slot()].order }},
		"trimmed, before the header can have come": {nil, func(d *deafened) {
			d.runFor(trip/2 - 1)
			d.nack(0, wire.RDTrimmed, nil)
		},
			func(d *deafened) bool { return d.state(0) == inFlight }},
		"trimmed": {nil, func(d *deafened) { d.runFor(trip / 2); d.nack(0, wire.RDTrimmed, nil) },
			func(d *deafened) bool { return d.state(0) == isLost }},
		"refused, behind a SKIP": {func(m *Message) { m.Droppable = 512 }, func(d *deafened) {
			d.runFor(trip)
			d.nack(0, wire.RDTrimmed, nil) // it is given up
			d.a.drive()
			d.nack(0, wire.RDNoRegion, nil)
		}, func(d *deafened) bool { return len(d.a.completed) == 4 && d.o.packets[d.first.slot()].skipped }},
		"refused": {nil, func(d *deafened) { d.nack(0, wire.RDNoRegion, nil) },
			func(d *deafened) bool { return len(d.a.completed) == 5 && d.a.completed[4].Err != nil }},
		"refused for the window": {nil, func(d *deafened) { d.nack(0, wire.RDWindow, nil) },
			func(d *deafened) bool { return d.state(0) == inFlight }},
		"any NACK, of a packet that is lost often": {nil, func(d *deafened) {
			d.o.packets[d.first.slot()].tries = 200
			d.nack(0, wire.RDWindow, nil)
		}, func(d *deafened) bool { return d.o.packets[d.first.slot()].tries == 0 }},
		"an ACK ends a pause": {nil, func(d *deafened) { d.o.pause(d.a.clock()); d.ack(1, nil) },
			func(d *deafened) bool { return d.o.pauses == 0 && d.o.pauseUntil == 0 }},
		"a stranger's pause, again": {nil, func(d *deafened) {
			d.o.pause(d.a.clock())
			d.o.pause(d.a.clock())
		},
			func(d *deafened) bool { return d.o.pauses == 1 }},
		"marks": {nil, func(d *deafened) { d.ack(1, nil) },
			func(d *deafened) bool { return d.o.paths.Paths().State(1) == path.Skip }},
		"an older ACK": {nil, func(d *deafened) { d.ack(3, nil); d.ack(1, nil, 1<<63) },
			func(d *deafened) bool { return d.o.una == d.first+3 && d.o.limit == d.first+3+Window }},
	} {
		d := newDeafened(t, 4, c.change)
		if c.play(d); !c.holds(d) {
			t.Errorf("%s: packets from %d on of %d, limit %d, room %d, states %d %d %d, completed %+v, %+v",
				name, d.o.una-d.first, d.o.next-d.first,
				d.o.limit-d.first, d.o.room, d.state(0), d.state(1), d.state(2), d.a.completed[4:], d.o.late)
		}
		if err := d.a.consistent(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBusyTimes holds when a packet goes again for whose number there is no room:
// after 100 us, which doubles with each answer, to 10 ms, until something was taken.
func TestBusyTimes(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	_, key := b.region(512)
	var sent []clock.Time
	w.saw = func(_, _ *testNode, p wire.RD) {
		if p.Type() == wire.RDData {
			sent = append(sent, w.now)
		}
	}
	want := []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000}
	for round := range 2 {
		sent, b.full = nil, true
		a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
		w.runFor(40 * time.Millisecond)
		for i, wait := range want {
			if took := sent[i+1].Sub(sent[i]) - 2*w.net.delay; took != wait*time.Microsecond {
				t.Errorf("round %d: transmission %d waited %v, want %v us", round, i+1, took, int(wait))
			}
		}
		b.full = false
		w.runFor(time.Second)
		if len(b.received) != round+1 {
			t.Fatalf("round %d: %d received", round, len(b.received))
		}
	}
}

// TestProbeTimes checks when a silent peer is probed. The first probe is due when the last packet's
// time is over, or a millisecond later if it asked for no answer. The intervals then double up to
// 250 ms.
func TestProbeTimes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d *deafened)
		late   time.Duration
	}{
		"the last of all": {func(*deafened) {}, 50 * time.Microsecond},
		"one that asked":  {func(d *deafened) { d.o.asked = true }, 0},
		"more to follow":  {func(d *deafened) { d.o.ended = false }, time.Millisecond},
	} {
		d := newDeafened(t, 4, nil)
		c.change(d)
		d.o.schedule(d.a.clock())
		d.a.drive()
		began, wait := d.now, d.o.late.probe()
		var probes []time.Duration
		d.saw = func(_, _ *testNode, b wire.RD) {
			if b.Type() == wire.RDProbe && b.ProbeTimestamp() == d.o.probeStamp &&
				(len(probes) == 0 || d.now.Sub(began) != probes[len(probes)-1]) {
				probes = append(probes, d.now.Sub(began))
			}
		}
		d.runFor(4 * time.Second)
		at := time.Duration(0)
		for i, got := range probes {
			if at += min((wait+c.late)<<min(i, 20), 250*time.Millisecond); i == 0 && got != at {
				t.Errorf("%s: first probe after %v, want %v", name, got, at)
			} else if got != at {
				break // probes of paths share the stamp; below
			}
		}
		if d.o.silence < 12 || d.o.silence > 30 {
			t.Errorf("%s: asked %d times in 4 s", name, d.o.silence)
		}
	}
}

// TestSlack holds that an engine comes back a slack behind a packet's moment, and then
// sends what is due, and no more.
func TestSlack(t *testing.T) {
	w := newWorld(t, 1)
	const slack = 100 * time.Microsecond
	a, b := w.pair(func(c *Config) { c.Pacer, c.Slack = NewPacer(1_000_000_000), slack })
	_, key := b.region(1 << 16)
	moments := make(map[clock.Time]int)
	each := time.Duration(512+wire.RDDataLen+a.config.Overhead) * 8
	began, sent := w.now, 0
	w.saw = func(from, _ *testNode, p wire.RD) {
		if from == a && p.Type() == wire.RDData {
			if due := began.Add(time.Duration(sent) * each); w.now < due ||
				w.now > due.Add(slack+time.Microsecond) {
				t.Errorf("packet %d at %v, due at %v", sent, w.now, due)
			}
			moments[w.now]++
			sent++
		}
	}
	// nothing wakes it
	w.fate = func(_, _ *testNode, _ wire.RD, _ int) fate { return fate{delay: 20 * time.Millisecond} }
	a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, 60*512), Key: key})
	w.runFor(10 * time.Millisecond)
	if sent != 60 || len(moments) > 4 {
		t.Errorf("%d packets at %d moments", sent, len(moments))
	}
}

// TestGrain holds that so many packets in a row take one path.
func TestGrain(t *testing.T) {
	for _, grain := range []int{1, 4} {
		w := newWorld(t, 1)
		a, b := w.pair(func(c *Config) {
			c.Grain, c.Paths = grain, func() path.Chooser {
				chooser, err := path.New(path.KindOblivious, 64, path.Options{Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				return chooser
			}
		})
		_, key := b.region(1 << 16)
		var paths []int
		w.fate = func(from, _ *testNode, p wire.RD, by int) fate {
			if from == a && p.Type() == wire.RDData {
				paths = append(paths, by)
			}
			return fate{delay: w.net.delay}
		}
		a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, 1<<16), Key: key})
		w.runFor(time.Second)
		for i := range len(paths) - 1 {
			if same := paths[i] == paths[i+1]; same != (i%grain != grain-1) {
				t.Fatalf("grain %d: paths %v", grain, paths)
			}
		}
		if len(paths) != 128 {
			t.Errorf("%d packets", len(paths))
		}
	}
}

// TestFirstNumbers holds which numbers a life begins with.
func TestFirstNumbers(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair(func(c *Config) {
		if c.Port == 0 {
			c.Life = 0x0123456789ABCDEF
		}
	})
	_, key := b.region(1)
	seen := false
	w.saw = func(from, _ *testNode, p wire.RD) {
		if from == a && p.Type() == wire.RDData {
			seen = p.Base().PSN == 0x01234567 && p.Data().Message == 0x89ABCDEF
		}
	}
	if a.post(0, Message{Op: transports.OpWrite, Local: []byte{1}, Key: key}); !seen {
		t.Error("it begins with others")
	}
}

// TestBound holds section 6.1's bound, as a formula of the round trips that there were.
func TestBound(t *testing.T) {
	var l lateness
	l.reset()
	if l.bound() != 20*time.Millisecond {
		t.Errorf("%v before any", l.bound())
	}
	now := clock.Time(time.Hour)
	l.trip(800*time.Microsecond, now) // smoothed 800, deviation 400
	if want := 2400*time.Microsecond*5/4 + 20*time.Microsecond; l.bound() != want {
		t.Errorf("%v after one of 800 us, want %v", l.bound(), want)
	}
	few := func(n int, d time.Duration, gap time.Duration) {
		for range n {
			now = now.Add(gap)
			l.trip(d, now)
		}
	}
	few(1, 4*time.Millisecond, 0)
	few(200, 100*time.Microsecond, 0) // many, in no time: still the same period
	if want := 4*time.Millisecond*5/4 + 20*time.Microsecond; l.bound() != want {
		t.Errorf("%v, want %v by the longest", l.bound(), want)
	}
	few(1, 100*time.Microsecond, 31*time.Millisecond) // less than 8 times the longest
	if l.longest[1] != 0 {
		t.Errorf("a period of %v ended after 31 ms", l.longest)
	}
	few(1, 100*time.Microsecond, 2*time.Millisecond)
	if l.longest != [2]time.Duration{100 * time.Microsecond, 4 * time.Millisecond} {
		t.Errorf("periods %v", l.longest)
	}
	few(31, 100*time.Microsecond, time.Millisecond) // too few for the next
	if l.longest[1] != 4*time.Millisecond || l.bound() != 4*time.Millisecond*5/4+20*time.Microsecond {
		t.Errorf("periods %v, bound %v", l.longest, l.bound())
	}
	few(1, 100*time.Microsecond, time.Millisecond)
	if l.longest[1] != 100*time.Microsecond {
		t.Errorf("periods %v", l.longest)
	}
}

// losses is a controller that counts the losses that are reported to it.
type losses struct {
	rate.Line
	lost, trimmed int
}

func (l *losses) Lost(_ clock.Time, loss rate.Loss) {
	l.lost += loss.Bytes
	if loss.Trimmed {
		l.trimmed += loss.Bytes
	}
}

// TestControllersHearOfLosses checks that each loss is reported to a controller, and how it was
// found.
func TestControllersHearOfLosses(t *testing.T) {
	w := newWorld(t, 1)
	l := &losses{}
	a, b := w.pair(func(c *Config) { c.Control = func(transports.Peer) rate.Controller { return l } })
	w.watch(a, func(at uint32, n int) fate {
		return fate{lost: at == 3 && n == 1, trim: (at == 5 || at == 6) && n == 1}
	})
	_, key := b.region(51_200)
	a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, 51_200), Key: key})
	w.runFor(time.Second)
	if l.lost != 3*512 || l.trimmed != 2*512 {
		t.Errorf("%d bytes lost, %d of them trimmed", l.lost, l.trimmed)
	}
}

// TestAsks holds which packets ask for an acknowledgement: those behind which nothing
// may go until one comes, and with a controller's window those of each quarter of it.
func TestAsks(t *testing.T) {
	for name, c := range map[string]struct {
		room, packets int
		window        int
		want          []int
	}{
		"room":          {10, 100, 0, []int{9}},
		"the window":    {2 * Window, 2 * Window, 0, []int{Window - 1}},
		"all that is":   {100, 20, 0, nil},
		"a controller":  {100, 100, 10 * 512, []int{2, 5, 8, 9}},
		"and its least": {100, 100, 1, []int{0}},
	} {
		w := newWorld(t, 1)
		a, b := w.pair(func(cfg *Config) {
			if c.window > 0 {
				cfg.Control = func(transports.Peer) rate.Controller { return &held{window: c.window} }
			}
		})
		a.peers[0].Room = c.room
		_, key := b.region(c.packets * 512)
		w.fate = func(*testNode, *testNode, wire.RD, int) fate { return fate{lost: true} }
		var asked []int
		sent := 0
		w.saw = func(_, _ *testNode, p wire.RD) {
			if p.Flags()&wire.RDAckRequest != 0 {
				asked = append(asked, sent)
			}
			sent++
		}
		a.post(0, Message{Op: transports.OpWrite, Local: make([]byte, c.packets*512), Key: key})
		if !slices.Equal(asked, c.want) {
			t.Errorf("%s: packets %v of %d asked, want %v", name, asked, sent, c.want)
		}
	}
}
