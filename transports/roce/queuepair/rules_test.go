package queuepair

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"railbed/internal/infiniband"
	"railbed/transports/roce/dcqcn"
)

// script is a queue pair of which the test is the peer.
type script struct {
	*end
	t      testing.TB
	region *Region
	rkey   uint32
}

func newScript(t testing.TB, change ...func(*Config)) *script {
	w := newWorld(t, 3, change...)
	s := &script{end: w.ends[0], t: t, rkey: 1}
	s.region = s.end.region(1, 4*mtu, RemoteWrite|RemoteRead|RemoteAtomic)
	return s
}

// part is a packet of a peer: of so many bytes, and of a message of so many.
type part struct {
	opcode  infiniband.Opcode
	ahead   int // of the expected one
	bytes   int
	message int
	ask     bool
}

// give hands a packet to the queue pair, and takes what it answers.
func (s *script) give(p part) []infiniband.Fields {
	b := infiniband.Packet(make([]byte, infiniband.Len(p.opcode, p.bytes)))
	b.Encode(&infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: p.opcode, PKey: infiniband.PKey, DestQP: s.config.Number,
			PSN: s.config.ReceivePSN.Add(p.ahead), AckReq: p.ask},
		RETH:      infiniband.RETHFields{VA: s.region.Base, RKey: s.rkey, Length: uint32(p.message)},
		AtomicETH: infiniband.AtomicETHFields{VA: s.region.Base, RKey: 1, SwapAdd: 1},
	}, p.bytes)
	copy(b.Payload(), bytes.Repeat([]byte{0xEE}, p.bytes))
	s.Receive(s.w.now, b, false)
	return s.take()
}

// take returns the packets that the queue pair sends now.
func (s *script) take() (sent []infiniband.Fields) {
	for {
		memory := make([]byte, mtu+infiniband.MaxOverhead)
		n := s.Next(s.w.now, memory)
		if n == 0 {
			return sent
		}
		sent = append(sent, infiniband.Packet(memory[:n]).Fields())
	}
}

// tell hands an acknowledgement to the queue pair.
func (s *script) tell(ahead int, syndrome infiniband.Syndrome) {
	b := infiniband.Packet(make([]byte, infiniband.Len(infiniband.Acknowledge, 0)))
	b.Encode(&infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.Acknowledge, PKey: infiniband.PKey,
			DestQP: s.config.Number, PSN: s.config.SendPSN.Add(ahead)},
		AETH: infiniband.AETHFields{Syndrome: syndrome},
	}, 0)
	s.Receive(s.w.now, b, false)
}

