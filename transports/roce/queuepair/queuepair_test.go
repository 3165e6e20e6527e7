package queuepair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/testkit/hosttest"
	"railbed/transports/roce/dcqcn"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// TestOperations: every operation, by every length around a packet's, carries its
// bytes and completes once at each end.
func TestOperations(t *testing.T) {
	for _, selective := range []bool{false, true} {
		for _, size := range []int{0, 1, 3, mtu - 1, mtu, mtu + 1, 5*mtu + 2} {
			t.Run(fmt.Sprintf("selective=%v/bytes=%d", selective, size), func(t *testing.T) {
				w := newWorld(t, uint64(size), func(c *Config) { c.Selective = selective })
				operations(t, w, size)
			})
		}
	}
}

func operations(t *testing.T, w *world, size int) {
	a, b := w.ends[0], w.ends[1]
	r := b.region(7, 3*size+16, RemoteWrite|RemoteRead|RemoteAtomic)
	copy(r.Memory[2*size:], pattern(size, 3))
	number := r.Memory[(3*size+8)&^7:][:8]
	binary.NativeEndian.PutUint64(number, 40)
	address := func(at int) uint64 { return r.Base + uint64(at) }
	got, sent := make([]byte, size), make([]byte, size+5)
	if err := b.PostReceive(100, w.cut(sent)); err != nil {
		t.Fatal(err)
	}
	for id := range 2 {
		if err := b.PostReceive(uint64(101+id), nil); err != nil {
			t.Fatal(err)
		}
	}
	at := address((3*size + 8) &^ 7)
	for i, q := range []Request{
		{Op: SendImm, Local: w.cut(pattern(size, 1)), Imm: 11},
		{Op: Write, Local: w.cut(pattern(size, 2)), Address: address(0), RKey: 7},
		{Op: WriteImm, Local: w.cut(pattern(size, 4)), Address: address(size), RKey: 7, Imm: 12},
		{Op: Read, Local: w.cut(got), Address: address(2 * size), RKey: 7},
		{Op: FetchAdd, Address: at, RKey: 7, Operand: 2},
		{Op: CompareSwap, Address: at, RKey: 7, Compare: 42, Operand: 50},
		{Op: CompareSwap, Address: at, RKey: 7, Compare: 42, Operand: 60},
		{Op: Send},
	} {
		q.ID = uint64(i)
		a.post(q)
	}
	w.run(time.Second)
	if !bytes.Equal(sent[:size], pattern(size, 1)) || !bytes.Equal(r.Memory[:size], pattern(size, 2)) ||
		!bytes.Equal(r.Memory[size:2*size], pattern(size, 4)) || !bytes.Equal(got, pattern(size, 3)) {
		t.Error("bytes are not where they belong")
	}
	if n := binary.NativeEndian.Uint64(number); n != 50 {
		t.Errorf("atomic operations left %d, want 50", n)
	}
	want := []Completion{{ID: 0, Op: SendImm, Bytes: size}, {ID: 1, Op: Write, Bytes: size},
		{ID: 2, Op: WriteImm, Bytes: size}, {ID: 3, Op: Read, Bytes: size},
		{ID: 4, Op: FetchAdd, Original: 40}, {ID: 5, Op: CompareSwap, Original: 42},
		{ID: 6, Op: CompareSwap, Original: 50}, {ID: 7, Op: Send}}
	if !slices.Equal(a.done, want) {
		t.Errorf("completions %+v, want %+v", a.done, want)
	}
	want = []Completion{{ID: 100, Op: Receive, Bytes: size, Imm: 11, HasImm: true},
		{ID: 101, Op: Receive, Bytes: size, Imm: 12, HasImm: true, Written: true}, {ID: 102, Op: Receive}}
	if !slices.Equal(b.done, want) {
		t.Errorf("receives %+v, want %+v", b.done, want)
	}
	if c := a.Counters(); c.Resent+c.Timeouts+c.Ignored != 0 {
		t.Errorf("on a network without faults %+v", c)
	}
}

