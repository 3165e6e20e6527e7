package engine

import (
	"bytes"
	"testing"
	"time"

	"railbed/internal/wire"
	"railbed/transports"
)

// TestAttacks checks the effect of each kind of forged packet, from a misbehaving peer or from a
// host that knows the lives. Nothing is written outside a region, nothing completes, no other peer
// is disturbed, and the packet is counted.
func TestAttacks(t *testing.T) {
	data := func(change func(x *attackCase, base *wire.RDBase, f *wire.RDDataFields)) func(
		x *attackCase) wire.RD {
		return func(x *attackCase) wire.RD {
			base, f := x.base(x.a, x.b, uint32(firstPSN(x.a.life))), x.data
			payload := bytes.Repeat([]byte{0x66}, 512)
			base.Length, f.Sum = 512, wire.RDSum(payload)
			change(x, &base, &f)
			p := make(wire.RD, wire.RDDataLen, wire.RDDataLen+512)
			p.EncodeData(base, &f)
			return append(p, payload[:min(int(base.Length), 512)]...)
		}
	}
	skip := func(change func(base *wire.RDBase, f *wire.RDSkipFields)) func(x *attackCase) wire.RD {
		return func(x *attackCase) wire.RD {
			base := x.base(x.a, x.b, uint32(firstPSN(x.a.life)))
			f := wire.RDSkipFields{Count: 1, Message: x.data.Message, Total: x.data.Total, Imm: x.data.Imm,
				Bytes: 512}
			change(&base, &f)
			p := make(wire.RD, wire.RDSkipLen)
			p.EncodeSkip(base, &f)
			return p
		}
	}
	ack := func(ahead int32, f wire.RDAckFields, words ...uint64) func(x *attackCase) wire.RD {
		return func(x *attackCase) wire.RD {
			p := make(wire.RD, wire.RDAckBytes(len(words), 1))
			p.EncodeAck(x.base(x.b, x.a, uint32(firstPSN(x.a.life))+uint32(ahead)), &f, words,
				[]wire.RDEcho{{Path: 7, Packets: 255, Marked: 255}})
			return p
		}
	}
	nack := func(ahead int32, f wire.RDNackFields) func(x *attackCase) wire.RD {
		return func(x *attackCase) wire.RD {
			f.Message += x.data.Message
			p := make(wire.RD, wire.RDNackLen)
			p.EncodeNack(x.base(x.b, x.a, uint32(firstPSN(x.a.life))+uint32(ahead)), &f)
			return p
		}
	}
	type counts = Counters
	for name, c := range map[string]struct {
		forge func(x *attackCase) wire.RD
		to    counts // by how much b's grow, or a's where the packet is a's to take
	}{
		"another key": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) { f.Key++ }),
			counts{Refused: 1, Nacks: 1, Acks: 1}},
		"not writable": {data(func(x *attackCase, _ *wire.RDBase,
			f *wire.RDDataFields) {
			f.Key = x.fixed
		}), counts{Refused: 1, Nacks: 1, Acks: 1}},
		"closed": {data(func(x *attackCase, _ *wire.RDBase,
			f *wire.RDDataFields) {
			f.Key = x.closed
		}), counts{Refused: 1, Nacks: 1, Acks: 1}},
		"behind the region": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) {
			f.Offset = 4096 - 1535
		}), counts{Refused: 1, Nacks: 1, Acks: 1}},
		"far behind it": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) {
			f.Offset = 1<<64 - 512
		}), counts{Refused: 1, Nacks: 1, Acks: 1}},
		"4 GiB": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) {
			f.Total, f.Position = 1<<32-1, 1<<31
		}), counts{Refused: 1, Nacks: 1, Acks: 1}},
		"behind the total": {data(func(_ *attackCase, _ *wire.RDBase,
			f *wire.RDDataFields) {
			f.Position = 1025
		}), counts{Hostile: 1, Acks: 1}},
		"position wraps": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) {
			f.Position = 1<<32 - 256
		}), counts{Hostile: 1, Acks: 1}},
		"no bytes of some": {data(func(_ *attackCase, base *wire.RDBase, f *wire.RDDataFields) {
			base.Length, f.Sum = 0, 0
		}), counts{Hostile: 1, Acks: 1}},
		"bytes of none": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) { f.Total = 0 }),
			counts{Hostile: 1, Acks: 1}},
		"wrong sum": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) { f.Sum++ }),
			counts{Corrupt: 1, Acks: 1}},
		"PSN ahead": {data(func(_ *attackCase, base *wire.RDBase, _ *wire.RDDataFields) {
			base.PSN += Window
		}), counts{Hostile: 1, Nacks: 1, Acks: 1}},
		"PSN behind": {data(func(_ *attackCase, base *wire.RDBase,
			_ *wire.RDDataFields) {
			base.PSN--
		}), counts{Duplicates: 1, Acks: 1}},
		"PSN far behind": {data(func(_ *attackCase, base *wire.RDBase, _ *wire.RDDataFields) {
			base.PSN += 1 << 31
		}), counts{Duplicates: 1, Acks: 1}},
		"message ahead": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) {
			f.Message += Messages
		}), counts{Hostile: 1, Nacks: 1, Acks: 1}},
		"message behind": {data(func(_ *attackCase, _ *wire.RDBase, f *wire.RDDataFields) { f.Message-- }),
			counts{Acks: 1}},
		"engine it has not": {data(func(_ *attackCase, base *wire.RDBase,
			_ *wire.RDDataFields) {
			base.Source += 3
		}), counts{Hostile: 1}},
		"another engine's": {data(func(_ *attackCase, base *wire.RDBase, _ *wire.RDDataFields) {
			base.Destination++
		}), counts{Foreign: 1}},
		"old life of ours": {data(func(_ *attackCase, base *wire.RDBase,
			_ *wire.RDDataFields) {
			base.Tag++
		}), counts{Foreign: 1}},
		"unknown life": {data(func(_ *attackCase, base *wire.RDBase,
			_ *wire.RDDataFields) {
			base.Life++
		}), counts{Foreign: 1}},
		"encrypted": {data(func(_ *attackCase, base *wire.RDBase, _ *wire.RDDataFields) {
			base.Flags |= wire.RDEncrypted
		}), counts{Corrupt: 1}},

		"skip of none": {skip(func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Count = 0 }),
			counts{Hostile: 1, Acks: 1}},
		"skip of 2^32-1": {skip(func(_ *wire.RDBase, f *wire.RDSkipFields) {
			f.Count = 1<<32 - 1
		}), counts{Hostile: 1, Acks: 1}},
		"skip of 2^31": {skip(func(base *wire.RDBase, f *wire.RDSkipFields) {
			f.Count = 1 << 31
			base.PSN += 1 << 31
		}), counts{Hostile: 1, Acks: 1}},
		"skip past the window": {skip(func(base *wire.RDBase, f *wire.RDSkipFields) {
			f.Count = 2
			base.PSN += Window - 1
		}), counts{Hostile: 1, Acks: 1}},
		"skip of a late message": {skip(func(_ *wire.RDBase, f *wire.RDSkipFields) {
			f.Message += Messages
		}), counts{Hostile: 1, Acks: 1}},
		"hole past the total": {skip(func(base *wire.RDBase, f *wire.RDSkipFields) {
			base.Flags |= wire.RDDroppable
			f.Bytes = f.Total + 1
		}), counts{Hostile: 1, Acks: 1}},
		"hole of two": {skip(func(base *wire.RDBase, f *wire.RDSkipFields) {
			base.Flags |= wire.RDDroppable
			f.Count = 2
		}), counts{Acks: 1}},

		"ACK of what was never sent": {ack(1000, wire.RDAckFields{Limit: 0}), counts{Hostile: 1}},
		"ACK far behind":             {ack(-1<<31, wire.RDAckFields{}), counts{Hostile: 0}},
		"bitmap of what was never sent": {ack(0, wire.RDAckFields{}, 0x0FFFFFFFFFFFFFFF, 1<<63),
			counts{}},
		"limit in the past, no room": {ack(0,
			wire.RDAckFields{Limit: 0, Room: 0, Timestamp: 1 << 31, Delay: 1 << 31}), counts{}},
		"NACK of what was never sent": {nack(900, wire.RDNackFields{Reason: wire.RDNoRegion}),
			counts{}},
		"NACK of another message's": {nack(0,
			wire.RDNackFields{Reason: wire.RDNoRegion, Message: 1}), counts{}},
		"NACK of no known reason":            {nack(0, wire.RDNackFields{Reason: 99}), counts{}},
		"NACK for the window":                {nack(0, wire.RDNackFields{Reason: wire.RDWindow}), counts{}},
		"NACK for trimming, sooner than may": {nack(0, wire.RDNackFields{Reason: wire.RDTrimmed}), counts{}},
	} {
		w := newWorld(t, 1)
		x := &attackCase{}
		x.a, x.b = w.pair()
		c1 := w.node()
		c1.add(x.b)
		x.b.add(c1)
		region, key := x.b.region(4096)
		fixed, fixedKey := x.b.region(4096)
		closed, closedKey := x.b.region(4096)
		fixed.Writable = false
		closed.Closed.Store(true)
		x.fixed, x.closed = fixedKey, closedKey
		x.data = wire.RDDataFields{Key: key, Message: firstMessage(x.a.life), Total: 1536, Position: 512,
			Imm: 5}
		_, aimed := x.b.region(5120)
		p := c.forge(x)
		to := x.b
		if p.Type() == wire.RDAck || p.Type() == wire.RDNack {
			to = x.a
			x.a.Post(x.a.clock(), 0, &Message{Op: transports.OpWriteImm, Local: make([]byte, 1536),
				Key: aimed})
			x.a.drive()
		}
		before := to.Counters()
		if p.Type() == wire.RDData && p.Flags()&wire.RDEncrypted == 0 && !p.Valid() {
			t.Fatalf("%s: the packet is not valid", name)
		}
		to.Receive(to.clock(), Arrival{Data: p, Path: 7, Marked: false, From: x.a.addr})
		if err := to.consistent(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		to.drive()
		if to == x.b {
			w.runFor(2 * ackDelay)
		}
		after := to.Counters()
		got := counts{Refused: after.Refused - before.Refused, Hostile: after.Hostile - before.Hostile,
			Corrupt: after.Corrupt - before.Corrupt,
			Foreign: after.Foreign - before.Foreign, Duplicates: after.Duplicates - before.Duplicates,
			Nacks: after.Nacks - before.Nacks, Acks: after.Acks - before.Acks}
		if got != c.to {
			t.Errorf("%s: counts %+v, want %+v", name, got, c.to)
		}
		w.checkGuards()
		for _, r := range []*Region{region, fixed, closed} {
			if !bytes.Equal(r.Memory, make([]byte, 4096)) {
				t.Errorf("%s: bytes were written", name)
			}
		}
		if len(x.b.received) != 0 && to == x.b || len(x.a.completed) != 0 && to == x.b {
			t.Errorf("%s: %+v", name, x.b.received)
		}
		if in := x.b.peers[0].in[0]; to == x.b && in != nil && in.highest != firstPSN(x.a.life) &&
			name != "message behind" {
			t.Errorf("%s: packets up to %d count as come", name, in.highest)
		}
		// Another peer is not disturbed, nor the message that was attacked.
		_, key2 := x.b.region(5120)
		c1.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 5120), Key: key2, Imm: 9})
		w.runFor(10 * time.Second)
		want := 1
		if to == x.a {
			want = 2
			if c := x.a.completed; len(c) != 1 || c[0].Err != nil {
				t.Errorf("%s: completed %+v", name, c)
			}
		}
		if len(x.b.received) != want || len(x.a.failed)+len(x.b.failed) != 0 {
			t.Errorf("%s: afterwards %+v, failed %v, %v", name, x.b.received, x.a.failed, x.b.failed)
		}
	}
}

