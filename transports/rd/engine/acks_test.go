package engine

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/transports"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// told is a receiver that is handed packets of another one's making, and what it
// says to them.
type told struct {
	*attackCase
	key uint64
	now clock.Time // b's
}

func newTold(t *testing.T) *told {
	w := newWorld(t, 1)
	x := &told{attackCase: &attackCase{}}
	x.a, x.b = w.pair()
	_, x.key = x.b.region(1 << 20)
	x.now = x.b.clock()
	return x
}

// piece is packet n of a's first message, of 512 bytes a packet, changed.
func (x *told) piece(n uint32, change func(base *wire.RDBase, f *wire.RDDataFields)) wire.RD {
	payload := bytes.Repeat([]byte{1}, 512)
	base := x.base(x.a, x.b, uint32(firstPSN(x.a.life))+n)
	base.Length = 512
	f := wire.RDDataFields{Key: x.key, Message: firstMessage(x.a.life), Total: 1 << 20, Position: 512 * n,
		Sum: wire.RDSum(payload)}
	if change != nil {
		change(&base, &f)
	}
	b := make(wire.RD, wire.RDDataLen, wire.RDDataLen+512)
	b.EncodeData(base, &f)
	return append(b, payload[:base.Length]...)
}

// skip is one in the place of packet n.
func (x *told) skip(n uint32) wire.RD {
	b := make(wire.RD, wire.RDSkipLen)
	b.EncodeSkip(x.base(x.a, x.b, uint32(firstPSN(x.a.life))+n),
		&wire.RDSkipFields{Count: 1, Message: firstMessage(x.a.life) + 9})
	return b
}

// receiver hands b a packet that came by a path.
func (x *told) receiver(b wire.RD, by uint16, marked bool) {
	x.b.Receive(x.now, Arrival{Data: b, Path: by, Marked: marked, From: x.a.addr})
}

// says is everything that b has to say now.
func (x *told) says() (all []wire.RD) {
	var p Packet
	for x.b.Next(x.now, &p) {
		all = append(all, append(slices.Clone(p.Header), p.Payload...))
	}
	return all
}

// kinds are the types of packets.
func kinds(all []wire.RD) (names []string) {
	for _, b := range all {
		names = append(names, b.Type().String())
	}
	return names
}

// TestAckMoments holds when an acknowledgement is owed, by section 5.4.
func TestAckMoments(t *testing.T) {
	asks := func(base *wire.RDBase, _ *wire.RDDataFields) { base.Flags |= wire.RDAckRequest }
	wrong := func(_ *wire.RDBase, f *wire.RDDataFields) { f.Sum++ }
	refused := func(_ *wire.RDBase, f *wire.RDDataFields) { f.Key++ }
	whole := func(_ *wire.RDBase, f *wire.RDDataFields) { f.Total, f.Position = 512, 0 }
	for name, c := range map[string]struct {
		packets func(x *told) []wire.RD
		after   time.Duration // the last
	}{
		"data": {func(x *told) []wire.RD {
			return []wire.RD{x.piece(0, nil)}
		}, time.Millisecond},
		"data behind a gap": {func(x *told) []wire.RD {
			return []wire.RD{x.piece(3, nil)}
		}, time.Millisecond},
		"seven": {func(x *told) []wire.RD {
			return x.pieces(7, nil)
		}, time.Millisecond},
		"the eighth":                 {func(x *told) []wire.RD { return x.pieces(8, nil) }, 0},
		"the eighth that is dropped": {func(x *told) []wire.RD { return x.pieces(8, wrong) }, 0},
		"the eighth that is refused": {func(x *told) []wire.RD { return x.pieces(8, refused) }, 0},
		"one that is dropped": {func(x *told) []wire.RD {
			return x.pieces(1, wrong)
		}, time.Millisecond},
		"the last of a message": {func(x *told) []wire.RD {
			return []wire.RD{x.piece(0, whole)}
		}, 50 * time.Microsecond},
		"data that asks": {func(x *told) []wire.RD { return []wire.RD{x.piece(0, asks)} }, 0},
		"data before what has come": {func(x *told) []wire.RD {
			return []wire.RD{x.piece(5, nil), x.piece(4, nil)}
		}, 0},
		"data that came before": {func(x *told) []wire.RD {
			return []wire.RD{x.piece(0, nil), x.piece(0, nil)}
		}, 0},
		"a SKIP":                       {func(x *told) []wire.RD { return []wire.RD{x.skip(0)} }, 0},
		"a PROBE":                      {func(x *told) []wire.RD { return []wire.RD{x.probe(nil)} }, 0},
		"a REJECT, which is not acked": {func(x *told) []wire.RD { return []wire.RD{x.reject()} }, -1},
	} {
		x := newTold(t)
		for _, b := range c.packets(x) {
			if got := slices.DeleteFunc(kinds(x.says()), func(kind string) bool {
				return kind == "NACK"
			}); len(got) > 0 {
				t.Errorf("%s: said %v too soon", name, got)
			}
			x.receiver(b, wire.PortRDPath, false)
		}
		came := x.now
		acks := 0
		for _, wait := range []time.Duration{0, 49 * time.Microsecond, 50 * time.Microsecond,
			999 * time.Microsecond, time.Millisecond, time.Hour} {
			x.now = came.Add(wait)
			for _, kind := range kinds(x.says()) {
				if kind == "ACK" {
					if acks++; wait != c.after {
						t.Errorf("%s: acknowledged after %v, want %v", name, wait, c.after)
					}
				}
			}
			if due := x.b.Deadline(); acks == 0 && c.after > 0 && due != came.Add(c.after) ||
				acks > 0 && due != clock.Never {
				t.Errorf("%s: after %v it is to be asked again %v later, want %v", name, wait, due.Sub(came),
					c.after)
			}
		}
		if want := min(1, int(c.after)+1); acks != max(want, 0) {
			t.Errorf("%s: %d acknowledgements", name, acks)
		}
	}
}

