package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/rd/privacy"
)

// world is endpoints of one engine each on an invented network in virtual time.
// Everything in it follows from its seed.
type world struct {
	testing.TB
	seed   uint64
	random *rand.Rand
	now    clock.Time
	events clock.Queue[func()]
	most   uint64 // events, until it counts as endless
	nodes  []*testNode
	net    conditions
	// saw is called with every packet that is sent.
	saw func(from, to *testNode, b wire.RD)
	// fate decides about a packet in place of the random faults. The path is -1 if the driver may
	// take any.
	fate func(from, to *testNode, b wire.RD, path int) fate
	// secret and keys are for nodes that are made from now on.
	secret   *privacy.Secret
	keys     privacy.Limits
	readable bool
	// memories are all regions' with the bytes around them.
	memories [][]byte
}

// fate is the treatment of a packet.
type fate struct {
	delay time.Duration
	lost  bool
	trim  bool
	twice time.Duration // so much later it comes again
}

// conditions sets the rates of the network's random faults, as shares of 1.
type conditions struct {
	delay, jitter                    time.Duration
	loss, twice, trim, corrupt, mark float64
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{TB: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), now: 1, most: 20_000_000,
		net: conditions{delay: 10 * time.Microsecond}}
	w.saw = w.trace
	return w
}

func (w *world) at(t clock.Time, do func()) { w.events.Push(t, do) }

// run does what happens until nothing does, or until a moment.
func (w *world) run(until clock.Time) {
	for w.events.Len() > 0 && w.events.Next() <= until {
		if w.events.Count() > w.most {
			for _, n := range w.nodes {
				w.Logf("%v:%s", n, n.state())
			}
			w.Fatalf("seed %d: it never becomes quiet at %v", w.seed, w.now)
		}
		at, do := w.events.Pop()
		w.now = max(w.now, at)
		do()
	}
	w.now = max(w.now, until)
}

// runFor is run for some time.
func (w *world) runFor(d time.Duration) { w.run(w.now.Add(d)) }

func (w *world) chance(share float64) bool { return share > 0 && w.random.Float64() < share }

// testNode is an endpoint: the host of its engine.
type testNode struct {
	*Engine
	w         *world
	addr      netip.Addr
	life      uint64
	dead      bool          // it was killed: nothing goes in or out
	skew      time.Duration // of its clock
	alarm     clock.Time    // of the world's
	regions   map[uint64]*Region
	received  []transports.Completion
	completed []transports.Completion
	failed    map[transports.Peer]error
	full      bool // its owner takes no immediates
	onReceive func(transports.Completion)
	onDone    func(transports.Completion)
}

// testPaths is a chooser of 4 paths.
func testPaths(kind path.Kind, seed uint64) func() path.Chooser {
	return func() path.Chooser {
		seed++
		c, err := path.New(kind, 4, path.Options{Seed: seed})
		if err != nil {
			panic(err)
		}
		return c
	}
}

func (w *world) node(change ...func(*Config)) *testNode {
	n := &testNode{w: w, life: w.random.Uint64(), skew: time.Duration(w.random.Int64N(int64(time.Hour))),
		addr:    netip.AddrFrom4([4]byte{10, 0, byte(len(w.nodes) >> 8), byte(len(w.nodes))}),
		regions: make(map[uint64]*Region), failed: make(map[transports.Peer]error)}
	c := Config{Life: n.life, Port: uint8(16 * len(w.nodes)), Payload: 512,
		Paths: testPaths(path.KindOblivious, w.seed), FirstPath: wire.PortRDPath, Room: 256,
		Secret: w.secret, Keys: w.keys, Readable: w.readable}
	for _, f := range change {
		f(&c)
	}
	n.life = c.Life
	if w.listener(n.addr, c.Port) != nil {
		w.Fatalf("%v has port %d twice", n.addr, c.Port)
	}
	n.Engine = New(c, n)
	w.nodes = append(w.nodes, n)
	return n
}

// pair is two nodes that know each other, each the other's peer 0.
func (w *world) pair(change ...func(*Config)) (a, b *testNode) {
	a, b = w.node(change...), w.node(change...)
	a.add(b)
	b.add(a)
	return a, b
}

