package engine

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"railbed/fabric/clock"
	"railbed/transports"
	"railbed/transports/rd/path"
	"railbed/transports/wire"
)

// world is endpoints of one engine each on an invented network in virtual time.
// Everything in it follows from its seed.
type world struct {
	testing.TB
	seed   uint64
	random *rand.Rand
	now    clock.Time
	events events
	order  uint64
	nodes  []*testNode
	net    weather
	// saw is told of every packet that is sent.
	saw func(from, to *testNode, b wire.RD)
	// fate decides about a packet instead of the weather.
	fate func(from, to *testNode, b wire.RD) (delay time.Duration, lost bool)
}

// weather is what happens to packets, as shares of 1.
type weather struct {
	delay, jitter                    time.Duration
	loss, twice, trim, corrupt, mark float64
}

type event struct {
	at    clock.Time
	order uint64
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{TB: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), now: 1, net: weather{delay: 10 * time.Microsecond}}
	w.saw = w.trace
	return w
}

func (w *world) at(t clock.Time, do func()) {
	w.order++
	heap.Push(&w.events, event{t, w.order, do})
}

// run does what happens until nothing does, or until a moment.
func (w *world) run(until clock.Time) {
	for w.events.Len() > 0 && w.events[0].at <= until {
		if w.order > 20_000_000 {
			for _, n := range w.nodes {
				w.Logf("%v:%s", n, n.state())
			}
			w.Fatalf("seed %d: it never becomes quiet at %v", w.seed, w.now)
		}
		e := heap.Pop(&w.events).(event)
		w.now = max(w.now, e.at)
		e.do()
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
	dead      bool // it was killed: nothing goes in or out
	alarm     clock.Time
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
	n := &testNode{w: w, life: w.random.Uint64(), addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(len(w.nodes))}),
		regions: make(map[uint64]*Region), failed: make(map[transports.Peer]error)}
	c := Config{Life: n.life, Port: uint8(16 * len(w.nodes)), Payload: 512, Paths: testPaths(path.KindOblivious, w.seed), FirstPath: wire.PortRDPath, Room: 256}
	for _, f := range change {
		f(&c)
	}
	n.life = c.Life
	n.Engine = New(c, n)
	w.nodes = append(w.nodes, n)
	return n
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

func (n *testNode) region(size int) (*Region, uint64) {
	key := n.w.random.Uint64()
	r := &Region{Memory: make([]byte, size), Writable: true}
	n.regions[key] = r
	return r, key
}

// post posts and sends.
func (n *testNode) post(to transports.Peer, m Message) bool {
	ok, err := n.Post(n.w.now, to, &m)
	if err != nil {
		n.w.Fatalf("seed %d: post at %v: %v; %v", n.w.seed, n.w.now, err, n.w.failures())
	}
	n.drive()
	return ok
}

// drive sends what may go and sets the alarm.
func (n *testNode) drive() {
	if n.dead {
		return
	}
	var p Packet
	for sent := 0; n.Next(n.w.now, &p); sent++ {
		if sent > 100_000 {
			n.w.Fatalf("seed %d: it sends without end at %v", n.w.seed, n.w.now)
		}
		n.w.carry(n, &p)
	}
	at := n.Deadline()
	if at == clock.Never {
		return
	}
	at = max(at, n.w.now+1)
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
	var to *testNode
	for _, n := range w.nodes {
		known := p.Peer >= 0 && n.life == from.peers[p.Peer].Life || p.Peer < 0 && n.addr == p.To
		if known && n.config.Port == p.Port {
			to = n
		}
	}
	if to == nil {
		return
	}
	data := append(bytes.Clone(p.Header), p.Payload...)
	if b := wire.RD(data); !b.Valid() || !p.Control && b.Base().Type != wire.RDData && b.Base().Type != wire.RDSkip {
		w.Fatalf("seed %d: sends an invalid packet %x", w.seed, data)
	}
	if w.saw != nil {
		w.saw(from, to, data)
	}
	delay, lost := w.net.delay, w.chance(w.net.loss)
	if w.net.jitter > 0 {
		delay += time.Duration(w.random.Int64N(int64(w.net.jitter)))
	}
	if w.fate != nil {
		delay, lost = w.fate(from, to, data)
	}
	copies := 1
	if w.chance(w.net.twice) {
		copies = 2
	}
	if lost {
		copies = 0
	}
	if w.chance(w.net.trim) && !p.Control && len(p.Payload) > 0 {
		data = data[:wire.RDDataLen+w.random.IntN(len(p.Payload))]
	}
	if w.chance(w.net.corrupt) {
		data[w.random.IntN(len(data))] ^= 1 << w.random.IntN(8)
	}
	a := Arrival{Data: data, Path: wire.PortRDPath + uint16(max(p.Path, 0)), Marked: w.chance(w.net.mark), From: from.addr}
	for range copies {
		w.at(w.now.Add(delay), func() {
			if to.dead {
				return
			}
			b := bytes.Clone(a.Data) // what is kept of it would be seen
			to.Receive(w.now, Arrival{Data: b, Path: a.Path, Marked: a.Marked, From: a.From})
			for i := range b {
				b[i] = 0xEE
			}
			to.drive()
		})
		delay += time.Duration(w.random.Int64N(int64(100 * time.Microsecond)))
	}
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

// state is what the node has outstanding.
func (n *testNode) state() (text string) {
	for _, o := range n.active {
		text += fmt.Sprintf("\n  to peer %d: %d packets in flight, %d lost, %d busy, %d messages wait; packets %d to %d, limit %d, room %d; deadline %v, paced %v, pause %v, bound %v %+v",
			o.peer.number, o.flight.count, o.lost.count, o.busy.count, o.long.count+o.short.count, o.una, o.next, o.limit, o.room, o.deadline, n.paced, o.pauseUntil, o.late.bound(), o.late)
	}
	return text
}