// pieces are the first packets of a message.
func (x *told) pieces(n uint32, change func(base *wire.RDBase, f *wire.RDDataFields)) (all []wire.RD) {
	for i := range n {
		all = append(all, x.piece(i, change))
	}
	return all
}

// TestAckFields holds what an acknowledgement says, by sections 2.4 and 5.4.
func TestAckFields(t *testing.T) {
	x := newTold(t)
	stamped := func(ns uint32) func(base *wire.RDBase, f *wire.RDDataFields) {
		return func(_ *wire.RDBase, f *wire.RDDataFields) { f.Timestamp = ns }
	}
	first := uint32(firstPSN(x.a.life))
	ack := func(why string) (wire.RDAckFields, uint32, []uint32, []wire.RDEcho) {
		t.Helper()
		all := slices.DeleteFunc(x.says(), func(b wire.RD) bool { return b.Type() != wire.RDAck })
		if len(all) != 1 {
			t.Fatalf("%s: %d acknowledgements", why, len(all))
		}
		f := all[0].Ack()
		var came []uint32
		for i := range int(f.Words) {
			for bit := range 64 {
				if all[0].AckWord(i)>>(63-bit)&1 != 0 {
					came = append(came, uint32(64*i+bit)+1)
				}
			}
		}
		var echoes []wire.RDEcho
		for i := range int(f.Echoes) {
			echoes = append(echoes, all[0].AckEcho(i))
		}
		return f, all[0].Base().PSN - first, came, echoes
	}
	const by = wire.PortRDPath
	at := uint32(x.now)
	x.receiver(x.piece(0, stamped(at-1000)), by, false)
	x.now += 10_000
	x.receiver(x.piece(2, stamped(at-5000)), by, true) // took 5 us more than the first, and 10 less the delay
	x.now += 1000
	x.receiver(x.piece(70, stamped(at+9000)), by+1, false)
	x.receiver(x.piece(3, stamped(0))[:wire.RDDataLen], by+2, true) // trimmed: no echo, no time
	x.receiver(x.piece(2, stamped(at+10_500)), by+3, true)          // came before
	x.now += 500
	f, next, came, echoes := ack("data")
	want := wire.RDAckFields{Limit: first + 1 + Window, Timestamp: at - 5000, Delay: 1500, Duplicates: 1,
		Received: 3 * 512, Words: 2, Echoes: 3, Room: 256}
	if f != want || next != 1 || !slices.Equal(came, []uint32{1, 69}) ||
		!slices.Equal(echoes, []wire.RDEcho{{Path: by, Packets: 2, Marked: 1}, {Path: by + 1, Packets: 1},
			{Path: by + 3, Packets: 1, Marked: 1}}) {
		t.Errorf("%+v, want %+v; %d, %v, %v", f, want, next, came, echoes)
	}
	// Of a PROBE first, whatever took longer; of several the latest.
	stamp := func(n uint32) wire.RD {
		b := make(wire.RD, wire.RDProbeLen)
		b.EncodeProbe(x.base(x.a, x.b, first), n)
		return b
	}
	x.receiver(stamp(uint32(x.now)-7), by, false)
	x.receiver(stamp(uint32(x.now)-5), by, false)
	x.receiver(x.piece(1, stamped(uint32(x.now)-90_000)), by, false)
	x.now += 30
	if f, next, _, echoes := ack("a PROBE"); f.Timestamp != uint32(x.now)-35 || f.Delay != 30 || next != 3 ||
		f.Duplicates != 1 || !slices.Equal(echoes, []wire.RDEcho{{Path: by, Packets: 3}}) {
		t.Errorf("%+v, %d, %v", f, next, echoes)
	}
	// Nothing to measure, and nothing that came.
	x.receiver(x.piece(9, func(base *wire.RDBase, _ *wire.RDDataFields) {
		base.Flags |= wire.RDAckRequest
	})[:wire.RDDataLen], by, false)
	if f, next, came, echoes := ack("a trimmed one"); f.Delay != 1<<32-1 || next != 3 || len(echoes) != 0 ||
		!slices.Equal(came, []uint32{67}) {
		t.Errorf("%+v, %d, %v, %v", f, next, came, echoes)
	}
	// More paths than there is room for, and more packets of one than a count holds.
	for i := range uint16(70) {
		x.receiver(x.probe(nil), by+i, false)
	}
	if _, _, _, echoes := ack("paths"); len(echoes) != 64 ||
		echoes[63] != (wire.RDEcho{Path: by + 63, Packets: 1}) {
		t.Errorf("%d echoes, %v", len(echoes), echoes)
	}
	for range 300 {
		x.receiver(x.probe(nil), by, true)
	}
	if _, _, _, echoes := ack("a path"); !reflect.DeepEqual(echoes,
		[]wire.RDEcho{{Path: by, Packets: 255, Marked: 255}, {Path: by, Packets: 45, Marked: 45}}) {
		t.Errorf("%v", echoes)
	}
}

