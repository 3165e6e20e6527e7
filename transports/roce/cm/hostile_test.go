package cm

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/infiniband"
)

// TestFlood: unanswered requests are dropped when they are not repeated, so that later requests
// find room. A repeated request is kept.
func TestFlood(t *testing.T) {
	w := newWorld(t, 1)
	b := w.ends[1]
	b.config.Most = 10
	message := make(infiniband.MAD, infiniband.MADLen)
	for comm := range uint32(20) {
		message.EncodeCM(infiniband.AttributeREQ, uint64(comm))
		f := infiniband.REQFields{LocalComm: 100 + comm, Service: infiniband.TCPService | port, MTU: 3}
		infiniband.IPService(f.Private[:]).Encode(&infiniband.IPServiceFields{Version: 4})
		infiniband.REQ(message.CM()).Encode(&f)
		b.Receive(w.now, w.ends[0].addr, message)
	}
	if len(b.conns) != 10 {
		t.Errorf("%d connections are asked for, want 10", len(b.conns))
	}
	w.run(10 * time.Millisecond)
	if len(b.conns)+len(b.Manager.asked) != 0 || !errors.Is(b.err, ErrTimeout) {
		t.Errorf("%d are kept, %v", len(b.conns), b.err)
	}
	w.connect(asks)
	w.run(5500 * time.Microsecond) // the last try goes after 5 ms
	if last := b.told[len(b.told)-2:]; len(b.conns) != 1 || last[0] != "ended" || last[1] == "ended" {
		t.Fatalf("%d connections, want the one that is asked for again and again; told %v", len(b.conns),
			last)
	}
	if err := b.Accept(w.now, b.conn, grants); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	if !slices.Contains(w.ends[0].told, "connected") || !slices.Contains(b.told, "connected") {
		t.Errorf("%v, %v", w.ends[0].told, b.told)
	}
}

// TestStrangers: datagrams of others, or that name connections that are not, change
// nothing.
func TestStrangers(t *testing.T) {
	w := newWorld(t, 1)
	w.accepts()
	w.connect(asks)
	w.run(time.Second)
	a, b := w.ends[0], w.ends[1]
	names := infiniband.Comm{Local: uint32(a.conn), Remote: uint32(b.conn)}
	send := func(from netip.Addr, attribute infiniband.Attribute, c infiniband.Comm) {
		m := make(infiniband.MAD, infiniband.MADLen)
		m.EncodeCM(attribute, 9)
		if infiniband.RTU(m.CM()).Encode(
			&infiniband.RTUFields{Comm: c}); attribute == infiniband.AttributeDREQ {
			// names stand first in all of them
			infiniband.DREQ(m.CM()).Encode(&infiniband.DREQFields{Comm: c, QPN: grants.QPN})
		}
		b.Receive(w.now, from, m)
	}
	for a := infiniband.AttributeMRA; a <= infiniband.AttributeDREP; a++ {
		send(netip.MustParseAddr("10.0.0.9"), a, names)
		send(w.ends[0].addr, a, infiniband.Comm{Local: names.Local + 1, Remote: names.Remote})
		send(w.ends[0].addr, a, infiniband.Comm{Local: names.Local, Remote: names.Remote + 1})
	}
	if b.err != nil || len(b.conns) != 1 || b.conns[b.conn].state != connected {
		t.Errorf("%v, %+v", b.err, b.conns)
	}
}

// TestForgedNames: an attacker at the peer's address guesses a connection's name at one end, or at
// both, but not its queue pair. It ends nothing and delays nothing for long.
func TestForgedNames(t *testing.T) {
	send := func(to, from *end, attribute infiniband.Attribute, encode func(cm []byte)) {
		m := make(infiniband.MAD, infiniband.MADLen)
		m.EncodeCM(attribute, 9)
		encode(m.CM())
		to.Receive(to.w.now, from.addr, m)
	}
	w := newWorld(t, 1)
	w.accepts()
	w.fate = func(_ *end, mad infiniband.MAD) bool { return mad.Attribute() == infiniband.AttributeRTU }
	c := w.connect(asks)
	w.run(500 * time.Microsecond)
	a, b := w.ends[0], w.ends[1]
	names := infiniband.Comm{Local: uint32(c), Remote: uint32(b.conn)}
	send(b, a, infiniband.AttributeREJ, func(cm []byte) {
		infiniband.REJ(cm).Encode(&infiniband.REJFields{Comm: infiniband.Comm{Remote: names.Remote},
			Reason: infiniband.RejectConsumer})
	})
	if b.err != nil || b.conns[b.conn].state != granted {
		t.Errorf("rejected by who does not know its name at the peer: %v", b.err)
	}
	b.Established(b.conn)
	for _, qpn := range []infiniband.QPN{0, grants.QPN + 1, asks.QPN} {
		send(b, a, infiniband.AttributeDREQ, func(cm []byte) {
			infiniband.DREQ(cm).Encode(&infiniband.DREQFields{Comm: names, QPN: qpn})
		})
		if b.err != nil || len(b.conns) != 1 || len(b.out) != 0 {
			t.Errorf("ended by who does not know its queue pair: %v", b.err)
		}
	}
	send(b, a, infiniband.AttributeDREQ, func(cm []byte) {
		infiniband.DREQ(cm).Encode(&infiniband.DREQFields{Comm: names, QPN: grants.QPN})
	})
	if !errors.Is(b.err, ErrDisconnected) {
		t.Errorf("not ended by who knows it: %v", b.err)
	}
}

