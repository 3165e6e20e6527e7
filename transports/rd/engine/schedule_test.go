package engine

import (
	"bytes"
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/testkit/hosttest"
	"railbed/transports"
	"railbed/transports/rd/path"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run only this seed of the schedules")
	seeds   = flag.Uint64("seeds", 1000, "how many schedules to run")
)

// TestSchedules runs random messages through random faults: packets are lost, duplicated, trimmed,
// damaged or overtaken. Each byte is in place before the immediate arrives and before the sender's
// completion, each of these comes once, and nothing is written afterwards.
func TestSchedules(t *testing.T) { everySeed(t, 1, schedule) }

// everySeed runs the schedules of times as many seeds as requested, and prints how to repeat a
// failed one.
func everySeed(t *testing.T, times uint64, schedule func(t *testing.T, seed uint64)) {
	first, last := uint64(1), times**seeds
	if testing.Short() {
		last = min(last, 200)
	}
	if hosttest.FewMoments() { // in CI
		last = min(last, 400)
	}
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	for seed := first; seed <= last; seed++ {
		schedule(t, seed)
		if t.Failed() {
			t.Fatalf("repeat it: go test -run '^%s$' ./transports/rd/engine -seed %d", t.Name(), seed)
		}
	}
}

// task is one message of a schedule.
type task struct {
	from, to  *testNode
	local     []byte
	place     []byte // where it goes
	imm       bool
	droppable bool
	sent, got int // completions
	canceled  bool
	wrong     bool
}

func schedule(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	r := w.random
	w.net = conditions{delay: time.Duration(r.Int64N(int64(time.Millisecond))),
		jitter: time.Duration(r.Int64N(int64(300 * time.Microsecond)))}
	if r.IntN(4) > 0 {
		w.net.loss, w.net.twice, w.net.trim, w.net.corrupt = r.Float64()*0.2, r.Float64()*0.1,
			r.Float64()*0.1, r.Float64()*0.05
	}
	if seed%2 == 0 {
		w.encrypt()
	}
	var nodes []*testNode
	for range 2 + r.IntN(2) {
		nodes = append(nodes, w.node(func(c *Config) {
			c.Room = 2 + r.IntN(200)
			c.Payload = 16 + r.IntN(600)
			if r.IntN(2) == 0 {
				c.Life |= 0xFFFFFF00_FFFFFFE0 // numbers wrap around soon
				c.Life = c.Life&^3 | uint64(len(nodes))
			}
			c.Paths, c.Grain = testPaths(path.Kind(r.IntN(len(path.Names()))), seed), 1+r.IntN(8)
			if r.IntN(3) == 0 {
				c.Pacer = NewPacer(uint64(10_000_000 + r.IntN(1_000_000_000)))
			}
		}))
	}
	var tasks []*task
	for _, a := range nodes {
		for i, b := range nodes {
			if a.add(b) != transports.Peer(i) {
				t.Fatal("peers are numbered otherwise")
			}
		}
	}
	for number := range 5 + r.IntN(60) {
		tasks = append(tasks, w.task(nodes, number))
	}
	w.run(clock.Time(2 * time.Minute)) // the slowest have 16 bytes in a packet, and two packets a round trip
	w.checkGuards()
	for i, k := range tasks {
		if k.sent != 1 || k.got != 1 && k.imm && !k.canceled || k.got > 1 || k.wrong {
			t.Errorf("seed %d: message %d of %d bytes %v -> %v: completed %d times, canceled %v, received "+
				"%d times, wrong bytes %v", seed, i, len(k.local), k.from, k.to, k.sent, k.canceled, k.got,
				k.wrong)
		}
		if (k.imm && !k.droppable || k.canceled) && len(bytes.Trim(k.place, "\xAA")) != 0 {
			t.Errorf("seed %d: message %d: bytes were written after its end", seed, i)
		}
	}
	for _, n := range nodes {
		if len(n.failed) > 0 {
			t.Errorf("seed %d: failed peers: %v", seed, n.failed)
		}
		if err := n.consistent(); err != nil {
			t.Errorf("seed %d: %v: %v", seed, n, err)
		}
		if text := n.state(); text != "" {
			t.Errorf("seed %d: %v is not done at the end:%s", seed, n, text)
		}
	}
}

