package queuepair

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"railbed/internal/infiniband"
)

// respond hands a response to the queue pair, as its requester has it.
func (s *script) respond(o infiniband.Opcode, ahead, bytes int, f infiniband.AETHFields) {
	b := infiniband.Packet(make([]byte, infiniband.Len(o, bytes)))
	b.Encode(&infiniband.Fields{BTH: infiniband.BTHFields{Opcode: o, DestQP: s.config.Number,
		PSN: s.config.SendPSN.Add(ahead)}, AETH: f}, bytes)
	s.Receive(s.w.now, b, false)
}

// TestAnswersToWhatWasNotSent mean nothing, though it is posted.
func TestAnswersToWhatWasNotSent(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Window = 2 })
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 5*mtu)}, RKey: 1})
	s.take()
	for _, syndrome := range []infiniband.Syndrome{infiniband.AckUnlimited, infiniband.NakAccess,
		infiniband.NakSequence, infiniband.RNRNak} {
		for _, ahead := range []int{2, 4, 5, -1, 1 << 22} {
			s.tell(ahead, syndrome)
		}
	}
	if s.Err() != nil || s.una != s.config.SendPSN || s.Counters().Ignored != 20 ||
		s.retries+s.rnrRetries != 0 {
		t.Errorf("%v, %+v, %d behind", s.Err(), s.Counters(), s.una.From(s.config.SendPSN))
	}
}

// TestAnswersOfAnotherKind: data that answer what asks for none mean nothing, and
// those of another length than the READ's break the queue pair before they are placed.
func TestAnswersOfAnotherKind(t *testing.T) {
	local := make([]byte, 3*mtu)
	begin := func() *script {
		s := newScript(t)
		for _, r := range []Request{{Op: Write, Local: [][]byte{make([]byte, 8)}, RKey: 1},
			{Op: FetchAdd, RKey: 1}, {Op: Read, Local: [][]byte{local[:2*mtu+10]}, RKey: 1}} {
			s.post(r)
		}
		s.take()
		return s
	}
	s := begin()
	s.respond(infiniband.ReadResponseOnly, 0, 8, infiniband.AETHFields{})
	s.respond(infiniband.ReadResponseOnly, 1, 8, infiniband.AETHFields{})
	s.respond(infiniband.AtomicAcknowledge, 0, 0, infiniband.AETHFields{})
	s.respond(infiniband.AtomicAcknowledge, 2, 0, infiniband.AETHFields{})
	if s.Err() != nil || len(s.done) != 0 || s.Counters().Ignored != 4 {
		t.Errorf("%v, %+v, %+v", s.Err(), s.done, s.Counters())
	}
	for what, c := range map[string]struct {
		o            infiniband.Opcode
		ahead, bytes int
	}{
		"a part that is too short": {infiniband.ReadResponseFirst, 2, mtu - 4},
		"one that is too long":     {infiniband.ReadResponseLast, 4, 11},
		"a last that is too short": {infiniband.ReadResponseLast, 4, 9},
		"one of nothing":           {infiniband.ReadResponseMiddle, 3, 0},
	} {
		s = begin()
		if s.respond(c.o, c.ahead, c.bytes, infiniband.AETHFields{}); !errors.Is(s.Err(), ErrResponse) {
			t.Errorf("%s: %v", what, s.Err())
		}
	}
	if !bytes.Equal(local, make([]byte, 3*mtu)) {
		t.Error("something was placed")
	}
}

// TestSelectiveNaksThatCannotBe: the NAK is for a packet not sent, or not after the awaited one.
func TestSelectiveNaksThatCannotBe(t *testing.T) {
	for _, selective := range []bool{false, true} {
		s := newScript(t, func(c *Config) { c.Selective = selective })
		s.post(Request{Op: Write, Local: [][]byte{make([]byte, 5*mtu)}, RKey: 1})
		s.take()
		for _, keeps := range []int{0, 1, -1, 5, 6, 1 << 22} {
			s.respond(infiniband.Acknowledge, 1, 0,
				infiniband.AETHFields{Syndrome: infiniband.NakSelective,
					MSN: uint32(s.config.SendPSN.Add(keeps))})
		}
		if s.Err() != nil || s.Counters().Ignored != 6 || len(s.selected) != 0 || s.una != s.config.SendPSN ||
			len(s.take()) != 0 {
			t.Errorf("selective %v: %v, %+v, %v", selective, s.Err(), s.Counters(), s.selected)
		}
		if s.respond(infiniband.Acknowledge, 1, 0,
			infiniband.AETHFields{Syndrome: infiniband.NakSelective,
				MSN: uint32(s.config.SendPSN.Add(4))}); len(s.take()) != 0 != selective {
			t.Errorf("selective %v: one that can be", selective)
		}
	}
}

