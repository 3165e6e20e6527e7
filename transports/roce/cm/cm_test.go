package cm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/fabric/clock"
	"railbed/transports/infiniband"
)

// world is two managers on an invented network in virtual time.
type world struct {
	testing.TB
	random *rand.Rand
	now    clock.Time
	events clock.Queue[func()]
	ends   [2]*end
	loss   float64
	twice  float64
	// fate decides about a datagram instead of the dice.
	fate func(from *end, mad infiniband.MAD) (lost bool)
	saw  []string
}

// end is a manager and its host.
type end struct {
	*Manager
	w     *world
	addr  netip.Addr
	far   *end
	told  []string
	last  Offer
	conn  Conn
	err   error
	asked func(c Conn, offer Offer)
	tell  func(c Conn, what string) // by a letter
}

const port = 7174

func newWorld(t testing.TB, seed uint64, addrs ...string) *world {
	t.Helper()
	if len(addrs) == 0 {
		addrs = []string{"10.0.0.1", "10.0.0.2"}
	}
	w := &world{TB: t, random: rand.New(rand.NewPCG(seed, 3))}
	for i := range w.ends {
		e := &end{w: w, addr: netip.MustParseAddr(addrs[i])}
		m, err := New(Config{Addr: e.addr, First: Conn(1000 * (i + 1)), Timeout: time.Millisecond, Retries: 5}, e)
		if err != nil {
			t.Fatal(err)
		}
		e.Manager, w.ends[i] = m, e
	}
	w.ends[0].far, w.ends[1].far = w.ends[1], w.ends[0]
	w.ends[1].Listen(port)
	return w
}

func (e *end) Requested(c Conn, from netip.AddrPort, at uint16, offer Offer) {
	e.told, e.last, e.conn = append(e.told, fmt.Sprintf("requested from %v at %d", from, at)), offer, c
	e.story(c, "r")
	if e.asked != nil {
		e.asked(c, offer)
	}
}

func (e *end) story(c Conn, what string) {
	if e.tell != nil {
		e.tell(c, what)
	}
}

func (e *end) Connected(c Conn, offer Offer) {
	e.told, e.last, e.conn = append(e.told, "connected"), offer, c
	e.story(c, "c")
}

func (e *end) Ended(c Conn, why error) {
	e.told, e.err = append(e.told, "ended"), why
	e.story(c, "e")
	if e.conns[c] != nil {
		e.w.Errorf("%d ended, and is still there", c)
	}
}

// pump sends what there is, and comes back when it is asked for.
func (e *end) pump() {
	var message [infiniband.MADLen]byte
	for {
		to, ok := e.Next(&message)
		if !ok {
			break
		}
		if to != e.far.addr {
			e.w.Fatalf("to %v", to)
		}
		e.w.carry(e, slices.Clone(message[:]))
	}
	if at := e.Deadline(); at != clock.Never {
		e.w.events.Push(max(at, e.w.now+1), func() { e.Expire(e.w.now); e.pump() })
	}
}

func (w *world) carry(from *end, mad infiniband.MAD) {
	w.saw = append(w.saw, mad.Attribute().String())
	if w.fate != nil && w.fate(from, mad) {
		return
	}
	for times := 1; times >= 0; times-- {
		if times == 0 && w.random.Float64() >= w.twice || w.random.Float64() < w.loss {
			continue
		}
		w.events.Push(w.now.Add(time.Duration(1+w.random.IntN(100))*time.Microsecond), func() {
			from.far.Receive(w.now, from.addr, mad)
			from.far.pump()
		})
	}
}

func (w *world) run(d time.Duration) {
	for _, e := range w.ends {
		e.pump()
	}
	until := w.now.Add(d)
	for n := 0; w.events.Len() > 0 && w.events.Next() <= until; n++ {
		if n > 1_000_000 {
			w.Fatal("it never becomes quiet")
		}
		at, do := w.events.Pop()
		w.now = max(w.now, at)
		do()
	}
	w.now = until
}

