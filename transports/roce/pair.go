package roce

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"railbed/internal/infiniband"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// Place is how a queue pair is known to the one at its other end.
type Place struct {
	Addr netip.Addr
	QPN  infiniband.QPN
	// PSN is that of the first request which the queue pair sends.
	PSN infiniband.PSN
	// Reads is how many READs and atomics it takes at once. 0 does not say it.
	Reads int
}

// QueuePair is one queue pair of a device. It takes receives from the beginning, and
// requests once it is connected.
type QueuePair struct {
	device      *Device
	config      queuepair.Config
	completions *Completions

	// Under the device's lock.
	line
	psn      infiniband.PSN // the device's choice: see Local and Dial
	receives []early        // that were posted before there was a queue pair
	done     []Completion   // to be reported
	conn     cm.Conn
	managed  bool // it has conn
	err      error
	ended    chan struct{} // closed when err is set
	state    chan answer   // of rdma_cm, buffered
}

// early is a receive that was posted before the queue pair was connected.
type early struct {
	id     uint64
	memory [][]byte
}

// NewQueuePair makes a queue pair that is not connected. Of the config Number, Remote
// and ReceivePSN are not looked at; SendPSN is where its PSNs begin, and 0 is at
// random; MTU is the device's where it is 0, and Rights are all. It reports to the
// given completions, or to some of its own for nil.
func (d *Device) NewQueuePair(config queuepair.Config, to *Completions) (*QueuePair, error) {
	config.MTU = cmp.Or(config.MTU, d.mtu)
	config.Rights = cmp.Or(config.Rights, queuepair.RemoteWrite|queuepair.RemoteRead|queuepair.RemoteAtomic)
	config.Overhead = cmp.Or(config.Overhead, wire.EthernetLen+d.socket.headersLen())
	if config.MTU > d.mtu {
		return nil, fmt.Errorf("new queue pair: MTU %d, and the device has %d", config.MTU, d.mtu)
	}
	if to == nil {
		to = new(Completions)
	}
	d.mu.Lock()
	defer d.unlock()
	if d.closed {
		return nil, fmt.Errorf("new queue pair: %w", transports.ErrClosed)
	}
	number, err := d.newNumber(func(n infiniband.QPN) bool { return d.pairs[n] != nil })
	if err != nil {
		return nil, fmt.Errorf("new queue pair: %w", err)
	}
	q := &QueuePair{
		device:      d,
		config:      config,
		completions: to,
		psn:         cmp.Or(config.SendPSN, infiniband.PSN(random())&infiniband.MaxPSN),
		ended:       make(chan struct{}), state: make(chan answer, 1),
	}
	q.number = number
	q.broken = q.end
	d.pairs[number] = q
	return q, nil
}

// Local is what the peer of Connect has to know.
func (q *QueuePair) Local() Place {
	return Place{Addr: q.device.config.Addr, QPN: q.number, PSN: q.psn,
		Reads: cmp.Or(q.config.RemoteReads, 16)}
}

// Completions is where the queue pair reports.
func (q *QueuePair) Completions() *Completions { return q.completions }

// Connect connects it to a queue pair that is told of this one by other means. Both
// have to have the same MTU. Where the other end begins first, its packets are
// ignored until it repeats them.
func (q *QueuePair) Connect(remote Place) error {
	q.device.mu.Lock()
	defer q.device.unlock()
	return q.connectLocked(remote, q.psn)
}

// connectLocked makes the queue pair, which sends from a PSN on, to a place of which the
// PSN is the one to be received first.
func (q *QueuePair) connectLocked(remote Place, send infiniband.PSN) (err error) {
	switch {
	case q.err != nil:
		return fmt.Errorf("connect queue pair: %w", q.err)
	case q.qp != nil:
		return errors.New("connect queue pair: it is connected")
	case remote.Addr.Is4() != q.device.config.Addr.Is4():
		return fmt.Errorf("connect queue pair: the other is at %v, and this one at %v", remote.Addr,
			q.device.config.Addr)
	}
	if remote.Reads > 0 {
		q.config.Reads = min(cmp.Or(q.config.Reads, 16), remote.Reads)
	}
	q.config.Number, q.config.Remote, q.config.SendPSN, q.config.ReceivePSN = q.number, remote.QPN, send,
		remote.PSN
	if q.qp, err = queuepair.New(q.config, (*pairHost)(q)); err != nil {
		return fmt.Errorf("connect %w", err)
	}
	q.at = remote.Addr
	for _, r := range q.receives {
		if err := q.qp.PostReceive(r.id, r.memory); err != nil {
			return err
		}
	}
	q.receives = nil
	q.device.attach(&q.line)
	return nil
}

