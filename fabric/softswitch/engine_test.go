package softswitch

import (
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

// TestOneHop is store and forward, to the nanosecond: two serialisations and two
// delays through one switch, and a queue behind the first frame.
func TestOneHop(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}}\n"))
	r.send(1000, flow{from: 0, to: 1}, 1000)
	r.send(1000, flow{from: 0, to: 1}, 1000)
	r.drain(time.Second)
	const bits, delay = 8000, 5000 // ns at 1 Gbit/s
	want := []clock.Time{1000 + 2*(bits+delay), 1000 + 2*(bits+delay) + bits}
	if len(r.got) != 2 || r.got[0].at != want[0] || r.got[1].at != want[1] {
		t.Fatalf("arrivals %+v, want at %v", r.got, want)
	}
	if r.got[0].ttl != 63 || r.got[0].nic != 1 {
		t.Fatalf("got %+v, want one hop and node 1", r.got[0])
	}
	r.balance()
}

// TestLateNotice: after a late notice, a frame leaves at its original time if that time has not
// passed yet.
func TestLateNotice(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 50us}}\n"))
	r.engine.Advance(30_000)
	r.send(1000, flow{from: 0, to: 1}, 1000)
	r.drain(time.Second)
	if want := clock.Time(1000 + 2*(8000+50_000)); len(r.got) != 1 || r.got[0].at != want {
		t.Fatalf("arrivals %+v, want at %d", r.got, want)
	}
}

// TestIncastIsLossless: with PFC four senders into one port lose nothing in the
// fabric, are paused by real frames, and go on.
func TestIncastIsLossless(t *testing.T) {
	r := newRig(t, single(5, `
  switch: {kind: soft, buffer: 400KB, pfc: {priorities: [3]}, priorities: {26: 3}}
  links: {default: {rate: 1gbit, delay: 2us}}
nodes: {default: {nic-queue: 4MB}}
`))
	const each = 1000
	for n := range each {
		for from := range 4 {
			r.send(clock.Time(n)*8000, flow{from: from, to: 4, dscp: 26, port: uint16(from)}, 1000)
		}
	}
	r.drain(time.Minute)
	r.balance()
	pauses := uint64(0)
	for _, p := range r.engine.Ports() {
		pauses += p.Counters.PausesReceived[3]
	}
	if r.count != 4*each || r.engine.Totals().Dropped != 0 || pauses == 0 {
		t.Fatalf("%d of %d delivered, %d dropped, %d pauses; want all, none and some", r.count, 4*each,
			r.engine.Totals().Dropped, pauses)
	}
	// The receiver's link was never idle: 4000 frames of 8 us.
	if last, want := r.got[len(r.got)-1].at, clock.Time(4*each*8000); last > want+want/100 {
		t.Fatalf("the last frame arrived at %d, want about %d", last, want)
	}
}

// TestIncastDropsWithoutPFC is the same load without pauses: the shared buffer overflows and
// reports the reason.
func TestIncastDropsWithoutPFC(t *testing.T) {
	r := newRig(t, single(5, `
  switch: {kind: soft, buffer: 400KB}
  links: {default: {rate: 1gbit, delay: 2us}}
nodes: {default: {nic-queue: 4MB}}
`))
	for n := range 1000 {
		for from := range 4 {
			r.send(clock.Time(n)*8000, flow{from: from, to: 4, port: uint16(from)}, 1000)
		}
	}
	r.drain(time.Minute)
	r.balance()
	if r.dropped(Tail) == 0 || r.dropped(Tail) != r.engine.Totals().Dropped {
		t.Fatalf("%d tail drops of %d; want all of some", r.dropped(Tail), r.engine.Totals().Dropped)
	}
}

// TestMarking: a standing queue above kmax marks, and only what can be marked.
func TestMarking(t *testing.T) {
	r := newRig(t, single(3, `
  switch: {kind: soft, ecn: {kmin: 10KB, kmax: 20KB, pmax: 10%}}
  links: {default: {rate: 1gbit, delay: 2us}}
nodes: {default: {nic-queue: 4MB}}
`))
	for n := range 300 {
		r.send(clock.Time(n)*8000, flow{from: 0, to: 2, ecn: wire.ECT0}, 1000)
		r.send(clock.Time(n)*8000, flow{from: 1, to: 2, port: 1}, 1000)
	}
	r.drain(time.Minute)
	marked, spoilt := 0, 0
	for _, a := range r.got {
		if a.ecn == wire.CE {
			marked++
		}
		if a.ecn == wire.ECT1 {
			spoilt++
		}
	}
	if marked < 200 || marked > 300 || spoilt != 0 || r.count != 600 {
		t.Fatalf("%d of 300 markable packets are marked, %d spoilt, %d delivered; want most, none, 600",
			marked, spoilt, r.count)
	}
}