type attackCase struct {
	a, b          *testNode
	data          wire.RDDataFields // of a good packet of a's first message
	fixed, closed uint64            // keys
}

func (x *attackCase) base(from, to *testNode, psn uint32) wire.RDBase {
	return wire.RDBase{Source: from.config.Port, Destination: to.config.Port, Tag: uint32(to.life),
		Life: from.life, PSN: psn}
}

// TestOverlapIsNotWhole checks that overlapping pieces do not stand for a missing one.
func TestOverlapIsNotWhole(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	region, key := b.region(2048)
	x := &attackCase{a: a, b: b}
	place := func(psn uint32, position, size uint32) {
		base := x.base(a, b, uint32(firstPSN(a.life))+psn)
		payload := bytes.Repeat([]byte{1}, int(size))
		base.Length, base.Flags = uint16(size), wire.RDImm
		p := make(wire.RD, wire.RDDataLen)
		p.EncodeData(base, &wire.RDDataFields{Key: key, Message: firstMessage(a.life), Total: 2048,
			Position: position, Imm: 5, Sum: wire.RDSum(payload)})
		b.Receive(b.clock(), Arrival{Data: append(p, payload...)})
	}
	place(0, 0, 512)
	place(1, 256, 512)
	place(2, 768, 512)
	place(3, 1536, 512) // 2,048 bytes, and 1280 to 1535 are missing
	if len(b.received) != 0 || b.Counters().Hostile != 1 || region.Memory[1300] != 0 {
		t.Fatalf("%+v, %+v", b.received, b.Counters())
	}
	if err := b.consistent(); err != nil {
		t.Error(err)
	}
}

