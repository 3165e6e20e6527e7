package cm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
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
		m, err := New(Config{Addr: e.addr, First: Conn(1000 * (i + 1)), Timeout: time.Millisecond,
			Retries: 5}, e)
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
	asks = Offer{QPN: 77, PSN: 0xABCDEF, Resources: 3, Depth: 4, Retries: 5, RNRRetries: 6, AckTimeout: 14,
		MTU: 3, Private: []byte("asks")}
	grants = Offer{QPN: 88, PSN: 0x123456, Resources: 7, Depth: 8, RNRRetries: 2, AckTimeout: 9,
		Private: []byte("grants")}
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
func (w *world) accepts() { w.ends[1].accepts(w) }

func (b *end) accepts(w *world) {
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
		if want := []string{fmt.Sprintf("requested from %v at %d", netip.AddrPortFrom(a.addr, 4000), port),
			"connected"}; !slices.Equal(b.told, want) || !same(b.last, asks) {
			t.Errorf("who granted was told %v, %+v", b.told, b.last)
		}
		if !slices.Equal(w.saw, []string{"REQ", "REP", "RTU"}) {
			t.Errorf("datagrams %v", w.saw)
		}
		w.saw = nil
		a.Disconnect(w.now, c, 88)
		w.run(time.Second)
		if !slices.Equal(w.saw, []string{"DREQ", "DREP"}) || !errors.Is(b.err, ErrDisconnected) ||
			a.err != nil || len(a.conns)+len(b.conns)+len(b.Manager.asked) != 0 {
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

// TestNobodyAnswers: the active side gives up after its retries. So does the passive side if its
// grant is not answered. A packet of the connection is as good as an RTU.
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
		if got := slices.Contains(b.told, "connected"); got != heard ||
			errors.Is(b.err, ErrTimeout) == heard {
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
		"nobody listens": {infiniband.RejectServiceID, func(w *world, _ *Offer) {
			delete(w.ends[1].ports, port)
		}},
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
			if err := w.ends[0].err; !errors.Is(err, ErrRejected) || !errors.As(err, &rejected) ||
				rejected.Reason != c.reason {
				t.Errorf("%v, want reason %d", err, c.reason)
			}
			if len(w.ends[0].conns)+len(b.conns) != 0 {
				t.Error("connections are left")
			}
		})
	}
}

// TestShared: a manager with a shared address does not answer for other managers' connections.
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
	if !errors.Is(w.ends[0].err, ErrTimeout) || slices.Contains(w.saw, "REJ") ||
		slices.Contains(w.saw, "DREP") {
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
	// 8.4 ms
	infiniband.MRA(message.CM()).Encode(
		&infiniband.MRAFields{Comm: infiniband.Comm{Local: 5, Remote: uint32(c)}, Timeout: 11})
	a.Receive(w.now, w.ends[1].addr, message)
	if got := a.Deadline(); got != w.now.Add(infiniband.AckTimeout(11)) {
		t.Errorf("tries again at %v", got)
	}
}

// TestConfig: numbers that cannot be are refused.
func TestConfig(t *testing.T) {
	addr := netip.MustParseAddr("10.0.0.1")
	for what, c := range map[string]Config{"no address": {}, "retries": {Addr: addr, Retries: 16},
		"timeout": {Addr: addr, Timeout: -1}} {
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
	if _, err := m.Connect(0, netip.MustParseAddrPort("10.0.0.2:1"), 0,
		Offer{Private: make([]byte, 57)}); err == nil {
		t.Error("57 private bytes: taken")
	}
	if m.Accept(0, 5, Offer{}) == nil {
		t.Error("accepted what nobody asked for")
	}
}