func (w *world) connect(offer Offer) Conn {
	w.Helper()
	c, err := w.ends[0].Connect(w.now, netip.AddrPortFrom(w.ends[1].addr, port), 4000, offer)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

var (
	asks   = Offer{QPN: 77, PSN: 0xABCDEF, Resources: 3, Depth: 4, Retries: 5, RNRRetries: 6, AckTimeout: 14, MTU: 3, Private: []byte("asks")}
	grants = Offer{QPN: 88, PSN: 0x123456, Resources: 7, Depth: 8, RNRRetries: 2, AckTimeout: 9, Private: []byte("grants")}
)

// same says that an offer arrived as it was made, with zeros behind its private
// data.
func same(got, want Offer) bool {
	private := bytes.TrimRight(got.Private, "\x00")
	ok := bytes.Equal(private, want.Private)
	got.Private, want.Private = nil, nil
	return ok && fmt.Sprint(got) == fmt.Sprint(want)
}

// accepts has the far end grant what is asked for.
func (w *world) accepts() {
	b := w.ends[1]
	b.asked = func(c Conn, _ Offer) {
		if err := b.Accept(w.now, c, grants); err != nil {
			w.Error(err)
		}
	}
}

// TestConnect: each end learns the other's offer, over IPv4 and IPv6, and both learn
// the end.
func TestConnect(t *testing.T) {
	for _, addrs := range [][]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		w := newWorld(t, 1, addrs...)
		w.accepts()
		a, b := w.ends[0], w.ends[1]
		c := w.connect(asks)
		w.run(time.Second)
		if !slices.Equal(a.told, []string{"connected"}) || !same(a.last, grants) {
			t.Errorf("who asked was told %v, %+v", a.told, a.last)
		}
		if want := []string{fmt.Sprintf("requested from %v at %d", netip.AddrPortFrom(a.addr, 4000), port), "connected"}; !slices.Equal(b.told, want) || !same(b.last, asks) {
			t.Errorf("who granted was told %v, %+v", b.told, b.last)
		}
		if !slices.Equal(w.saw, []string{"REQ", "REP", "RTU"}) {
			t.Errorf("datagrams %v", w.saw)
		}
		w.saw = nil
		a.Disconnect(w.now, c, 88)
		w.run(time.Second)
		if !slices.Equal(w.saw, []string{"DREQ", "DREP"}) || !errors.Is(b.err, ErrDisconnected) || a.err != nil || len(a.conns)+len(b.conns)+len(b.Manager.asked) != 0 {
			t.Errorf("datagrams %v, %v, %v, %d and %d left", w.saw, a.err, b.err, len(a.conns), len(b.conns))
		}
	}
}

// TestUnderLoss: whatever is lost, doubled or overtaken, both ends agree in the end,
// and nothing is left behind.
func TestUnderLoss(t *testing.T) {
	connected := 0
	for seed := range uint64(500) {
		w := newWorld(t, seed)
		w.accepts()
		w.loss, w.twice = 0.3, 0.3
		a, b := w.ends[0], w.ends[1]
		c := w.connect(asks)
		w.run(time.Second)
		if slices.Contains(a.told, "connected") {
			connected++
		}
		for _, e := range w.ends {
			if len(e.told) > 3 || len(e.conns) > 1 {
				t.Fatalf("seed %d: told %v, %d connections", seed, e.told, len(e.conns))
			}
		}
		w.loss = 0
		a.Disconnect(w.now, c, 88)
		b.Disconnect(w.now, b.conn, 77)
		w.run(time.Second)
		if len(a.conns)+len(b.conns)+len(b.Manager.asked) != 0 {
			t.Fatalf("seed %d: %d and %d connections are left", seed, len(a.conns), len(b.conns))
		}
	}
	if connected < 400 {
		t.Errorf("%d of 500 connected", connected)
	}
}

// TestLostMessages: each message of the three is sent again when it was lost.
func TestLostMessages(t *testing.T) {
	for what, want := range map[infiniband.Attribute][]string{
		infiniband.AttributeREQ: {"REQ", "REQ", "REP", "RTU"},
		infiniband.AttributeREP: {"REQ", "REP", "REQ", "REP", "REP", "RTU", "RTU"},
		infiniband.AttributeRTU: {"REQ", "REP", "RTU", "REP", "RTU"},
	} {
		w := newWorld(t, 1)
		w.accepts()
		lost := false
		w.fate = func(_ *end, mad infiniband.MAD) bool {
			if mad.Attribute() == what && !lost {
				lost = true
				return true
			}
			return false
		}
		w.connect(asks)
		w.run(time.Second)
		if !slices.Contains(w.ends[0].told, "connected") || !slices.Contains(w.ends[1].told, "connected") {
			t.Errorf("%v lost: %v, %v", what, w.ends[0].told, w.ends[1].told)
		}
		slices.Sort(w.saw)
		slices.Sort(want)
		if !slices.Equal(w.saw, want) {
			t.Errorf("%v lost: %v, want %v", what, w.saw, want)
		}
	}
}