// TestWeather: under loss, duplication and reordering every request is carried out
// once and in order, in both directions at once.
func TestWeather(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 40
	}
	for _, selective := range []bool{false, true} {
		t.Run(fmt.Sprintf("selective=%v", selective), func(t *testing.T) {
			var all Counters
			for seed := range seeds {
				all.Add(underConditions(t, uint64(seed), selective))
			}
			if all.Resent == 0 || all.Duplicates == 0 || all.Early == 0 || all.Naks == 0 ||
				all.Timeouts == 0 || all.RNRNaks == 0 {
				t.Errorf("not everything was tried: %+v", all)
			}
			t.Logf("%+v", all)
		})
	}
}

// underConditions runs random requests in both directions over a faulty network, and checks the results.
func underConditions(t *testing.T, seed uint64, selective bool) (all Counters) {
	w := newWorld(t, seed, func(c *Config) { c.Selective, c.Retries = selective, 1000 })
	share := func() float64 { return []float64{0, 0.01, 0.1}[w.random.IntN(3)] }
	w.net.loss, w.net.twice, w.net.late = share(), share(), share()
	w.net.jitter = time.Duration(w.random.IntN(100)) * time.Microsecond
	return w.settles()
}

// FuzzPair: packets of two queue pairs are lost, duplicated or late. Every request is executed once
// and in order as soon as the network works again. The input is the common configuration, and the
// fates of packets.
func FuzzPair(f *testing.F) {
	for selective := range byte(2) {
		f.Add([]byte{1, selective, 31, 3, 15, 0b01000000, 0, 0b11100100, 0b01010101})
		f.Add([]byte{2, selective, 3, 0, 0, 0xFF, 0x55, 0xAA, 0, 0, 0x1B})
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) < 5 || len(input) > 300 {
			return
		}
		w := newWorld(t, uint64(input[0]), func(c *Config) {
			c.Selective, c.Window, c.AckEvery, c.Reads, c.Retries = input[1]&1 != 0, 1+int(input[2]),
				int(input[3]), 1+int(input[4]%32), 1000
			c.RemoteReads = c.Reads
		})
		w.schedule = input[5:]
		w.settles()
	})
}

// settles has both ends carry out random requests, and checks what came of them.
func (w *world) settles() (all Counters) {
	w.Helper()
	var checks []func()
	for _, e := range w.ends {
		checks = append(checks, w.requests(e))
	}
	for range 400 {
		if w.run(10 * time.Millisecond); len(w.ends[0].queue)+len(w.ends[1].queue) == 0 {
			break
		}
	}
	for i, e := range w.ends {
		if e.Err() != nil || len(e.queue) > 0 {
			w.Fatalf("seed %d: %v, %d requests are left, %+v", w.seed, e.Err(), len(e.queue), e.Counters())
		}
		checks[i]()
		all.Add(e.Counters())
	}
	return all
}