// TestNotReady: after an RNR NAK nothing is sent, and no answer missed, before its time;
// and progress gives these retries back, too.
func TestNotReady(t *testing.T) {
	s := newScript(t, func(c *Config) { c.RNRRetries = 1 })
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 9*mtu)}, RKey: 1})
	for i := range 8 {
		s.take()
		const code = 20
		s.tell(i, infiniband.RNRNak|code)
		if want := s.w.now.Add(infiniband.RNRTimer(code)); s.Deadline() != want || len(s.take()) != 0 {
			t.Fatalf("packet %d: next at %v, want %v", i, s.Deadline(), want)
		}
		s.w.now = s.Deadline()
		s.Expire(s.w.now)
		if got := s.take(); len(got) != 9-i || s.Counters().Timeouts != 0 {
			t.Fatalf("packet %d: %d packets, %+v", i, len(got), s.Counters())
		}
		if s.tell(i, infiniband.AckUnlimited); s.Err() != nil {
			t.Fatalf("packet %d: %v", i, s.Err())
		}
	}
	s.tell(8, infiniband.RNRNak)
	if s.tell(8, infiniband.RNRNak); !errors.Is(s.Err(), ErrRNRRetries) {
		t.Errorf("twice in a row: %v", s.Err())
	}
}

// TestSequenceNaksInARow: of a peer that asks for the same again and again.
func TestSequenceNaksInARow(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Retries = 3 })
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 3*mtu)}, RKey: 1})
	for i := range 4 {
		if s.take(); s.Err() != nil {
			t.Fatalf("after %d: %v", i, s.Err())
		}
		s.tell(0, infiniband.NakSequence)
	}
	if !errors.Is(s.Err(), ErrRetries) {
		t.Errorf("after four: %v", s.Err())
	}
}

// TestNothingAfterTheEnd: a queue pair that broke carries nothing out, and one of
// reliable connections nothing of other services.
func TestNothingAfterTheEnd(t *testing.T) {
	s := newScript(t)
	give := func(o infiniband.Opcode) []infiniband.Fields {
		return s.give(part{opcode: o, bytes: 4, message: 4, ask: true})
	}
	for _, o := range []infiniband.Opcode{infiniband.WriteOnly + infiniband.Opcode(infiniband.UC),
		infiniband.SendOnly + infiniband.Opcode(infiniband.UC), infiniband.UDSendOnly} {
		if got := give(o); len(got) != 0 {
			t.Errorf("%v is answered by %+v", o, got)
		}
	}
	if s.expected != s.config.ReceivePSN || s.Counters().Ignored != 3 {
		t.Errorf("%+v", s.Counters())
	}
	s.Close()
	if got := give(infiniband.WriteOnly); len(got) != 0 || s.Counters().Ignored != 4 ||
		!slices.Equal(s.region.Memory, make([]byte, 4*mtu)) {
		t.Errorf("after the end it answers %+v, and memory begins with %x", got, s.region.Memory[:4])
	}
}

