package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/kernel"
	"railbed/internal/nicqueue"
	"railbed/internal/wire"
	"railbed/plan"
)

const (
	// mostQueues is the largest number of pairs of queues of one NIC.
	mostQueues = 256
	// mostMemory is the largest memory of these queues in bytes. The kernel counts pages that the NIC writes
	// first for the switches' process, and not for the node.
	mostMemory = 4 << 30
	// mostDeparting is the largest number of frames of a queue that the NIC holds until they depart. MostHeld
	// is that number for all queues of a NIC, also for queues that have ended. Otherwise the programs of a
	// node could take all packet memory of the testbed.
	mostDeparting = 64
	mostHeld      = 32 * mostDeparting
	// farthest bounds how long a frame can wait for its departure.
	farthest = time.Second
)

// bypass is a program's pair of queues, on the NIC's side.
type bypass struct {
	device      *nicqueue.Device
	nic         int
	first, last uint16
	key         nicqueue.Match
	unsolicited nicqueue.Match
	// looked is the time of the latest look into the queue. The frames in it were posted later.
	looked clock.Time
	// departing are the frames that the engine has and that have not departed, of so many bytes.
	departing []departing
	bytes     int64
	// held is set while the first frame of the queue waits for room in the emulated NIC or for packet memory.
	held   bool
	broken bool
	touch  bool // has frames for its program that was not woken yet
}

type departing struct {
	at    clock.Time
	bytes int
}

// steered returns the pair of queues that gets a frame for a NIC, by the frame's UDP port and the key in its
// payload. It returns nil for a frame that the kernel gets.
func (l *loop) steered(number int, one *packet.Packet) *bypass {
	queues := l.nics[number].queues
	if len(queues) == 0 {
		return nil
	}
	h := &one.Headers
	if h.Protocol != protoUDP || h.Flags&wire.Fragment != 0 {
		return nil
	}
	for _, q := range queues {
		if q.first <= h.DstPort && h.DstPort <= q.last && !q.broken &&
			(q.key.Mask == 0 || q.key.Matches(payloadOf(one))) {
			return q
		}
	}
	return nil
}

// payloadOf returns the payload of a UDP packet, as far as it was not cut away.
func payloadOf(one *packet.Packet) []byte {
	return one.Data[min(int(one.Headers.Payload), len(one.Data)):]
}

// wakes reports whether a frame wakes its program at once. Trimmed and marked frames do: they show
// congestion.
func (q *bypass) wakes(one *packet.Packet) bool {
	return one.Trimmed || one.Headers.ECN == wire.CE || !q.unsolicited.Matches(payloadOf(one))
}

// takeQueued takes frames of all queues and returns their number. The engine holds them until they depart.
func (l *loop) takeQueued(now clock.Time) (count int) {
	for _, q := range l.queues {
		count += l.takeFrom(q, now)
	}
	return count
}

// takeFrom takes the frames of one queue.
func (l *loop) takeFrom(q *bypass, now clock.Time) (count int) {
	one := &l.nics[q.nic]
	q.depart(now)
	q.held = false
	for tries := 0; tries < batch && !q.broken; tries++ {
		at, waits := q.device.Head()
		if !waits {
			break
		}
		q.held = q.bytes > l.engine.NICRoom(q.nic) || len(q.departing) == mostDeparting ||
			l.engine.Departing(q.nic) >= mostHeld
		if q.held {
			break
		}
		into := l.engine.Pool().Get()
		if q.held = into == nil; q.held {
			break // the frame waits for packet memory
		}
		length, err := q.device.Take(into.Data)
		if err != nil || length == 0 {
			if q.broken = err != nil; q.broken {
				one.bypassed.Broken++
			} else {
				one.bypassed.Refused++
			}
			l.engine.Pool().Put(into)
			continue
		}
		into.Data, into.Bypass = into.Data[:length], true
		one.bypassed.Sent++
		one.bypassed.SentBytes += uint64(length)
		due := l.departure(q, at, now)
		if due > now {
			q.departing, q.bytes = append(q.departing, departing{due, length}), q.bytes+int64(length)
		}
		l.engine.Receive(q.nic, into, due)
		count++
	}
	q.looked = now
	return count
}

// depart forgets the frames that have departed.
func (q *bypass) depart(now clock.Time) {
	gone := 0
	for gone < len(q.departing) && q.departing[gone].at <= now {
		q.bytes -= int64(q.departing[gone].bytes)
		gone++
	}
	q.departing = slices.Delete(q.departing, 0, gone)
}

// departure returns when a frame leaves. The time in its descriptor counts from the previous look on, and not
// without end.
func (l *loop) departure(q *bypass, at int64, now clock.Time) clock.Time {
	due := clock.Time(clock.Dilation(l.clock.Dilation()).Passed(time.Duration(at - l.monotonic)))
	return min(max(due, q.looked), now.Add(farthest))
}