// TestNICOverrun: packets that a node sends faster than its link overrun its own NIC, and are no
// loss of the fabric.
func TestNICOverrun(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 100mbit}}\nnodes: "+
		"{default: {nic-queue: 20KB}}\n"))
	for range 100 {
		r.send(0, flow{from: 0, to: 1}, 1000)
	}
	r.drain(time.Second)
	r.balance()
	// One is on the line at once, and 20 wait.
	if r.dropped(NICOverrun) != 79 || r.count != 21 {
		t.Fatalf("%d dropped as nic-overrun and %d delivered, want 79 and 21", r.dropped(NICOverrun), r.count)
	}
}

// TestLinkDown: packets on the link and packets sent to it are lost. Afterwards the link works
// again.
func TestLinkDown(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 100us}}\n"))
	r.send(0, flow{from: 0, to: 1}, 1000)
	r.engine.Advance(50_000)
	if err := r.engine.SetLinkState(r.plan.Links[0].Name, false); err != nil {
		t.Fatal(err)
	}
	r.send(60_000, flow{from: 0, to: 1}, 1000)
	r.drain(time.Second)
	if r.dropped(LinkDown) != 2 || r.count != 0 {
		t.Fatalf("%d dropped and %d delivered, want 2 and none", r.dropped(LinkDown), r.count)
	}
	if err := r.engine.SetLinkState(r.plan.Links[0].Name, true); err != nil {
		t.Fatal(err)
	}
	r.send(r.engine.Now(), flow{from: 0, to: 1}, 1000)
	r.drain(time.Second)
	r.balance()
	if r.count != 1 {
		t.Fatalf("%d delivered once the link is up, want 1", r.count)
	}
}

// TestNoAllocation: with pauses, marks and observation on, a packet costs no
// memory.
func TestNoAllocation(t *testing.T) {
	seen := &counting{}
	r := newRig(t, single(5, `
  switch: {kind: soft, buffer: 300KB, pfc: {priorities: [3]}, priorities: {26: 3}, ecn: {kmin: 5KB, kmax: 50KB, pmax: 50%}}
  links: {default: {rate: 10gbit, delay: 1us}}
nodes: {default: {nic-queue: 4MB}}
`), seen)
	r.silent = true
	for i := range r.engine.PortCount() {
		r.engine.Observe(i, true)
	}
	round := func() {
		for n := range 64 {
			for from := range 4 {
				r.send(r.engine.Now().Add(time.Duration(n)*time.Microsecond),
					flow{from: from, to: 4, dscp: 26, port: uint16(from), ecn: wire.ECT0}, 1000)
			}
		}
		r.drain(time.Second)
	}
	round()
	before := r.count
	if allocated := testing.AllocsPerRun(100, round); allocated != 0 {
		t.Fatalf("%v allocations for %d packets, want none", allocated, 4*64)
	}
	if r.count-before != 101*256 || seen.marked == 0 || seen.n == 0 {
		t.Fatalf("%d packets, %d observations, %d marks: nothing was measured", r.count-before, seen.n,
			seen.marked)
	}
}

type counting struct{ n, marked int }

func (c *counting) Observe(o *Observation) {
	c.n++
	if o.Kind == Sent && o.Verdict == Marked && o.Reason == RED {
		c.marked++
	}
}

// TestReasonsAreNamed: each reason for which a part drops has a name here.
func TestReasonsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons() {
		if seen[r.String()] || r.String() == "" {
			t.Errorf("reason %d is called %q", r, r)
		}
		seen[r.String()] = true
	}
}

func BenchmarkOneHop(b *testing.B) {
	for _, bench := range []struct {
		name, settings string
		gap            clock.Time
	}{
		{"1600gbit", "  switch: {kind: soft}\n  links: {default: {rate: 1600gbit}}\n", 10},
		{"10gbit", "  switch: {kind: soft}\n  links: {default: {rate: 10gbit, delay: 2us}}\n", 200},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRig(b, single(2, bench.settings))
			r.silent = true
			at := clock.Time(0)
			template := r.frame(make([]byte, 200), flow{from: 0, to: 1}, 200)
			b.ReportAllocs()
			for b.Loop() {
				one := r.engine.Pool().Get()
				one.Data = one.Data[:copy(one.Data, template)]
				at += bench.gap
				r.engine.Receive(0, one, at)
				r.engine.Advance(at)
			}
			r.drain(time.Second)
			if r.count != uint64(b.N) {
				b.Fatalf("%d of %d delivered: %v", r.count, b.N, r.engine.Totals())
			}
		})
	}
}
