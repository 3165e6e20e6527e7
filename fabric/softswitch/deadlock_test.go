package softswitch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

// ring is five switches in a ring. Every host sends to the host two switches further on. So the
// load of each link between switches is twice its rate, and every switch's buffer waits for the
// next switch's.
func ring(flowControl string) string {
	return `
name: t
fabric:
  topology: torus
  params: {x: 5}
  switch: {kind: soft, buffer: 600KB, priorities: {26: 3}, ` + flowControl + `}
  links: {default: {rate: 1gbit, delay: 5us}}
nodes: {default: {nic-queue: 64MB}}
`
}

// offer has every host of a ring send frames of 1,000 bytes at line rate, from now
// until a time.
func (r *rig) offer(until time.Duration) {
	hosts := len(r.plan.Nodes)
	for at := r.engine.Now(); at < clock.Time(until); at += 8000 {
		for from := range hosts {
			r.send(at, flow{from: from, to: (from + 2) % hosts, dscp: 26}, 1000)
		}
		r.engine.Advance(at)
	}
}

// TestPFCDeadlock: a ring whose buffers wait for each other comes to a stop, and
// the detector names the ports. Without the pauses nothing stops, and nothing is
// called a deadlock.
func TestPFCDeadlock(t *testing.T) {
	r := newRig(t, ring("pfc: {priorities: [3]}"))
	r.offer(50 * time.Millisecond)
	stalled := r.count
	r.engine.Advance(r.engine.Now().Add(100 * time.Millisecond))
	r.balance()
	found := r.engine.Deadlocks()
	if len(found) != 1 || len(found[0].Ports) != 5 || found[0].Priority != 3 || found[0].Over {
		t.Fatalf("found %+v; want one deadlock of five ports at priority 3", found)
	}
	for _, name := range found[0].Ports {
		if !strings.HasPrefix(name, "s") {
			t.Errorf("port %s is on the cycle, want ports of switches", name)
		}
	}
	if r.count != stalled || r.engine.Held() == 0 {
		t.Fatalf("%d more frames arrived in a deadlock, %d are held", r.count-stalled, r.engine.Held())
	}

	free := newRig(t, ring(""))
	free.offer(50 * time.Millisecond)
	free.engine.Advance(free.engine.Now().Add(100 * time.Millisecond))
	free.balance()
	if d := free.engine.Deadlocks(); len(d) != 0 || free.count == 0 {
		t.Fatalf("without pauses: deadlocks %+v, %d delivered", d, free.count)
	}
}

// twoRings is a ring of switches with two hosts each, one of which sends forward and the other
// backward, at priorities 3 and 4. This gives four rings of queues without a common queue.
const twoRings = `
name: t
fabric:
  topology: torus
  params: {x: 5, hosts-per-switch: 2}
  switch: {kind: soft, buffer: 2MB, priorities: {26: 3, 34: 4}, pfc: {priorities: [3, 4]}}
  links: {default: {rate: 1gbit, delay: 5us}}
nodes: {default: {nic-queue: 64MB}}
`

// frozen are two rings that have come to a stop.
func frozen(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, twoRings)
	r.silent = true
	for n := range 8000 {
		at, dscp := clock.Time(n*8000), uint8(26+8*(n%2))
		for host := range 10 {
			there := 4 - 8*(host%2) // two switches further on
			r.send(at, flow{from: host, to: (host + there + 10) % 10, dscp: dscp}, 1000)
		}
		r.engine.Advance(at)
	}
	return r
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) { r.engine.Advance(r.engine.Now().Add(d)) }

// nudge has the ports between switches send something at a priority that is
// paused: a frame comes that ends the pause, and soon another that pauses again.
func (r *rig) nudge(priority uint8) {
	for _, quanta := range []uint16{0, wire.MaxQuanta} {
		for _, p := range r.engine.ports {
			if p.station.nic || p.far.station.nic {
				continue
			}
			one, fields := r.engine.Pool().Get(), quantaOf(priority, quanta)
			r.engine.totals.Made++
			one.Data = one.Data[:wire.EncodePFCFrame(one.Data, p.far.mac, &fields)]
			one.Parse()
			p.arrive(one, p.link.epoch)
		}
		r.engine.settle()
		r.pass(time.Microsecond) // less than a frame takes
	}
}

// TestEveryDeadlockIsNamed: of rings that stand at once, each direction and each
// priority is found, once, however often the detector looks.
func TestEveryDeadlockIsNamed(t *testing.T) {
	r := frozen(t)
	r.pass(100 * time.Millisecond)
	stalled := r.count
	for range 100 {
		found := r.engine.Deadlocks()
		if len(found) != 4 || r.engine.DeadlockCount() != 4 {
			t.Fatalf("%d deadlocks, %d listed: %+v; want 4", r.engine.DeadlockCount(), len(found), found)
		}
		seen := map[string]bool{}
		for _, d := range found {
			if len(d.Ports) != 5 || d.Over {
				t.Errorf("%+v: want five ports that stand still", d)
			}
			for _, name := range d.Ports {
				at := fmt.Sprintf("%s at %d", name, d.Priority)
				if seen[at] {
					t.Errorf("%s is on two cycles", at)
				}
				seen[at] = true
			}
		}
		r.pass(9 * time.Millisecond)
	}
	if r.count != stalled {
		t.Errorf("%d frames arrived meanwhile", r.count-stalled)
	}
	r.balance()
}

