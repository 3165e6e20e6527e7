package rocechecks

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"railbed/capture/verify/evidence"
	"railbed/internal/clock"
	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan/spec"
	"railbed/testkit/verifytest"
	"railbed/transports/roce/dcqcn"
	"railbed/transports/roce/queuepair"
)

// queuePairs are two ends of a connection as the endpoint has them, on an invented
// network in virtual time, which is recorded at both NICs.
type queuePairs struct {
	*verifytest.Scene
	random           *rand.Rand
	time             clock.Time
	events           clock.Queue[func()]
	ends             [2]*pairEnd
	loss, late, mark float64 // shares of all packets
}

// pairEnd is an end. It is its queue pair's host.
type pairEnd struct {
	*queuepair.QP
	world  *queuePairs
	rank   evidence.Rank
	far    *pairEnd
	memory *queuepair.Region
	alarm  clock.Time
	done   int
}

// Region implements queuepair.Host.
func (e *pairEnd) Region(uint32) *queuepair.Region { return e.memory }

// Complete implements queuepair.Host.
func (e *pairEnd) Complete(c queuepair.Completion) {
	if c.Err != nil {
		e.world.T.Fatalf("%v: %v", c.Op, c.Err)
	}
	e.done++
}

// newQueuePairs connects two hosts of different leaves.
func newQueuePairs(t testing.TB, seed uint64, change func(*queuepair.Config)) *queuePairs {
	s := verifytest.NewScene(t)
	s.Snap = 9000
	s.RDRanks(4)
	w := &queuePairs{Scene: s, random: rand.New(rand.NewPCG(seed, 5))}
	for i := range w.ends {
		c := queuepair.Config{
			Number:     infiniband.QPN(0x11 + i),
			Remote:     infiniband.QPN(0x12 - i),
			MTU:        1024,
			SendPSN:    infiniband.MaxPSN.Add(-20 - 4000*i),
			ReceivePSN: infiniband.MaxPSN.Add(-4020 + 4000*i),
			Rights:     queuepair.RemoteWrite | queuepair.RemoteRead | queuepair.RemoteAtomic,
			Timeout:    time.Millisecond,
		}
		change(&c)
		e := &pairEnd{world: w, rank: s.Workload.Ranks[2*i],
			memory: &queuepair.Region{Base: 0x10000, Memory: make([]byte, 1<<20), Rights: c.Rights},
			alarm:  clock.Never}
		q, err := queuepair.New(c, e)
		if err != nil {
			t.Fatal(err)
		}
		e.QP, w.ends[i] = q, e
	}
	w.ends[0].far, w.ends[1].far = w.ends[1], w.ends[0]
	return w
}

// pump sends what an end has to send, and comes back when it asks for it.
func (e *pairEnd) pump() {
	for {
		p := make(infiniband.Packet, 1024+infiniband.MaxOverhead)
		n := e.Next(e.world.time, p)
		if n == 0 {
			break
		}
		e.world.carry(e, p[:n:n])
	}
	if at := e.Deadline(); at < e.alarm || e.alarm <= e.world.time {
		if e.alarm = at; at != clock.Never {
			e.world.events.Push(max(at, e.world.time+1), func() {
				e.alarm = clock.Never
				e.Expire(e.world.time)
				e.pump()
			})
		}
	}
}

// see records a frame at a NIC.
func (w *queuePairs) see(e *pairEnd, out bool, frame []byte) {
	w.Now = verifytest.Start + int64(w.time)
	w.Sightings = append(w.Sightings,
		verifytest.Sighting{Tap: e.rank.Node + ":" + e.rank.NIC, Out: out, Time: w.Now, ID: w.IDs,
			Frame:  frame,
			Length: len(frame)})
}

// carry takes a packet to the far end, in 10 us.
func (w *queuePairs) carry(from *pairEnd, p infiniband.Packet) {
	w.IDs++
	o := p.Opcode()
	ecn := wire.ECT0
	if o.Response() || o == infiniband.CNP {
		ecn = wire.NotECT
	}
	frame := w.UDPFrame(verifytest.TCP{Src: verifytest.AddrPort(from.rank, 0xC001),
		Dst:      verifytest.AddrPort(from.far.rank, infiniband.Port),
		Datagram: p, TOS: uint8(ecn)}, 64, [6]byte{2, 1}, [6]byte{2, 2})
	w.see(from, true, frame)
	if w.random.Float64() < w.loss {
		return
	}
	delay := 10 * time.Microsecond
	if w.random.Float64() < w.late {
		delay += 200 * time.Microsecond
	}
	marked := ecn == wire.ECT0 && w.random.Float64() < w.mark
	id := w.IDs
	w.events.Push(w.time.Add(delay), func() {
		if marked {
			frame = bytes.Clone(frame)
			wire.IPv4(frame[wire.EthernetLen:]).RewriteECN(wire.CE)
		}
		ids := w.IDs
		w.IDs = id
		w.see(from.far, false, frame)
		w.IDs = ids
		from.far.Receive(w.time, p, marked)
		from.far.pump()
	})
}

