package arbiter

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"railbed/internal/clock"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate"
)

// again is the time after which a request that is not granted in full is repeated.
const again = 5 * time.Millisecond

// Client sends requests to an arbiter on behalf of one host. Its controllers are for the engines of
// that host's endpoint.
type Client struct {
	conn  *net.UDPConn
	clock *clock.Clock
	host  int
	miss  time.Duration
	// One goroutine seals requests and another opens grants, so each has its own channel.
	asks, receiver *channel
	// change calls a function while no engine works.
	change  func(func())
	wake    chan struct{}
	done    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	wanted  []uint64 // bytes by host, so far
	granted []uint64
	slots   []*rate.Slots
}

// ClientOptions configure a Client. Clock and Hosts are required.
type ClientOptions struct {
	// Host is the client's number among Hosts hosts, from 0.
	Host, Hosts int
	Clock       *clock.Clock
	// Miss is rate.Slots.Miss, by the clock: one slot or two, if the host can send within that
	// time. With 0 no slot is missed.
	Miss time.Duration
	// Secret is shared with the arbiter. If nil, messages are plain.
	Secret *privacy.Secret
}

// Dial makes a client that sends from an address to the arbiter at server. It sends nothing before
// Start.
func Dial(from netip.Addr, server netip.AddrPort, o ClientOptions) (*Client, error) {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		net.UDPAddrFromAddrPort(server))
	if err == nil {
		if err = express(conn, from); err != nil {
			conn.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("dial arbiter at %v: %w", server, err)
	}
	return newClient(conn, o), nil
}

func newClient(conn *net.UDPConn, o ClientOptions) *Client {
	life := newLife()
	return &Client{
		asks:     newChannel(o.Secret, life),
		receiver: newChannel(o.Secret, life),
		conn:     conn,
		clock:    o.Clock,
		host:     o.Host,
		miss:     o.Miss,
		wake:     make(chan struct{}, 1),
		wanted:   make([]uint64, o.Hosts),
		granted:  make([]uint64, o.Hosts),
		slots:    make([]*rate.Slots, o.Hosts),
	}
}

// Controller returns the controller for packets to a host. Each host has one.
func (c *Client) Controller(to int) rate.Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots[to] == nil {
		c.slots[to] = &rate.Slots{Miss: c.miss, Want: func(bytes int) {
			c.mu.Lock()
			c.wanted[to] += uint64(bytes)
			c.mu.Unlock()
			select {
			case c.wake <- struct{}{}:
			default: // ask is due to run already
			}
		}}
	}
	return c.slots[to]
}

// Start begins to send requests. change must call a function while no engine works, and then make
// the engines check again what they may send, as rd.Endpoint.Change does.
func (c *Client) Start(change func(func())) {
	ctx, done := context.WithCancel(context.Background())
	c.change, c.done = change, done
	c.running.Go(func() { c.ask(ctx) })
	c.running.Go(c.receive)
}

// Close ends the client. Bytes not granted by then are never granted.
func (c *Client) Close() error {
	if c.done != nil {
		c.done()
	}
	err := c.conn.Close()
	c.running.Wait()
	return err
}

// ask sends requests while any bytes are not granted.
func (c *Client) ask(ctx context.Context) {
	timer := time.NewTimer(again)
	defer timer.Stop()
	buffer := make([]byte, 0, 1<<11)
	for {
		open := c.requests(buffer, func(m []byte) {
			if sealed := c.asks.seal(m); sealed != nil {
				_, _ = c.conn.Write(sealed) // a lost request is repeated
			}
		})
		var later <-chan time.Time
		if open {
			timer.Reset(again)
			later = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-later:
		}
	}
}

// requests sends requests for all bytes that are needed and not granted. It returns false if there
// are none.
func (c *Client) requests(buffer []byte, send func([]byte)) (open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := newMessage(buffer, typeRequest, c.host)
	for to, wanted := range c.wanted {
		if wanted == c.granted[to] {
			continue
		}
		open = true
		if m = addEntry(m, to, wanted); entries(m) == mostEntries {
			send(m)
			m = newMessage(m, typeRequest, c.host)
		}
	}
	if entries(m) > 0 {
		send(m)
	}
	return open
}

// receive receives grants until the socket is closed.
func (c *Client) receive() {
	buffer := make([]byte, 1<<11)
	for {
		n, err := c.conn.Read(buffer)
		switch {
		case err == nil:
			c.take(buffer[:n])
		case c.closed():
			return
		default: // the arbiter is not there yet take processes a message of grants.
			time.Sleep(again)
		}
	}
}

func (c *Client) closed() bool {
	return c.conn.SetReadDeadline(time.Time{}) != nil
}

// take takes a message of grants.
func (c *Client) take(b []byte) {
	b, authentic := c.receiver.open(b)
	if !authentic {
		return
	}
	host, valid := readMessage(b, typeGrant, grantLen)
	if !valid || host != c.host {
		return
	}
	c.change(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range entries(b) {
			to, total, rest := entry(b, i, grantLen)
			if to < 0 || to >= len(c.slots) || c.slots[to] == nil || total <= c.granted[to] ||
				total > c.wanted[to] {
				continue
			}
			at := c.clock.Of(time.Unix(0, int64(binary.BigEndian.Uint64(rest))))
			c.slots[to].Grant(at, int(total-c.granted[to]))
			c.granted[to] = total
		}
	})
}