// requests posts random requests at an end, and returns the check of their
// outcome.
func (w *world) requests(e *end) func() {
	const count, slot = 40, 2048
	target := e.far.region(uint32(1+e.config.Number), count*slot+8, RemoteWrite|RemoteRead|RemoteAtomic)
	want := make([]byte, len(target.Memory))
	copy(want, target.Memory)
	var wanted, wantedThere []Completion
	var reads [][2][]byte
	adds := uint64(0)
	for i := range count {
		size := w.random.IntN(slot)
		at := i * slot
		r := Request{ID: uint64(i), Op: Op(1 + w.random.IntN(int(FetchAdd))),
			Address: target.Base + uint64(at), RKey: uint32(1 + e.config.Number), Imm: uint32(i)}
		c := Completion{ID: r.ID, Op: r.Op, Bytes: size}
		there := Completion{ID: uint64(len(wantedThere)), Op: Receive, Bytes: size}
		switch r.Op {
		case Send, SendImm:
			memory, data := make([]byte, slot), pattern(size, i)
			r.Local = w.cut(data)
			e.far.later(w, there.ID, memory)
			reads = append(reads, [2][]byte{memory[:size], data})
			if r.Op == SendImm {
				there.Imm, there.HasImm = r.Imm, true
			}
			wantedThere = append(wantedThere, there)
		case Write, WriteImm:
			r.Local = w.cut(pattern(size, i))
			copy(want[at:], pattern(size, i))
			if r.Op == WriteImm {
				e.far.later(w, there.ID, nil)
				there.Imm, there.HasImm, there.Written = r.Imm, true, true
				wantedThere = append(wantedThere, there)
			}
		case Read:
			data := pattern(size, i)
			copy(target.Memory[at:], data)
			copy(want[at:], data)
			memory := make([]byte, size)
			r.Local = w.cut(memory)
			reads = append(reads, [2][]byte{memory, data})
		default: // on one number
			r.Op, r.Address, r.Operand, c.Bytes = FetchAdd, target.Base+uint64(len(want))-8, uint64(i), 0
			c.Op, c.Original = FetchAdd, adds
			adds += r.Operand
		}
		wanted = append(wanted, c)
		e.post(r)
	}
	return func() {
		binary.NativeEndian.PutUint64(want[len(want)-8:], adds)
		if !bytes.Equal(target.Memory, want) {
			w.Fatalf("seed %d: the region is not what it should be", w.seed)
		}
		for i, r := range reads {
			if !bytes.Equal(r[0], r[1]) {
				w.Fatalf("seed %d: message %d is not what it should be", w.seed, i)
			}
		}
		own := slices.DeleteFunc(slices.Clone(e.done), func(c Completion) bool { return c.Op == Receive })
		there := slices.DeleteFunc(slices.Clone(e.far.done), func(c Completion) bool {
			return c.Op != Receive
		})
		if !slices.Equal(own, wanted) || !slices.Equal(there, wantedThere) {
			w.Fatalf("seed %d: completions\n%+v, want\n%+v;\nreceives\n%+v, want\n%+v", w.seed, own, wanted,
				there, wantedThere)
		}
	}
}

// later posts a receive, perhaps after it is asked for.
func (e *end) later(w *world, id uint64, memory []byte) {
	before := clock.Time(0)
	if id > 0 {
		before = w.receiveAt
	}
	w.receiveAt = before.Add(time.Duration(w.random.IntN(300)) * time.Microsecond)
	w.events.Push(w.receiveAt, func() {
		if err := e.PostReceive(id, [][]byte{memory}); err != nil {
			w.Fatalf("seed %d: %v", w.seed, err)
		}
	})
}

// TestGoBackN: of five packets of which the second is lost, the last four go
// again, once; with selective repeat the second alone.
func TestGoBackN(t *testing.T) {
	for _, c := range []struct {
		selective bool
		resent    uint64
		naks      uint64
	}{{false, 4, 1}, {true, 1, 3}} {
		w := newWorld(t, 1, func(o *Config) { o.Selective = c.selective })
		a, b := w.ends[0], w.ends[1]
		r := b.region(1, 5*mtu, RemoteWrite)
		second := a.una.Add(1)
		lost := false
		w.fate = func(from *end, p infiniband.Packet) bool {
			if from == a && p.BTH().PSN() == second && !lost {
				lost = true
				return true
			}
			return false
		}
		a.post(Request{Op: Write, Local: [][]byte{pattern(5*mtu, 1)}, Address: r.Base, RKey: 1})
		w.run(500 * time.Microsecond)
		if got := a.Counters(); got.Resent != c.resent || got.Timeouts != 0 || b.Counters().Naks != c.naks ||
			len(a.done) != 1 {
			t.Errorf("selective %v: %+v, %+v", c.selective, got, b.Counters())
		}
		if !bytes.Equal(r.Memory, pattern(5*mtu, 1)) {
			t.Error("wrong bytes")
		}
	}
}