// TestMessagesThatCannotBe: parts that do not follow each other, or whose lengths
// are not those of their message, are refused before a byte of them is placed (IBTA
// 9.7.4.1.3 to 9.7.4.1.5).
func TestMessagesThatCannotBe(t *testing.T) {
	for what, parts := range map[string][]part{
		"a middle at the beginning": {{opcode: infiniband.WriteMiddle, bytes: mtu}},
		"a last at the beginning":   {{opcode: infiniband.SendLast, bytes: 1}},
		"a first after a first": {{opcode: infiniband.WriteFirst, bytes: mtu, message: 2 * mtu},
			{opcode: infiniband.WriteFirst, bytes: mtu, message: 2 * mtu}},
		"a SEND within a WRITE": {{opcode: infiniband.WriteFirst, bytes: mtu, message: 2 * mtu},
			{opcode: infiniband.SendLast, bytes: mtu}},
		"a READ within a WRITE": {{opcode: infiniband.WriteFirst, bytes: mtu, message: 2 * mtu},
			{opcode: infiniband.ReadRequest, message: 1}},
		"an atomic within a SEND": {{opcode: infiniband.SendFirst, bytes: mtu},
			{opcode: infiniband.FetchAdd}},
		"an only within a WRITE": {{opcode: infiniband.WriteFirst, bytes: mtu, message: 2 * mtu},
			{opcode: infiniband.WriteOnly, bytes: 4, message: 4}},
		"an only within a SEND": {{opcode: infiniband.SendFirst, bytes: mtu},
			{opcode: infiniband.SendOnly, bytes: 4}},
		"a short first":           {{opcode: infiniband.WriteFirst, bytes: mtu - 4, message: 2 * mtu}},
		"a short first of a SEND": {{opcode: infiniband.SendFirst, bytes: mtu - 4}},
		"an empty last": {{opcode: infiniband.SendFirst, bytes: mtu},
			{opcode: infiniband.SendLast}},
		"an only beyond the MTU": {{opcode: infiniband.WriteOnly, bytes: mtu + 4, message: mtu + 4}},
		"more than the message":  {{opcode: infiniband.WriteOnly, bytes: 8, message: 4}},
		"less than the message":  {{opcode: infiniband.WriteOnly, bytes: 4, message: 8}},
		"a first that is all":    {{opcode: infiniband.WriteFirst, bytes: mtu, message: mtu}},
		"a first with more":      {{opcode: infiniband.WriteFirst, bytes: mtu, message: 4}},
		"a last with less": {{opcode: infiniband.WriteFirst, bytes: mtu, message: 2 * mtu},
			{opcode: infiniband.WriteLast, bytes: 4}},
		"a message of 2 GiB and more":  {{opcode: infiniband.WriteFirst, bytes: mtu, message: 1<<31 + 1}},
		"a SEND that invalidates":      {{opcode: infiniband.SendOnlyInvalidate, bytes: 4}},
		"a READ of 2 GiB and more":     {{opcode: infiniband.ReadRequest, message: 1<<31 + 1}},
		"an atomic that is not at 8 n": {{opcode: infiniband.FetchAdd}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScript(t)
			if what == "an atomic that is not at 8 n" {
				s.region.Base += 4
			}
			if err := s.PostReceive(1, [][]byte{make([]byte, 3*mtu)}); err != nil {
				t.Fatal(err)
			}
			for i, p := range parts {
				p.ahead = i
				before := bytes.Clone(s.region.Memory)
				got := s.give(p)
				if i < len(parts)-1 {
					if s.Err() != nil {
						t.Fatalf("part %d: %v", i, s.Err())
					}
					continue
				}
				if len(got) != 1 || got[0].AETH.Syndrome != infiniband.NakInvalid ||
					got[0].BTH.PSN != s.config.ReceivePSN.Add(i) || !errors.Is(s.Err(), ErrInvalid) {
					t.Errorf("answered %+v, %v", got, s.Err())
				}
				if !bytes.Equal(s.region.Memory, before) {
					t.Error("something was placed")
				}
			}
		})
	}
}

// TestLengths: a message of the greatest length is refused before its first byte if the region is
// shorter. A message without bytes needs no region (IBTA 9.7.4.1.4, C9-88).
func TestLengths(t *testing.T) {
	for what, c := range map[string]struct {
		part
		rkey uint32
		want infiniband.Opcode // 0 is a NAK
	}{
		"a READ of 2 GiB": {part{opcode: infiniband.ReadRequest, message: 1 << 31}, 1, 0},
		"a WRITE of 2 GiB": {part{opcode: infiniband.WriteFirst, bytes: mtu, message: 1 << 31}, 1,
			0},
		"a READ of a byte too many": {part{opcode: infiniband.ReadRequest, message: 4*mtu + 1}, 1, 0},
		"a READ of nothing":         {part{opcode: infiniband.ReadRequest}, 9, infiniband.ReadResponseOnly},
		"a WRITE of nothing": {part{opcode: infiniband.WriteOnly, ask: true}, 9,
			infiniband.Acknowledge},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScript(t)
			s.rkey = c.rkey
			got := s.give(c.part)
			if len(got) != 1 || s.Err() != nil != (c.want == 0) ||
				c.want != 0 && got[0].BTH.Opcode != c.want ||
				c.want == 0 && got[0].AETH.Syndrome != infiniband.NakAccess {
				t.Errorf("answered %+v, %v", got, s.Err())
			}
			if !bytes.Equal(s.region.Memory, make([]byte, 4*mtu)) {
				t.Error("something was placed")
			}
		})
	}
}

