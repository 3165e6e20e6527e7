package engine

import (
	"math/big"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/testkit/privacytest"
	"railbed/transports"
	"railbed/transports/rd/privacy"
	"railbed/transports/rd/rate"
)

// TestPacerKeepsTheRate holds that no packet is ahead of an exact schedule at any
// rate, that little is lost, and that what waits goes on time.
func TestPacerKeepsTheRate(t *testing.T) {
	for _, rate := range []uint64{1_000_000, 33_333_333, 1_000_000_000, 25_000_000_000, 400_000_000_000} {
		for _, size := range []int{106, 1518, 4206} {
			p := NewPacer(rate)
			const start, packets = clock.Time(1e15), 100_000
			now := start
			p.begin(now)
			for i := range int64(packets) {
				exact := new(big.Int).Mul(big.NewInt(i*int64(size)*8), big.NewInt(1e9))
				exact.Div(exact, new(big.Int).SetUint64(rate))
				at, ok := p.take(now, now, size)
				if !ok {
					if now = at; at <= start {
						t.Fatalf("%d bit/s: wait until %v", rate, at)
					}
					if _, ok = p.take(now, now, size); !ok {
						t.Fatalf("%d bit/s: the time that it says is too early", rate)
					}
				}
				late := int64(now-start) - exact.Int64()
				if late < 0 || late > 2+i/ticks+i/1000 {
					t.Fatalf("%d bit/s, %d bytes: packet %d goes %d ns late", rate, size, i, late)
				}
			}
		}
	}
}

// TestPacerSavesNothing holds that idle time is not saved up, and that of being
// late at most 5 ms are made up for.
func TestPacerSavesNothing(t *testing.T) {
	const rate, size = 1_000_000_000, 1250 // 10 us each
	burst := func(p *Pacer, now clock.Time) (n int) {
		for ok := true; ok; n++ {
			_, ok = p.take(now, now, size)
		}
		return n - 1
	}
	p := NewPacer(rate)
	p.begin(1000)
	burst(p, 1000)
	p.end()
	p.begin(clock.Time(time.Hour))
	if n := burst(p, clock.Time(time.Hour)); n != 1 {
		t.Errorf("%d packets at once after an hour without any", n)
	}
	if n := burst(p, clock.Time(time.Hour+time.Millisecond)); n != 100 {
		t.Errorf("%d packets at once after a millisecond's delay, want 100", n)
	}
	if n := burst(p, clock.Time(2*time.Hour)); n != 501 {
		t.Errorf("%d packets at once after a long delay, want those of 5 ms and one", n)
	}
}

// TestPacerIsShared holds that engines which share a pacer keep its rate
// together, and each gets its part.
func TestPacerIsShared(t *testing.T) {
	w := newWorld(t, 1)
	const rate = 1_000_000_000
	p := NewPacer(rate)
	b := w.node()
	var began clock.Time
	bits, by := int64(0), make(map[*testNode]int64)
	w.fate = func(from, _ *testNode, data wire.RD, _ int) fate {
		if data.Type() == wire.RDData {
			size := int64(len(data)+from.config.Overhead) * 8
			if bits == 0 {
				began = w.now
			}
			if due := began.Add(time.Duration(bits)); w.now < due { // 1 ns a bit
				t.Fatalf("packet at %v, due at %v", w.now, due)
			}
			bits += size
			by[from] += size
		}
		return fate{delay: w.net.delay}
	}
	for range 3 {
		a := w.node(func(c *Config) { c.Pacer = p })
		a.add(b)
		b.add(a)
		a.skew = w.nodes[1].skew // they are of one host
		_, key := b.region(1 << 16)
		a.sends(0, key, 1<<16, 20, 2)
	}
	w.runFor(25 * time.Millisecond)
	for n, sum := range by {
		if sum < bits/4 {
			t.Errorf("%v has sent %d of %d bits", n, sum, bits)
		}
	}
	if bits < 24_000_000 {
		t.Errorf("%d bits in 25 ms at %d bit/s", bits, rate)
	}
	w.runFor(time.Second)
	if len(b.received) != 60 {
		t.Errorf("%d received", len(b.received))
	}
}

// TestNothingIsAllocated holds that packets of a transfer that runs cost no memory
// on either side.
func TestNothingIsAllocated(t *testing.T) {
	for name, secret := range map[string]*privacy.Secret{"plain": nil, "encrypted": privacytest.Secret()} {
		t.Run(name, func(t *testing.T) { nothingIsAllocated(t, secret) })
	}
}

func nothingIsAllocated(t *testing.T, secret *privacy.Secret) {
	h := &quiet{}
	h.region.Memory, h.region.Writable = make([]byte, 1<<16), true
	config := func(life uint64) Config {
		return Config{Life: life, Payload: 4096, Paths: testPaths(0, life), FirstPath: wire.PortRDPath,
			Room: 64, Pacer: NewPacer(100_000_000_000), Secret: secret,
			Control: func(transports.Peer) rate.Controller {
				return rate.NewNSCC(rate.NSCCOptions{Rate: 100_000_000_000})
			}}
	}
	a, b := New(config(1<<40+1), h), New(config(1<<41+2), h)
	a.AddPeer(Peer{Life: b.config.Life, Engines: 1, Room: 32})
	b.AddPeer(Peer{Life: a.config.Life, Engines: 1, Room: 32})
	local := make([]byte, 1<<16)
	now := clock.Time(1)
	var p Packet
	data := make([]byte, 0, 8192)
	packets := 0
	carry := func(from, to *Engine) {
		for from.Next(now, &p) {
			data = append(append(data[:0], p.Header...), p.Payload...)
			if packets++; packets%50 == 0 && !p.Control { // some are trimmed, some lost
				if data = data[:wire.RDDataLen]; packets%100 == 0 {
					continue
				}
			}
			to.Receive(now, Arrival{Data: data, Path: wire.PortRDPath})
		}
	}
	transfer := func() {
		for i := range 4 {
			m := Message{ID: uint64(i), Op: transports.OpWriteImm, Local: local}
			if taken, err := a.Post(now, 0, &m); !taken || err != nil {
				t.Fatal(taken, err)
			}
		}
		// What came last may have opened the window: then nothing waits for a moment.
		for !a.peers[0].out.idle() || a.Deadline() != clock.Never || b.Deadline() != clock.Never {
			carry(a, b)
			now += 1000
			carry(b, a)
			now += 1000
		}
	}
	for range 200 {
		transfer()
	}
	before, placed := packets, b.Counters().Received
	if n := testing.AllocsPerRun(100, transfer); n != 0 {
		t.Errorf("%v allocations for %d packets", n, (packets-before)/101)
	}
	if c := a.Counters(); b.Counters().Received-placed != 101*4*16 || c.Repeated == 0 || h.done != 301*4 {
		t.Errorf("%d completions; %+v", h.done, c)
	}
}

// quiet is a host of one region that counts.
type quiet struct {
	region Region
	done   int
}

func (h *quiet) Region(uint64) *Region          { return &h.region }
func (h *quiet) Reserve() bool                  { return true }
func (h *quiet) Deliver(transports.Completion)  {}
func (h *quiet) Complete(transports.Completion) { h.done++ }
func (h *quiet) Failed(transports.Peer, error)  {}
