package roce

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/transports"
	"railbed/transports/datagram"
	"railbed/transports/roce/cm"
	"railbed/transports/roce/queuepair"
)

// driver moves packets between a socket, its queue pairs and communication management, on a
// goroutine of its own. Endpoint and Device are drivers.
type driver struct {
	clock   *clock.Clock
	mtu     int // path MTU
	socket  *socket
	running sync.WaitGroup

	// The owner sets these before start. They are called with the lock held: advance before each
	// round's packets are sent, report after any possible change, and gaveUp when the socket
	// failed.
	advance func(now clock.Time)
	report  func()
	gaveUp  func(err error)

	mu      sync.Mutex
	closed  bool
	err     error // why the worker ended by itself
	manager *cm.Manager
	lines   map[infiniband.QPN]*line
	order   []*line // all of them, in a round's order; nil after a change
	regions map[uint32]*region
	numbers uint32 // number of queue pairs made so far
	gsi     infiniband.PSN
	asleep  bool
	past    queuepair.Counters // of removed queue pairs
}

// line is a queue pair that the driver drives.
type line struct {
	qp     *queuepair.QP
	number infiniband.QPN
	at     netip.Addr // of the other end
	gone   bool       // detached
	// onPacket, if set, is called before each received packet. broken is called when the queue pair is
	// broken, once its last packet is in the batch.
	onPacket func()
	broken   func(err error)
}

// open completes the configuration and opens the socket and the connection manager. The manager's
// name of its first connection is as hard to guess as the life.
func (d *driver) open(c *DeviceConfig, life uint64, timeout cm.Config, host cm.Host) (err error) {
	if !c.Addr.IsValid() || c.Addr.IsUnspecified() {
		return errors.New("the address is unspecified, want the address of a NIC")
	}
	c.MTU = cmp.Or(c.MTU, defaultMTU)
	c.DSCP = cmp.Or(c.DSCP, defaultDSCP)
	if c.Clock == nil {
		c.Clock = clock.New(1)
	}
	if d.mtu = infiniband.PathMTU(c.MTU); d.mtu == 0 {
		return fmt.Errorf("MTU %d, want at least %d", c.MTU, infiniband.LeastLinkMTU)
	}
	d.clock, d.lines, d.regions = c.Clock, map[infiniband.QPN]*line{}, map[uint32]*region{}
	if d.socket, err = openSocket(c, d.mtu); err != nil {
		return err
	}
	timeout.Addr, timeout.GUID, timeout.Shared = c.Addr, life, true
	timeout.First = cm.Conn(d.socket.block<<20 | uint32(life)&0xFFFFF)
	if d.manager, err = cm.New(timeout, host); err != nil {
		return errors.Join(err, d.socket.close())
	}
	return nil
}

// start starts the worker.
func (d *driver) start() { d.running.Go(d.run) }

// newNumber returns the number for a new queue pair. taken reports whether a number is in use.
func (d *driver) newNumber(taken func(infiniband.QPN) bool) (infiniband.QPN, error) {
	for range 1 << blockBits {
		d.numbers++
		if n := d.socket.number(d.numbers); !taken(n) {
			return n, nil
		}
	}
	return 0, fmt.Errorf("all %d queue pairs are in use", 1<<blockBits)
}

// attach makes the driver drive a queue pair until detach.
func (d *driver) attach(l *line) {
	d.lines[l.number] = l
	d.order = nil
}

func (d *driver) detach(l *line) {
	if d.lines[l.number] == l {
		delete(d.lines, l.number)
		d.past.Add(l.qp.Counters())
		d.order, l.gone = nil, true
	}
}

// unlock reports completions, and makes the worker process changes.
func (d *driver) unlock() {
	d.report()
	wake := d.asleep
	d.asleep = false
	d.mu.Unlock()
	if wake {
		d.socket.waiter.Wake()
	}
}

// register registers memory with a key and an address, both hard to guess.
func (d *driver) register(memory []byte, rights queuepair.Rights) (*region, error) {
	if len(memory) == 0 {
		return nil, errors.New("register region: it has no bytes, want at least 1")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("register region: %w", transports.ErrClosed)
	}
	r := &region{driver: d}
	for r.key == 0 || d.regions[r.key] != nil {
		r.key = uint32(random())
	}
	// Addresses never wrap. They are so far apart that a handle with another address is never
	// another place of the region.
	r.Base, r.Memory, r.Rights = random()>>33<<baseShift, memory, rights
	d.regions[r.key] = r
	return r, nil
}

// region is registered memory.
type region struct {
	queuepair.Region
	driver *driver
	key    uint32
}

// Close implements transports.Region.
func (r *region) Close() error {
	r.driver.mu.Lock() // the worker may be placing bytes
	defer r.driver.mu.Unlock()
	delete(r.driver.regions, r.key)
	return nil
}

// region implements Region of queuepair.Host.
func (d *driver) region(rkey uint32) *queuepair.Region {
	if r := d.regions[rkey]; r != nil {
		return &r.Region
	}
	return nil
}

// count returns the sum over all queue pairs up to now.
func (d *driver) count() Counters {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := Counters{Counters: d.past, BadICRC: d.socket.badICRC.Load(), Overruns: d.socket.ring.lost()}
	for _, l := range d.lines {
		all.Add(l.qp.Counters())
	}
	return all
}

