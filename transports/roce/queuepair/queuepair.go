// Package queuepair is one end of a reliable connection of RoCEv2 (RC): the state of a queue pair's
// requester and responder. It follows the rules of the InfiniBand Architecture Specification
// (IBTA), volume 1, release 1.4, section 9.7. A QP has no socket, no goroutine and no clock. Its
// driver passes in packets with their time of arrival, takes packets out, and calls again at the
// QP's deadline. So a QP runs the same in a test that simulates the network and the time.
//
// # Requests
//
// Requests are executed and complete in the order in which they were posted. The responder takes
// packets in order only (go-back-N), so after a lost packet its successors are retransmitted, too.
// With Config.Selective, which both ends must have, the responder keeps a packet that arrived early
// and reports it. Then only the missing packets are retransmitted, as in IRN (Mittal et al.,
// "Revisiting Network Support for RDMA", SIGCOMM 2018).
//
// # Errors
//
// A queue pair breaks when it meets an error that it cannot retry. The failed request completes
// with that error and all others with ErrFlushed. The queue pair then sends only the answer that
// reports the error to the peer.
//
// # Memory
//
// The memory of a request belongs to the queue pair until the request's completion, the memory of a
// receive until the receive's completion. Remote memory is found by R_Key, and bounds and rights
// are checked before a byte of a packet is placed.
//
// A QP is not safe for concurrent use.
package queuepair

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/transports/roce/dcqcn"
)

// Errors that a caller distinguishes with errors.Is.
var (
	// ErrRetries: the peer did not answer in spite of all retries (IBTA 9.9.2, transport retry
	// counter exceeded).
	ErrRetries = errors.New("no answer to any retry")
	// ErrRNRRetries: the peer had no receive for the request in spite of all retries.
	ErrRNRRetries = errors.New("the peer posted no receive")
	// ErrAccess: the peer refused key, rights or bounds.
	ErrAccess = errors.New("remote access error")
	// ErrInvalid: the peer considers the request invalid.
	ErrInvalid = errors.New("remote invalid request")
	// ErrOperation: the peer failed to execute the request.
	ErrOperation = errors.New("remote operational error")
	// ErrResponse: the peer's answer is invalid.
	ErrResponse = errors.New("bad response")
	// ErrLength: a message is longer than its receive.
	ErrLength = errors.New("message longer than its receive")
	// ErrFlushed: the queue pair broke, or was closed, before the request completed.
	ErrFlushed = errors.New("flushed")
)

// Config has the values that both ends agree on in advance, and this end's own settings. Number,
// Remote and MTU are required.
type Config struct {
	Number, Remote infiniband.QPN
	// MTU is the payload of a packet in bytes: 256, 512, 1,024, 2,048 or 4,096.
	MTU int
	// SendPSN is the PSN of the first request, ReceivePSN the PSN of the peer's first request.
	SendPSN, ReceivePSN infiniband.PSN
	// Rights bounds the peer's rights here.
	Rights Rights
	// Timeout is the longest time that an answer may take. Default 67 ms, code 14 of IBTA
	// 9.7.6.1.3.
	Timeout time.Duration
	// Retries bounds the consecutive retries after timeouts and sequence errors. RNRRetries does
	// the same for a receiver that is not ready; 7 stands for no limit. A negative value
	// stands for 0. Default 7.
	Retries, RNRRetries int
	// RNRTimer is the code of the time that a peer waits when no receive is posted here (IBTA
	// 9.7.5.2.8). Default 12, 0.64 ms.
	RNRTimer uint8
	// Reads is the largest number of READs and atomic operations in flight. RemoteReads is the
	// number of the peer's operations that are kept, so that they can be repeated. Default 16.
	Reads, RemoteReads int
	// Window is the largest number of packets in flight. Default 128.
	Window int
	// AckEvery is the largest number of packets without a request for an acknowledgement. Default a
	// quarter of Window.
	AckEvery int
	// Selective is set if both ends retransmit missing packets only.
	Selective bool
	// Congestion, if set, makes the rate follow marks of the fabric.
	Congestion *dcqcn.Params
	// Overhead is the number of bytes that the rate counts for each packet in addition to the
	// InfiniBand packet. Default 42: Ethernet, IPv4 and UDP.
	Overhead int
	// Ahead is the time before its departure at which Next may return a packet, for a driver that holds it
	// until then (Departs). Default 0.
	Ahead time.Duration
}