// TestLateAgainAndAgain: a repeated MRA delays nothing any more. So the passive side cannot keep
// the active side waiting for good. An MRA for a requested connection delays nothing.
func TestLateAgainAndAgain(t *testing.T) {
	w := newWorld(t, 1)
	w.fate = func(*end, infiniband.MAD) bool { return true }
	a, b := w.ends[0], w.ends[1]
	c := w.connect(asks)
	late := func(to *end, from netip.Addr, names infiniband.Comm) {
		m := make(infiniband.MAD, infiniband.MADLen)
		m.EncodeCM(infiniband.AttributeMRA, 1)
		infiniband.MRA(m.CM()).Encode(&infiniband.MRAFields{Comm: names, Timeout: 11}) // 8.4 ms
		to.Receive(w.now, from, m)
	}
	for i := 0; a.err == nil; i++ {
		if i == 1000 {
			t.Fatal("it waits for good")
		}
		late(a, b.addr, infiniband.Comm{Remote: uint32(c)})
		w.run(time.Millisecond)
	}
	if !errors.Is(a.err, ErrTimeout) {
		t.Error(a.err)
	}
	w = newWorld(t, 1)
	a, b = w.ends[0], w.ends[1]
	c = w.connect(asks)
	w.run(500 * time.Microsecond)
	before := b.Deadline()
	if late(b, a.addr, infiniband.Comm{Local: uint32(c), Remote: uint32(b.conn)}); b.Deadline() != before {
		t.Errorf("what is asked for is kept until %v, and was until %v", b.Deadline(), before)
	}
}

// say hands an end a datagram that names a connection as the other end would.
func (e *end) say(attribute infiniband.Attribute, encode func(cm []byte, names infiniband.Comm)) {
	m := make(infiniband.MAD, infiniband.MADLen)
	m.EncodeCM(attribute, 9)
	encode(m.CM(), infiniband.Comm{Local: uint32(e.far.conn), Remote: uint32(e.conn)})
	e.Receive(e.w.now, e.far.addr, m)
}

// TestOutOfTurn: what is right at another time changes nothing.
func TestOutOfTurn(t *testing.T) {
	reject := func(cm []byte, names infiniband.Comm) {
		infiniband.REJ(cm).Encode(&infiniband.REJFields{Comm: names})
	}
	ended := func(cm []byte, names infiniband.Comm) {
		infiniband.DREP(cm).Encode(&infiniband.DREPFields{Comm: names})
	}
	ready := func(cm []byte, names infiniband.Comm) {
		infiniband.RTU(cm).Encode(&infiniband.RTUFields{Comm: names})
	}
	w := newWorld(t, 1)
	a, b := w.ends[0], w.ends[1]
	a.conn = w.connect(asks)
	w.run(500 * time.Microsecond)
	// Asked for, and not granted.
	b.Established(b.conn)
	b.say(infiniband.AttributeRTU, ready)
	b.say(infiniband.AttributeDREP, ended)
	if b.conns[b.conn].state != asked || len(b.told) != 1 {
		t.Fatalf("told %v before it granted anything", b.told)
	}
	if err := b.Accept(w.now, b.conn, grants); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	b.say(infiniband.AttributeREJ, reject)
	b.say(infiniband.AttributeDREP, ended)
	b.say(infiniband.AttributeRTU, ready)
	a.say(infiniband.AttributeREP, func(cm []byte, names infiniband.Comm) {
		infiniband.REP(cm).Encode(&infiniband.REPFields{LocalComm: names.Local + 1, RemoteComm: names.Remote})
	})
	if len(a.told) != 1 || len(b.told) != 2 || len(a.conns)+len(b.conns) != 2 || len(a.out)+len(b.out) != 0 {
		t.Errorf("told %v and %v, %d and %d datagrams", a.told, b.told, len(a.out), len(b.out))
	}
	a.Disconnect(w.now, a.conn, grants.QPN)
	tries, out := a.conns[a.conn].tries, len(a.out)
	w.now = w.now.Add(100 * time.Microsecond)
	due := a.Deadline()
	if a.Disconnect(w.now, a.conn, grants.QPN); len(a.out) != out || a.conns[a.conn].tries != tries ||
		a.Deadline() != due {
		t.Error("it leaves twice")
	}
}