// TestPartOfARead: a lost part of a READ is asked for from there on, and with
// selective repeat alone.
func TestPartOfARead(t *testing.T) {
	for _, selective := range []bool{false, true} {
		w := newWorld(t, 1, func(o *Config) { o.Selective = selective })
		w.keep = true
		a, b := w.ends[0], w.ends[1]
		r := b.region(1, 5*mtu, RemoteRead)
		copy(r.Memory, pattern(5*mtu, 1))
		second, lost := a.una.Add(1), false
		w.fate = func(from *end, p infiniband.Packet) bool {
			if from == b && p.BTH().PSN() == second && !lost {
				lost = true
				return true
			}
			return false
		}
		got := make([]byte, 5*mtu)
		a.post(Request{Op: Read, Local: [][]byte{got}, Address: r.Base, RKey: 1})
		w.run(500 * time.Microsecond)
		var asked []infiniband.RETHFields
		for _, p := range w.sent {
			if p.Opcode() == infiniband.ReadRequest {
				asked = append(asked, p.RETH().Fields())
			}
		}
		want := []infiniband.RETHFields{{VA: r.Base, RKey: 1, Length: 5 * mtu},
			{VA: r.Base + mtu, RKey: 1, Length: 4 * mtu}}
		if selective {
			want[1].Length = mtu
		}
		if !slices.Equal(asked, want) || !bytes.Equal(got, pattern(5*mtu, 1)) {
			t.Errorf("selective %v: asked for %+v, want %+v", selective, asked, want)
		}
	}
}

// TestRetries: silence breaks the queue pair after as many retries as it may make,
// and so does a receiver that is never ready.
func TestRetries(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.Retries, c.RNRRetries = 3, 2 })
	a := w.ends[0]
	w.fate = func(*end, infiniband.Packet) bool { return true }
	for id := range 3 {
		a.post(Request{ID: uint64(id), Op: Send})
	}
	w.run(3900 * time.Microsecond)
	if a.Err() != nil {
		t.Fatalf("after three timeouts: %v", a.Err())
	}
	w.run(200 * time.Microsecond)
	if !errors.Is(a.Err(), ErrRetries) || len(a.done) != 3 || !errors.Is(a.done[0].Err, ErrRetries) ||
		!errors.Is(a.done[1].Err, ErrFlushed) || a.Post(Request{Op: Send}) == nil {
		t.Errorf("%v, %+v", a.Err(), a.done)
	}
	w = newWorld(t, 1, func(c *Config) { c.Retries, c.RNRRetries = 3, 2 })
	a = w.ends[0]
	a.post(Request{Op: Send})
	w.run(time.Second)
	if !errors.Is(a.Err(), ErrRNRRetries) || w.ends[1].Counters().RNRNaks != 3 {
		t.Errorf("%v, %+v", a.Err(), w.ends[1].Counters())
	}
}

// TestRefused: what the peer may not do breaks the queue pair at both ends, lands
// nowhere, and tells the requester why.
func TestRefused(t *testing.T) {
	const rkey = 5
	for what, c := range map[string]struct {
		r    Request
		want error
	}{
		"no such key": {Request{Op: Write, RKey: 9, Local: [][]byte{{1}}}, ErrAccess},
		"behind the end": {Request{Op: Write, RKey: rkey, Address: 63, Local: [][]byte{{1, 2}}},
			ErrAccess},
		"before the start": {Request{Op: Write, RKey: rkey, Address: ^uint64(0), Local: [][]byte{{1, 2}}},
			ErrAccess},
		"round the end": {Request{Op: Write, RKey: rkey, Address: 1 << 63, Local: [][]byte{{1}}},
			ErrAccess},
		"not to be read": {Request{Op: Read, RKey: rkey, Local: [][]byte{make([]byte, 1)}}, ErrAccess},
		"no atomics":     {Request{Op: FetchAdd, RKey: rkey}, ErrAccess},
		"a later packet's": {Request{Op: Write, RKey: rkey, Local: [][]byte{make([]byte, 3*mtu)}},
			ErrAccess},
		"immediate, bad key":  {Request{Op: WriteImm, RKey: 9, Local: [][]byte{{1}}}, ErrAccess},
		"longer than receive": {Request{Op: Send, Local: [][]byte{make([]byte, 2*mtu)}}, ErrInvalid},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 1)
			a, b := w.ends[0], w.ends[1]
			r := b.region(rkey, 64, RemoteWrite)
			before := bytes.Clone(r.Memory)
			if err := b.PostReceive(1, [][]byte{make([]byte, 300)}); err != nil {
				t.Fatal(err)
			}
			c.r.Address += r.Base
			a.post(c.r)
			a.post(Request{Op: Send})
			w.run(time.Second)
			if len(a.done) != 2 || !errors.Is(a.done[0].Err, c.want) ||
				!errors.Is(a.done[1].Err, ErrFlushed) {
				t.Errorf("%+v", a.done)
			}
			if b.Err() == nil || !bytes.Equal(r.Memory, before) || len(b.done) != 1 || b.done[0].Err == nil {
				t.Errorf("%v, %+v", b.Err(), b.done)
			}
		})
	}
}