// TestTooMuchIsPosted: no more messages, nor more packets than PSNs tell apart.
func TestTooMuchIsPosted(t *testing.T) {
	s := newScript(t, func(c *Config) { c.Timeout = time.Hour })
	for i := range maxMessages {
		if err := s.Post(Request{Op: Write, RKey: 1}); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if s.Post(Request{Op: Write, RKey: 1}) == nil {
		t.Errorf("%d requests are taken", maxMessages+1)
	}
	s = newScript(t)
	// 2^22 packets
	long := Request{Op: Read, Local: slices.Repeat([][]byte{make([]byte, 1<<20)}, 1<<10), RKey: 1}
	if err := s.Post(long); err != nil {
		t.Fatal(err)
	}
	if s.Post(long) == nil {
		t.Error("2^23 packets are taken")
	}
	long.Local = slices.Repeat(long.Local, 2)
	if long.Local = append(long.Local, []byte{1}); s.Post(long) == nil {
		t.Error("a message of more than 2 GiB is taken")
	}
}

// TestLostAnswerBeforeOthers: a lost answer with data is requested again as soon as a later request
// is answered. With selective repeat the later request is then over and is not sent again.
func TestLostAnswerBeforeOthers(t *testing.T) {
	read := Request{Op: Read, Address: 0x10000 + 1<<20, RKey: 1}
	write := Request{Op: Write, Local: [][]byte{pattern(2*mtu, 2)}, Address: 0x10000 + 2<<20, RKey: 2}
	send := Request{Op: Send, Local: [][]byte{pattern(9, 3)}}
	for name, c := range map[string]struct {
		requests []Request
		lost     []int // answers, by how far behind the first PSN they are
		resent   [2]uint64
	}{
		"all of a READ's":      {[]Request{read, write}, []int{0, 1, 2}, [2]uint64{3, 1}},
		"the last of a READ's": {[]Request{read, write}, []int{2}, [2]uint64{3, 1}},
		"of a READ's the first, behind several": {[]Request{write, read, write, write}, []int{2},
			[2]uint64{5, 1}},
		"an atomic operation's": {[]Request{{Op: FetchAdd, Address: 0x10000 + 2<<20, RKey: 2},
			write}, []int{0}, [2]uint64{3, 1}},
		"before one that waits for a receive": {[]Request{read, send}, []int{0, 1, 2}, [2]uint64{3, 2}},
	} {
		for i, selective := range []bool{false, true} {
			w := newWorld(t, 1, func(o *Config) { o.Selective = selective })
			a, b := w.ends[0], w.ends[1]
			copy(b.region(1, 3*mtu, RemoteRead).Memory, pattern(3*mtu, 1))
			written := b.region(2, 2*mtu, RemoteWrite|RemoteAtomic)
			first, gone := a.una, map[infiniband.PSN]bool{}
			for _, behind := range c.lost {
				gone[first.Add(behind)] = true
			}
			w.fate = func(from *end, p infiniband.Packet) bool {
				psn := p.BTH().PSN()
				lost := from == b && p.Opcode() != infiniband.Acknowledge && gone[psn]
				if lost {
					delete(gone, psn)
				}
				return lost
			}
			got := make([]byte, 3*mtu)
			for id, r := range c.requests {
				if r.ID = uint64(id); r.Op == Read {
					r.Local = [][]byte{got}
				}
				a.post(r)
			}
			w.run(100 * time.Microsecond)
			if err := b.PostReceive(0, [][]byte{make([]byte, 9)}); err != nil {
				t.Fatal(err)
			}
			w.run(800 * time.Microsecond) // the timeout is 1 ms
			counters := a.Counters()
			if len(a.done) != len(c.requests) || counters.Resent != c.resent[i] || counters.Timeouts != 0 ||
				len(gone) != 0 {
				t.Errorf("%s, selective %v: %d of %d complete, %+v", name, selective, len(a.done),
					len(c.requests), counters)
			}
			for id, d := range a.done {
				if d.ID != uint64(id) || d.Err != nil {
					t.Errorf("%s, selective %v: %+v", name, selective, a.done)
				}
			}
			if slices.ContainsFunc(c.requests, func(r Request) bool {
				return r.Op == Write
			}) && !bytes.Equal(written.Memory, pattern(2*mtu, 2)) {
				t.Errorf("%s, selective %v: wrong bytes", name, selective)
			}
			if slices.ContainsFunc(c.requests, func(r Request) bool {
				return r.Op == Read
			}) && !bytes.Equal(got, pattern(3*mtu, 1)) {
				t.Errorf("%s, selective %v: wrong bytes were read", name, selective)
			}
		}
	}
}

// TestRefusedBehindLostAnswer: a peer that refuses a request answers nothing any more. So that
// request completes with the refusal. An earlier READ whose answer was lost is flushed after one
// timeout. A READ whose answer is only late is not flushed, nor a READ that was lost itself.
func TestRefusedBehindLostAnswer(t *testing.T) {
	for _, selective := range []bool{false, true} {
		for _, c := range []struct {
			opcode  infiniband.Opcode
			late    bool
			flushed bool
		}{{infiniband.ReadResponseFirst, false, true}, {infiniband.ReadResponseLast, false, true},
			{infiniband.ReadResponseLast, true, false}, {infiniband.ReadRequest, false, false}} {
			w := newWorld(t, 1, func(o *Config) { o.Selective = selective })
			a, b := w.ends[0], w.ends[1]
			b.region(1, 3*mtu, RemoteRead)
			once := true
			w.fate = func(from *end, p infiniband.Packet) bool {
				gone := once && p.Opcode() == c.opcode
				if once = once && !gone; gone && c.late {
					w.events.Push(w.now.Add(500*time.Microsecond), func() {
						from.far.Receive(w.now, p, false)
						from.far.pump()
					})
				}
				return gone
			}
			a.post(Request{ID: 1, Op: Read, Local: [][]byte{make([]byte, 3*mtu)}, Address: 0x10000 + 1<<20,
				RKey: 1})
			a.post(Request{ID: 2, Op: Write, Local: [][]byte{pattern(9, 2)}, Address: 0x10000, RKey: 7})
			a.post(Request{ID: 3, Op: Write, Local: [][]byte{pattern(9, 2)}, Address: 0x10000, RKey: 7})
			w.run(100 * time.Millisecond)
			if once || len(a.done) != 3 || !errors.Is(a.done[1].Err, ErrAccess) ||
				!errors.Is(a.done[2].Err, ErrFlushed) || a.Counters().Timeouts > 1 {
				t.Errorf("%v lost, late %v, selective %v: %+v, %+v", c.opcode, c.late, selective, a.done,
					a.Counters())
				continue
			}
			if err := a.done[0].Err; errors.Is(err, ErrFlushed) != c.flushed || !c.flushed && err != nil {
				t.Errorf("%v lost, late %v, selective %v: the READ ended with %v", c.opcode, c.late,
					selective, err)
			}
		}
	}
}
