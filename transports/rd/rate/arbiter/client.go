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

// again is after how long a request is repeated that is not granted in full.
const again = 5 * time.Millisecond

// Client asks an arbiter in the name of one host. Its controllers belong to the
// engines of that host's endpoint.
type Client struct {
	conn  *net.UDPConn
	clock *clock.Clock
	host  int
	miss  time.Duration
	// Requests are sealed by one goroutine and grants opened by another, so each has an end.
	asks, hears *channel
	// change calls a function while no engine works.
	change  func(func())
	wake    chan struct{}
	done    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	wanted  []uint64 // by host, so far
	granted []uint64
	slots   []*rate.Slots
}

// ClientOptions say whose client it is. Clock and Hosts are required.
type ClientOptions struct {
	// Host is one of so many Hosts, from 0.
	Host, Hosts int
	Clock       *clock.Clock
	// Miss is rate.Slots', by the clock: one slot or two, if the host can be in time for that.
	// 0 is that no slot is missed.
	Miss time.Duration
	// Secret is what it shares with the arbiter; nil is that messages are plain.
	Secret *privacy.Secret
}

// Dial makes a client of the arbiter at an address that sends from an address. It asks
// nothing before Start.
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
		asks:    newChannel(o.Secret, life),
		hears:   newChannel(o.Secret, life),
		conn:    conn,
		clock:   o.Clock,
		host:    o.Host,
		miss:    o.Miss,
		wake:    make(chan struct{}, 1),
		wanted:  make([]uint64, o.Hosts),
		granted: make([]uint64, o.Hosts),
		slots:   make([]*rate.Slots, o.Hosts),
	}
}

// Controller is that of what goes to a host, of which there is one.
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
			default: // it will look
			}
		}}
	}
	return c.slots[to]
}

// Start begins to ask. change calls a function while no engine works, and lets them
// look again then, as rd.Endpoint.Change does.
func (c *Client) Start(change func(func())) {
	ctx, done := context.WithCancel(context.Background())
	c.change, c.done = change, done
	c.running.Go(func() { c.ask(ctx) })
	c.running.Go(c.hear)
}

// Close ends the client. What is not granted by then never is.
func (c *Client) Close() error {
	if c.done != nil {
		c.done()
	}
	err := c.conn.Close()
	c.running.Wait()
	return err
}

// ask sends requests while anything is not granted.
func (c *Client) ask(ctx context.Context) {
	timer := time.NewTimer(again)
	defer timer.Stop()
	buffer := make([]byte, 0, 1<<11)
	for {
		open := c.requests(buffer, func(m []byte) {
			if sealed := c.asks.seal(m); sealed != nil {
				_, _ = c.conn.Write(sealed) // what is lost is asked for again
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

// requests sends all that is wanted and not granted; false is nothing.
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

// hear takes grants until the socket is closed.
func (c *Client) hear() {
	buffer := make([]byte, 1<<11)
	for {
		n, err := c.conn.Read(buffer)
		switch {
		case err == nil:
			c.take(buffer[:n])
		case c.closed():
			return
		default: // the arbiter is not there yet
			time.Sleep(again)
		}
	}
}

func (c *Client) closed() bool {
	return c.conn.SetReadDeadline(time.Time{}) != nil
}

// take takes a message of grants.
func (c *Client) take(b []byte) {
	b, authentic := c.hears.open(b)
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