// run does what happens for a time.
func (w *queuePairs) run(d time.Duration) {
	for _, e := range w.ends {
		e.pump()
	}
	until := w.time.Add(d)
	for w.events.Len() > 0 && w.events.Next() <= until {
		at, do := w.events.Pop()
		w.time = max(w.time, at)
		do()
	}
	w.time = until
	w.Now = verifytest.Start + int64(until)
}

// work posts a bit of everything, from both ends.
func (w *queuePairs) work(rounds int) (requests int) {
	w.T.Helper()
	for i := range rounds {
		for n, e := range w.ends {
			size := []int{1, 1024, 5000, 9999}[(i+n)%4]
			for _, r := range []queuepair.Request{
				{Op: queuepair.Write, Local: [][]byte{make([]byte, size)}},
				{Op: queuepair.Read, Local: [][]byte{make([]byte, size)}},
				{Op: queuepair.Write, Local: [][]byte{make([]byte, 100), make([]byte, 3000)}},
				{Op: queuepair.FetchAdd, Operand: 1},
			} {
				r.Address, r.RKey = 0x10000, 7
				if err := e.Post(r); err != nil {
					w.T.Fatal(err)
				}
				requests++
			}
		}
	}
	return requests
}

// The endpoint's queue pairs follow every rule that they claim to follow, through loss and
// reordering. They violate the rule that selective repeat breaks.
func TestRoCEOfQueuePairs(t *testing.T) {
	for _, c := range []struct {
		name       string
		loss, late float64
		selective  bool
		goBack     verdict.Verdict
		says       string
	}{
		{"nothing is lost", 0, 0, false, unclear, "NOT-APPLICABLE"},
		{"loss", 0.02, 0, false, pass, "NAKs"},
		{"reordering", 0, 0.02, false, pass, "NAKs"},
		{"both", 0.02, 0.02, false, pass, "NAKs"},
		{"both, and selective repeat", 0.02, 0.02, true, fail, "left out of a retransmission"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newQueuePairs(t, 1, func(config *queuepair.Config) { config.Selective = c.selective })
			w.loss, w.late = c.loss, c.late
			requests := w.work(40)
			w.run(500 * time.Millisecond)
			if done := w.ends[0].done + w.ends[1].done; done != requests {
				t.Fatalf("%d of %d requests are done", done, requests)
			}
			results, _ := w.Scene.Run(rules(t, roceRules[:5]...)...)
			for i, r := range results {
				switch {
				case roceRules[i] == spec.RoCERuleGoBack:
					verifytest.Wants(t, r, c.goBack, c.says)
				case r.Verdict != pass:
					t.Errorf("want PASS: %v", r)
				}
			}
			resent := w.ends[0].Counters().Resent + w.ends[1].Counters().Resent
			if again := results[1].Measured["again"]; again != float64(resent) {
				t.Errorf("%v requests were sent again, the queue pairs counted %d", again, resent)
			}
		})
	}
}

// With DCQCN each mark is answered by a CNP, and the sender that receives CNPs slows down.
func TestRoCEOfQueuePairsWithDCQCN(t *testing.T) {
	w := newQueuePairs(t, 2, func(config *queuepair.Config) { config.Congestion = &dcqcn.Params{Line: 1e9} })
	for range 60 {
		if err := w.ends[0].Post(queuepair.Request{Op: queuepair.Write, Local: [][]byte{make([]byte, 20_000)},
			Address: 0x10000, RKey: 7}); err != nil {
			t.Fatal(err)
		}
	}
	w.run(2 * time.Millisecond)
	for range 4 { // a mark or more, and time to come back
		w.mark = 0.5
		w.run(100 * time.Microsecond)
		w.mark = 0
		w.run(2 * time.Millisecond)
	}
	results, _ := w.Scene.Run(rules(t, roceRules...)...)
	for i, r := range results {
		want := pass
		if roceRules[i] == spec.RoCERuleGoBack {
			want = unclear
		}
		if r.Verdict != want {
			t.Errorf("want %s: %v", want, r)
		}
	}
	if m := results[5].Measured; m["cnps"] != float64(w.ends[1].Counters().CNPsSent) || m["heard"] < 4 ||
		m["heard"] != m["marked"] {
		t.Errorf("%v, and the queue pair counted %+v", m, w.ends[1].Counters())
	}
	if m := results[6].Measured; m["slower"] < 2 || m["rest"] > 0.95 {
		t.Errorf("%v", m)
	}
}