// TestNobodyAnswers: who asks gives up after its retries, and so does who granted
// and hears nothing of it; a packet of the connection is as good as an RTU.
func TestNobodyAnswers(t *testing.T) {
	w := newWorld(t, 1)
	w.fate = func(*end, infiniband.MAD) bool { return true }
	w.connect(asks)
	w.run(5900 * time.Microsecond)
	if w.ends[0].err != nil {
		t.Errorf("gave up early: %v", w.ends[0].err)
	}
	w.run(time.Second)
	if !errors.Is(w.ends[0].err, ErrTimeout) || len(w.saw) != 6 {
		t.Errorf("%v after %d datagrams, want 6", w.ends[0].err, len(w.saw))
	}
	for _, heard := range []bool{false, true} {
		w = newWorld(t, 1)
		w.accepts()
		w.fate = func(_ *end, mad infiniband.MAD) bool { return mad.Attribute() == infiniband.AttributeRTU }
		w.connect(asks)
		w.run(500 * time.Microsecond)
		b := w.ends[1]
		if heard {
			b.Established(b.conn)
		}
		w.run(time.Second)
		if got := slices.Contains(b.told, "connected"); got != heard || errors.Is(b.err, ErrTimeout) == heard {
			t.Errorf("heard %v: %v, %v", heard, b.told, b.err)
		}
	}
}

// TestRejected: who asks learns why not.
func TestRejected(t *testing.T) {
	for what, c := range map[string]struct {
		reason uint16
		change func(w *world, offer *Offer)
	}{
		"nobody listens":  {infiniband.RejectServiceID, func(w *world, _ *Offer) { delete(w.ends[1].ports, port) }},
		"bad MTU":         {infiniband.RejectMTU, func(_ *world, o *Offer) { o.MTU = 9 }},
		"too many":        {infiniband.RejectNoQP, func(w *world, _ *Offer) { w.ends[1].config.Most = 0 }},
		"the host's will": {infiniband.RejectConsumer, func(w *world, _ *Offer) {}},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 1)
			b := w.ends[1]
			b.asked = func(conn Conn, _ Offer) { b.Reject(conn, infiniband.RejectConsumer) }
			offer := asks
			c.change(w, &offer)
			w.connect(offer)
			w.run(time.Second)
			var rejected *RejectError
			if err := w.ends[0].err; !errors.Is(err, ErrRejected) || !errors.As(err, &rejected) || rejected.Reason != c.reason {
				t.Errorf("%v, want reason %d", err, c.reason)
			}
			if len(w.ends[0].conns)+len(b.conns) != 0 {
				t.Error("connections are left")
			}
		})
	}
}

// TestShared: who shares its address says nothing of what may be others'.
func TestShared(t *testing.T) {
	w := newWorld(t, 1)
	b := w.ends[1]
	b.config.Shared = true
	delete(b.ports, port)
	w.connect(asks)
	message := make(infiniband.MAD, infiniband.MADLen)
	message.EncodeCM(infiniband.AttributeDREQ, 1)
	b.Receive(w.now, w.ends[0].addr, message)
	w.run(time.Second)
	if !errors.Is(w.ends[0].err, ErrTimeout) || slices.Contains(w.saw, "REJ") || slices.Contains(w.saw, "DREP") {
		t.Errorf("%v, %v", w.ends[0].err, w.saw)
	}
}

// TestLate: an MRA puts the next try off.
func TestLate(t *testing.T) {
	w := newWorld(t, 1)
	w.fate = func(*end, infiniband.MAD) bool { return true }
	a := w.ends[0]
	c := w.connect(asks)
	a.pump()
	message := make(infiniband.MAD, infiniband.MADLen)
	message.EncodeCM(infiniband.AttributeMRA, 1)
	infiniband.MRA(message.CM()).Encode(&infiniband.MRAFields{Comm: infiniband.Comm{Local: 5, Remote: uint32(c)}, Timeout: 11}) // 8.4 ms
	a.Receive(w.now, w.ends[1].addr, message)
	if got := a.Deadline(); got != w.now.Add(infiniband.AckTimeout(11)) {
		t.Errorf("tries again at %v", got)
	}
}