// restart makes a new life at a node's address and port, without peers.
func (n *testNode) restart(change ...func(*Config)) *testNode {
	n.dead = true
	again := n.w.node(change...)
	again.addr, again.config.Port = n.addr, n.config.Port
	return again
}

// sends keeps a message of so many bytes outstanding until all of so many were
// posted.
func (n *testNode) sends(to transports.Peer, key uint64, size, messages, atOnce int) {
	local := fill(make([]byte, size), 1)
	next := func() {
		if messages--; messages >= 0 && n.failed[to] == nil {
			n.post(to, Message{ID: uint64(messages), Op: transports.OpWriteImm, Local: local, Key: key,
				Imm: uint32(messages)})
		}
	}
	n.onDone = func(transports.Completion) { n.w.at(n.w.now, next) }
	for range atOnce {
		next()
	}
}

func (n *testNode) add(other *testNode) transports.Peer {
	return n.AddPeer(Peer{Life: other.life, Port: other.config.Port, Engines: 1, Room: 64})
}

func (n *testNode) Region(key uint64) *Region { return n.regions[key] }
func (n *testNode) Reserve() bool             { return !n.full }
func (n *testNode) Deliver(c transports.Completion) {
	n.received = append(n.received, c)
	if n.onReceive != nil {
		n.onReceive(c)
	}
}
func (n *testNode) Complete(c transports.Completion) {
	n.completed = append(n.completed, c)
	if n.onDone != nil {
		n.onDone(c)
	}
}
func (n *testNode) Failed(p transports.Peer, err error) { n.failed[p] = err }

// guard is how many bytes around a region are watched, and guarded what they are.
const (
	guard   = 64
	guarded = 0xA5
)

func (n *testNode) region(size int) (*Region, uint64) {
	key := n.w.random.Uint64()
	return n.regionAs(key, size), key
}

// regionAs is region with a key that somebody else may have had.
func (n *testNode) regionAs(key uint64, size int) *Region {
	memory := make([]byte, guard+size+guard)
	for i := range guard {
		memory[i], memory[guard+size+i] = guarded, guarded
	}
	n.w.memories = append(n.w.memories, memory)
	r := &Region{Memory: memory[guard:][:size], Writable: true}
	n.regions[key] = r
	return r
}

// checkGuards fails the test when anything was written beside a region.
func (w *world) checkGuards() {
	w.Helper()
	for _, memory := range w.memories {
		for i := range guard {
			if memory[i] != guarded || memory[len(memory)-1-i] != guarded {
				w.Fatalf("seed %d: bytes were written beside a region of %d", w.seed, len(memory)-2*guard)
			}
		}
	}
}

// clock is the node's time: no two nodes agree.
func (n *testNode) clock() clock.Time { return n.w.now.Add(n.skew) }

// post posts and sends.
func (n *testNode) post(to transports.Peer, m Message) bool {
	_, ok := n.postNumber(to, m)
	return ok
}

// postNumber is post that tells the message's number.
func (n *testNode) postNumber(to transports.Peer, m Message) (uint32, bool) {
	ok, err := n.Post(n.clock(), to, &m)
	if err != nil {
		n.w.Fatalf("seed %d: post at %v: %v; %v", n.w.seed, n.w.now, err, n.w.failures())
	}
	n.drive()
	return m.Number, ok
}

// cancel cancels and sends.
func (n *testNode) cancel(to transports.Peer, number uint32) {
	n.Cancel(n.clock(), to, number, errTestCanceled)
	n.drive()
}

var errTestCanceled = fmt.Errorf("%w: by a test", transports.ErrCanceled)

// drive sends what may go and sets the alarm.
func (n *testNode) drive() {
	if n.dead {
		return
	}
	var p Packet
	for sent := 0; n.Next(n.clock(), &p); sent++ {
		if sent > 100_000 {
			n.w.Fatalf("seed %d: it sends without end at %v", n.w.seed, n.w.now)
		}
		n.w.carry(n, &p)
	}
	at := n.Deadline()
	if at == clock.Never {
		return
	}
	at = max(at.Add(-n.skew), n.w.now+1)
	if n.alarm > n.w.now && n.alarm <= at {
		return
	}
	n.alarm = at
	n.w.at(at, func() {
		if n.alarm == at {
			n.alarm = 0
			n.drive()
		}
	})
}

