package softswitch

import (
	"strings"
	"testing"
	"time"

	"railbed/fabric/clock"
)

// ring is five switches in a ring whose every host sends to the one two switches
// further on: each link between switches is asked for twice what it carries, and
// every switch's buffer waits for the next one's.
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

// offer has every host of a ring send frames of 1,000 bytes at line rate for a
// time.
func (r *rig) offer(until time.Duration) {
	hosts := len(r.plan.Nodes)
	for at := clock.Time(0); at < clock.Time(until); at += 8000 {
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

// TestGFCStaysLive: Gentle Flow Control slows the same ring down, loses nothing
// and comes to no stop (Qian et al., SIGCOMM 2019): the links between switches go on
// at half their rate, the first stage.
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
			if lost := r.engine.Totals().Dropped; lost != 0 || r.count-before < half*9/10 || len(r.engine.Deadlocks()) != 0 {
				t.Fatalf("%d lost, %d of %d delivered in the last 100 ms, deadlocks %+v; want none, nearly all, none",
					lost, r.count-before, half, r.engine.Deadlocks())
			}
		})
	}
}