// TestAcknowledgements: they are asked for at the end of a message and each so many
// packets, and others are not sent.
func TestAcknowledgements(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.AckEvery = 4 })
	w.keep = true
	a, b := w.ends[0], w.ends[1]
	r := b.region(1, 10*mtu, RemoteWrite)
	first := a.una
	a.post(Request{Op: Write, Local: [][]byte{pattern(10*mtu, 1)}, Address: r.Base, RKey: 1})
	w.run(time.Millisecond)
	var asked, acked []int
	for _, p := range w.sent {
		switch n := p.BTH().PSN().From(first); {
		case p.Opcode() == infiniband.Acknowledge:
			acked = append(acked, n)
			if f := p.AETH().Fields(); f.Syndrome != infiniband.AckUnlimited || f.MSN != uint32(n/9) {
				t.Errorf("acknowledgement %+v of packet %d", f, n)
			}
		case p.BTH().AckReq():
			asked = append(asked, n)
		}
	}
	if want := []int{3, 7, 9}; !slices.Equal(asked, want) || !slices.Equal(acked, want) {
		t.Errorf("asked %v, acknowledged %v, want %v", asked, acked, want)
	}
}

// TestPace: packets leave at the distance that the rate sets, including the link's overhead. After
// a pause, too, no time is caught up.
func TestPace(t *testing.T) {
	const line, overhead = 1_000_000_000, 58
	s := newScript(t, func(c *Config) {
		c.Overhead, c.Congestion = overhead,
			&dcqcn.Params{Line: line, IncreasePeriod: time.Hour, AlphaPeriod: time.Hour}
	})
	cnp := infiniband.Packet(make([]byte, infiniband.CNPLen))
	cnp.EncodeCNP(s.config.Number)
	s.Receive(s.w.now, cnp, false)
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, mtu)}, RKey: 1})
	if n := len(s.take()); n != 1 || s.Rate() != line/2 {
		t.Fatalf("%d packets at %d bit/s", n, s.Rate())
	}
	s.tell(0, infiniband.AckUnlimited)
	s.w.now = s.w.now.Add(10 * time.Millisecond)
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 4*mtu)}, RKey: 1})
	for i, o := range []infiniband.Opcode{infiniband.WriteFirst, infiniband.WriteMiddle,
		infiniband.WriteMiddle} {
		if got := s.take(); len(got) != 1 || got[0].BTH.Opcode != o {
			t.Fatalf("packet %d: %+v", i, got)
		}
		took := time.Duration(8*(infiniband.Len(o, mtu)+overhead)) * time.Second / (line / 2)
		if at := s.Deadline(); at != s.w.now.Add(took) {
			t.Errorf("the packet behind %d may go at %v, want %v", i, at, s.w.now.Add(took))
		}
		s.w.now = s.Deadline()
	}
}