// TestDeadlockIsOver: once a link of the cycle goes down, the port before it sends again when its
// pause has run out, and the deadlock is over. A ring that stops again is another deadlock.
func TestDeadlockIsOver(t *testing.T) {
	r := newRig(t, ring("pfc: {priorities: [3]}"))
	r.silent = true
	r.offer(50 * time.Millisecond)
	r.pass(100 * time.Millisecond)
	found := r.engine.Deadlocks()
	if len(found) != 1 || found[0].Over {
		t.Fatalf("found %+v; want one that stands", found)
	}
	first, _, _ := strings.Cut(found[0].Ports[0], ":")
	second, _, _ := strings.Cut(found[0].Ports[1], ":")
	for _, up := range []bool{false, true} {
		for _, l := range r.plan.Links {
			if l.A.Node == first && l.B.Node == second || l.A.Node == second && l.B.Node == first {
				if err := r.engine.SetLinkState(l.Name, up); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.pass(100 * time.Millisecond)
	}
	if found = r.engine.Deadlocks(); len(found) != 1 || !found[0].Over || r.engine.DeadlockCount() != 1 {
		t.Fatalf("found %+v; want one that is over", found)
	}
	r.drain(time.Minute)
	begin := r.engine.Now()
	r.offer(time.Duration(begin) + 50*time.Millisecond)
	r.pass(100 * time.Millisecond)
	found = r.engine.Deadlocks()
	if len(found) != 2 || !found[0].Over || found[1].Over || found[1].Since < begin {
		t.Fatalf("found %+v; want one that is over, and one that stands since %d or later", found, begin)
	}
	r.balance()
}

// TestDeadlockIsOverOncePausesAre: a port that may send but cannot yet, because its line carries
// another frame, waits for no other port.
func TestDeadlockIsOverOncePausesAre(t *testing.T) {
	r := newRig(t, ring("pfc: {priorities: [3]}"))
	r.silent = true
	r.offer(50 * time.Millisecond)
	r.pass(100 * time.Millisecond)
	e := r.engine
	if len(e.watch.suspects) != 1 || e.watch.suspects[0].number != 1 {
		t.Fatalf("%+v: want one deadlock", e.watch.suspects)
	}
	at := e.ports[e.watch.suspects[0].places[2]]
	look := e.events.heap[slices.IndexFunc(e.events.heap, func(one event) bool {
		return one.kind == looks
	})].at
	e.Advance(look - 4000)
	other := e.Pool().Get()
	e.totals.Made++
	other.Data = r.frame(other.Data, flow{from: 0, to: 1}, 1000) // 8 us
	other.Parse()
	at.offer(other)
	sent := at.count.SentByPriority[3]
	at.honourPause(3, 0)
	e.Advance(look)
	if found := e.Deadlocks(); len(found) != 1 || !found[0].Over || at.count.SentByPriority[3] != sent {
		t.Errorf("found %+v, %d sent; want one that is over, and nothing", found,
			at.count.SentByPriority[3]-sent)
	}
	r.pass(100 * time.Millisecond)
	r.balance()
}

// TestWhatSendsIsNoDeadlock: ports that wait for each other whenever the detector
// looks, and have sent something in between, are none.
func TestWhatSendsIsNoDeadlock(t *testing.T) {
	r := newRig(t, ring("pfc: {priorities: [3]}"))
	r.silent = true
	suspected := 0
	for ms := range 100 {
		r.offer(time.Duration(ms) * time.Millisecond)
		r.nudge(3)
		if len(r.engine.watch.suspects) > 0 {
			suspected++
		}
	}
	if found := r.engine.Deadlocks(); len(found) != 0 || suspected < 30 {
		t.Fatalf("found %+v after %d ms of cycles that move", found, suspected)
	}
	r.pass(30 * time.Millisecond)
	if found := r.engine.Deadlocks(); len(found) != 1 {
		t.Fatalf("found %+v when they stand; want one", found)
	}
	r.balance()
}

// TestManyDeadlocks: each detected deadlock is counted. The latest are recorded, and so are all
// that persist.
func TestManyDeadlocks(t *testing.T) {
	r := frozen(t)
	r.pass(100 * time.Millisecond)
	const nudges = 20
	for range nudges {
		r.nudge(3)
		r.pass(30 * time.Millisecond)
	}
	found := r.engine.Deadlocks()
	if want := uint64(4 + 2*nudges); len(found) != maxDeadlocks || r.engine.DeadlockCount() != want {
		t.Fatalf("%d deadlocks, %d listed; want %d, the latest %d", r.engine.DeadlockCount(), len(found),
			want, maxDeadlocks)
	}
	latest := r.engine.Now().Add(-50 * time.Millisecond)
	for i, d := range found {
		// The first two stand at priority 4, the last two at 3.
		first, last := i < 2, i >= maxDeadlocks-2
		if d.Over == (first || last) || (d.Priority == 4) != first || (d.Since > latest) != last {
			t.Errorf("place %d: %+v", i, d)
		}
	}
	r.balance()
}

// TestGFCStaysLive: Gentle Flow Control slows the same ring down, loses nothing and does not stop
// (Qian et al., SIGCOMM 2019). The links between switches continue at half their rate, the first
// stage.
func TestGFCStaysLive(t *testing.T) {
	for _, kind := range []string{"buffer", "time"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, ring("gfc: {kind: "+kind+", priorities: [3]}"))
			r.offer(50 * time.Millisecond)
			before := r.count
			r.engine.Advance(r.engine.Now().Add(100 * time.Millisecond))
			r.balance()
			// Five links of 1 Gbit/s carry frames of 1,000 bytes over two links each.
			const half = 5 * 125_000 * 100 / 1000 / 2 / 2
			if lost := r.engine.Totals().Dropped; lost != 0 || r.count-before < half*9/10 ||
				len(r.engine.Deadlocks()) != 0 {
				t.Fatalf("%d lost, %d of %d delivered in the last 100 ms, deadlocks %+v; want none, nearly "+
					"all, none",
					lost, r.count-before, half, r.engine.Deadlocks())
			}
		})
	}
}
