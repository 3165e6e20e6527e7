package rd

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"railbed/internal/clock"
	"railbed/transports"
	"railbed/transports/datagram"
	"railbed/transports/rd/engine"
	"railbed/transports/rd/path"
)

// batch is how many packets a worker handles in one round.
const batch = 64

// worker drives one engine. The holder of io reads and writes its sockets. That is the worker's
// goroutine, except while it sleeps. Then a goroutine that posts a message also sends it, which
// saves a wake-up.
type worker struct {
	endpoint *Endpoint
	size     int // of the longest datagram that it receives
	asleep   atomic.Bool

	io     sync.Mutex // taken before mu
	socket *socket
	out    [batch]engine.Packet
	closed bool
	until  clock.Time // the sleeping worker's bound of its wait for several packets

	mu       sync.Mutex
	engine   *engine.Engine
	done     []transports.Completion // of this round
	peers    []datagram.Name         // the addresses where they receive
	posted   bool                    // since the engine last returned packets
	failed   []failure
	discards bool // arriving packets are discarded
	ending   bool
	err      error // why it ended by itself

	choosers uint64 // choosers made so far
}

type failure struct {
	peer transports.Peer
	err  error
}

var _ engine.Host = (*worker)(nil)

// chooser makes the chooser of the paths to one more peer.
func (w *worker) chooser() path.Chooser {
	w.choosers++
	c := &w.endpoint.config
	chooser, err := path.New(c.Choose, c.Paths,
		path.Options{Seed: w.endpoint.self.life + uint64(w.socket.firstPath)<<32 + w.choosers,
			Weights: c.Weights})
	if err != nil {
		panic(err) // Open has tried
	}
	return chooser
}

// Region implements engine.Host.
func (w *worker) Region(key uint64) *engine.Region {
	if r := (*w.endpoint.regions.Load())[key]; r != nil {
		return &r.Region
	}
	return nil
}

// Reserve implements engine.Host.
func (w *worker) Reserve() bool { return w.endpoint.completions.Reserve() }

// Deliver implements engine.Host.
func (w *worker) Deliver(c transports.Completion) { w.done = append(w.done, c) }

// Complete implements engine.Host.
func (w *worker) Complete(c transports.Completion) { w.done = append(w.done, c) }

// Failed implements engine.Host.
func (w *worker) Failed(peer transports.Peer, err error) {
	w.failed = append(w.failed, failure{peer, err})
}

func (w *worker) addPeer(a address) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.engine.AddPeer(a.peer())
	w.peers = append(w.peers, datagram.NameOf(a.at, 0))
}

// pass waits until the present holder of mu has released it.
func (w *worker) pass() {
	w.mu.Lock()
	defer w.mu.Unlock()
}

// post passes a message to the engine and wakes the worker. The context may be nil.
func (w *worker) post(to transports.Peer, m *engine.Message, ctx context.Context) (bool, error) {
	w.mu.Lock()
	taken, err := w.postLocked(to, m, ctx)
	w.posted = w.posted || taken
	w.mu.Unlock()
	if taken {
		w.sendIfIdle()
	}
	return taken, err
}

func (w *worker) postLocked(to transports.Peer, m *engine.Message, ctx context.Context) (bool, error) {
	now := w.endpoint.config.Clock.Now()
	if ctx == nil {
		return w.engine.Post(now, to, m)
	}
	c := &cancellation{worker: w, peer: to, ctx: ctx}
	m.Release = c.release
	taken, err := w.engine.Post(now, to, m)
	if taken {
		c.number = m.Number
		w.endpoint.running.Add(1)
		c.stop = context.AfterFunc(ctx, c.cancel)
	}
	return taken, err
}

// cancellation ties a message to a context.
type cancellation struct {
	worker *worker
	peer   transports.Peer
	number uint32
	ctx    context.Context
	stop   func() bool
}

// release is called under the worker's lock when the message has completed.
func (c *cancellation) release() {
	if c.stop() {
		c.worker.endpoint.running.Done() // else cancel runs
	}
}

// cancel cancels the message when the context is done.
func (c *cancellation) cancel() {
	w := c.worker
	defer w.endpoint.running.Done()
	w.mu.Lock()
	w.engine.Cancel(w.endpoint.config.Clock.Now(), c.peer, c.number, transports.Canceled(c.ctx))
	w.posted = true
	w.reportLocked()
	w.mu.Unlock()
	w.sendIfIdle()
}

// sendIfIdle sends the due packets if the worker sleeps. Otherwise the worker sends them.
func (w *worker) sendIfIdle() {
	if w.asleep.Load() && !w.send() {
		w.wake()
	}
}

// send sends, in place of the sleeping worker, the packets that are due. It returns false if the
// worker has to go on.
func (w *worker) send() bool {
	if !w.io.TryLock() {
		return false
	}
	defer w.io.Unlock()
	if w.closed {
		return true
	}
	r := w.round(nil)
	if w.socket.send(r.send, r.peers) != nil || r.more {
		return false
	}
	return w.socket.waiter.Arm(w.endpoint.config.Clock, min(r.deadline, w.until))
}

