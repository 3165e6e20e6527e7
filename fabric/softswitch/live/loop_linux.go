// Package live runs a soft-switch engine in real time. One thread moves frames between the ports of
// a testbed and the engine, and sends every frame when it is due.
//
// The thread runs in a process of its own (Main) and is the only thread there, so that nothing else
// of a testbed can delay it. The process gets its ports as open descriptors and needs no privilege.
package live

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"railbed/fabric/port"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/reexec"
	"railbed/plan"
)

const (
	// batch is how many frames are received from a port at once.
	batch = 32
	// rounds is how many batches are received from one port before the other ports' turn.
	rounds = 4
	// longestSleep limits a sleep, so that clocks are compared regularly.
	longestSleep = 100 * time.Millisecond
)

// loop is the thread's data. Only the thread uses it, except for the part that mu guards.
type loop struct {
	engine *softswitch.Engine
	clock  *clock.Clock
	nics   []nic // by the engine's numbers
	trunk  *trunk
	epoll  int
	bell   int // eventfd: there are commands
	events []unix.EpollEvent
	// wall is the difference between a kernel stamp and the real time since the clock's epoch, in
	// nanoseconds.
	wall int64
	// monotonic is CLOCK_MONOTONIC at the clock's epoch, in nanoseconds.
	monotonic int64
	compared  clock.Time
	advanced  clock.Time // the time of the engine's last Advance

	scratch [batch]*packet.Packet
	frames  [batch]port.Frame
	dirty   []int // NICs with frames to deliver
	late    lateness
	sent    [][]byte
	sentOf  []*packet.Packet // packets of the trunk's frames in sent
	sentTo  []int            // their NICs
	taps    taps
	queues  []*bypass // of all NICs
	nodes   []string
	offers  offers
	arrived *monitors // nil if arrivals are not measured
	thread  thread

	mu       sync.Mutex
	commands []func() // run on the thread
	ended    bool
}

// nic is a node's NIC and the port to it.
type nic struct {
	end  plan.End
	port port.Port        // nil with the trunk
	out  []*packet.Packet // due, not sent yet
	gone bool
	// foreign is set if its interface is in a namespace of another program. watched is set if
	// arrivals there are measured.
	foreign, watched bool
	// queues belong to programs that bypass the node's kernel.
	queues   []*bypass
	bypassed BypassState
	mirror   *mirror // nil without one
	// noMemory counts frames that arrived while the packet memory was exhausted. Refused counts
	// frames for which the node's queue had no room.
	noMemory, refused uint64
	late              lateness
}

// newLoop makes the engine of a plan. It runs over ports, indexed by the engine's NIC numbers, or
// over a trunk, where port i is NIC i.
func newLoop(p *plan.Plan, ends []plan.End, ports []port.Port, joined *port.Trunk) (*loop, error) {
	l := &loop{clock: clock.New(p.Dilation), nics: make([]nic, len(ends)),
		events: make([]unix.EpollEvent, len(ends)+2), epoll: -1, bell: -1}
	l.taps.loop, l.offers.loop = l, l
	l.offers.listeners = map[int]*net.UnixListener{}
	l.offers.conns, l.offers.programs = map[*net.UnixConn]bool{}, map[int]int{}
	l.readMonotonic()
	for i := range p.Nodes {
		l.nodes = append(l.nodes, p.Nodes[i].Name)
	}
	engine, err := softswitch.New(p, softswitch.Options{
		Deliver: l.deliver, Memory: int64(p.PacketMemory), Observer: &l.taps,
	})
	if err != nil {
		return nil, err
	}
	l.engine = engine
	if engine.NICs() != len(ends) || joined == nil && len(ports) != len(ends) {
		return nil, fmt.Errorf("run soft switches: %d ports and %d ends, want %d of each, one for each "+
			"NIC", len(ports), len(ends), engine.NICs())
	}
	for i := range l.scratch {
		if l.scratch[i] = engine.Pool().Get(); l.scratch[i] == nil {
			return nil, errors.New("run soft switches: packet memory is too small for one batch")
		}
	}
	for i, end := range ends {
		l.nics[i].end = end
	}
	if joined != nil {
		l.trunk = &trunk{Trunk: joined}
		if joined.Room() > engine.Pool().Cell() {
			return nil, fmt.Errorf("run soft switches: a frame of the ports needs %d bytes, packets hold %d",
				joined.Room(), engine.Pool().Cell())
		}
	}
	for i, one := range ports {
		if room := one.Description().Room(); room > engine.Pool().Cell() {
			return nil, fmt.Errorf("run soft switches: a frame of port %s:%s needs %d bytes, packets "+
				"hold %d", ends[i].Node, ends[i].Port, room, engine.Pool().Cell())
		}
		l.nics[i].port = one
	}
	return l, l.watch()
}

