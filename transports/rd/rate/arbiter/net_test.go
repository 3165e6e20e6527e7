package arbiter

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/testkit/privacytest"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate"
)

// TestLossyArbiter loses, duplicates and reorders messages between hosts and arbiter. In the end
// each pair is granted exactly the bytes that it asked for. In one slot no host sends to two hosts,
// or receives from two.
func TestLossyArbiter(t *testing.T) {
	for _, secret := range []*privacy.Secret{nil, newSecret(t)} {
		testLossyArbiter(t, secret)
	}
}

func testLossyArbiter(t *testing.T, secret *privacy.Secret) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		o := Options{Hosts: 2 + r.IntN(8), Slot: 1000, Time: 100 * time.Microsecond, Secret: secret}
		s := newServer(o)
		epoch := time.Unix(1_700_000_000, 0)
		now := epoch.UnixNano()
		var clients []*Client
		wanted := make([]uint64, o.Hosts*o.Hosts)
		granted := make([]uint64, o.Hosts*o.Hosts)
		for host := range o.Hosts {
			c := newClient(nil, ClientOptions{Host: host, Hosts: o.Hosts, Clock: clock.At(epoch, 1),
				Secret: secret})
			c.change = func(f func()) { f() }
			clients = append(clients, c)
		}
		type grantKey struct {
			receives bool
			host     int
			at       int64
		}
		used := map[grantKey]int{}
		var late [][]byte // messages that are under way too long
		deliver := func(host int, m []byte) {
			m = s.channels[host].seal(m)
			for range r.IntN(3) { // lost, once, twice
				if again := slices.Clone(m); r.IntN(4) == 0 {
					late = append(late, again)
				} else {
					clients[host].take(again)
				}
			}
		}
		send := func(host int, m []byte) {
			for i := range entries(m) {
				to, total, rest := entry(m, i, grantLen)
				if at := host*o.Hosts + to; total > granted[at] {
					granted[at] = total
					when := clock.Time(0)
					for _, b := range rest {
						when = when<<8 | clock.Time(b)
					}
					for _, k := range []grantKey{{false, host, int64(when)}, {true, to, int64(when)}} {
						if used[k]++; used[k] > 1 {
							t.Fatalf("seed %d: %+v has two slots at once", seed, k)
						}
					}
				}
			}
			deliver(host, m)
		}
		for round := 0; round < 3000; round++ {
			now += int64(50 * time.Microsecond)
			host := r.IntN(o.Hosts)
			if to := r.IntN(o.Hosts); round < 500 && to != host {
				bytes := 1 + r.IntN(3000)
				clients[host].Controller(to).Wanted(0, bytes)
				wanted[host*o.Hosts+to] += uint64(bytes)
			}
			clients[host].requests(nil, func(m []byte) {
				if m = clients[host].asks.seal(m); r.IntN(3) > 0 {
					s.request(slices.Clone(m), send)
				}
			})
			s.run(now, send)
			if len(late) > 0 && r.IntN(2) == 0 {
				for _, c := range clients {
					c.take(slices.Clone(late[0])) // one of them is meant
				}
				late = late[1:]
			}
		}
		for host, c := range clients {
			for to, slots := range c.slots {
				if slots == nil {
					continue
				}
				if c.granted[to] != wanted[host*o.Hosts+to] {
					t.Errorf("seed %d: %d to %d was granted %d of %d", seed, host, to, c.granted[to],
						wanted[host*o.Hosts+to])
				}
			}
		}
	}
}

// TestSlots holds that nothing goes before its grant, that a grant that is late is
// good, and that what is used is over.
func TestSlots(t *testing.T) {
	asked := 0
	s := &rate.Slots{Want: func(bytes int) { asked += bytes }}
	s.Wanted(0, 3000)
	if a := s.Allowed(5); a.From != clock.Never || asked != 3000 {
		t.Errorf("%+v of %d bytes", a, asked)
	}
	s.Grant(100, 1000)
	s.Grant(200, 2000)
	if a := s.Allowed(99); a.From != 100 {
		t.Errorf("%+v before its time", a)
	}
	if a := s.Allowed(100); a.From != 0 {
		t.Errorf("%+v in its time", a)
	}
	s.Sent(100, 1000)
	if a := s.Allowed(150); a.From != 200 {
		t.Errorf("%+v between slots", a)
	}
	if a := s.Allowed(10_000); a.From != 0 {
		t.Errorf("%+v in a slot that is over", a)
	}
	s.Sent(10_000, 2000)
	s.Lost(10_001, rate.Loss{Bytes: 700})
	if a := s.Allowed(10_002); a.From != clock.Never || asked != 3700 {
		t.Errorf("%+v of %d bytes, at the end", a, asked)
	}
	for i := range clock.Time(200) { // more than it keeps
		s.Grant(i, 10)
	}
	for i := range 200 {
		if a := s.Allowed(1000); a.From != 0 {
			t.Fatalf("%+v after %d of 200 grants", a, i)
		}
		s.Sent(1000, 10)
	}
}