// anyQueued reports whether a program posted frames into an empty queue.
func (l *loop) anyQueued() bool {
	for _, q := range l.queues {
		if !q.held && !q.broken {
			if _, waits := q.device.Head(); waits {
				return true
			}
		}
	}
	return false
}

// doorbell makes the event of a doorbell that needs none, and returns the number of events.
func (l *loop) doorbell() int {
	l.events[0] = unix.EpollEvent{Fd: int32(len(l.nics) + 2)}
	return 1
}

// readMonotonic finds out which time of the kernel's monotonic clock is the epoch.
func (l *loop) readMonotonic() { l.monotonic = nicqueue.At(l.clock.Epoch()) }

// restQueues asks all programs for the doorbell, for a sleep of so long. It returns false if there are
// frames to take.
func (l *loop) restQueues(d time.Duration) bool {
	if len(l.queues) == 0 {
		return true
	}
	until := nicqueue.Now() + int64(d+l.thread.spin) // most sleeps last at most spin longer
	for i, q := range l.queues {
		if !q.held && !q.broken && !q.device.Rest(until) {
			l.wakeQueues(i)
			return false
		}
	}
	return true
}

// wakeQueues ends restQueues for the first queues.
func (l *loop) wakeQueues(count int) {
	for _, q := range l.queues[:count] {
		q.device.Wake()
	}
}

// deliverQueued passes due frames of a NIC to the programs that they are for. It returns the other frames.
func (l *loop) deliverQueued(number int, frames []*packet.Packet, now clock.Time) []*packet.Packet {
	to := &l.nics[number]
	if len(to.queues) == 0 {
		return frames
	}
	rest := frames[:0]
	for _, one := range frames {
		q := l.steered(number, one)
		if q == nil {
			rest = append(rest, one)
			continue
		}
		late := l.released(to, one, now)
		if l.arrived != nil {
			l.arrived.deliver(number, one.Data, l.realTime(one.Due), late)
		}
		if q.device.Deliver(one.Data, l.monotonic+int64(l.clock.Wait(time.Duration(now))), q.wakes(one)) {
			to.bypassed.Received++
			to.bypassed.ReceivedBytes += uint64(len(one.Data))
			q.touch = true
		} else {
			l.taps.refuse(number, one)
			to.refused++
			to.bypassed.Overrun++
		}
		l.engine.Pool().Put(one)
	}
	for _, q := range to.queues {
		if q.touch {
			q.touch = false
			_ = q.device.Ring() // a program without doorbell has ended
		}
	}
	return rest
}

// offers are the sockets by which the programs of nodes get queues.
type offers struct {
	loop      *loop
	mu        sync.Mutex
	listeners map[int]*net.UnixListener // by node
	conns     map[*net.UnixConn]bool
	programs  map[int]int // connections by node
	closed    bool
	running   sync.WaitGroup
}

// Offer opens the sockets of nodes, in whose namespaces programs ask for queues of their NICs. Numbers are
// the nodes' indexes in the plan. A later call replaces a node's socket, after the node's namespace has
// become another one.
func (s *Process) Offer(ctx context.Context, numbers []int, nodes []*kernel.Namespace) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return kernel.Each(ctx, nodes, 1, func(i int) error {
		file, err := nicqueue.Listen()
		if err == nil {
			err = sendNumbered(s.descriptors, numbers[i], file)
		}
		if err == nil {
			_, err = s.askLocked(request{Offer: true})
		}
		return err
	})
}

// offer takes the socket of a node over.
func (l *loop) offer() error {
	fd, node, err := receiveNumbered(descriptorsFd)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "nic")
	listener, err := net.FileListener(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("offer NIC queues: %w", err)
	}
	l.offers.serve(node, listener.(*net.UnixListener))
	return nil
}

const (
	// acceptAgain is the pause after a connection could not be accepted, most likely for lack of descriptors.
	acceptAgain = 50 * time.Millisecond
	// refusing bounds how long a program that is refused can keep others of its node waiting.
	refusing = 100 * time.Millisecond
)

// serve answers the programs that connect to a node's socket, in place of the socket that the node had.
func (o *offers) serve(node int, listener *net.UnixListener) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		listener.Close()
		return
	}
	if old := o.listeners[node]; old != nil {
		old.Close() // it would keep the old namespace
	}
	o.listeners[node] = listener
	most := o.loop.mostPrograms(node)
	o.running.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				time.Sleep(acceptAgain)
			case o.hold(node, conn, most):
				o.running.Go(func() { o.answer(node, conn); o.drop(node, conn) })
			default:
				refuse(conn, fmt.Errorf("programs of the node have %d connections to its NICs, which is the "+
					"most", most))
			}
		}
	})
}

