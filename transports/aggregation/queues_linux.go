package aggregation

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports/datagram"
)

// queues moves datagrams between a worker and its switch past the node's kernel. Its methods are not safe for
// concurrent use, but for interrupt. The socket keeps the port, and carries what the NIC's queues cannot.
type queues struct {
	socket        *socket
	nic           *datagram.NIC
	waiter        *datagram.Waiter
	clock         *clock.Clock
	local, remote netip.AddrPort
	deadline      clock.Time
	waiting       []byte     // a message for which the NIC has no room; the worker's memory
	lostAt        clock.Time // when it is lost
	in            [most]datagram.Incoming
	idle          time.Duration
}

// openQueues opens queues for datagrams of a socket that have at most longest bytes. The switch answers at
// most slots of them at once.
func openQueues(s *socket, local, remote netip.AddrPort, longest, slots int, keeper *clock.Clock) (q *queues,
	err error) {
	q = &queues{socket: s, local: local, remote: remote, clock: keeper}
	headers := wire.IPv4MinLen + wire.UDPLen
	if local.Addr().Is6() {
		headers = wire.IPv6Len + wire.UDPLen
	}
	// A worker that reads late finds a result of each slot, and the result of each slot's repeat.
	q.nic, err = datagram.OpenNIC(datagram.NICOptions{Addr: local.Addr(), First: local.Port(),
		Last: local.Port(), Longest: headers + longest, Send: holding(min(slots, 1024)),
		Receive: holding(2 * slots)})
	if err != nil {
		return nil, fmt.Errorf("bypass the kernel with %d slots of %d bytes: %w", slots, longest, err)
	}
	if room := len(q.nic.Packet()) - headers; room < longest {
		return nil, errors.Join(fmt.Errorf("bypass the kernel: messages of %d bytes, and the NIC's MTU has "+
			"room for %d", longest, room), q.nic.Close())
	}
	if q.waiter, err = datagram.NewWaiter(q.nic.Bell()); err != nil {
		return nil, errors.Join(err, q.nic.Close())
	}
	return q, nil
}

// holding is the number of frames of a queue for so many datagrams, a power of two.
func holding(datagrams int) int { return max(64, 1<<bits.Len(uint(datagrams-1))) }

// until is as socket.until.
func (q *queues) until(deadline time.Time) error {
	q.deadline = q.clock.Of(deadline)
	return nil
}

// send is as socket.send. If the NIC's queue is full, send returns with a message that waits for room. Such a
// message is lost after a while, so that the worker finds out that the NIC has stopped.
func (q *queues) send(next func() []byte) error {
	for {
		if q.waiting == nil {
			if q.waiting = next(); q.waiting == nil {
				return q.nic.Post()
			}
			q.lostAt = q.clock.Now().Add(datagram.FullWait)
		}
		station, reaches := q.nic.Station(q.remote.Addr())
		switch {
		case !reaches:
			if _, err := q.socket.conn.Write(q.waiting); err != nil {
				q.waiting = nil
				return errors.Join(err, q.nic.Post())
			}
		case q.nic.Room() > 0:
			q.nic.Put(&datagram.Outgoing{To: q.remote.Addr(), Station: station, SrcPort: q.local.Port(),
				DstPort: q.remote.Port(), Payload: q.waiting})
		case q.clock.Now() < q.lostAt:
			return q.nic.Post()
		}
		q.waiting = nil
	}
}

// wait waits for a datagram or, if a message waits, for room in the queue for sending.
func (q *queues) wait() {
	full, deadline := q.waiting != nil, q.deadline
	if full {
		deadline = q.lostAt
	}
	waits := q.nic.Rest(1, full) && q.waiter.Arm(q.clock, deadline)
	if waits {
		q.waiter.Wait()
	}
	q.nic.Wake(waits && q.waiter.Readable(q.nic.Bell()))
}

// receive is as socket.receive. It may return none before the deadline.
func (q *queues) receive() (n int, err error) {
	q.nic.Return()
	begin := time.Now()
	if n, err = q.take(); n == 0 && err == nil {
		q.wait()
		n, err = q.take()
	}
	ready := time.Now()
	if n > 0 {
		q.idle += idleUntil(begin, ready, q.in[0].Arrived)
	} else {
		q.idle += idleUntil(begin, ready, q.clock.Real(min(q.deadline, q.clock.Now())))
	}
	return n, err
}

// poll is as receive, but does not wait.
func (q *queues) poll() (n int, err error) {
	q.nic.Return()
	return q.take()
}

// take takes the datagrams of the switch that have arrived.
func (q *queues) take() (n int, err error) {
	for n < most {
		more, err := q.nic.Next(&q.in[n])
		if !more || err != nil {
			return n, err
		}
		if q.in[n].From == q.remote.Addr() && q.in[n].Port == q.remote.Port() {
			n++
		}
	}
	return n, nil
}

// received returns datagram i of the last receive.
func (q *queues) received(i int) []byte { return q.in[i].Data }

func (q *queues) waited() time.Duration { return q.idle }

// interrupt ends receive. It is safe for concurrent use.
func (q *queues) interrupt() { q.waiter.Wake() }

func (q *queues) close() error {
	return errors.Join(q.waiter.Close(), q.nic.Close(), q.socket.close())
}