// TestEmptyPacketsNeedNoSlot holds that packets without payload go while nothing is
// exceeded, whatever waits for its slot, and that what goes in their place is made good.
func TestEmptyPacketsNeedNoSlot(t *testing.T) {
	asked := 0
	s := &rate.Slots{Want: func(bytes int) { asked += bytes }}
	s.Wanted(0, 0)
	if a := s.Allowed(0); a.From != 0 || asked != 0 {
		t.Errorf("an empty packet waits: %+v, and %d bytes are asked for", a, asked)
	}
	s.Sent(0, 0)
	if a := s.Allowed(0); a.From != clock.Never {
		t.Errorf("after the empty packet: %+v", a)
	}
	s.Lost(0, rate.Loss{})
	if a := s.Allowed(0); a.From != 0 {
		t.Errorf("an empty packet that was lost waits: %+v", a)
	}
	s.Wanted(0, 1000)
	s.Sent(0, 1000) // it stood before the empty one
	if a := s.Allowed(0); a.From != clock.Never {
		t.Errorf("a second packet goes before its slot: %+v", a)
	}
	s.Grant(10, 1000)
	if a := s.Allowed(10); a.From != 0 {
		t.Errorf("the empty packet waits when what went before it has its slot: %+v", a)
	}
	if s.Sent(10, 0); s.Allowed(10).From != clock.Never {
		t.Error("a slot was used twice")
	}
}

// TestMissedSlots holds that what an owner was too late for is asked for again and does
// not go then, whether he had begun with it or not.
func TestMissedSlots(t *testing.T) {
	asked := 0
	s := &rate.Slots{Miss: 50, Want: func(bytes int) { asked += bytes }}
	s.Wanted(0, 3000)
	s.Grant(100, 1000)
	s.Grant(200, 2000)
	if a := s.Allowed(150); a.From != 0 || asked != 3000 {
		t.Errorf("at the end of a slot: %+v, %d bytes asked for", a, asked)
	}
	s.Sent(150, 600)
	if a := s.Allowed(151); a.From != 200 || asked != 3400 {
		t.Errorf("after a slot that was used in part: %+v, %d bytes asked for", a, asked)
	}
	if a := s.Allowed(251); a.From != clock.Never || asked != 5400 {
		t.Errorf("after a slot that was not used: %+v, %d bytes asked for", a, asked)
	}
	s.Grant(300, 2400)
	if a := s.Allowed(399); a.From != 0 {
		t.Errorf("after a miss twice as late is in time: %+v", a)
	}
	s.Sent(399, 2400)
	for _, c := range []struct {
		from, at clock.Time
		good     bool
	}{{1000, 1101, false}, {2000, 2201, false}, {3000, 3400, true}, {4000, 4050, true}, {5000, 5051, false}} {
		s.Grant(c.from, 10)
		if a := s.Allowed(c.at); (a.From == 0) != c.good {
			t.Errorf("a grant for %d at %d: %+v, want good %v", c.from, c.at, a, c.good)
		}
		if c.good {
			s.Sent(c.at, 10)
		}
	}
}

// FuzzMessages holds that no message makes a server or a client fall.
func FuzzMessages(f *testing.F) {
	f.Add(addEntry(newMessage(nil, typeRequest, 1), 2, 500))
	f.Add(append(addEntry(newMessage(nil, typeGrant, 1), 2, 500), 0, 0, 0, 0, 0, 0, 0, 9))
	secret := privacytest.Secret()
	for _, sealed := range []*privacy.Secret{secret, newSecret(f)} { // what is forged, too
		f.Add(newChannel(sealed, 7).seal(addEntry(newMessage(nil, typeRequest, 1), 2, 500)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, secret := range []*privacy.Secret{nil, secret} {
			s := newServer(Options{Hosts: 3, Slot: 100, Time: time.Millisecond, Secret: secret})
			answers := 0
			s.request(slices.Clone(b), func(int, []byte) { answers++ })
			s.run(1, func(_ int, m []byte) {
				if answers++; len(m) > 1400 {
					t.Fatalf("an answer of %d bytes", len(m))
				}
			})
			if answers > len(b)/requestLen+3 {
				t.Fatalf("%d answers to %d bytes", answers, len(b))
			}
			c := newClient(nil, ClientOptions{Host: 1, Hosts: 3, Clock: clock.New(1), Secret: secret})
			c.change = func(f func()) { f() }
			c.Controller(2).Wanted(0, 1000)
			c.take(slices.Clone(b))
			if granted := c.granted[2]; granted > 1000 || granted > 0 && secret != nil {
				t.Fatalf("%d bytes of 1000 were granted", granted)
			}
		}
	})
}