// TestRightsOfTheQueuePair: what the queue pair does not let its peer do no region
// does.
func TestRightsOfTheQueuePair(t *testing.T) {
	for o, rights := range map[infiniband.Opcode]Rights{infiniband.WriteOnly: RemoteWrite,
		infiniband.ReadRequest: RemoteRead, infiniband.CompareSwap: RemoteAtomic} {
		for _, allowed := range []bool{false, true} {
			s := newScript(t, func(c *Config) {
				if c.Rights = rights; !allowed {
					c.Rights ^= RemoteWrite | RemoteRead | RemoteAtomic
				}
			})
			p := part{opcode: o, message: 4, ask: true}
			if o.HasPayload() {
				p.bytes = 4
			}
			if got := s.give(p); len(got) != 1 || (got[0].AETH.Syndrome == infiniband.NakAccess) == allowed ||
				(s.Err() == nil) != allowed {
				t.Errorf("%v, allowed %v: %+v, %v", o, allowed, got, s.Err())
			}
		}
	}
}

// TestSequence: the first of several early packets is answered by a NAK with the expected PSN. The
// others get no answer until that packet has arrived. A duplicate is acknowledged again, up to the
// latest PSN.
func TestSequence(t *testing.T) {
	s := newScript(t)
	write := func(ahead int) []infiniband.Fields {
		return s.give(part{opcode: infiniband.WriteOnly, bytes: 4, message: 4, ahead: ahead, ask: true})
	}
	for i, c := range []struct {
		ahead    int
		answered bool
		syndrome infiniband.Syndrome
		psn      int
		msn      uint32
	}{
		{0, true, infiniband.AckUnlimited, 0, 1},
		{2, true, infiniband.NakSequence, 1, 1},
		{3, false, 0, 0, 0},
		{1, true, infiniband.AckUnlimited, 1, 2},
		{3, true, infiniband.NakSequence, 2, 2},
		{0, true, infiniband.AckUnlimited, 1, 2},
		{-1, true, infiniband.AckUnlimited, 1, 2},
		{2, true, infiniband.AckUnlimited, 2, 3},
	} {
		got := write(c.ahead)
		if !c.answered {
			if len(got) != 0 {
				t.Errorf("step %d: answered %+v", i, got)
			}
			continue
		}
		if len(got) != 1 || got[0].AETH.Syndrome != c.syndrome || got[0].AETH.MSN != c.msn ||
			got[0].BTH.PSN != s.config.ReceivePSN.Add(c.psn) {
			t.Errorf("step %d: answered %+v, want %+v", i, got, c)
		}
	}
}

// TestSequenceAfterARead: a READ that comes after packets before their turn ends the
// silence about them, too.
func TestSequenceAfterARead(t *testing.T) {
	s := newScript(t)
	early := part{opcode: infiniband.WriteOnly, bytes: 4, message: 4, ahead: 2, ask: true}
	for range 2 {
		if got := s.give(early); len(got) != 1 || got[0].AETH.Syndrome != infiniband.NakSequence {
			t.Fatalf("answered %+v", got)
		}
		s.give(part{opcode: infiniband.ReadRequest, message: 4, ahead: early.ahead - 2})
		early.ahead++
	}
}

// TestAnswersKeepTheirOrder: an acknowledgement replaces an earlier acknowledgement, but not a NAK,
// which would be lost.
func TestAnswersKeepTheirOrder(t *testing.T) {
	s := newScript(t)
	give := func(ahead int) {
		b := infiniband.Packet(make([]byte, infiniband.Len(infiniband.WriteOnly, 0)))
		b.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
			DestQP: s.config.Number, PSN: s.config.ReceivePSN.Add(ahead)}}, 0)
		s.Receive(s.w.now, b, false)
	}
	ask := func(ahead int) { s.give(part{opcode: infiniband.WriteOnly, ahead: ahead, ask: true}) }
	ask(0)
	give(2)  // NAK
	give(-1) // what came again is acknowledged, asked or not
	give(0)
	got := s.take()
	if len(got) != 2 || got[0].AETH.Syndrome != infiniband.NakSequence ||
		got[0].BTH.PSN != s.config.ReceivePSN.Add(1) || got[1].AETH.Syndrome != infiniband.AckUnlimited ||
		got[1].BTH.PSN != s.config.ReceivePSN {
		t.Errorf("answered %+v", got)
	}
}