// TestBadRequests: why they are refused, and that no more of that waits to be sent than
// there is room for.
func TestBadRequests(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.ends[0], w.ends[1]
	ask := func(comm uint32, change func(f *infiniband.REQFields)) (reason uint16) {
		f := infiniband.REQFields{LocalComm: comm, Service: infiniband.TCPService | port, MTU: 3}
		infiniband.IPService(f.Private[:]).Encode(&infiniband.IPServiceFields{Version: 4})
		change(&f)
		m := make(infiniband.MAD, infiniband.MADLen)
		m.EncodeCM(infiniband.AttributeREQ, uint64(comm))
		infiniband.REQ(m.CM()).Encode(&f)
		b.Receive(w.now, a.addr, m)
		if len(b.out) == 0 {
			return 0
		}
		rejected := infiniband.MAD(b.out[len(b.out)-1].message[:])
		if f := infiniband.REJ(rejected.CM()).Fields(); rejected.Attribute() == infiniband.AttributeREJ &&
			f.Remote == comm {
			reason = f.Reason
		}
		return reason
	}
	for i, c := range []struct {
		reason uint16
		change func(f *infiniband.REQFields)
	}{
		{infiniband.RejectServiceID, func(f *infiniband.REQFields) { f.Service++ }},
		{infiniband.RejectServiceID, func(f *infiniband.REQFields) { f.Service += 1 << 16 }},
		{infiniband.RejectServiceID, func(f *infiniband.REQFields) { f.Private[1] = 0x50 }},
		{infiniband.RejectService, func(f *infiniband.REQFields) { f.Transport = 1 }},
		{infiniband.RejectMTU, func(f *infiniband.REQFields) { f.MTU = 6 }},
	} {
		if got := ask(uint32(i), c.change); got != c.reason || len(b.conns) != 0 {
			t.Errorf("request %d: rejected for %d, want %d", i, got, c.reason)
		}
	}
	for comm := range uint32(2 * mostOut) {
		ask(comm, func(f *infiniband.REQFields) { f.MTU = 0 })
	}
	if len(b.out) > mostOut {
		t.Errorf("%d datagrams wait", len(b.out))
	}
}

// TestLongDelay: an MRA that names hours delays by seconds.
func TestLongDelay(t *testing.T) {
	w := newWorld(t, 1)
	a := w.ends[0]
	a.conn = w.connect(asks)
	a.say(infiniband.AttributeMRA, func(cm []byte, names infiniband.Comm) {
		infiniband.MRA(cm).Encode(&infiniband.MRAFields{Comm: names, Timeout: 31})
	})
	if got := a.Deadline(); got != w.now.Add(longestDelay) {
		t.Errorf("tries again at %v", got)
	}
}

// TestNamesThatAreAlike: the peer uses the same name for a connection that this end requested and
// for another that the peer requested. Ending the first does not end the second.
func TestNamesThatAreAlike(t *testing.T) {
	w := newWorld(t, 1)
	a, b := w.ends[0], w.ends[1]
	b.accepts(w)
	a.Listen(port)
	ours := w.connect(asks)
	w.run(time.Second)
	theirs := Conn(a.conns[ours].remote)
	b.config.Shared = true // so that it ignores unknown connections
	delete(b.conns, theirs)
	a.Disconnect(w.now, ours, grants.QPN)
	w.run(4 * time.Millisecond)
	b.next = theirs // as in another life of its manager
	if _, err := b.Connect(w.now, netip.AddrPortFrom(a.addr, port), 1, asks); err != nil {
		t.Fatal(err)
	}
	w.run(20 * time.Millisecond) // it asks again after the other connection has gone
	requested := 0
	for _, what := range a.told {
		if strings.HasPrefix(what, "requested") {
			requested++
		}
	}
	if requested != 1 {
		t.Errorf("told %v", a.told)
	}
}