const (
	endless = 7 // of RNRRetries
	// maxMessages bounds the outstanding requests.
	maxMessages = 8192
)

func (c *Config) defaults() error {
	c.Timeout = cmp.Or(c.Timeout, infiniband.AckTimeout(14))
	c.Retries = cmp.Or(c.Retries, 7)
	c.RNRRetries = cmp.Or(c.RNRRetries, endless)
	c.RNRTimer = cmp.Or(c.RNRTimer, 12)
	c.Reads = cmp.Or(c.Reads, 16)
	c.RemoteReads = cmp.Or(c.RemoteReads, 16)
	c.Window = cmp.Or(c.Window, 128)
	c.AckEvery = cmp.Or(c.AckEvery, max(c.Window/4, 1))
	c.Overhead = cmp.Or(c.Overhead, 42)
	switch {
	case infiniband.MTUCode(c.MTU) == 0:
		return fmt.Errorf("MTU %d, want 256, 512, 1024, 2048 or 4096", c.MTU)
	case c.Number > infiniband.MaxQPN || c.Remote > infiniband.MaxQPN:
		return fmt.Errorf("queue pairs %d and %d, want numbers of 24 bits", c.Number, c.Remote)
	case c.SendPSN > infiniband.MaxPSN || c.ReceivePSN > infiniband.MaxPSN:
		return fmt.Errorf("PSNs %d and %d, want numbers of 24 bits", c.SendPSN, c.ReceivePSN)
	case c.Timeout < 0 || c.Reads < 0 || c.RemoteReads < 0 || c.Window < 0 || c.AckEvery < 0 ||
		c.RNRTimer > 31:
		return fmt.Errorf("config %+v: want no number below 0, and an RNR timer of at most 31", *c)
	case c.Window > maxWindow:
		return fmt.Errorf("window of %d packets, want at most %d", c.Window, maxWindow)
	}
	return nil
}

// maxWindow keeps windows far below half of all PSNs.
const maxWindow = 1 << 16

// Host is the part of an endpoint that a queue pair calls. Its methods are called from the queue
// pair's methods, and must not call back.
type Host interface {
	// Region returns registered memory by its R_Key, or nil.
	Region(rkey uint32) *Region
	// Complete reports the end of a request or of a receive.
	Complete(c Completion)
}

// QP is one connected queue pair.
type QP struct {
	config   Config
	host     Host
	err      error
	counters Counters

	requester
	responder
	reaction     *dcqcn.ReactionPoint
	notification *dcqcn.NotificationPoint
}

// Counters count packets since the queue pair was made.
type Counters struct {
	Sent, Received uint64 // requests and responses
	Resent         uint64 // requests that were retransmitted
	Duplicates     uint64 // requests that arrived again
	Early          uint64 // requests that arrived before their turn
	Naks, RNRNaks  uint64 // sent
	Timeouts       uint64
	CNPsSent       uint64
	CNPsReceived   uint64
	Ignored        uint64 // packets that match no request or state
	// SentBytes counts bytes of WRITEs and SENDs, each once; ReceivedBytes counts placed bytes.
	SentBytes, ReceivedBytes uint64
}

// Add adds the counts of another queue pair.
func (c *Counters) Add(o Counters) {
	for _, f := range []struct {
		to   *uint64
		more uint64
	}{
		{&c.Sent, o.Sent}, {&c.Received, o.Received}, {&c.Resent, o.Resent}, {&c.Duplicates, o.Duplicates},
		{&c.Early, o.Early}, {&c.Naks, o.Naks},
		{&c.RNRNaks, o.RNRNaks}, {&c.Timeouts, o.Timeouts}, {&c.CNPsSent, o.CNPsSent},
		{&c.CNPsReceived, o.CNPsReceived}, {&c.Ignored, o.Ignored},
		{&c.SentBytes, o.SentBytes}, {&c.ReceivedBytes, o.ReceivedBytes},
	} {
		*f.to += f.more
	}
}

