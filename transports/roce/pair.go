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

// Place identifies a queue pair to the peer's queue pair.
type Place struct {
	Addr netip.Addr
	QPN  infiniband.QPN
	// PSN is the PSN of the first request that the queue pair sends.
	PSN infiniband.PSN
	// Reads is the number of READs and atomics that the queue pair accepts at once. 0 stands for
	// unknown.
	Reads int
}

// QueuePair is one queue pair of a device. It accepts receives from the beginning, and requests
// once it is connected.
type QueuePair struct {
	device      *Device
	config      queuepair.Config
	completions *Completions

	// Under the device's lock.
	line
	psn      infiniband.PSN // the device's choice: see Local and Dial
	receives []early        // posted before the queue pair was connected
	done     []Completion   // to be reported
	conn     cm.Conn
	managed  bool // conn is valid
	err      error
	ended    chan struct{} // closed when err is set
	state    chan answer   // of rdma_cm, buffered
}

// early is a receive that was posted before the queue pair was connected.
type early struct {
	id     uint64
	memory [][]byte
}

// NewQueuePair makes a queue pair that is not connected. Number, Remote and ReceivePSN of the
// config are ignored. SendPSN is the first PSN, and 0 stands for a random one. MTU defaults to the
// device's, and Rights to all. The queue pair reports to the given completions or, if they are nil,
// to completions of its own.
func (d *Device) NewQueuePair(config queuepair.Config, to *Completions) (*QueuePair, error) {
	config.MTU = cmp.Or(config.MTU, d.mtu)
	config.Rights = cmp.Or(config.Rights, queuepair.RemoteWrite|queuepair.RemoteRead|queuepair.RemoteAtomic)
	config.Overhead = cmp.Or(config.Overhead, wire.EthernetLen+d.socket.headersLen())
	if config.MTU > d.mtu {
		return nil, fmt.Errorf("new queue pair: MTU %d, want at most the device's %d", config.MTU, d.mtu)
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

// Local returns the place to pass to the peer's Connect.
func (q *QueuePair) Local() Place {
	return Place{Addr: q.device.config.Addr, QPN: q.number, PSN: q.psn,
		Reads: cmp.Or(q.config.RemoteReads, 16)}
}

// Completions returns the list to which the queue pair reports.
func (q *QueuePair) Completions() *Completions { return q.completions }

// Connect connects the queue pair to a peer that gets this end's place by other means. Both must
// have the same MTU. If the other end begins first, its packets are ignored until it repeats them.
func (q *QueuePair) Connect(remote Place) error {
	q.device.mu.Lock()
	defer q.device.unlock()
	return q.connectLocked(remote, q.psn)
}

// connectLocked connects the queue pair. It sends from the PSN send on, and first receives the PSN
// of remote.
func (q *QueuePair) connectLocked(remote Place, send infiniband.PSN) (err error) {
	switch {
	case q.err != nil:
		return fmt.Errorf("connect queue pair: %w", q.err)
	case q.qp != nil:
		return errors.New("connect queue pair: it is already connected")
	case remote.Addr.Is4() != q.device.config.Addr.Is4():
		return fmt.Errorf("connect queue pair: the peer has address %v, and this end %v: want one IP version",
			remote.Addr, q.device.config.Addr)
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

// pairHost is the queuepair.Host of a QueuePair.
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

// Post posts requests, in order. If it refuses one, the requests before it are accepted: n is their
// number.
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

// PostReceive posts memory for the next SEND, or for the immediate of a WRITE_IMM.
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

// Err is the error that broke or closed the queue pair, or nil.
func (q *QueuePair) Err() error {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	return q.err
}

// Ended is closed when Err is set.
func (q *QueuePair) Ended() <-chan struct{} { return q.ended }

// Counters returns the counts since the queue pair was connected.
func (q *QueuePair) Counters() queuepair.Counters {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	if q.qp == nil {
		return queuepair.Counters{}
	}
	return q.qp.Counters()
}

// Rate is the queue pair's present rate in bit/s; 0 is no limit.
func (q *QueuePair) Rate() uint64 {
	q.device.mu.Lock()
	defer q.device.mu.Unlock()
	if q.qp == nil {
		return 0
	}
	return q.qp.Rate()
}

// end breaks the queue pair: posted requests and receives are flushed.
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

// leave breaks the queue pair, and notifies a peer connected by rdma_cm.
func (q *QueuePair) leave(why error) {
	q.end(why)
	if q.managed {
		q.managed = false
		delete(q.device.byConn, q.conn)
		q.device.manager.Disconnect(q.device.clock.Now(), q.conn, q.config.Remote)
	}
}

// Close breaks the queue pair, notifies a peer connected by rdma_cm, and frees the queue pair's
// number. Posted requests and receives are flushed, and reported.
func (q *QueuePair) Close() error {
	q.device.mu.Lock()
	defer q.device.unlock()
	q.leave(transports.ErrClosed)
	delete(q.device.pairs, q.number)
	return nil
}