// pairHost is the queuepair.Host.
type pairHost QueuePair

// Complete implements queuepair.Host.
func (h *pairHost) Complete(c queuepair.Completion) {
	(*QueuePair)(h).push(c)
}

// push keeps a completion until the device's reportDone.
func (q *QueuePair) push(c queuepair.Completion) {
	if len(q.done) == 0 {
		q.device.reporting = append(q.device.reporting, q)
	}
	q.done = append(q.done, Completion{c, q})
}

// Region implements queuepair.Host.
func (h *pairHost) Region(rkey uint32) *queuepair.Region { return h.device.region(rkey) }

// Post takes requests, in order. Where it refuses one, those before it are taken:
// a count says how many.
func (q *QueuePair) Post(requests ...queuepair.Request) (n int, err error) {
	q.device.mu.Lock()
	defer q.device.unlock()
	switch {
	case q.err != nil:
		return 0, fmt.Errorf("post: %w", q.err)
	case q.qp == nil:
		return 0, fmt.Errorf("post: %w", errNotConnected)
	}
	for i, r := range requests {
		if err := q.qp.Post(r); err != nil {
			return i, fmt.Errorf("post: %w", err)
		}
	}
	return len(requests), nil
}

// PostReceive gives memory to the next SEND, or an immediate to a WRITE_IMM.
func (q *QueuePair) PostReceive(id uint64, memory ...[]byte) error {
	q.device.mu.Lock()
	defer q.device.unlock()
	switch {
	case q.err != nil:
		return fmt.Errorf("post receive: %w", q.err)
	case q.qp == nil:
		q.receives = append(q.receives, early{id, memory})
		return nil
	}
	return q.qp.PostReceive(id, memory)
}

// Err is why the queue pair is broken or closed, nil while it is not.
func (q *QueuePair) Err() error {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	return q.err
}

// Ended is closed when Err is set.
func (q *QueuePair) Ended() <-chan struct{} { return q.ended }

// Counters is what it did since it was connected.
func (q *QueuePair) Counters() queuepair.Counters {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	if q.qp == nil {
		return queuepair.Counters{}
	}
	return q.qp.Counters()
}

// Rate is what it may send now in bit/s; 0 is no limit.
func (q *QueuePair) Rate() uint64 {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	if q.qp == nil {
		return 0
	}
	return q.qp.Rate()
}

// end breaks it: what is posted is flushed.
func (q *QueuePair) end(why error) {
	if q.err != nil {
		return
	}
	q.err = why
	close(q.ended)
	if q.qp != nil {
		q.qp.Close()
		q.device.detach(&q.line)
	}
	for _, r := range q.receives {
		q.push(queuepair.Completion{ID: r.id, Op: queuepair.Receive, Err: queuepair.ErrFlushed})
	}
	q.receives = nil
}

// leave breaks it, and tells the peer that rdma_cm knows.
func (q *QueuePair) leave(why error) {
	q.end(why)
	if q.managed {
		q.managed = false
		delete(q.device.byConn, q.conn)
		q.device.manager.Disconnect(q.device.clock.Now(), q.conn, q.config.Remote)
	}
}

// Close breaks the queue pair, tells the peer where it is connected by rdma_cm, and
// gives its number back. What was posted is flushed, and reported.
func (q *QueuePair) Close() error {
	q.device.mu.Lock()
	defer q.device.unlock()
	q.leave(transports.ErrClosed)
	delete(q.device.pairs, q.number)
	return nil
}