// TestReadAgain: a repeated READ is answered from its address on, in place of the unsent rest of
// the first answer. The answer never exceeds the original request.
func TestReadAgain(t *testing.T) {
	s := newScript(t)
	base := s.region.Base
	read := func(ahead, length int) {
		b := infiniband.Packet(make([]byte, infiniband.Len(infiniband.ReadRequest, 0)))
		b.Encode(&infiniband.Fields{
			BTH: infiniband.BTHFields{Opcode: infiniband.ReadRequest, DestQP: s.config.Number,
				PSN: s.config.ReceivePSN.Add(ahead)},
			RETH: infiniband.RETHFields{VA: base, RKey: 1, Length: uint32(length)},
		}, 0)
		s.Receive(s.w.now, b, false)
	}
	memory := make([]byte, mtu+infiniband.MaxOverhead)
	read(0, 3*mtu)
	s.Next(s.w.now, memory) // the first part
	read(0, 3*mtu)
	var parts []infiniband.Opcode
	for _, f := range s.take() {
		parts = append(parts, f.BTH.Opcode)
	}
	if !slices.Equal(parts, []infiniband.Opcode{infiniband.ReadResponseFirst, infiniband.ReadResponseMiddle,
		infiniband.ReadResponseLast}) {
		t.Errorf("answered %v", parts)
	}
	read(1, 2*mtu)
	if got := s.take(); len(got) != 2 || got[0].BTH.Opcode != infiniband.ReadResponseFirst ||
		got[0].BTH.PSN != s.config.ReceivePSN.Add(1) {
		t.Errorf("the rest is %+v", got)
	}
	for _, c := range [][2]int{{0, 3*mtu + 1}, {1, 2*mtu + 1}, {2, 4 * mtu}, {0, 1<<31 + 1}, {0, 1 << 31}} {
		if read(c[0], c[1]); len(s.pending) != 0 || s.Err() != nil {
			t.Errorf("more than was asked for, %v: %+v, %v", c, s.take(), s.Err())
		}
	}
	s.region.Base -= 2 * mtu // so that the rest is beyond it
	if read(0, 3*mtu); len(s.pending) != 0 || s.Err() != nil {
		t.Errorf("what is no more: %+v, %v", s.take(), s.Err())
	}
	s.region.Base += 2 * mtu
	fetch := infiniband.Packet(make([]byte, infiniband.Len(infiniband.FetchAdd, 0)))
	fetch.Encode(&infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.FetchAdd, DestQP: s.config.Number,
			PSN: s.config.ReceivePSN},
		AtomicETH: infiniband.AtomicETHFields{VA: s.region.Base, RKey: 1, SwapAdd: 1},
	}, 0)
	if s.Receive(s.w.now, fetch, false); len(s.pending) != 0 || s.region.Memory[0] != 0 {
		t.Errorf("an atomic operation with the PSN of a READ: %+v", s.take())
	}
}

// TestReceiveThatIsTooShort: by a byte.
func TestReceiveThatIsTooShort(t *testing.T) {
	s := newScript(t)
	if err := s.PostReceive(1, [][]byte{make([]byte, 10), make([]byte, mtu-11)}); err != nil {
		t.Fatal(err)
	}
	s.give(part{opcode: infiniband.SendOnly, bytes: mtu})
	if len(s.done) != 1 || !errors.Is(s.done[0].Err, ErrLength) || !errors.Is(s.Err(), ErrLength) {
		t.Errorf("%+v, %v", s.done, s.Err())
	}
}