// TestOrderOfTypes checks the order of packets by section 4, when there are some of each type.
// Control packets are not paced, and acknowledgements that are not yet due go behind data.
func TestOrderOfTypes(t *testing.T) {
	x := newTold(t)
	_, key := x.a.region(1024)
	pacer := NewPacer(8 * uint64(512+wire.RDDataLen+x.b.config.Overhead) * 40) // 25 ms a packet
	x.b.config.Pacer = pacer
	post := func() {
		if ok, err := x.b.Post(x.now, 0,
			&Message{Op: transports.OpWrite, Local: make([]byte, 1024), Key: key}); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	post()
	if got := kinds(x.says()); !slices.Equal(got, []string{"DATA"}) {
		t.Fatalf("first %v", got)
	}
	x.now = x.now.Add(firstProbe + ackDelay)
	if got := kinds(x.says()); !slices.Equal(got, []string{"PROBE"}) {
		t.Errorf("after a silence, and without a turn of the pacer: %v", got)
	}
	x.now = x.now.Add(time.Second)
	x.receiver(x.probe(nil), wire.PortRDPath, false)
	x.receiver(x.piece(0, func(base *wire.RDBase, f *wire.RDDataFields) {
		f.Key++
		base.Flags |= wire.RDAckRequest
	}), wire.PortRDPath, false)
	if got := slices.Compact(kinds(x.says())); !slices.Equal(got, []string{"NACK", "ACK", "PROBE", "DATA"}) {
		// of paths, too
		t.Errorf("all at once: %v", got)
	}
	x.b.config.Pacer = nil
	x.receiver(x.piece(1, func(_ *wire.RDBase, f *wire.RDDataFields) { f.Message++ }), wire.PortRDPath, false)
	if got := kinds(x.says()); got != nil {
		t.Errorf("an acknowledgement that has time: %v", got)
	}
	post()
	if got := kinds(x.says()); !slices.Equal(got, []string{"DATA", "DATA", "ACK"}) {
		t.Errorf("with data: %v", got)
	}
}

// TestTurns checks the turns of messages and peers, by section 4. A short message waits for at most
// 16 packets of a long one. Messages of one kind are sent whole, one after the other. No peer gets
// more than 16 packets while another one waits.
func TestTurns(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair(func(c *Config) { c.Pacer = NewPacer(100_000_000) })
	c := w.node()
	a.add(c)
	c.add(a)
	type sent struct {
		to      *testNode
		message uint32
	}
	var order []sent
	w.saw = func(from, to *testNode, data wire.RD) {
		if from == a && data.Type() == wire.RDData {
			order = append(order, sent{to, data.Data().Message - firstMessage(a.life)})
		}
	}
	runs := func() (lengths []int, first []sent) {
		for i, s := range order {
			if i == 0 || order[i-1] != s {
				lengths, first = append(lengths, 0), append(first, s)
			}
			lengths[len(lengths)-1]++
		}
		return lengths, first
	}
	_, key := b.region(1 << 20)
	_, other := c.region(1 << 20)
	long, short := make([]byte, 100*512), make([]byte, 4*512)
	a.peers[0].Room, a.peers[1].Room = Window, Window
	a.Post(a.clock(), 0, &Message{Op: transports.OpWrite, Local: long, Key: key})
	a.Post(a.clock(), 0, &Message{Op: transports.OpWrite, Local: long, Key: key})
	for range 6 {
		a.Post(a.clock(), 0, &Message{Op: transports.OpWrite, Local: short, Key: key})
	}
	a.drive()
	w.runFor(time.Second)
	// Short ones first: 16 packets of four, 16 of the first long one, the other two,
	// and the rest of both long ones, one after the other.
	lengths, first := runs()
	if want := []int{4, 4, 4, 4, 16, 4, 4, 84, 100}; !slices.Equal(lengths, want) || first[4].message != 0 ||
		first[8].message != 1 || first[0].message != 2 {
		t.Errorf("runs of %v packets, want %v: messages %v", lengths, want, first)
	}
	order = nil
	a.Post(a.clock(), 0, &Message{Op: transports.OpWrite, Local: long, Key: key})
	a.Post(a.clock(), 1, &Message{Op: transports.OpWrite, Local: long, Key: other})
	a.drive()
	w.runFor(time.Second)
	lengths, _ = runs()
	if want := []int{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 4, 4}; !slices.Equal(lengths, want) {
		t.Errorf("peers have runs of %v packets, want %v", lengths, want)
	}
}