// find returns the number of the NIC at an end, or -1. Any goroutine may call it: the ends never change.
func (l *loop) find(end plan.End) int {
	for i := range l.nics {
		if l.nics[i].end == end {
			return i
		}
	}
	return -1
}

// watch makes the epoll for all ports and the bell.
func (l *loop) watch() (err error) {
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make epoll: %w", err)
	}
	if l.bell, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("make eventfd: %w", err)
	}
	add := func(fd, number int) error {
		return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd,
			&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(number)})
	}
	if l.trunk != nil {
		if err := add(l.trunk.Fd(), len(l.nics)+1); err != nil {
			return fmt.Errorf("watch the trunk: %w", err)
		}
	}
	for i := range l.nics {
		if l.nics[i].port == nil {
			continue
		}
		if err := add(l.nics[i].port.Fd(), i); err != nil {
			return fmt.Errorf("watch port %s:%s: %w", l.nics[i].end.Node, l.nics[i].end.Port, err)
		}
	}
	return add(l.bell, len(l.nics))
}

// close closes descriptors and ports; the thread has ended. Closing a port waits for all CPUs, so
// all ports are closed at the same time.
func (l *loop) close() error {
	l.offers.close()
	errs := make([]error, len(l.nics))
	var closing sync.WaitGroup
	for i := range l.nics {
		if m := l.nics[i].mirror; m != nil {
			unix.Close(m.fd)
		}
		if l.nics[i].port != nil {
			closing.Go(func() { errs[i] = l.nics[i].port.Close() })
		}
	}
	var rest []error
	if l.trunk != nil {
		rest = append(rest, l.trunk.Close())
	}
	if l.arrived != nil {
		rest = append(rest, l.arrived.close())
	}
	closing.Wait()
	return errors.Join(append(append(errs, rest...), unix.Close(l.epoll), unix.Close(l.bell))...)
}

// do runs a function on the thread and waits for it. It returns false if the thread has ended.
func (l *loop) do(fn func()) bool {
	done := make(chan struct{})
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	l.commands = append(l.commands, func() { fn(); close(done) })
	one := [8]byte{1}
	_, _ = unix.Write(l.bell, one[:]) // it is full only if it is already readable
	// after unlocking, the thread may end and the bell's descriptor number be reused
	l.mu.Unlock()
	<-done
	return true
}

// run moves frames until a command sets stop.
func (l *loop) run(stop *bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reexec.NameThread("sw-timing")
	l.thread.begin()
	defer l.thread.cores.end()
	defer l.finish()
	for !*stop {
		now := l.clock.Now()
		if now.Sub(l.compared) > time.Second || l.compared == 0 {
			l.compareClocks()
		}
		l.thread.cores.refresh(l.clock.Wait(time.Duration(now)))
		l.advanced = now
		next := l.engine.Advance(now)
		if len(l.dirty) > 0 {
			l.flush()
			continue // sending took time: another event may be due
		}
		l.wait(next)
	}
}

