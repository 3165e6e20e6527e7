package queuepair

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// world is two queue pairs on an invented network in virtual time. Everything in it
// follows from its seed.
type world struct {
	testing.TB
	seed   uint64
	random *rand.Rand
	now    clock.Time
	events clock.Queue[func()]
	ends   [2]*end
	net    conditions
	// fate may decide about a packet in place of the random faults.
	fate func(from *end, p infiniband.Packet) (lost bool)
	// schedule has the fates of successive packets, two bits each. After it, random faults apply.
	schedule  []byte
	scheduled int
	sent      []infiniband.Packet // if trace
	keep      bool
	receiveAt clock.Time // of the latest receive that was posted late
}

// conditions sets the rates of the network's random faults, as shares of 1.
type conditions struct {
	delay, jitter           time.Duration
	loss, twice, late, mark float64
}

// end is a queue pair and its host.
type end struct {
	*QP
	w       *world
	far     *end
	regions map[uint32]*Region
	done    []Completion
	alarm   clock.Time
}

func (e *end) Region(rkey uint32) *Region { return e.regions[rkey] }

func (e *end) Complete(c Completion) { e.done = append(e.done, c) }

const mtu = 256

func newWorld(t testing.TB, seed uint64, change ...func(*Config)) *world {
	t.Helper()
	w := &world{TB: t, seed: seed, random: rand.New(rand.NewPCG(seed, 7)),
		net: conditions{delay: 10 * time.Microsecond}}
	psn := [2]infiniband.PSN{infiniband.PSN(w.random.Uint32()) & infiniband.MaxPSN, infiniband.MaxPSN - 20}
	for i := range w.ends {
		c := Config{Number: infiniband.QPN(17 + i), Remote: infiniband.QPN(18 - i), MTU: mtu, SendPSN: psn[i],
			ReceivePSN: psn[1-i],
			Rights:     RemoteWrite | RemoteRead | RemoteAtomic, Timeout: time.Millisecond, Window: 32}
		for _, f := range change {
			f(&c)
		}
		e := &end{w: w, regions: map[uint32]*Region{}, alarm: clock.Never}
		q, err := New(c, e)
		if err != nil {
			t.Fatal(err)
		}
		e.QP, w.ends[i] = q, e
	}
	w.ends[0].far, w.ends[1].far = w.ends[1], w.ends[0]
	return w
}

// region registers memory at an end.
func (e *end) region(rkey uint32, size int, rights Rights) *Region {
	r := &Region{Base: 0x10000 + uint64(rkey)<<20, Memory: make([]byte, size), Rights: rights}
	e.regions[rkey] = r
	return r
}

// pump sends what an end has to send, and comes back when it asks for it.
func (e *end) pump() {
	for {
		memory := make([]byte, mtu+infiniband.MaxOverhead)
		n := e.Next(e.w.now, memory)
		if n == 0 {
			break
		}
		e.w.carry(e, infiniband.Packet(memory[:n]))
	}
	if at := e.Deadline(); at < e.alarm || e.alarm <= e.w.now {
		if e.alarm = at; at != clock.Never {
			e.w.events.Push(max(at, e.w.now+1), func() {
				if e.alarm == at {
					e.alarm = clock.Never
				}
				e.Expire(e.w.now)
				e.pump()
			})
		}
	}
}

func (w *world) chance(share float64) bool { return share > 0 && w.random.Float64() < share }

// carry takes a packet to the far end, with the network's random faults.
func (w *world) carry(from *end, p infiniband.Packet) {
	if !p.Valid() || p.BTH().DestQP() != from.config.Remote {
		w.Fatalf("seed %d: bad packet %x", w.seed, []byte(p))
	}
	if w.keep {
		w.sent = append(w.sent, bytes.Clone(p))
	}
	if w.fate != nil && w.fate(from, p) {
		return
	}
	scheduled := w.next()
	times := 1
	if w.chance(w.net.twice) || scheduled == twice {
		times = 2
	}
	for range times {
		if w.chance(w.net.loss) || scheduled == lost {
			continue
		}
		delay := w.net.delay
		if w.net.jitter > 0 {
			delay += time.Duration(w.random.Int64N(int64(w.net.jitter)))
		}
		if w.chance(w.net.late) || scheduled == late {
			delay += 3 * time.Millisecond
		}
		marked := w.chance(w.net.mark)
		w.events.Push(w.now.Add(delay), func() {
			from.far.Receive(w.now, p, marked)
			from.far.pump()
		})
	}
}

// Fates of packets in a schedule.
const (
	arrives = iota
	lost
	twice
	late
)

// next is the fate of the next packet in the schedule.
func (w *world) next() byte {
	at, shift := w.scheduled/4, w.scheduled%4*2
	if at >= len(w.schedule) {
		return arrives
	}
	w.scheduled++
	return w.schedule[at] >> shift & 3
}

// run does what happens for a time.
func (w *world) run(d time.Duration) {
	w.Helper()
	for _, e := range w.ends {
		e.pump()
	}
	until, count := w.now.Add(d), 0
	for w.events.Len() > 0 && w.events.Next() <= until {
		at, do := w.events.Pop()
		w.now = max(w.now, at)
		do()
		if count++; count > 5_000_000 {
			w.Fatalf("seed %d: it never becomes quiet", w.seed)
		}
	}
	w.now = until
}

func (e *end) post(r Request) {
	e.w.Helper()
	if err := e.Post(r); err != nil {
		e.w.Fatalf("seed %d: %v", e.w.seed, err)
	}
}

// pattern is bytes that depend on their place and a number.
func pattern(n, salt int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + salt*31 + 1)
	}
	return b
}

// cut is memory in pieces.
func (w *world) cut(b []byte) (pieces [][]byte) {
	for len(b) > 0 && len(pieces) < 3 {
		n := w.random.IntN(len(b) + 1)
		pieces, b = append(pieces, b[:n]), b[n:]
	}
	return append(pieces, b)
}