// TestAhead: a driver gets packets before they leave, as many as leave within the time that it holds them,
// and the next ones once half of that time has passed. Acknowledgements leave at once.
func TestAhead(t *testing.T) {
	const line, overhead, held = 1_000_000_000, 58, 4
	took := time.Duration(8*(infiniband.Len(infiniband.WriteMiddle, mtu)+overhead)) * time.Second / line
	s := newScript(t, func(c *Config) {
		c.Overhead, c.Congestion, c.Ahead = overhead, &dcqcn.Params{Line: line}, held*took
	})
	s.post(Request{Op: Write, Local: [][]byte{make([]byte, 20*mtu)}, RKey: 1})
	memory := make([]byte, mtu+infiniband.MaxOverhead)
	var departures []clock.Time
	pass := func() (packets int) {
		for s.Next(s.w.now, memory) > 0 {
			departures, packets = append(departures, s.Departs()), packets+1
		}
		return packets
	}
	began := s.w.now
	if n := pass(); n != held {
		t.Errorf("%d packets, want %d: the first is longer by its RETH", n, held)
	}
	for range 3 {
		last := departures[len(departures)-1]
		if at := s.Deadline(); at != last.Add(took-held/2*took) {
			t.Fatalf("the next packets are due %v after the departure of the last, want %v", at.Sub(last),
				took-held/2*took)
		}
		s.w.now = s.Deadline()
		if n := pass(); n != held/2+1 {
			t.Errorf("%d packets more, want %d", n, held/2+1)
		}
	}
	for i, at := range departures[2:] {
		if gap := at.Sub(departures[i+1]); gap != took {
			t.Errorf("packet %d leaves %v after the one before, want %v", i+2, gap, took)
		}
	}
	if departures[0] != began {
		t.Errorf("the first packet leaves %v later", departures[0].Sub(began))
	}
	s.push(answer{kind: infiniband.Acknowledge})
	if n := s.Next(s.w.now, memory); n == 0 || s.Departs() != 0 {
		t.Errorf("an acknowledgement of %d bytes leaves at %v, want it at once", n, s.Departs())
	}
}

// TestCongestion: marks bring CNPs, at most one in a gap, and CNPs slow the sender
// down, of WRITEs as much as of answers to READs.
func TestCongestion(t *testing.T) {
	for _, op := range []Op{Write, Read} {
		t.Run(op.String(), func(t *testing.T) { congestion(t, op) })
	}
}

func congestion(t *testing.T, op Op) {
	const line = 1_000_000_000
	w := newWorld(t, 1, func(c *Config) { c.Congestion = &dcqcn.Params{Line: line} })
	w.net.mark = 1
	asker := w.ends[0]
	from, to := w.ends[0], w.ends[1]
	if op == Read {
		from, to = to, from
	}
	var told []clock.Time
	w.fate = func(end *end, p infiniband.Packet) bool {
		if end == to && p.Opcode() == infiniband.CNP {
			told = append(told, w.now)
		}
		return false
	}
	const packets = 400
	r := asker.far.region(1, packets*mtu, RemoteWrite|RemoteRead)
	local, far := pattern(packets*mtu, 1), r.Memory
	if op == Read {
		copy(r.Memory, local)
		local = make([]byte, packets*mtu)
		far = local
	}
	asker.post(Request{Op: op, Local: [][]byte{local}, Address: r.Base, RKey: 1})
	w.run(800 * time.Microsecond) // at line rate it would take 1.0 ms
	if from.Rate() > line/10 || len(asker.done) != 0 {
		t.Errorf("%d bit/s while all is marked, %+v", from.Rate(), asker.done)
	}
	if n := to.Counters().CNPsSent; n < 8 || n != uint64(len(told)) || from.Counters().CNPsReceived+1 < n {
		t.Errorf("%d CNPs, %d arrived", n, from.Counters().CNPsReceived)
	}
	for i := 1; i < len(told); i++ {
		if gap := told[i].Sub(told[i-1]); gap < 50*time.Microsecond {
			t.Errorf("%v between CNPs", gap)
		}
	}
	// Marks of packets without data, which all had one, too, cause no CNP.
	if n := from.Counters().CNPsSent; n != 0 || to.Counters().CNPsReceived != 0 {
		t.Errorf("%d CNPs for packets without data", n)
	}
	w.net.mark = 0
	w.run(time.Second)
	if len(asker.done) != 1 || asker.done[0].Err != nil || from.Rate() != line ||
		!bytes.Equal(far, pattern(packets*mtu, 1)) {
		t.Errorf("a second later %+v, %d bit/s", asker.done, from.Rate())
	}
}