// TestFloods holds that any number of forged packets leaves no more behind than
// one does, and is answered by at most one packet each and an acknowledgement.
func TestFloods(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	c := w.node()
	region, key := b.region(1 << 16)
	x := &attackCase{a: a, b: b}
	b.add(c)
	c.add(b)
	answers := 0
	w.saw = func(from, to *testNode, _ wire.RD) {
		if from == b && to != c {
			answers++
		}
	}
	const flood = 200_000
	for i := range uint32(flood) {
		base := x.base(a, b, i*7919)
		p := make(wire.RD, wire.RDDataLen)
		switch i % 5 {
		case 0: // a stranger, of another life each
			base.Life = uint64(i) << 20
		case 1: // of an old tag
			base.Tag = i
		}
		p.EncodeData(base, &wire.RDDataFields{Key: uint64(i), Message: i * 31, Total: 1 << 30, Position: i})
		if i%5 == 2 {
			p = p[:wire.RDBaseLen]
			p.EncodeClose(wire.RDBase{Source: 99, Destination: b.config.Port, Tag: base.Tag, Life: uint64(i)})
		}
		b.Receive(b.clock(), Arrival{Data: p, Path: uint16(i), From: a.addr})
		if i%256 == 0 {
			b.drive()
		}
	}
	b.drive()
	if err := b.consistent(); err != nil || len(b.byLife) != 2 ||
		len(b.peers[0].in[0].echoes) > wire.RDMaxEchoes {
		t.Errorf("%v; %d lives", err, len(b.byLife))
	}
	if answers > flood || b.Counters().Foreign == 0 || b.Counters().Hostile == 0 {
		t.Errorf("%d answers to %d packets; %+v", answers, flood, b.Counters())
	}
	c.post(0, Message{Op: transports.OpWriteImm, Local: fill(make([]byte, 1<<16), 3), Key: key, Imm: 1})
	w.runFor(time.Second)
	if len(b.received) != 1 || !bytes.Equal(region.Memory, fill(make([]byte, 1<<16), 3)) {
		t.Errorf("another peer's message: %+v", b.received)
	}
}

