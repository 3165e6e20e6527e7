package softswitch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/feed"
	"railbed/internal/wire"
)

// TestCountersByPriority compares the ports' counts of drops, marks and trims, by priority, with
// the receivers: with the packets of each priority's flow that are missing, marked and trimmed
// there.
func TestCountersByPriority(t *testing.T) {
	for name, ecn := range map[Reason]string{
		RED: "{kmin: 5KB, kmax: 10KB, pmax: 100%, priorities: [4, 5]}",
		ECNSharp: "{kind: ecn-sharp, target: 300us, persistent-target: 100us, interval: 500us, priorities: " +
			"[4, 5]}",
	} {
		t.Run(name.String(), func(t *testing.T) {
			r := newRig(t, single(3, "  switch: {kind: soft, buffer: 60KB, alpha: 1, ecn: "+ecn+", trim: "+
				"{size: 64B, priorities: [1, 2]}}\n"+
				"  links: {default: {rate: 100mbit, delay: 5us}, \"h2--leaf1\": {b-to-a: {loss: 5%}}}\n"+
				"nodes: {default: {nic-queue: 10KB}}\n"))
			flows := []uint8{1, 2, 4, 5, 5, 1, 2, 0, 4} // priorities
			of, length := map[uint16]uint8{}, map[uint16]int{}
			var sent, missing, marked, cut ByPriority
			for n := range 4000 {
				q := flows[n%len(flows)]
				size := 600 + 100*int(q)
				r.send(clock.Time(n)*30_000, flow{from: n % 2, to: 2, dscp: q << 3, ecn: wire.ECT0}, size)
				of[r.serial], length[r.serial] = q, size
				sent[q]++
			}
			r.drain(time.Minute)
			r.balance()
			missing = sent
			for _, a := range r.got {
				q := of[a.id]
				missing[q]--
				if a.ecn == wire.CE {
					marked[q]++
				}
				if a.length < length[a.id] {
					cut[q]++
				}
			}
			var drops, marks, trims ByPriority
			reasons := map[string]bool{}
			for _, p := range r.engine.Ports() {
				for why, counts := range p.Drops {
					reasons[why] = true
					add(&drops, counts)
				}
				for why, counts := range p.Marks {
					if why != name.String() {
						t.Errorf("%s marked for %s", p.Port, why)
					}
					add(&marks, counts)
				}
				for why, counts := range p.Trims {
					if p.Port != "leaf1:p2" || why != "tail" && why != "buffer" {
						t.Errorf("%s trimmed for %s", p.Port, why)
					}
					add(&trims, counts)
				}
			}
			// Of the marked or trimmed packets, 5 % were lost on the last link. Trimmed packets
			// have another priority there.
			cuts := missing[1] + missing[2]
			if cuts != drops[1]+drops[2]+drops[7] || drops[7] == 0 {
				t.Errorf("ports dropped %v, receivers miss %v", drops, missing)
			}
			compared, counted := missing, drops
			compared[1], compared[2], counted[1], counted[2], counted[7] = 0, 0, 0, 0, 0
			if counted != compared || !nearly(marked, marks) || !nearly(cut, trims) {
				t.Errorf("ports dropped %v, marked %v, trimmed %v; receivers miss %v, see %v marked and %v "+
					"cut", drops, marks, trims, missing, marked, cut)
			}
			for why, counts := range map[string]ByPriority{"drops": drops, "marks": marks, "trims": trims} {
				if n := met(counts); n < 2 {
					t.Errorf("%s at %d priorities: %v; want more", why, n, counts)
				}
			}
			for _, why := range []Reason{NICOverrun, Tail, Loss} {
				if !reasons[why.String()] {
					t.Errorf("nothing was dropped for %s, only for %v", why,
						slices.Sorted(maps.Keys(reasons)))
				}
			}
		})
	}
}

func add(to *ByPriority, counts ByPriority) {
	for q, n := range counts {
		to[q] += n
	}
}

// met is the number of priorities with a count.
func met(counts ByPriority) (n int) {
	for _, c := range counts {
		if c > 0 {
			n++
		}
	}
	return n
}

// nearly reports whether at each priority most of the counted packets were seen, and none were seen
// at priorities without a count.
func nearly(seen, counted ByPriority) bool {
	for q, n := range counted {
		if seen[q] > n || float64(seen[q]) < 0.85*float64(n)-3 {
			return false
		}
	}
	return true
}

// TestForeseen: what can happen at a port follows from its switch and its link.
func TestForeseen(t *testing.T) {
	p := newRig(t, single(2, "  switch: {kind: soft, buffer: 4MB, pfc: {priorities: [3]}, trim: {size: "+
		"64B, priorities: [1]}, ecn: {kmin: 1KB, kmax: 2KB, pmax: 100%, priorities: [3]}}\n"+
		"  links: {default: {rate: 1gbit}, \"h0--leaf1\": {a-to-b: {loss: 1%, bit-error-ratio: 1e-9}}}\n")).
		plan
	l := p.Links[0]
	nic, port := Foresee(p, l.A, l.AToB), Foresee(p, l.B, l.BToA)
	for _, c := range []struct {
		what string
		got  map[Reason]queue.Mask
		want map[Reason]queue.Mask
	}{
		{"drops of a NIC", nic.Drops, map[Reason]queue.Mask{LinkDown: 0xff, Loss: 0xff,
			feed.BitError: 0xff, NICOverrun: 0xff, Malformed: 1, TooBig: 1}},
		{"marks of a NIC", nic.Marks, nil},
		{"trims of a NIC", nic.Trims, nil},
		{"drops of a port", port.Drops, map[Reason]queue.Mask{
			LinkDown:    0xff,
			Tail:        0xf7,
			Headroom:    8,
			Buffer:      0xff,
			Express:     2,
			NoRoute:     0xff,
			TTLExceeded: 0xff,
			Malformed:   0xff,
			NotForUs:    0xff, TooBig: 0xff, Martian: 0xff, Unsupported: 0xff,
		}},
		{"marks of a port", port.Marks, map[Reason]queue.Mask{RED: 8}},
		{"trims of a port", port.Trims, map[Reason]queue.Mask{Tail: 2, Buffer: 2}},
	} {
		if !maps.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

// TestCopiesFindNoMemory: copies that a flood or a link cannot make are dropped by
// the port that they were for, and counted there.
func TestCopiesFindNoMemory(t *testing.T) {
	r := newRig(t, single(3, "  switch: {kind: soft, forwarding: l2}\n  links: {default: {rate: 1gbit}, "+
		"\"h0--leaf1\": {a-to-b: {duplicate: 100%}}}\n"))
	var err error
	if r.engine, err = New(r.plan, Options{Deliver: r.deliver, Memory: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	pool := r.engine.Pool()
	var taken []*packet.Packet
	for one := pool.Get(); one != nil; one = pool.Get() {
		taken = append(taken, one)
	}
	one := taken[0]
	one.Data = r.frame(one.Data, flow{from: 0, to: 1}, 200)
	copy(one.Data, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) // to both others
	r.engine.Receive(0, one, 0)
	r.drain(time.Second)
	if len(r.got) != 1 || r.dropped(Memory) != 2 {
		t.Errorf("%d frames arrived, %d copies dropped, want 1 and 2: %v", len(r.got), r.dropped(Memory),
			r.drops())
	}
	r.unforeseen()
	for _, one := range taken[1:] {
		pool.Put(one)
	}
	r.balance()
}