// close closes the sockets of a worker that has ended.
func (w *worker) close() error {
	w.io.Lock()
	defer w.io.Unlock()
	w.closed = true
	return w.socket.close()
}

func (w *worker) wake() {
	if w.asleep.CompareAndSwap(true, false) {
		w.socket.waiter.Wake()
	}
}

// fail ends a peer.
func (w *worker) fail(peer transports.Peer, err error) {
	w.mu.Lock()
	w.engine.Fail(peer, err)
	w.reportLocked()
	w.mu.Unlock()
}

// reportLocked reports completions. It does so under the lock, so that a peer's failure is reported
// after everything that completed before.
func (w *worker) reportLocked() {
	if len(w.done) > 0 {
		w.endpoint.completions.Push(w.done...)
		clear(w.done)
		w.done = w.done[:0]
	}
}

// discardArrivals makes the worker discard all arriving packets.
func (w *worker) discardArrivals() {
	w.mu.Lock()
	w.discards = true
	w.mu.Unlock()
}

// end completes the outstanding requests and makes the worker send its CLOSEs and return.
func (w *worker) end(peers int) {
	w.mu.Lock()
	w.ending = true
	w.engine.Goodbye()
	for n := range peers {
		w.engine.Fail(transports.Peer(n), transports.ErrClosed)
	}
	w.reportLocked()
	w.mu.Unlock()
	w.wake()
}

// run is the worker's goroutine.
func (w *worker) run() {
	in := newArrivals(batch, w.size, w.socket.joins)
	w.io.Lock()
	defer w.io.Unlock()
	full := 0     // waits for room since a packet was sent
	came := false // since the last wait, packets arrived
	for {
		err := w.socket.receive(in)
		came = came || len(in.list) > 0
		r := w.round(in.list)
		if err == nil {
			err = w.socket.send(r.send, r.peers)
		}
		if err != nil {
			w.err = err
			w.giveUp()
			return
		}
		if r.ending && (!r.more || full > datagram.MostFullWaits) {
			return
		}
		switch {
		case r.more && len(r.send) == 0:
			full++
			w.asleep.Store(true)
			w.wait(w.endpoint.config.Clock.Now().Add(datagram.FullWait), 1, true)
			w.asleep.Store(false)
		case len(r.send) > 0:
			full = 0
		case r.reported:
			w.giveWay()
		case len(in.list) == 0:
			w.sleep(r.deadline, came)
			came = false
		}
	}
}

// giveUp fails all peers: the sockets cannot be used.
func (w *worker) giveUp() {
	e := w.endpoint
	for n := range e.known.Load() {
		e.fail(transports.Peer(n), fmt.Errorf("%w: %w", transports.ErrPeerFailed, w.err))
	}
}

// round is the result of one round of a worker.
type round struct {
	send     []engine.Packet
	peers    []datagram.Name
	deadline clock.Time
	ending   bool
	reported bool // completions were reported
	more     bool // there may be more to send
}

// round passes arrivals to the engine and takes the packets to send.
func (w *worker) round(in []engine.Arrival) round {
	now := w.endpoint.config.Clock.Now()
	sent, most := 0, w.socket.canSend()
	w.mu.Lock()
	for _, a := range in {
		if !w.discards {
			w.engine.Receive(now, a)
		}
	}
	w.posted = false
	for sent < most && w.engine.Next(now, &w.out[sent]) {
		sent++
	}
	r := round{send: w.out[:sent], peers: w.peers, deadline: w.engine.Deadline(), ending: w.ending,
		reported: len(w.done) > 0, more: sent == most}
	w.reportLocked()
	failed := w.failed
	w.failed = nil
	w.mu.Unlock()
	for _, f := range failed {
		w.endpoint.fail(f.peer, f.err)
	}
	return r
}

// giveWay yields to goroutines that wait for a completion: they may send its answer at once.
func (w *worker) giveWay() {
	w.asleep.Store(true)
	w.io.Unlock()
	runtime.Gosched()
	w.io.Lock()
	w.asleep.Store(false)
}

// sleep waits for packets, for the deadline, or for a wake-up. While packets come, it waits for several of
// them at once, if the NIC wakes it for several.
func (w *worker) sleep(deadline clock.Time, came bool) {
	w.asleep.Store(true)
	w.mu.Lock()
	ready, packets := w.posted || w.ending, 1
	if came && w.socket.nic != nil {
		packets = w.engine.Awaits()
	}
	w.mu.Unlock()
	if w.until = clock.Never; packets > 1 {
		w.until = w.endpoint.config.Clock.Now().Add(engine.AckDelay)
	}
	if !ready {
		w.wait(min(deadline, w.until), packets, false)
	}
	w.until = clock.Never
	w.asleep.Store(false)
}

// wait waits without the sockets until a number of packets, room, the deadline or a wake-up comes.
func (w *worker) wait(deadline clock.Time, packets int, full bool) {
	ready := w.socket.rest(packets, full) && w.socket.waiter.Arm(w.endpoint.config.Clock, deadline)
	if ready {
		w.io.Unlock()
		w.socket.waiter.Wait()
		w.io.Lock()
	}
	w.socket.wake(ready)
}