// mostPrograms returns the largest number of programs that may be connected to the NICs of a node. One node
// must not take all descriptors of the process.
func (l *loop) mostPrograms(node int) (most int) {
	for i := range l.nics {
		if l.nics[i].end.Node == l.nodes[node] {
			most += mostQueues
		}
	}
	return most
}

// refuse answers a program with an error, and closes the connection.
func refuse(conn *net.UnixConn, err error) {
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(refusing)) != nil {
		return
	}
	if asking, asked := nicqueue.Ask(conn); asked == nil {
		_ = asking.Refuse(err) // it may have ended
	}
}

// hold counts a connection, if there may be one more.
func (o *offers) hold(node int, conn *net.UnixConn, most int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.programs[node] >= most {
		return false
	}
	o.programs[node]++
	o.conns[conn] = true
	return true
}

func (o *offers) drop(node int, conn *net.UnixConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.programs[node]--
	delete(o.conns, conn)
	conn.Close()
}

// answer gives a program its queues until it ends.
func (o *offers) answer(node int, conn *net.UnixConn) {
	asking, err := nicqueue.Ask(conn)
	if err != nil {
		return
	}
	q, files, err := o.loop.open(node, &asking.Request)
	if err != nil {
		_ = asking.Refuse(err) // it may have ended
		return
	}
	err = errors.Join(asking.Grant(files), files.Close())
	if err == nil {
		asking.Wait()
	}
	o.loop.end(q)
}

// close ends all queues.
func (o *offers) close() {
	o.mu.Lock()
	o.closed = true
	for _, listener := range o.listeners {
		listener.Close()
	}
	for conn := range o.conns {
		conn.Close()
	}
	o.mu.Unlock()
	o.running.Wait()
}

// open makes the queues that a program of a node asks for.
func (l *loop) open(node int, r *nicqueue.Request) (q *bypass, files *nicqueue.Files, err error) {
	number := l.find(plan.End{Node: l.nodes[node], Port: r.NIC})
	if number < 0 {
		return nil, nil, fmt.Errorf("the node has no NIC %q at a soft switch", r.NIC)
	}
	if r.Geometry.Room > l.engine.Pool().Cell() {
		return nil, nil, fmt.Errorf("frames of %d bytes, want at most %d", r.Geometry.Room,
			l.engine.Pool().Cell())
	}
	q = &bypass{nic: number, first: r.First, last: r.Last, key: r.Key, unsolicited: r.Unsolicited}
	if q.device, files, err = nicqueue.Create(r.Geometry); err != nil {
		return nil, nil, err
	}
	ran := l.do(func() { err = l.add(q) })
	if !ran {
		err = errors.New("the soft switches end")
	}
	if err != nil {
		return nil, nil, errors.Join(err, files.Close(), q.device.Close())
	}
	return q, files, nil
}

// add joins queues to their NIC.
func (l *loop) add(q *bypass) error {
	to := &l.nics[q.nic]
	if len(to.queues) >= mostQueues {
		return fmt.Errorf("the NIC has %d pairs of queues already, which is the most", mostQueues)
	}
	memory := q.device.Size()
	for _, other := range to.queues {
		memory += other.device.Size()
	}
	if memory > mostMemory {
		return fmt.Errorf("the queues of the NIC would take %d bytes of memory, want at most %d", memory,
			int64(mostMemory))
	}
	for _, other := range to.queues {
		if q.first <= other.last && other.first <= q.last && !q.key.Excludes(other.key) {
			return fmt.Errorf("UDP ports %d to %d: another program has %d to %d: %w", q.first, q.last,
				other.first, other.last, unix.EADDRINUSE)
		}
	}
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, q.device.Bell(),
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(len(l.nics) + 2)})
	if err != nil {
		return fmt.Errorf("watch doorbell: %w", err)
	}
	q.looked = l.clock.Now()
	to.queues, l.queues = append(to.queues, q), append(l.queues, q)
	return nil
}

// end takes queues from their NIC. Frames that the program posted before it ended still leave, as far as the
// NIC has room for them now. There are at most as many as a queue holds, also if the program goes on posting.
func (l *loop) end(q *bypass) {
	l.do(func() {
		for range nicqueue.MaxSend / batch {
			if l.takeFrom(q, l.clock.Now()) == 0 {
				break
			}
		}
		same := func(other *bypass) bool { return other == q }
		to := &l.nics[q.nic]
		to.queues, l.queues = slices.DeleteFunc(to.queues, same), slices.DeleteFunc(l.queues, same)
		_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, q.device.Bell(), nil)
	})
	_ = q.device.Close() // nothing is left to lose
}