// finish runs commands that came too late.
func (l *loop) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, command := range l.commands {
		command()
	}
	l.commands = nil
}

// takeOrders runs the queued commands.
func (l *loop) takeOrders() {
	var rung [8]byte
	_, _ = unix.Read(l.bell, rung[:])
	l.mu.Lock()
	commands := l.commands
	l.commands = nil
	l.mu.Unlock()
	for _, command := range commands {
		command()
	}
}

// receive receives frames from a port.
func (l *loop) receive(number int, events uint32) {
	one := &l.nics[number]
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		if err := one.port.Recover(); err != nil {
			l.lose(one)
			return
		}
	}
	for range rounds {
		for i := range l.frames {
			l.frames[i].Data = l.scratch[i].Data
		}
		count, err := one.port.Receive(l.frames[:])
		for i := range count {
			l.handIn(number, i)
		}
		if err != nil {
			l.lose(one)
			return
		}
		if count < batch {
			return
		}
	}
}

// lose stops watching a port whose interface is gone.
func (l *loop) lose(one *nic) {
	one.gone = true
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, one.port.Fd(), nil)
}

// handIn passes a received frame of the batch to the engine, with the time at which it left the
// node, and gets a new packet for the next batch.
func (l *loop) handIn(number, i int) {
	fresh := l.engine.Pool().Get()
	if fresh == nil {
		l.nics[number].noMemory++
		l.taps.noMemory(number, l.frames[i].Data, l.sentAt(l.frames[i].Stamp))
		return
	}
	one := l.scratch[i]
	one.Data = l.frames[i].Data
	l.scratch[i] = fresh
	l.engine.Receive(number, one, l.sentAt(l.frames[i].Stamp))
}

// deliver is the engine's Deliver.
func (l *loop) deliver(number int, one *packet.Packet) {
	to := &l.nics[number]
	if len(to.out) == 0 {
		l.dirty = append(l.dirty, number)
	}
	to.out = append(to.out, one)
}

// released counts and returns the real time from a frame's due time to its release.
func (l *loop) released(to *nic, one *packet.Packet, now clock.Time) time.Duration {
	late := l.clock.Wait(now.Sub(one.Due))
	to.late.Add(late)
	l.late.Add(late)
	return late
}

// flush sends the frames that are due.
func (l *loop) flush() {
	now := l.clock.Now()
	l.thread.noticed(l.nics[l.dirty[0]].out[0].Due)
	l.sent, l.sentOf, l.sentTo = l.sent[:0], l.sentOf[:0], l.sentTo[:0]
	for _, number := range l.dirty {
		to := &l.nics[number]
		to.out = l.deliverQueued(number, to.out, now)
		from := len(l.sent)
		for _, one := range to.out {
			l.sent = append(l.sent, one.Data)
			l.released(to, one, now)
			if l.arrived != nil && (!to.foreign || to.watched) {
				l.arrived.release(number, one.Data, l.realTime(one.Due))
			}
		}
		if to.port == nil {
			for range to.out {
				l.sentTo = append(l.sentTo, number)
			}
			l.sentOf = append(l.sentOf, to.out...)
			continue
		}
		taken := 0
		if !to.gone {
			taken, _ = to.port.Send(l.sent[from:])
			_ = to.port.Flush() // the port counts frames that were not sent
		}
		l.taps.refuse(number, to.out[taken:]...)
		l.sent = l.sent[:from]
		to.refused += uint64(len(to.out) - taken)
	}
	if l.trunk != nil {
		taken, _ := l.trunk.Send(l.sent, l.sentTo)
		for i, number := range l.sentTo[taken:] {
			l.nics[number].refused++
			l.taps.refuse(number, l.sentOf[taken+i])
		}
	}
	for _, number := range l.dirty {
		to := &l.nics[number]
		for _, one := range to.out {
			l.engine.Pool().Put(one)
		}
		to.out = to.out[:0]
	}
	l.dirty = l.dirty[:0]
}