// TestFlood: requests that nobody answers are forgotten when they are not repeated,
// so that those that come later find room; one that is repeated is kept.
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
	if len(b.conns) != 1 {
		t.Fatalf("%d connections, want the one that is asked for again and again", len(b.conns))
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
		infiniband.RTU(m.CM()).Encode(&infiniband.RTUFields{Comm: c}) // names stand first in all of them
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

// TestForgedNames: who has an address of the peer's, and guessed how a connection is
// named at one end, or at both but not its queue pair, ends nothing and delays nothing
// for long.
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
		infiniband.REJ(cm).Encode(&infiniband.REJFields{Comm: infiniband.Comm{Remote: names.Remote}, Reason: infiniband.RejectConsumer})
	})
	if b.err != nil || b.conns[b.conn].state != granted {
		t.Errorf("rejected by who does not know its name at the peer: %v", b.err)
	}
	b.Established(b.conn)
	for _, qpn := range []infiniband.QPN{0, grants.QPN + 1, asks.QPN} {
		send(b, a, infiniband.AttributeDREQ, func(cm []byte) { infiniband.DREQ(cm).Encode(&infiniband.DREQFields{Comm: names, QPN: qpn}) })
		if b.err != nil || len(b.conns) != 1 || len(b.out) != 0 {
			t.Errorf("ended by who does not know its queue pair: %v", b.err)
		}
	}
	send(b, a, infiniband.AttributeDREQ, func(cm []byte) { infiniband.DREQ(cm).Encode(&infiniband.DREQFields{Comm: names, QPN: grants.QPN}) })
	if !errors.Is(b.err, ErrDisconnected) {
		t.Errorf("not ended by who knows it: %v", b.err)
	}
}

// TestLateAgainAndAgain: an MRA that comes again puts nothing off any more, so that who
// is asked cannot keep who asks waiting for good; and one about a connection that is
// asked for puts nothing off.
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
			t.Errorf("%d connections, %d asked for, %d datagrams", len(b.conns), len(b.Manager.asked), len(b.out))
		}
	})
}

// FuzzPair: whatever is lost, doubled or late of two managers' datagrams, and whenever
// their hosts answer and leave, each is told of a connection's beginning once at most,
// and then of its end once at most; and nothing is left behind. The input is a series
// of things that happen, each with the fates of the next datagrams.
func FuzzPair(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 9, 0, 4, 0})
	f.Add([]byte{0, 1, 9, 2, 1, 3, 9, 1, 5, 0, 9, 0})
	f.Add([]byte{0, 0, 9, 0, 2, 0, 0, 3, 1, 2, 3, 1, 4, 0, 6, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
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
				_ = b.Accept(w.now, last, grants) // or nobody asks for it
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
				t.Errorf("%d connections, %d asked for and %d datagrams are left", len(e.conns), len(e.Manager.asked), len(e.out))
			}
			for c, story := range told[e] {
				if !slices.Contains([]string{"r", "rc", "re", "rce", "c", "e", "ce"}, strings.Join(story, "")) {
					t.Errorf("of %d it was told %v", c, story)
				}
			}
		}
	})
}

// TestConfig: numbers that cannot be are refused.
func TestConfig(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	for what, c := range map[string]Config{"no address": {}, "retries": {Addr: addr, Retries: 16}, "timeout": {Addr: addr, Timeout: -1}} {
		if _, err := New(c, nil); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	m, err := New(Config{Addr: addr}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Connect(0, netip.MustParseAddrPort("[fd00::1]:1"), 0, Offer{}); err == nil {
		t.Error("IPv6 from IPv4: taken")
	}
	if _, err := m.Connect(0, netip.MustParseAddrPort("10.0.0.2:1"), 0, Offer{Private: make([]byte, 57)}); err == nil {
		t.Error("57 private bytes: taken")
	}
	if m.Accept(0, 5, Offer{}) == nil {
		t.Error("accepted what nobody asked for")
	}
}