// FuzzReceive: no datagram panics or makes a manager grow beyond its bounds.
func FuzzReceive(f *testing.F) {
	w := newWorld(f, 1)
	w.connect(asks)
	var message [infiniband.MADLen]byte
	w.ends[0].Next(&message)
	f.Add(message[:], uint16(0), uint32(0))
	for a := infiniband.AttributeREQ; a <= infiniband.AttributeDREP; a++ {
		infiniband.MAD(message[:]).EncodeCM(a, 1)
		f.Add(message[:], uint16(3), uint32(1000))
	}
	f.Fuzz(func(t *testing.T, mad []byte, at uint16, value uint32) {
		w := newWorld(t, 1)
		w.accepts()
		w.ends[1].config.Most = 4
		w.connect(asks)
		b := w.ends[1]
		for i := range uint32(8) {
			if b.Receive(w.now, w.ends[0].addr, mad); len(mad) >= 40 {
				copy(mad[24+int(at)%8:], []byte{byte((value + i) >> 8), byte(value + i)})
			}
			b.Expire(w.now)
			w.ends[0].Receive(w.now, b.addr, mad)
		}
		if len(b.conns) > 4 || len(b.Manager.asked) > 4 || len(b.out) > mostOut {
			t.Errorf("%d connections, %d asked for, %d datagrams", len(b.conns), len(b.Manager.asked),
				len(b.out))
		}
	})
}

// FuzzPair: two managers' datagrams are lost, duplicated or late, and their hosts answer and leave
// at any time. Each host gets at most one event for a connection's beginning, and then at most one
// for its end. No state remains. The input is a series of events, each with the fates of the next
// datagrams.
func FuzzPair(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 9, 0, 4, 0})
	f.Add([]byte{0, 1, 9, 2, 1, 3, 9, 1, 5, 0, 9, 0})
	f.Add([]byte{0, 0, 9, 0, 2, 0, 0, 3, 1, 2, 3, 1, 4, 0, 6, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 100 {
			return
		}
		w := newWorld(t, 1)
		a, b := w.ends[0], w.ends[1]
		told := map[*end]map[Conn][]string{a: {}, b: {}}
		for _, e := range w.ends {
			e.tell = func(c Conn, what string) { told[e][c] = append(told[e][c], what) }
		}
		var fates []byte
		w.fate = func(*end, infiniband.MAD) bool {
			w.twice = 0
			if len(fates) == 0 {
				return false
			}
			fate := fates[0]
			fates = fates[1:]
			if fate&2 != 0 {
				w.twice = 1
			}
			return fate&1 != 0
		}
		var ours []Conn
		for ; len(input) >= 2; input = input[2:] {
			fates = []byte{input[1] & 3, input[1] >> 2 & 3, input[1] >> 4 & 3, input[1] >> 6}
			last := Conn(0)
			if n := len(told[b]); n > 0 {
				last = Conn(2000 + int(input[0]>>3)%n)
			}
			switch input[0] & 7 {
			case 0:
				if c, err := a.Connect(w.now, netip.AddrPortFrom(b.addr, port), 4000, asks); err == nil {
					ours = append(ours, c)
				}
			case 1:
				_ = b.Accept(w.now, last, grants) // or it is not requested
			case 2:
				b.Reject(last, infiniband.RejectConsumer)
			case 3:
				b.Established(last)
			case 4:
				for _, c := range ours {
					a.Disconnect(w.now, c, grants.QPN)
				}
			case 5:
				b.Disconnect(w.now, last, asks.QPN)
			}
			w.run(time.Duration(input[0]>>3) * 100 * time.Microsecond)
		}
		fates = nil
		w.run(100 * time.Millisecond)
		for _, e := range w.ends {
			for c := range e.conns {
				e.Disconnect(w.now, c, map[*end]infiniband.QPN{a: grants.QPN, b: asks.QPN}[e])
			}
		}
		w.run(100 * time.Millisecond)
		for _, e := range w.ends {
			if len(e.conns)+len(e.Manager.asked)+len(e.out) != 0 {
				t.Errorf("%d connections, %d asked for and %d datagrams are left", len(e.conns),
					len(e.Manager.asked), len(e.out))
			}
			for c, story := range told[e] {
				if !slices.Contains([]string{"r", "rc", "re", "rce", "c", "e", "ce"},
					strings.Join(story, "")) {
					t.Errorf("of %d it was told %v", c, story)
				}
			}
		}
	})
}