// carry takes a packet over the network.
func (w *world) carry(from *testNode, p *Packet) {
	at := p.To
	for _, n := range w.nodes {
		if p.Peer >= 0 && n.life == from.peers[p.Peer].Life {
			at = n.addr
		}
	}
	to := w.listener(at, p.Port)
	if to == nil {
		return
	}
	data := append(bytes.Clone(p.Header), p.Payload...)
	b := wire.RD(data)
	if !b.Valid() || b.Sealed() != (from.encrypts() && b.Type() != wire.RDReject) ||
		!p.Control && b.Base().Type != wire.RDData && b.Base().Type != wire.RDSkip {
		w.Fatalf("seed %d: sends an invalid packet %x", w.seed, data)
	}
	if w.saw != nil {
		w.saw(from, to, data)
	}
	f := w.chances()
	if w.fate != nil {
		f = w.fate(from, to, data, p.Path)
	}
	if b.Type() == wire.RDData && len(data) > wire.RDDataLen && f.trim {
		data = data[:wire.RDDataLen+w.random.IntN(len(data)-wire.RDDataLen)]
	}
	if w.chance(w.net.corrupt) {
		data[w.random.IntN(len(data))] ^= 1 << w.random.IntN(8)
	}
	if f.lost {
		return
	}
	a := Arrival{Data: data, Path: wire.PortRDPath + uint16(max(p.Path, 0)), Marked: w.chance(w.net.mark),
		From: from.addr}
	w.deliver(to, a, f.delay)
	if f.twice > 0 {
		w.deliver(to, a, f.delay+f.twice)
	}
}

// listener returns the node that has an address and port now.
func (w *world) listener(at netip.Addr, port uint8) (to *testNode) {
	for _, n := range w.nodes {
		if n.addr == at && n.config.Port == port {
			to = n
		}
	}
	return to
}

// chances draws the random faults of a packet.
func (w *world) chances() fate {
	f := fate{delay: w.net.delay, lost: w.chance(w.net.loss), trim: w.chance(w.net.trim)}
	if w.net.jitter > 0 {
		f.delay += time.Duration(w.random.Int64N(int64(w.net.jitter)))
	}
	if w.chance(w.net.twice) {
		f.twice = 1 + time.Duration(w.random.Int64N(int64(100*time.Microsecond)))
	}
	return f
}

// deliver hands a packet to a node after a while, or to who has its address and port
// by then.
func (w *world) deliver(to *testNode, a Arrival, after time.Duration) {
	w.at(w.now.Add(after), func() {
		if to = w.listener(to.addr, to.config.Port); to.dead {
			return
		}
		b := bytes.Clone(a.Data) // what is kept of it would be seen
		to.Receive(to.clock(), Arrival{Data: b, Path: a.Path, Marked: a.Marked, From: a.From})
		for i := range b {
			b[i] = 0xEE
		}
		to.drive()
	})
}

// fill makes bytes of which every 8 tell message and place.
func fill(b []byte, message int) []byte {
	for i := range b {
		var at [8]byte
		binary.LittleEndian.PutUint64(at[:], (uint64(message)<<32|uint64(i/8))*0x9E3779B97F4A7C15)
		b[i] = at[i%8]
	}
	return b
}

func (n *testNode) String() string { return fmt.Sprintf("node %v", n.addr) }

func (w *world) failures() (all []error) {
	for _, n := range w.nodes {
		for p, err := range n.failed {
			all = append(all, fmt.Errorf("%v: peer %d: %w", n, p, err))
		}
	}
	return all
}

// state returns the node's outstanding work.
func (n *testNode) state() (text string) {
	for _, o := range n.active {
		text += fmt.Sprintf("\n  to peer %d: %d packets in flight, %d lost, %d busy, %d messages wait; "+
			"packets %d to %d, limit %d, room %d; deadline %v, paced %v, pause %v, bound %v %+v",
			o.peer.number, o.flight.count, o.lost.count, o.busy.count, o.long.count+o.short.count, o.una,
			o.next, o.limit, o.room, o.deadline, n.paced, o.pauseUntil, o.late.bound(), o.late)
	}
	return text
}
