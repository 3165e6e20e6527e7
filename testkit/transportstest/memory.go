package transportstest

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"

	"railbed/transports"
)

// Limits of the memory transport: small, so that tests reach them.
const (
	memoryQueue    = 64 // requests outstanding per endpoint
	memoryReceived = 64 // immediates not polled yet, per endpoint
	memoryKeyLen   = 16
)

// Fabric is a transport within one process. It is the reference for the semantics of package
// transports and a peer for tests of code written against it. It places whole messages in a random
// order drawn from its seed, so that no code can rely on an order. It is safe for concurrent use.
type Fabric struct {
	mu        sync.Mutex
	changed   *sync.Cond // the fabric or an endpoint changed
	random    *mathrand.Rand
	endpoints map[string]*memoryEndpoint // open ones, by address
	flaws     flaws
}

// flaws are the defects that the suite's own tests give the fabric.
type flaws struct {
	immBeforeData, completeBeforeData, readAfterCompletion  bool
	loseCompletion, loseImm, doubleCompletion, doubleImm    bool
	misplace, truncate, wrongImm, wrongPeer                 bool
	ignoreBounds, ignoreKey, ignoreAccess, ignoreRevocation bool
	forgetDeadPeer, noPeerDown, postToDeadPeer              bool
	forgetOnClose, waitIgnoresContext, postIgnoresContext   bool
	noBackPressure, dropWhenFull, dropUnknown               bool
	accessAsPeerFailure, writeReported                      bool
	keepInline, swapPieces, firstPieceOnly, tooManyPieces   bool
	ignoreCancel, loseCanceled, deliverCanceled             bool
	hideHoles, moveHoles, dropMore, dropAnything            bool
}

// NewFabric makes a fabric whose seed determines the order of delivery.
func NewFabric(seed uint64) *Fabric {
	f := &Fabric{
		random:    mathrand.New(mathrand.NewPCG(seed, 0)),
		endpoints: make(map[string]*memoryEndpoint),
	}
	f.changed = sync.NewCond(&f.mu)
	return f
}

type memoryEndpoint struct {
	fabric  *Fabric
	address string
	worker  sync.WaitGroup

	// The rest is guarded by fabric.mu.
	closed      bool
	peers       []memoryPeer
	regions     map[string]*memoryRegion
	queue       []memoryMessage
	orders      uint64 // messages queued so far
	completions []transports.Completion
	received    int // OpReceive among completions
}

type memoryPeer struct {
	address string
	down    bool
}

type memoryMessage struct {
	transports.Request
	key    string
	order  uint64      // identifies it among all of its endpoint
	stop   func() bool // stops watching its context; may be nil
	silent bool        // it has completed: a flaw
}

type memoryRegion struct {
	owner  *memoryEndpoint
	buf    []byte
	access transports.Access
	key    string
}

// Open makes an endpoint on the fabric.
func (f *Fabric) Open() transports.Endpoint {
	e := &memoryEndpoint{fabric: f, address: "memory:" + rand.Text(), regions: make(map[string]*memoryRegion)}
	f.mu.Lock()
	f.endpoints[e.address] = e
	f.mu.Unlock()
	e.worker.Go(e.deliverLoop)
	return e
}

func (e *memoryEndpoint) Address() []byte { return []byte(e.address) }

func (e *memoryEndpoint) AddPeer(address []byte) (transports.Peer, error) {
	const want = len("memory:") + 26 // rand.Text returns 26 characters
	if len(address) != want || string(address[:7]) != "memory:" {
		return 0, fmt.Errorf("add peer: %q is not the address of a memory endpoint", address)
	}
	f := e.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	if e.closed {
		return 0, fmt.Errorf("add peer: %w", transports.ErrClosed)
	}
	if peer, found := e.findLocked(string(address)); found {
		return peer, nil
	}
	e.peers = append(e.peers, memoryPeer{address: string(address)})
	return transports.Peer(len(e.peers) - 1), nil
}