// TestNeverTaken holds that a message which the receiver cannot take, since
// somebody else's packet began it, ends with an error instead of never.
func TestNeverTaken(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	_, key := b.region(512)
	x := &attackCase{a: a, b: b}
	p := make(wire.RD, wire.RDDataLen+1)
	base := x.base(a, b, uint32(firstPSN(a.life))+50)
	base.Length = 1
	p[:wire.RDDataLen].EncodeData(base,
		&wire.RDDataFields{Key: key, Message: firstMessage(a.life), Total: 77, Sum: wire.RDSum([]byte{0})})
	b.Receive(b.clock(), Arrival{Data: p})
	a.post(0, Message{Op: transports.OpWriteImm, Local: make([]byte, 512), Key: key})
	w.runFor(time.Minute)
	if len(a.completed) != 1 || a.completed[0].Err == nil || a.Counters().Repeated != mostTries-1 ||
		len(b.received) != 0 || a.Deadline() < 1<<62 {
		t.Errorf("%+v, %+v", a.completed, a.Counters())
	}
}

// TestStuckLimit holds that a peer which keeps everything back and then dies is
// failed, though nothing is under way.
func TestStuckLimit(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.pair()
	_, key := b.region(1 << 20)
	b.dead = true
	local := make([]byte, 2*Window*512)
	a.peers[0].Room = 2 * Window
	a.post(0, Message{Op: transports.OpWriteImm, Local: local, Key: key})
	f := wire.RDAckFields{Limit: uint32(firstPSN(a.life)), Room: 2 * Window}
	p := make(wire.RD, wire.RDAckLen)
	p.EncodeAck((&attackCase{}).base(b, a, uint32(firstPSN(a.life)+Window)), &f, nil, nil)
	a.Receive(a.clock(), Arrival{Data: p})
	a.drive()
	if a.peers[0].out.flight.count != 0 || a.peers[0].out.idle() {
		t.Fatalf("%d are in flight", a.peers[0].out.flight.count)
	}
	w.runFor(defaultPeerTimeout)
	if len(a.failed) != 1 || len(a.completed) != 1 || a.Counters().Probes == 0 {
		t.Errorf("failed %v, %d probes", a.failed, a.Counters().Probes)
	}
}
