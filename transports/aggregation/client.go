package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"railbed/internal/clock"
	"railbed/internal/element"
	"railbed/internal/wire"
)

// Client is a worker with a UDP socket or with queues of its NIC. It is not safe for concurrent use.
type Client struct {
	worker *Worker
	link   link
	clock  *clock.Clock
}

// link moves datagrams between a worker and its switch. socket documents the methods.
type link interface {
	send(next func() []byte) error
	until(deadline time.Time) error
	receive() (n int, err error)
	poll() (n int, err error)
	received(i int) []byte
	waited() time.Duration
	interrupt()
	close() error
}

// Options are the options of Dial.
type Options struct {
	// Clock is the testbed's clock. Default: a clock without dilation.
	Clock *clock.Clock
	// Bypass makes messages take queues of the NIC, past the node's kernel (package nicqueue).
	Bypass bool
}

// Dial makes a client. local is the address and port of the worker's NIC, and job is an address of the
// job's switch. The configuration's times are in the testbed's time. Dial sends nothing.
func Dial(local netip.AddrPort, job netip.Addr, c Config, o Options) (*Client, error) {
	w, err := New(c)
	if err != nil {
		return nil, err
	}
	remote := netip.AddrPortFrom(job, wire.PortAggregation)
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(local), net.UDPAddrFromAddrPort(remote))
	if err != nil {
		return nil, fmt.Errorf("aggregate: %w", err)
	}
	// A window of results may arrive at once.
	if err := conn.SetReadBuffer(c.Slots * 2 * wire.AggregationLongest(c.Elements)); err != nil {
		return nil, errors.Join(fmt.Errorf("aggregate: %w", err), conn.Close())
	}
	socket, err := newSocket(conn, wire.AggregationLongest(c.Elements))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("aggregate: %w", err), conn.Close())
	}
	if o.Clock == nil {
		o.Clock = clock.New(1)
	}
	made := &Client{worker: w, link: socket, clock: o.Clock}
	if o.Bypass {
		longest := wire.AggregationLongest(c.Elements)
		if made.link, err = openQueues(socket, local, remote, longest, c.Slots, o.Clock); err != nil {
			return nil, errors.Join(fmt.Errorf("aggregate: %w", err), socket.close())
		}
	}
	return made, nil
}

// Close closes the socket and the queues. The switch still answers other workers.
func (c *Client) Close() error { return c.link.close() }

// Waited is the real time for which the worker was idle because the sums of its updates had not
// arrived: the switch waited for other workers.
func (c *Client) Waited() time.Duration { return c.link.waited() }

// Counters returns the worker's counters.
func (c *Client) Counters() Counters { return c.worker.Counters() }

func (c *Client) now() clock.Time { return c.clock.Now() }

// Combine reduces a tensor over all workers, in place. Worker documents this method and the
// following methods.
func (c *Client) Combine(ctx context.Context, t element.Type, op element.Op, memory []byte) error {
	return c.sum(ctx, func() error { return c.worker.Combine(c.now(), t, op, memory) })
}

// Fixed sums a tensor up in fixed point.
func (c *Client) Fixed(ctx context.Context, data []float32) error {
	return c.sum(ctx, func() error { return c.worker.Fixed(c.now(), data) })
}

// Int32 sums integers up.
func (c *Client) Int32(ctx context.Context, data []int32) error {
	return c.sum(ctx, func() error { c.worker.Int32(c.now(), data); return nil })
}

// sum runs one tensor. If the context ends first, the tensor is left unfinished and the client
// cannot be used any more.
func (c *Client) sum(ctx context.Context, begin func() error) error {
	w := c.worker
	if w.err != nil {
		return w.err
	}
	if err := begin(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, c.link.interrupt)
	defer stop()
	next := func() []byte { return w.Poll(c.now()) }
	for !w.Done() {
		if err := c.catchUp(); err != nil {
			return c.fail(fmt.Errorf("aggregate: %w", err))
		}
		if err := c.link.send(next); err != nil && !passing(err) {
			return c.fail(fmt.Errorf("aggregate: %w", err))
		}
		if w.Done() {
			break
		}
		if err := c.link.until(c.clock.Real(w.Next())); err != nil {
			return c.fail(fmt.Errorf("aggregate: %w", err))
		}
		if ctx.Err() != nil { // also after a datagram arrived: sum must not use this deadline
			return c.fail(context.Cause(ctx))
		}
		n, err := c.link.receive()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !passing(err) {
			return c.fail(fmt.Errorf("aggregate: %w", err))
		}
		c.handle(n)
	}
	return w.Err()
}

// catchUp takes the results that have arrived, if updates are to be repeated. Their results may be among
// them, because this process was held up. Repeats would only add more results to those that wait.
func (c *Client) catchUp() error {
	for c.worker.Late(c.now()) {
		n, err := c.link.poll()
		if err != nil && !passing(err) {
			return err
		}
		if n == 0 {
			return nil
		}
		c.handle(n)
	}
	return nil
}

// handle passes the first n datagrams of the link to the worker.
func (c *Client) handle(n int) {
	now := c.now()
	for i := range n {
		c.worker.Handle(now, c.link.received(i))
	}
}

// passing reports whether an error comes from ICMP or from a full queue, so that a repeated send
// may succeed.
func passing(err error) bool {
	for _, one := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ENOBUFS, syscall.EAGAIN} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func (c *Client) fail(err error) error {
	c.worker.err = err
	return err
}