// New makes a connected queue pair.
func New(config Config, host Host) (*QP, error) {
	if err := config.defaults(); err != nil {
		return nil, fmt.Errorf("queue pair: %w", err)
	}
	q := &QP{config: config, host: host}
	q.requester.start(config.SendPSN)
	q.responder.start(config.ReceivePSN)
	if config.Congestion != nil {
		var err error
		if q.reaction, err = dcqcn.NewReactionPoint(*config.Congestion); err != nil {
			return nil, fmt.Errorf("queue pair: %w", err)
		}
		q.notification = dcqcn.NewNotificationPoint(*config.Congestion)
	}
	return q, nil
}

// Err is the error that broke the queue pair, or nil.
func (q *QP) Err() error { return q.err }

// Counters returns the counts up to now.
func (q *QP) Counters() Counters { return q.counters }

// Rate is the present rate in bit/s; 0 is no limit.
func (q *QP) Rate() uint64 {
	if q.reaction == nil {
		return 0
	}
	return q.reaction.Rate()
}

// Receive processes a packet from the peer for this queue pair. The packet must be Valid, and its
// ICRC right. marked is set if it met congestion (RFC 3168).
func (q *QP) Receive(now clock.Time, p infiniband.Packet, marked bool) {
	q.counters.Received++
	o := p.Opcode()
	if o == infiniband.CNP {
		q.counters.CNPsReceived++
		if q.reaction != nil {
			q.reaction.Notified(now)
		}
		return
	}
	// Only senders of data can send less of it; other packets are few.
	if marked && o.HasPayload() && q.notification != nil && q.notification.Marked(now) {
		q.notify()
	}
	switch {
	case o.Service() != infiniband.RC || q.err != nil:
		q.counters.Ignored++
	case o.Request():
		q.serve(p)
	default:
		q.answered(now, p)
	}
}

// Next writes a packet to send now, without its ICRC, and returns its length, or 0 if there is
// none. The memory must have room for MTU and infiniband.MaxOverhead bytes.
func (q *QP) Next(now clock.Time, into []byte) int {
	q.departs = 0
	if n := q.respond(now, into); n > 0 {
		q.counters.Sent++
		return n
	}
	if q.err != nil {
		return 0
	}
	n := q.request(now, into)
	if n > 0 {
		q.counters.Sent++
	}
	return n
}

// Departs is when the packet of the latest Next is to leave, at most Config.Ahead later than that call. A
// time that has passed means at once.
func (q *QP) Departs() clock.Time { return q.departs }

// Deadline is the time at which Expire has work to do, or Next may have a packet. It is clock.Never
// if there is no such time before the next arrival or request.
func (q *QP) Deadline() clock.Time {
	if q.err != nil {
		return clock.Never
	}
	at := q.timer
	paced := q.paced.Add(-q.config.Ahead / 2) // half of the packets that the driver holds have left
	if q.waits() {
		at = min(at, max(q.ready, paced))
	}
	if len(q.pending) > 0 {
		at = min(at, paced)
	}
	return at
}

// Expire handles a timeout that is due.
func (q *QP) Expire(now clock.Time) {
	if q.err == nil && now >= q.timer {
		q.silent(now)
	}
}

// Close flushes all requests and receives. It does not notify the peer.
func (q *QP) Close() { q.fail(fmt.Errorf("closed: %w", ErrFlushed)) }

// fail breaks the queue pair: the oldest request completes with err, and the rest is flushed.
func (q *QP) fail(err error) { q.failAt(0, err) }

// failAt is fail for a request other than the oldest.
func (q *QP) failAt(fault int, err error) {
	if q.err != nil {
		return
	}
	q.err = err
	q.requester.flush(q.host, err, fault)
	q.responder.flush(q.host)
}