// TestWindow: no more packets than the window are under way, the last of them asks
// for an acknowledgement, and no more READs than agreed.
func TestWindow(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Window, c.AckEvery, c.Reads = 8, 100, 3 })
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 20*mtu)}, RKey: 1})
	got := s.take()
	if len(got) != 8 || !got[7].BTH.AckReq || slices.ContainsFunc(got[:7], func(f infiniband.Fields) bool {
		return f.BTH.AckReq
	}) {
		t.Errorf("%d packets, %+v", len(got), got)
	}
	s.tell(4, infiniband.AckUnlimited)
	if got = s.take(); len(got) != 5 || !got[4].BTH.AckReq {
		t.Errorf("%d packets after five were acknowledged", len(got))
	}
	s = newScript(t, func(c *Config) { c.Window, c.Reads = 32, 3 })
	for range 5 {
		s.post(Request{Op: Read, Local: [][]byte{make([]byte, 4)}, RKey: 1})
	}
	if got = s.take(); len(got) != 3 {
		t.Errorf("%d READs under way, want 3", len(got))
	}
}

// TestRetriesStartAnew: progress gives all retries back.
func TestRetriesStartAnew(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Retries = 2 })
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 10*mtu)}, RKey: 1})
	for i := range 9 {
		for range 2 {
			s.take()
			s.w.now = s.Deadline()
			s.Expire(s.w.now)
		}
		s.take()
		s.tell(i, infiniband.AckUnlimited)
		if s.Err() != nil {
			t.Fatalf("after packet %d: %v", i, s.Err())
		}
	}
	for range 3 {
		s.take()
		s.w.now = s.Deadline()
		s.Expire(s.w.now)
	}
	if !errors.Is(s.Err(), ErrRetries) {
		t.Errorf("after three timeouts in a row: %v", s.Err())
	}
}

// TestBoundedMemory: packets far ahead are not kept, nor more of them than the window. A READ that
// is repeated often is answered once at a time. A peer with more READs in flight than permitted is
// refused.
func TestBoundedMemory(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Selective = true })
	for _, ahead := range []int{1, 31, 32, 1000, 1 << 22} {
		s.give(part{opcode: infiniband.WriteOnly, bytes: 4, message: 4, ahead: ahead})
	}
	if len(s.stash) != 2 {
		t.Errorf("%d packets are kept, want those 1 and 31 ahead", len(s.stash))
	}
	for _, selective := range []bool{false, true} {
		s = newScript(t, func(c *Config) { c.Selective = selective })
		read := infiniband.Packet(make([]byte, infiniband.Len(infiniband.ReadRequest, 0)))
		send := func(ahead int) {
			read.Encode(&infiniband.Fields{
				BTH: infiniband.BTHFields{Opcode: infiniband.ReadRequest, PKey: infiniband.PKey,
					DestQP: s.config.Number, PSN: s.config.ReceivePSN.Add(ahead)},
				RETH: infiniband.RETHFields{VA: s.region.Base, RKey: 1, Length: 4},
			}, 0)
			s.Receive(s.w.now, read, false)
		}
		for range 1000 {
			send(0)
		}
		if got := s.take(); len(got) != 1 || got[0].BTH.Opcode != infiniband.ReadResponseOnly {
			t.Errorf("selective %v: %d answers to a READ a thousand times", selective, len(got))
		}
		for ahead := 1; s.Err() == nil && ahead < 1000; ahead++ {
			send(ahead)
		}
		if !errors.Is(s.Err(), ErrInvalid) || len(s.take()) > 2*s.config.RemoteReads+1 {
			t.Errorf("selective %v: a thousand READs under way: %v", selective, s.Err())
		}
		s = newScript(t, func(c *Config) { c.Selective = selective })
		for ahead := range 100 { // each is answered
			if send(ahead); len(s.take()) != 1 {
				t.Fatalf("READ %d is not answered: %v", ahead, s.Err())
			}
		}
		if len(s.repeats) != s.config.RemoteReads {
			t.Errorf("%d READs are kept for their repetition, want %d", len(s.repeats), s.config.RemoteReads)
		}
	}
	s = newScript(t)
	fetch := infiniband.Packet(make([]byte, infiniband.Len(infiniband.FetchAdd, 0)))
	for ahead := 0; s.Err() == nil && ahead < 1000; ahead++ {
		fetch.Encode(&infiniband.Fields{
			BTH: infiniband.BTHFields{Opcode: infiniband.FetchAdd, DestQP: s.config.Number,
				PSN: s.config.ReceivePSN.Add(ahead)},
			AtomicETH: infiniband.AtomicETHFields{VA: s.region.Base, RKey: 1},
		}, 0)
		s.Receive(s.w.now, fetch, false)
	}
	if !errors.Is(s.Err(), ErrInvalid) || len(s.pending) > s.pendingBound() {
		t.Errorf("a thousand atomic operations under way: %v", s.Err())
	}
	// Of NAKs of selective repeat there is one for each early packet, and no more than
	// there is room for; nor of CNPs.
	s = newScript(t, func(c *Config) { c.Selective, c.Congestion = true, &dcqcn.Params{Line: 1e9} })
	early := infiniband.Packet(make([]byte, infiniband.Len(infiniband.WriteOnly, 0)))
	early.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: infiniband.WriteOnly,
		DestQP: s.config.Number, PSN: s.config.ReceivePSN.Add(1)}}, 0)
	for range 1000 {
		s.w.now = s.w.now.Add(time.Millisecond)
		s.Receive(s.w.now, early, true)
	}
	if len(s.pending) > s.pendingBound() {
		t.Errorf("%d answers wait, limit %d", len(s.pending), s.pendingBound())
	}
}