// task posts a message at a random time and watches it.
func (w *world) task(nodes []*testNode, number int) *task {
	r := w.random
	from, to := r.IntN(len(nodes)), r.IntN(len(nodes))
	size := []int{0, 1, r.IntN(100), r.IntN(5000), r.IntN(100_000)}[r.IntN(5)]
	k := &task{from: nodes[from], to: nodes[to], imm: r.IntN(3) > 0, droppable: r.IntN(8) == 0,
		local: fill(make([]byte, size), number)}
	region, key := k.to.region(size + 64)
	offset := r.IntN(64)
	k.place = region.Memory[offset:][:size]
	want := bytes.Clone(k.local)
	m := Message{ID: uint64(number), Op: transports.OpWrite, Key: key, Offset: uint64(offset),
		Imm: uint32(number)}
	if k.droppable {
		m.Droppable = 1 + r.IntN(size+1)
	}
	m.Inline = size <= transports.MaxInline && r.IntN(2) == 0
	rest := k.local
	for range r.IntN(4) {
		n := r.IntN(len(rest) + 1)
		m.More, rest = append(m.More, rest[:n]), rest[n:]
	}
	m.More = append(m.More, rest)
	check := func() {
		if !k.droppable && !bytes.Equal(k.place, want) {
			k.wrong = true
		}
	}
	holes := func(c transports.Completion) {
		missing := 0
		for _, h := range c.Holes {
			missing += h.Bytes
		}
		// so many that they are not told apart
		joined := missing > c.Missing && size/k.from.config.Payload > transports.MaxHoles
		k.wrong = k.wrong || missing != c.Missing && !joined || c.Missing > m.Droppable
		at := 0
		for _, h := range append(slices.Clone(c.Holes), transports.Hole{Offset: size}) {
			if !bytes.Equal(k.place[at:h.Offset], want[at:h.Offset]) ||
				!joined && len(bytes.Trim(k.place[h.Offset:end(h)], "\x00")) > 0 {
				k.wrong = true
			}
			at = end(h)
		}
	}
	if k.imm {
		m.Op = transports.OpWriteImm
	}
	previous := k.to.onReceive
	k.to.onReceive = func(c transports.Completion) {
		if c.Imm != uint32(number) {
			if previous != nil {
				previous(c)
			}
			return
		}
		if k.got++; k.canceled {
			k.wrong = true // too late
		}
		if check(); c.Bytes+c.Missing != size || c.Missing > 0 && !k.droppable || int(c.Peer) != from {
			k.wrong = true
		}
		holes(c)
		for i := range k.place { // whatever is written now is seen
			k.place[i] = 0xAA
		}
	}
	before := k.from.onDone
	k.from.onDone = func(c transports.Completion) {
		if c.ID != uint64(number) {
			if before != nil {
				before(c)
			}
			return
		}
		k.sent++
		if k.canceled = errors.Is(c.Err, errTestCanceled); k.canceled {
			for i := range k.place {
				k.place[i] = 0xAA
			}
		} else if k.imm && k.got == 0 || c.Err != nil || c.Bytes+c.Missing != size {
			k.wrong = true
		} else if !k.imm {
			check()
		}
		clear(k.local) // the caller's again
	}
	var try func()
	try = func() {
		message, taken := k.from.postNumber(transports.Peer(to), m)
		switch {
		case !taken:
			w.at(w.now.Add(time.Millisecond), try)
		default:
			if m.Inline {
				clear(k.local)
			}
			if r.IntN(5) == 0 {
				w.at(w.now.Add(time.Duration(r.Int64N(1<<r.IntN(25)))), func() {
					k.from.cancel(transports.Peer(to), message)
				})
			}
		}
	}
	w.at(clock.Time(r.Int64N(int64(50*time.Millisecond))), try)
	return k
}
