package roce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"railbed/internal/infiniband"
	"railbed/transports"
	"railbed/transports/completion"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// answer is the result of a connection attempt by rdma_cm.
type answer struct {
	private []byte
	err     error
}

// ackTimeout returns the code of a queue pair's timeout: the least that is not shorter.
func ackTimeout(c *queuepair.Config) uint8 {
	if c.Timeout == 0 {
		return 14
	}
	code := uint8(1)
	for code < 31 && infiniband.AckTimeout(code) < c.Timeout {
		code++
	}
	return code
}

// offer describes this end to the peer.
func (q *QueuePair) offer(private []byte) cm.Offer {
	c := &q.config
	return cm.Offer{
		QPN:        q.number,
		PSN:        q.psn,
		Resources:  uint8(cmp.Or(c.RemoteReads, 16)),
		Depth:      uint8(cmp.Or(c.Reads, 16)),
		Retries:    uint8(min(cmp.Or(max(c.Retries, 0), 7), 7)),
		RNRRetries: uint8(min(cmp.Or(max(c.RNRRetries, 0), 7), 7)),
		AckTimeout: ackTimeout(c),
		MTU:        infiniband.MTUCode(c.MTU),
		Private:    private,
	}
}

// Dial connects the queue pair as rdma_connect does, to the listener at an address and port, and
// returns the peer's private data. Its own private data is at most cm.MaxRequestPrivate bytes. A
// refusal is a *cm.RejectError, and a missing answer cm.ErrTimeout. A queue pair that could not be
// connected is broken.
func (q *QueuePair) Dial(ctx context.Context, to netip.AddrPort, private []byte) ([]byte, error) {
	q.device.mu.Lock()
	err := q.dialLocked(to, private)
	q.device.unlock()
	if err == nil {
		private, err = q.connectedBy(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", to, err)
	}
	return private, nil
}

func (q *QueuePair) dialLocked(to netip.AddrPort, private []byte) error {
	switch {
	case q.err != nil:
		return q.err
	case q.qp != nil || q.managed:
		return errors.New("the queue pair is already connected")
	}
	conn, err := q.device.manager.Connect(q.device.clock.Now(), to, uint16(1024+random()%64512),
		q.offer(private))
	if err != nil {
		return err
	}
	q.at = to.Addr()
	q.hold(conn)
	return nil
}

// hold assigns a connection to the queue pair.
func (q *QueuePair) hold(conn cm.Conn) {
	q.conn, q.managed = conn, true
	q.device.byConn[conn] = q
}

// connectOffered connects the queue pair to the peer of an offer. The offer sets the first PSNs of
// both directions and how many READs and atomics the peer accepts at once.
func (q *QueuePair) connectOffered(at netip.Addr, offer *cm.Offer) error {
	return q.connectLocked(Place{Addr: at, QPN: offer.QPN, PSN: q.psn, Reads: int(offer.Resources)},
		offer.PSN)
}

// connectedBy waits for the result of rdma_cm.
func (q *QueuePair) connectedBy(ctx context.Context) ([]byte, error) {
	select {
	case a := <-q.state:
		return a.private, a.err
	case <-q.ended:
		return nil, q.Err()
	case <-ctx.Done():
		q.device.mu.Lock()
		q.leave(ctx.Err())
		q.device.unlock()
		return nil, ctx.Err()
	}
}

// Listener accepts requests for connections at a port.
type Listener struct {
	device   *Device
	port     uint16
	incoming completion.List[*Incoming]
	waiting  int // requests for Accept, under the device's lock
}

// backlog is the most requests that wait for Accept, including those that the peer gave up. Further
// requests are rejected, so that a flood of them takes no memory.
const backlog = 128

// Listen accepts requests that arrive at a port of rdma_cm. A request that is not answered is
// dropped when the peer gives up.
func (d *Device) Listen(port uint16) (*Listener, error) {
	d.mu.Lock()
	defer d.unlock()
	switch {
	case d.closed:
		return nil, fmt.Errorf("listen: %w", transports.ErrClosed)
	case d.listeners[port] != nil:
		return nil, fmt.Errorf("listen: port %d is taken", port)
	}
	l := &Listener{device: d, port: port}
	d.listeners[port] = l
	d.manager.Listen(port)
	return l, nil
}

// Accept waits for the next request. Up to 128 requests wait for Accept.
func (l *Listener) Accept(ctx context.Context) (*Incoming, error) {
	for {
		if err := l.incoming.Wait(ctx); err != nil {
			return nil, fmt.Errorf("accept: %w", err)
		}
		var one [1]*Incoming
		if l.incoming.Poll(one[:]) == 1 {
			l.device.mu.Lock()
			l.waiting--
			l.device.mu.Unlock()
			return one[0], nil
		}
	}
}

// Close stops listening: later requests are rejected.
func (l *Listener) Close() error {
	l.device.mu.Lock()
	defer l.device.unlock()
	delete(l.device.listeners, l.port)
	l.incoming.Close()
	return nil
}

// Incoming is a request for a connection.
type Incoming struct {
	// From is the address and port of the peer.
	From netip.AddrPort
	// Offer describes the peer's queue pair, with its private data.
	Offer cm.Offer

	device *Device
	conn   cm.Conn
}

// Grant connects a queue pair to the peer's, and waits until the peer is ready. The private data is
// at most infiniband.REPPrivate bytes. The MTU is the peer's; one larger than the device's is
// refused.
func (i *Incoming) Grant(ctx context.Context, q *QueuePair, private []byte) error {
	i.device.mu.Lock()
	err := i.grantLocked(q, private)
	i.device.unlock()
	if err == nil {
		_, err = q.connectedBy(ctx)
	}
	if err != nil {
		return fmt.Errorf("grant %v a connection: %w", i.From, err)
	}
	return nil
}

func (i *Incoming) grantLocked(q *QueuePair, private []byte) error {
	d := i.device
	switch {
	case d.asking[i.conn] != i:
		return errors.New("the peer does not request it any more")
	case q.device != d:
		return errors.New("the queue pair belongs to another device")
	}
	delete(d.asking, i.conn)
	if q.config.MTU = infiniband.MTU(i.Offer.MTU); q.config.MTU > d.mtu {
		d.manager.Reject(i.conn, infiniband.RejectMTU)
		return fmt.Errorf("the peer has MTU %d, want at most this end's %d", q.config.MTU, d.mtu)
	}
	if err := q.connectOffered(i.From.Addr(), &i.Offer); err != nil {
		d.manager.Reject(i.conn, infiniband.RejectNoQP)
		return err
	}
	q.hold(i.conn)
	q.onPacket = func() {
		q.onPacket = nil
		d.manager.Established(q.conn)
	}
	if err := d.manager.Accept(d.clock.Now(), i.conn, q.offer(private)); err != nil {
		q.leave(err)
		return err
	}
	return nil
}

// Reject refuses the request.
func (i *Incoming) Reject() {
	i.device.mu.Lock()
	defer i.device.unlock()
	if i.device.asking[i.conn] == i {
		delete(i.device.asking, i.conn)
		i.device.manager.Reject(i.conn, infiniband.RejectConsumer)
	}
}

// connecting is the device's cm.Host.
type connecting struct{ d *Device }

// Requested implements cm.Host.
func (c connecting) Requested(conn cm.Conn, from netip.AddrPort, port uint16, offer cm.Offer) {
	l := c.d.listeners[port]
	if l == nil {
		c.d.manager.Reject(conn, infiniband.RejectServiceID)
		return
	}
	if l.waiting >= backlog {
		c.d.manager.Reject(conn, infiniband.RejectConsumer)
		return
	}
	i := &Incoming{From: from, Offer: offer, device: c.d, conn: conn}
	c.d.asking[conn] = i
	l.waiting++
	l.incoming.Push(i)
}

// Connected implements cm.Host.
func (c connecting) Connected(conn cm.Conn, offer cm.Offer) {
	q := c.d.byConn[conn]
	if q == nil {
		return
	}
	a := answer{private: offer.Private}
	if q.qp == nil {
		a.err = q.connectOffered(q.at, &offer)
	}
	select {
	case q.state <- a:
	default: // no goroutine waits
	}
}

// Ended implements cm.Host.
func (c connecting) Ended(conn cm.Conn, why error) {
	delete(c.d.asking, conn)
	if q := c.d.byConn[conn]; q != nil {
		delete(c.d.byConn, conn)
		q.managed = false
		q.end(why)
	}
}