func (e *memoryEndpoint) findLocked(address string) (transports.Peer, bool) {
	for i, peer := range e.peers {
		if peer.address == address {
			return transports.Peer(i), true
		}
	}
	return 0, false
}

func (e *memoryEndpoint) Register(buf []byte, access transports.Access) (transports.Region, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("register region: it has no bytes, want at least 1")
	}
	e.fabric.mu.Lock()
	defer e.fabric.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("register region: %w", transports.ErrClosed)
	}
	key := make([]byte, memoryKeyLen)
	rand.Read(key)
	r := &memoryRegion{owner: e, buf: buf, access: access, key: string(key)}
	e.regions[r.key] = r
	return r, nil
}

func (r *memoryRegion) Remote() []byte { return []byte(r.key) }

func (r *memoryRegion) Close() error {
	r.owner.fabric.mu.Lock()
	defer r.owner.fabric.mu.Unlock()
	if !r.owner.fabric.flaws.ignoreRevocation {
		delete(r.owner.regions, r.key)
	}
	return nil
}

func (e *memoryEndpoint) Post(ctx context.Context, requests []transports.Request) (int, error) {
	f := e.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, request := range requests {
		if err := ctx.Err(); err != nil && !f.flaws.postIgnoresContext {
			return i, err
		}
		if err := e.admitLocked(request); err != nil {
			return i, fmt.Errorf("post request %d: %w", i, err)
		}
		if len(e.queue) >= memoryQueue && !f.flaws.noBackPressure {
			return i, nil
		}
		e.queueLocked(request)
		f.changed.Broadcast()
	}
	return len(requests), nil
}

func (e *memoryEndpoint) admitLocked(request transports.Request) error {
	if e.fabric.flaws.tooManyPieces && len(request.More) >= transports.MaxPieces {
		return nil
	}
	switch err := request.Check(); {
	case e.closed:
		return transports.ErrClosed
	case err != nil:
		return err
	case int(request.Peer) >= len(e.peers):
		return fmt.Errorf("unknown peer %d: want a number from AddPeer", request.Peer)
	case e.peers[request.Peer].down && !e.fabric.flaws.postToDeadPeer:
		return transports.ErrPeerFailed
	}
	return nil
}

// queueLocked queues a request, with copies of the parts that the caller may change from now on.
func (e *memoryEndpoint) queueLocked(request transports.Request) {
	e.orders++
	m := memoryMessage{Request: request, key: string(request.Remote), order: e.orders}
	m.More = slices.Clone(request.More)
	if request.Inline && !e.fabric.flaws.keepInline {
		m.Local, m.More = request.Gather(nil), nil
	}
	if ctx := request.Context; ctx != nil {
		e.worker.Add(1)
		m.stop = context.AfterFunc(ctx, func() {
			defer e.worker.Done()
			e.cancel(m.order, transports.Canceled(ctx))
		})
	}
	e.queue = append(e.queue, m)
}

// releaseLocked stops watching the context of a message that leaves the queue.
func (e *memoryEndpoint) releaseLocked(m *memoryMessage) {
	if m.stop != nil && m.stop() {
		e.worker.Done()
	}
	m.stop = nil
}

// cancel completes a message with err if it is still queued.
func (e *memoryEndpoint) cancel(order uint64, err error) {
	f := e.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(e.queue, func(m memoryMessage) bool { return m.order == order })
	if i < 0 || f.flaws.ignoreCancel {
		return
	}
	m := &e.queue[i]
	if !f.flaws.loseCanceled {
		e.completeLocked(transports.Completion{ID: m.ID, Peer: m.Peer, Op: m.Op, Err: err})
	}
	if m.stop = nil; f.flaws.deliverCanceled {
		m.silent = true
	} else {
		e.queue = slices.Delete(e.queue, i, i+1)
	}
	f.changed.Broadcast()
}

