package engine

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/transports"
	"railbed/transports/rd/path"
)

// TestRestarts runs random messages between hosts that die and start again at their address and
// ports, with the same keys. The network has random faults, and packets of all lives are replayed.
// Each message ends once. None is placed or reported in a life other than its destination. Messages
// reported as placed are placed, and between lives that last none fails.
func TestRestarts(t *testing.T) { everySeed(t, 2, restarts) }

// host is an address and the lives that it had.
type host struct {
	lives []*resident
	areas []area // of all messages to it, which each life has
}

type area struct {
	key  uint64
	size int
}

// resident is a life of a host, with the lives that were added to it.
type resident struct {
	*testNode
	host  *host
	peers map[*resident]transports.Peer
	tasks map[uint64]*errand // its own, by ID
}

// errand is a message from one life to another.
type errand struct {
	id        uint64
	from, to  *resident
	key       uint64
	want      []byte
	imm       bool
	canceled  bool
	sent, got int
	err       error
	wrong     string
}

// living restarts hosts.
type living struct {
	*world
	hosts   []*host
	errands []*errand
	past    []replay
	config  func(*Config)
}

type replay struct {
	to *testNode
	a  Arrival
}

// lifetimes is how long hosts are restarted and messages posted.
const lifetimes = 60 * time.Millisecond

func restarts(t *testing.T, seed uint64) {
	l := &living{world: newWorld(t, seed)}
	r := l.random
	l.net = conditions{delay: time.Duration(r.Int64N(int64(time.Millisecond))),
		jitter: time.Duration(r.Int64N(int64(2 * time.Millisecond)))}
	if r.IntN(3) > 0 {
		l.net.loss, l.net.twice, l.net.trim, l.net.corrupt = r.Float64()*0.2, r.Float64()*0.2,
			r.Float64()*0.1, r.Float64()*0.03
	}
	if seed%2 == 0 {
		l.encrypt()
	}
	l.config = func(c *Config) {
		c.Payload = 64 + r.IntN(600)
		c.Paths, c.Grain = testPaths(path.Kind(r.IntN(len(path.Names()))), r.Uint64()), 1+r.IntN(8)
		if r.IntN(3) == 0 {
			c.Pacer = NewPacer(uint64(20_000_000 + r.IntN(1_000_000_000)))
		}
	}
	l.saw = func(from, to *testNode, b wire.RD) {
		if len(l.past) < 200 {
			l.past = append(l.past, replay{to,
				Arrival{Data: bytes.Clone(b), Path: wire.PortRDPath, From: from.addr}})
		}
	}
	for range 2 + r.IntN(2) {
		h := &host{}
		l.hosts = append(l.hosts, h)
		l.settles(h, l.node(l.config))
	}
	moment := func() clock.Time { return clock.Time(1 + r.Int64N(int64(lifetimes))) }
	for range 1 + r.IntN(4) {
		l.at(moment(), func() { l.dies(l.hosts[r.IntN(len(l.hosts))]) })
	}
	for range 10 + r.IntN(60) {
		l.at(moment(), l.posts)
	}
	for range r.IntN(100) {
		l.at(moment(), func() {
			if len(l.past) > 0 {
				again := l.past[r.IntN(len(l.past))]
				l.deliver(again.to, again.a, 0)
			}
		})
	}
	l.run(clock.Time(lifetimes + 4*defaultPeerTimeout))
	l.check(t)
}

// settles makes a node the host's present life. It adds the other lives and they add it, each with
// a delay.
func (l *living) settles(h *host, n *testNode) {
	life := &resident{testNode: n, host: h, peers: make(map[*resident]transports.Peer),
		tasks: make(map[uint64]*errand)}
	for _, a := range h.areas {
		life.regionAs(a.key, a.size)
	}
	life.onDone = life.done
	life.onReceive = func(c transports.Completion) { l.received(life, c) }
	h.lives = append(h.lives, life)
	for _, other := range l.hosts {
		if other != h {
			l.tells(h, other)
			l.tells(other, h)
		}
	}
}

func (h *host) life() *resident { return h.lives[len(h.lives)-1] }

// tells makes the present life of a host add another host's present life, after a while. An owner
// that adds a new life often ends the messages to the previous one.
func (l *living) tells(whom, of *host) {
	ends := l.random.IntN(2) == 0
	l.at(l.now.Add(time.Duration(l.random.Int64N(int64(20*time.Millisecond)))), func() {
		life, other := whom.life(), of.life()
		if _, known := life.peers[other]; known || life.dead || other.dead {
			return
		}
		life.peers[other] = life.add(other.testNode)
		for _, gone := range of.lives[:len(of.lives)-1] {
			if p, known := life.peers[gone]; known && ends {
				life.Fail(p, transports.ErrPeerFailed)
			}
		}
		life.drive()
	})
}

// dies ends the present life of a host, and starts the next soon.
func (l *living) dies(h *host) {
	old := h.life()
	if old.dead {
		return
	}
	old.dead = true
	l.at(l.now.Add(time.Duration(l.random.Int64N(int64(5*time.Millisecond)))), func() {
		l.settles(h, old.restart(l.config))
	})
}