// Where processors are scarce, a worker that wakes at each packet interrupts the sender each time,
// and receives packets one by one. So the worker polls again before it sleeps, and yields its
// processor in between: mostPatience times at most. It polls more often when that finds packets or
// many arrived at once, and less often when it was in vain.
const (
	mostPatience = 8
	many         = 4
)

// run is the worker's goroutine.
func (d *driver) run() {
	came := false // since the last wait, packets arrived
	for idle, patience, full := 0, 0, 0; ; {
		list, err := d.socket.receive()
		came = came || len(list) > 0
		deadline, ended, busy := clock.Never, false, false
		if err == nil {
			d.mu.Lock()
			deadline, ended = d.round(list)
			d.report()
			busy = d.socket.out.count+d.socket.put > 0
			if full++; !d.socket.full {
				full = 0
			}
			if len(list) >= many || len(list) > 0 && idle > 0 && idle <= patience {
				patience = min(patience+1, mostPatience)
			}
			if idle++; busy || len(list) > 0 {
				idle = 0
			}
			d.asleep = idle > patience && (!ended || full > 0)
			d.mu.Unlock()
			err = d.socket.send()
		}
		if err != nil {
			d.giveUp(err)
			return
		}
		if ended && !busy && (full == 0 || full > datagram.MostFullWaits) {
			return
		}
		switch {
		case idle > patience:
			patience /= 2
			idle = patience + 1 // packets found now were not polled for
			d.socket.wait(d.clock, deadline, came)
			came = false
		case idle > 0:
			runtime.Gosched()
			d.socket.yield()
		}
	}
}

// giveUp fails everything: the socket cannot be used.
func (d *driver) giveUp(err error) {
	d.mu.Lock()
	defer d.unlock()
	d.err = err
	d.gaveUp(err)
}

// round processes arrivals, does the due work, and fills the batch with packets to send.
func (d *driver) round(list []arrival) (deadline clock.Time, ended bool) {
	now := d.clock.Now()
	for _, a := range list {
		d.take(now, a)
	}
	d.manager.Expire(now)
	d.advance(now)
	deadline = clock.Never
	d.sendManagement()
	for _, l := range d.linesInTurn() {
		if l.gone {
			continue // since this round began
		}
		l.qp.Expire(now)
		d.sendFrom(l, now)
		if err := l.qp.Err(); err != nil {
			l.broken(err)
			continue
		}
		deadline = min(deadline, l.qp.Deadline())
	}
	return min(deadline, d.manager.Deadline()), d.closed
}

// linesInTurn returns all lines. Each time another line is first.
func (d *driver) linesInTurn() []*line {
	if d.order == nil {
		for _, l := range d.lines {
			d.order = append(d.order, l)
		}
		slices.SortFunc(d.order, func(a, b *line) int { return cmp.Compare(a.number, b.number) })
	}
	if n := len(d.order); n > 1 {
		first := d.order[0]
		copy(d.order, d.order[1:])
		d.order[n-1] = first
	}
	return d.order
}

// take processes one packet.
func (d *driver) take(now clock.Time, a arrival) {
	b := a.packet.BTH()
	if b.DestQP() == infiniband.GSI {
		if h := a.packet.DETH(); h != nil && h.Fields().QKey == infiniband.GSIQKey {
			d.manager.Receive(now, a.from, infiniband.MAD(a.packet.Payload()))
		}
		return
	}
	l := d.lines[b.DestQP()]
	if l == nil || l.at != a.from {
		return
	}
	if l.onPacket != nil {
		l.onPacket()
	}
	l.qp.Receive(now, a.packet, a.marked)
}

// sendManagement adds datagrams of communication management to the batch.
func (d *driver) sendManagement() {
	var message [infiniband.MADLen]byte
	for {
		p := d.socket.room()
		if p == nil {
			return
		}
		to, ok := d.manager.Next(&message)
		if !ok {
			return
		}
		d.gsi = d.gsi.Add(1)
		d.socket.add(to, sourcePort(infiniband.GSI), datagramOf(p, d.gsi, &message))
	}
}

// datagramOf writes the packet that carries a management datagram to the general services, and
// returns its length.
func datagramOf(p infiniband.Packet, psn infiniband.PSN, message *[infiniband.MADLen]byte) int {
	p = p[:infiniband.Len(infiniband.UDSendOnly, infiniband.MADLen)]
	p.Encode(&infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.UDSendOnly, PKey: infiniband.PKey,
			DestQP: infiniband.GSI, PSN: psn},
		DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey, SrcQP: infiniband.GSI},
	}, infiniband.MADLen)
	copy(p.Payload(), message[:])
	return len(p)
}

// share is the least number of packets that a line may send before the next line's turn.
const share = 16

// sendFrom adds packets of a line to the batch.
func (d *driver) sendFrom(l *line, now clock.Time) {
	for range max(share, batch/len(d.lines)) {
		p := d.socket.room()
		if p == nil {
			return
		}
		n := l.qp.Next(now, p)
		if n == 0 {
			return
		}
		var departs time.Time
		if at := l.qp.Departs(); at > 0 {
			departs = d.clock.Real(at)
		}
		d.socket.addAt(l.at, sourcePort(l.number), n, departs)
	}
}

// stop waits until the worker has sent its last packets and ended, and closes the socket.
func (d *driver) stop() error {
	d.running.Wait()
	return errors.Join(d.err, d.socket.close())
}