// TestRegionGoes: from when a region is no more no byte of it is written or read,
// whatever of a message came before.
func TestRegionGoes(t *testing.T) {
	s := newScript(t)
	s.give(part{opcode: infiniband.WriteFirst, bytes: mtu, message: 3 * mtu})
	delete(s.regions, 1)
	before := bytes.Clone(s.region.Memory)
	got := s.give(part{opcode: infiniband.WriteMiddle, bytes: mtu, ahead: 1})
	if len(got) != 1 || got[0].AETH.Syndrome != infiniband.NakAccess || !errors.Is(s.Err(), ErrAccess) ||
		!bytes.Equal(s.region.Memory, before) {
		t.Errorf("a part of a WRITE afterwards: %+v, %v", got, s.Err())
	}
	s = newScript(t)
	read := infiniband.Packet(make([]byte, infiniband.Len(infiniband.ReadRequest, 0)))
	read.Encode(&infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.ReadRequest, PKey: infiniband.PKey,
			DestQP: s.config.Number, PSN: s.config.ReceivePSN},
		RETH: infiniband.RETHFields{VA: s.region.Base, RKey: 1, Length: 3 * mtu},
	}, 0)
	s.Receive(s.w.now, read, false)
	memory := make([]byte, mtu+infiniband.MaxOverhead)
	if n := s.Next(s.w.now, memory); infiniband.Packet(memory[:n]).Opcode() != infiniband.ReadResponseFirst {
		t.Fatalf("answered %x", memory[:n])
	}
	delete(s.regions, 1)
	if got := s.take(); len(got) != 1 || got[0].AETH.Syndrome != infiniband.NakAccess ||
		got[0].BTH.PSN != s.config.ReceivePSN.Add(1) || !errors.Is(s.Err(), ErrAccess) {
		t.Errorf("the rest of a READ afterwards: %+v, %v", got, s.Err())
	}
}

// TestAtomicAgain: an atomic operation that is asked for again answers what it
// found then, and is not carried out again.
func TestAtomicAgain(t *testing.T) {
	s := newScript(t)
	for range 3 {
		got := s.give(part{opcode: infiniband.FetchAdd})
		if len(got) != 1 || got[0].BTH.Opcode != infiniband.AtomicAcknowledge || got[0].Original != 0 ||
			s.region.Memory[0]+s.region.Memory[7] != 1 {
			t.Errorf("%+v, memory %v", got, s.region.Memory[:8])
		}
	}
}

// TestConfig: numbers that cannot be are refused.
func TestConfig(t *testing.T) {
	for what, c := range map[string]Config{
		"MTU":    {MTU: 1500},
		"number": {MTU: mtu, Number: 1 << 24},
		"PSN":    {MTU: mtu, SendPSN: 1 << 24},
		"window": {MTU: mtu, Window: 1 << 20},
		"time":   {MTU: mtu, Timeout: -time.Second},
		"timer":  {MTU: mtu, RNRTimer: 32},
	} {
		if _, err := New(c, nil); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}