// posts posts a message from a life to another one, which may be over.
func (l *living) posts() {
	r := l.random
	from := l.hosts[r.IntN(len(l.hosts))].life()
	var to *resident
	for _, h := range l.hosts {
		for _, life := range h.lives {
			if _, known := from.peers[life]; known && (to == nil || r.IntN(2) == 0) {
				to = life
			}
		}
	}
	if from.dead || to == nil {
		return
	}
	size := []int{0, 1, r.IntN(300), r.IntN(20_000)}[r.IntN(4)]
	e := &errand{id: uint64(len(l.errands) + 1), from: from, to: to, key: r.Uint64(), imm: r.IntN(3) > 0}
	e.want = fill(make([]byte, size), int(e.id))
	to.host.areas = append(to.host.areas, area{e.key, size})
	for _, life := range to.host.lives {
		life.regionAs(e.key, size)
	}
	m := Message{ID: e.id, Op: transports.OpWrite, Local: bytes.Clone(e.want), Key: e.key, Imm: uint32(e.id)}
	if e.imm {
		m.Op = transports.OpWriteImm
	}
	taken, err := from.Post(from.clock(), from.peers[to], &m)
	if err != nil || !taken {
		if err != nil && !errors.Is(err, transports.ErrPeerFailed) {
			l.Errorf("seed %d: post: %v", l.seed, err)
		}
		return
	}
	from.tasks[e.id] = e
	l.errands = append(l.errands, e)
	from.drive()
	if r.IntN(8) == 0 {
		l.at(l.now.Add(time.Duration(r.Int64N(1<<r.IntN(24)))), func() {
			if !from.dead {
				from.cancel(from.peers[to], m.Number)
			}
		})
	}
}

// place is where the message goes in a life of the host that it is for.
func (e *errand) place(life *resident) []byte { return life.regions[e.key].Memory }

// seal overwrites what has come, so that what is written from now on is seen.
func (e *errand) seal() {
	for i := range e.place(e.to) {
		e.place(e.to)[i] = 0xAA
	}
}

func (life *resident) done(c transports.Completion) {
	e := life.tasks[c.ID]
	e.sent++
	e.err, e.canceled = c.Err, errors.Is(c.Err, errTestCanceled)
	switch {
	case c.Err == nil && e.imm && e.got == 0:
		e.wrong = "its number was not told when its sender heard of it"
	case c.Err == nil && !e.imm && !bytes.Equal(e.place(e.to), e.want):
		e.wrong = "it was not there when its sender heard of it"
	}
	if c.Err == nil && !e.imm {
		e.seal()
	}
}

func (l *living) received(life *resident, c transports.Completion) {
	e := l.errands[c.Imm-1]
	switch peer, known := life.peers[e.from]; {
	case e.to != life:
		e.wrong = "it was told in another life"
	case !known || c.Peer != peer:
		e.wrong = "it was told of another sender"
	case !bytes.Equal(e.place(life), e.want):
		e.wrong = "its number came before its bytes"
	case e.canceled:
		e.wrong = "it was told after its end"
	}
	e.got++
	e.seal()
}

// check holds what must hold at the end.
func (l *living) check(t *testing.T) {
	l.checkGuards()
	for _, e := range l.errands {
		lasted := !e.from.dead && !e.to.dead
		failed := e.err != nil && !e.canceled
		switch {
		case e.wrong != "":
		case e.got > 1 || e.sent > 1:
			e.wrong = "it was told twice"
		case e.sent == 0 && !e.from.dead:
			e.wrong = "it never ended"
		case lasted && (failed || e.imm && e.got == 0 && !e.canceled):
			e.wrong = "it failed between lives that last"
		case failed && !errors.Is(e.err, transports.ErrPeerFailed):
			e.wrong = "it has another error"
		case (e.imm && e.got > 0 || !e.imm && e.sent > 0 && e.err == nil) &&
			len(bytes.Trim(e.place(e.to), "\xAA")) > 0:
			e.wrong = "bytes were written after its end"
		}
		for _, life := range e.to.host.lives {
			if life != e.to && len(bytes.Trim(e.place(life), "\x00")) > 0 {
				e.wrong = "bytes were written in another life"
			}
		}
		if e.wrong != "" {
			t.Errorf("seed %d: message %d of %d bytes %v -> %v: %s: sent %d, got %d, canceled %v, %v", l.seed,
				e.id, len(e.want), e.from, e.to, e.wrong, e.sent, e.got, e.canceled, e.err)
		}
	}
	for _, h := range l.hosts {
		life := h.life()
		for other, p := range life.peers {
			if !other.dead && life.failed[p] != nil {
				t.Errorf("seed %d: %v lost a peer that lives: %v", l.seed, life, life.failed[p])
			}
		}
		if err := life.consistent(); err != nil {
			t.Errorf("seed %d: %v: %v", l.seed, life, err)
		}
		if text := life.state(); text != "" || life.Deadline() != clock.Never {
			t.Errorf("seed %d: %v is not quiet at the end:%s", l.seed, life, text)
		}
	}
}
