package arbiter

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/transports/rd/privacy"
)

func newSecret(t testing.TB) *privacy.Secret {
	t.Helper()
	s, err := privacy.New(privacy.Generate())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestForgedRequests checks that an arbiter with a secret accepts only a host's sealed messages,
// once each. It rejects plain messages, other secrets, any changed bit, cut messages, another life
// of the host, and its own messages.
func TestForgedRequests(t *testing.T) {
	secret := newSecret(t)
	s := newServer(Options{Hosts: 3, Slot: 100, Time: time.Millisecond, Secret: secret})
	host := newChannel(secret, newLife())
	plain := func(total uint64) []byte { return addEntry(newMessage(nil, typeRequest, 1), 2, total) }
	refused := func(what string, b []byte) {
		t.Helper()
		before := slices.Clone(s.wanted)
		if _, valid := s.request(slices.Clone(b), func(int, []byte) {}); valid ||
			!slices.Equal(s.wanted, before) {
			t.Errorf("%s: taken", what)
		}
	}
	refused("plain", plain(500))
	refused("another secret", newChannel(newSecret(t), 9).seal(plain(500)))
	first := slices.Clone(host.seal(plain(500)))
	for bit := range 8 * len(first) {
		b := slices.Clone(first)
		b[bit/8] ^= 1 << (bit % 8)
		refused("a changed bit", b)
	}
	for n := range first {
		refused("cut", first[:n:n])
	}
	if who, valid := s.request(slices.Clone(first), func(int, []byte) {}); !valid || who != 1 ||
		s.wanted[1*3+2] != 500 {
		t.Fatalf("what host 1 sealed is of host %d, %v, and it wants %d bytes", who, valid, s.wanted[1*3+2])
	}
	refused("a second time", first)
	refused("another life", newChannel(secret, newLife()).seal(plain(900)))
	s.run(1, func(to int, m []byte) {
		if b := s.channels[to].seal(m); len(b) > 0 {
			refused("its own answer", b)
		}
	})
	late, next := slices.Clone(host.seal(plain(600))), slices.Clone(host.seal(plain(700)))
	for _, b := range [][]byte{next, late} { // overtaken is not forged
		if _, valid := s.request(b, func(int, []byte) {}); !valid {
			t.Error("a request that was overtaken, or its follower, was not taken")
		}
	}
	if s.wanted[1*3+2] != 700 {
		t.Errorf("host 1 wants %d bytes, want 700", s.wanted[1*3+2])
	}
}

// TestForgedGrants holds the same of a host: what the arbiter sealed for it, and nothing
// else.
func TestForgedGrants(t *testing.T) {
	secret := newSecret(t)
	s := newServer(Options{Hosts: 3, Slot: 400, Time: time.Millisecond, Secret: secret})
	client := func(host int) *Client {
		c := newClient(nil, ClientOptions{Host: host, Hosts: 3, Clock: clock.New(1), Secret: secret})
		c.change = func(f func()) { f() }
		c.Controller(2).Wanted(0, 1000)
		c.requests(nil, func(m []byte) { s.request(slices.Clone(c.asks.seal(m)), func(int, []byte) {}) })
		return c
	}
	c, other := client(1), client(0)
	grant := binary.BigEndian.AppendUint64(addEntry(newMessage(nil, typeGrant, 1), 2, 400), 5)
	good := slices.Clone(s.channels[1].seal(grant))
	refused := func(what string, c *Client, b []byte) {
		t.Helper()
		before := slices.Clone(c.granted)
		if c.take(slices.Clone(b)); !slices.Equal(c.granted, before) {
			t.Errorf("%s: taken", what)
		}
	}
	refused("plain", c, grant)
	refused("by another secret", c, newChannel(newSecret(t), 3).seal(grant))
	refused("for another host", other, good)
	forged := newChannel(secret, newLife()) // a host with the secret that does not know the client's life
	refused("for another life", c, forged.seal(grant))
	for bit := range 8 * len(good) {
		b := slices.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		refused("a changed bit", c, b)
	}
	if c.take(slices.Clone(good)); c.granted[2] != 400 {
		t.Errorf("what the arbiter sealed granted %d bytes, want 400", c.granted[2])
	}
	if bytes.Contains(good, grant[headLen:]) {
		t.Error("entries can be read")
	}
	refused("a second time", c, good)
}

// TestServeKeepsAnswersHome holds over real sockets that a request which somebody sends
// again from elsewhere does not turn the answers to him.
func TestServeKeepsAnswersHome(t *testing.T) {
	secret := newSecret(t)
	listen := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.87.0.3:0")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	free := listen()
	at := free.LocalAddr().(*net.UDPAddr).AddrPort()
	free.Close()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, at, Options{Hosts: 3, Slot: 100, Time: time.Millisecond, Secret: secret})
	}()
	t.Cleanup(func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	home, thief, host := listen(), listen(), newChannel(secret, newLife())
	buffer := make([]byte, 2048)
	ask := func(total uint64) (request []byte) {
		for { // until the arbiter is there
			request = slices.Clone(host.seal(addEntry(newMessage(nil, typeRequest, 1), 2, total)))
			if _, err := home.WriteToUDPAddrPort(request, at); err != nil {
				t.Fatal(err)
			}
			_ = home.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if n, _, err := home.ReadFromUDPAddrPort(buffer); err == nil {
				if _, ok := newOpened(secret, host.own, buffer[:n]); !ok {
					t.Fatal("the answer cannot be opened")
				}
				return request
			} else if t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	request := ask(500)
	for range 3 {
		if _, err := thief.WriteToUDPAddrPort(request, at); err != nil {
			t.Fatal(err)
		}
	}
	ask(900) // the requests before it have been read by then
	_ = thief.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, _, err := thief.ReadFromUDPAddrPort(buffer); err == nil {
		t.Errorf("%d bytes went to who sent a request again", n)
	}
}

// newOpened opens a grant as a host of that life.
func newOpened(secret *privacy.Secret, life uint64, b []byte) ([]byte, bool) {
	return newChannel(secret, life).open(slices.Clone(b))
}