// deliverLoop delivers random messages of the queue until the endpoint closes.
func (e *memoryEndpoint) deliverLoop() {
	f := e.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	for !e.closed {
		ready := make([]int, 0, memoryQueue)
		for i, message := range e.queue {
			if e.deliverableLocked(message) {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			f.changed.Wait()
			continue
		}
		i := ready[f.random.IntN(len(ready))]
		message := e.queue[i]
		e.queue = append(e.queue[:i], e.queue[i+1:]...)
		e.releaseLocked(&message)
		e.deliverLocked(message)
		f.changed.Broadcast()
	}
}

// deliverableLocked reports whether the message can end now, with or without an error.
func (e *memoryEndpoint) deliverableLocked(message memoryMessage) bool {
	target, open := e.fabric.endpoints[e.peers[message.Peer].address]
	if !open {
		return true
	}
	_, known := target.findLocked(e.address)
	full := target.received >= memoryReceived && message.Op == transports.OpWriteImm
	if e.fabric.flaws.dropWhenFull {
		full = false
	}
	return (known || e.fabric.flaws.dropUnknown) && !full
}

func (e *memoryEndpoint) deliverLocked(message memoryMessage) {
	target, open := e.fabric.endpoints[e.peers[message.Peer].address]
	if !open && !e.peers[message.Peer].down {
		e.queue = append(e.queue, message)
		e.failPeerLocked(message.Peer)
		return
	}
	if !open {
		e.completeLocked(transports.Completion{ID: message.ID, Peer: message.Peer, Op: message.Op,
			Err: transports.ErrPeerFailed})
		return
	}
	done := transports.Completion{ID: message.ID, Peer: message.Peer, Op: message.Op, Bytes: message.Size()}
	place, err := target.checkLocked(message)
	if err != nil {
		done.Bytes, done.Err = 0, err
		e.completeLocked(done)
		return
	}
	from, _ := target.findLocked(e.address)
	holes, missing := e.fabric.holesLocked(&message.Request)
	done.Bytes, done.Missing = done.Bytes-missing, missing
	received := transports.Completion{Peer: from, Op: transports.OpReceive, Imm: message.Imm,
		Bytes: done.Bytes, Missing: missing, Holes: holes}
	e.finishLocked(target, place, message, received, done)
}

// finishLocked places the bytes, delivers the immediate and completes the request. That order is
// the only right one; flaws change it.
func (e *memoryEndpoint) finishLocked(target *memoryEndpoint, place []byte, message memoryMessage, received,
	done transports.Completion) {
	fl := &e.fabric.flaws
	steps := []func(){
		func() {
			placeAround(received.Holes, func(b []byte) { fl.place(b, fl.gather(&message.Request)) }, place)
		},
		func() {
			if message.Op == transports.OpWriteImm || fl.writeReported {
				target.receiveLocked(received)
			}
		},
		func() {
			if !message.silent {
				e.completeLocked(done)
			}
		},
	}
	if fl.immBeforeData {
		steps[0], steps[1] = steps[1], steps[0]
	}
	if fl.completeBeforeData || fl.readAfterCompletion {
		steps[0], steps[1], steps[2] = steps[2], steps[0], steps[1]
	}
	for _, step := range steps {
		step()
		if fl.immBeforeData || fl.completeBeforeData || fl.readAfterCompletion {
			e.fabric.pauseLocked()
		}
	}
}

// checkLocked returns the memory for a message, or the error that refuses it.
func (e *memoryEndpoint) checkLocked(message memoryMessage) ([]byte, error) {
	size, fl := uint64(message.Size()), e.fabric.flaws
	if size == 0 {
		return nil, nil
	}
	region, found := e.regions[message.key]
	if !found && fl.ignoreKey {
		for _, region = range e.regions {
			found = true
		}
	}
	refused := transports.ErrAccess
	if fl.accessAsPeerFailure {
		refused = transports.ErrPeerFailed
	}
	switch {
	case !found:
		return nil, fmt.Errorf("%v %d bytes: %w: no such region", message.Op, size, refused)
	case region.access&transports.RemoteWrite == 0 && !fl.ignoreAccess:
		return nil, fmt.Errorf("%v %d bytes: %w: region is not writable", message.Op, size, refused)
	case message.Offset > uint64(len(region.buf)) || size > uint64(len(region.buf))-message.Offset:
		if fl.ignoreBounds {
			return region.buf[min(message.Offset, uint64(len(region.buf))):], nil
		}
		return nil, fmt.Errorf("%v %d bytes at offset %d: %w: region has %d bytes", message.Op, size,
			message.Offset, refused, len(region.buf))
	}
	return region.buf[message.Offset:][:size:size], nil
}

func (e *memoryEndpoint) receiveLocked(received transports.Completion) {
	fl := e.fabric.flaws
	if fl.hideHoles {
		received.Holes = nil
	}
	for i := range received.Holes {
		if fl.moveHoles {
			received.Holes[i].Offset++
		}
	}
	if fl.wrongImm {
		received.Imm ^= 1 << 31
	}
	if fl.wrongPeer {
		received.Peer = (received.Peer + 1) % transports.Peer(len(e.peers))
	}
	if fl.loseImm && received.Imm%7 == 3 || fl.dropWhenFull && e.received >= memoryReceived {
		return
	}
	e.completions = append(e.completions, received)
	e.received++
	if fl.doubleImm && received.Imm%7 == 3 {
		e.completions = append(e.completions, received)
		e.received++
	}
}

func (e *memoryEndpoint) completeLocked(done transports.Completion) {
	fl := e.fabric.flaws
	if fl.loseCompletion && done.ID%7 == 3 {
		return
	}
	e.completions = append(e.completions, done)
	if fl.doubleCompletion && done.ID%7 == 3 {
		e.completions = append(e.completions, done)
	}
}

// failPeerLocked ends all requests outstanding to a peer.
func (e *memoryEndpoint) failPeerLocked(peer transports.Peer) {
	if e.peers[peer].down {
		return
	}
	e.peers[peer].down = true
	err := fmt.Errorf("%w: %s is closed", transports.ErrPeerFailed, e.peers[peer].address)
	kept := e.queue[:0]
	for _, message := range e.queue {
		if message.Peer != peer {
			kept = append(kept, message)
			continue
		}
		e.releaseLocked(&message)
		if !e.fabric.flaws.forgetDeadPeer {
			e.completeLocked(transports.Completion{ID: message.ID, Peer: peer, Op: message.Op, Err: err})
		}
	}
	e.queue = kept
	if !e.fabric.flaws.noPeerDown {
		e.completions = append(e.completions,
			transports.Completion{Peer: peer, Op: transports.OpPeerDown, Err: err})
	}
}

func (e *memoryEndpoint) Poll(completions []transports.Completion) int {
	e.fabric.mu.Lock()
	defer e.fabric.mu.Unlock()
	n := copy(completions, e.completions)
	for _, c := range e.completions[:n] {
		if c.Op == transports.OpReceive {
			e.received--
		}
	}
	e.completions = e.completions[n:]
	e.fabric.changed.Broadcast()
	return n
}

func (e *memoryEndpoint) Wait(ctx context.Context) error {
	f := e.fabric
	if f.flaws.waitIgnoresContext {
		ctx = context.WithoutCancel(ctx)
	}
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed.Broadcast()
	})
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case len(e.completions) > 0:
			return nil
		case e.closed:
			return transports.ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		}
		f.changed.Wait()
	}
}

func (e *memoryEndpoint) Close() error {
	f := e.fabric
	f.mu.Lock()
	if !e.closed {
		e.closed = true
		delete(f.endpoints, e.address)
		for _, message := range e.queue {
			if e.releaseLocked(&message); !f.flaws.forgetOnClose {
				e.completeLocked(transports.Completion{ID: message.ID, Peer: message.Peer, Op: message.Op,
					Err: transports.ErrClosed})
			}
		}
		e.queue = nil
		clear(e.regions)
		for _, other := range f.endpoints {
			if peer, known := other.findLocked(e.address); known {
				other.failPeerLocked(peer)
			}
		}
	}
	f.changed.Broadcast()
	f.mu.Unlock()
	e.worker.Wait()
	return nil
}
