package softswitch

import (
	"testing"
	"time"

	"railbed/internal/clock"
)

// TestReroute: when one of two uplinks goes down, flows use the other from that moment on. Only the
// packets on the link are lost. When the link comes back, it gets its flows back, and nothing is
// lost.
func TestReroute(t *testing.T) {
	r := newRig(t, `
name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 1}
  switch: {kind: soft}
  links: {default: {rate: 1gbit, delay: 5us}}
`)
	const gap, each = 10 * time.Microsecond, 400
	// stream sends for 4 ms, of 32 flows in turn, and returns how many came to
	// either spine.
	stream := func(during func(n int)) (spines [2]uint64) {
		before := r.received("spine1", "spine2")
		for n := range each {
			r.send(r.engine.Now(), flow{from: 0, to: 1, port: uint16(n % 32)}, 1000)
			during(n)
			r.engine.Advance(r.engine.Now().Add(gap))
		}
		r.drain(time.Second)
		after := r.received("spine1", "spine2")
		return [2]uint64{after[0] - before[0], after[1] - before[1]}
	}
	quiet := func(int) {}
	state := func(up bool) {
		if err := r.engine.SetLinkState("leaf1--spine1", up); err != nil {
			t.Fatal(err)
		}
	}
	if got := stream(quiet); got[0] < each/4 || got[1] < each/4 || got[0]+got[1] != each || r.count != each {
		t.Fatalf("the spines got %v and the node %d of %d; want all, spread", got, r.count, each)
	}

	var down clock.Time
	got := stream(func(n int) {
		onLink := r.sent("leaf1", "leaf1--spine1") - r.received("spine1")[0]
		if n >= each/2 && down == 0 && onLink > 0 {
			state(false)
			down = r.engine.Now()
		}
	})
	lost := r.dropped(LinkDown)
	// A frame takes 13 us from its first bit, and they come in steps of 10 us.
	if lost < 1 || lost > 2 || lost != r.engine.Totals().Dropped || r.count != 2*each-lost {
		t.Errorf("%d lost at the link and %d in all, %d delivered; want one or two, and all others", lost,
			r.engine.Totals().Dropped, r.count)
	}
	if got[0]+got[1]+lost != each || got[0] > each*3/8 {
		t.Errorf("the spines got %v with the first one's link down from %v on; want the second one to get "+
			"all from then on", got, down)
	}
	if got := stream(quiet); got != [2]uint64{0, each} || r.dropped(LinkDown) != lost {
		t.Errorf("with the link down the spines got %v, and %d more were lost; want all by the second", got,
			r.dropped(LinkDown)-lost)
	}

	state(true)
	if got := stream(quiet); got[0] < each/4 || got[1] < each/4 || got[0]+got[1] != each ||
		r.engine.Totals().Dropped != lost {
		t.Errorf(
			"with the link up again the spines got %v, and %d more were lost; want all, spread, and none",
			got, r.engine.Totals().Dropped-lost)
	}
	r.balance()
}

// received is how many frames came to switches.
func (r *rig) received(names ...string) (counts []uint64) {
	for _, name := range names {
		total := uint64(0)
		for _, one := range r.engine.ports {
			if one.station.name == name {
				total += one.count.Received.Packets
			}
		}
		counts = append(counts, total)
	}
	return counts
}

// sent is how many frames a switch sent to a link.
func (r *rig) sent(name, link string) uint64 {
	for _, one := range r.engine.ports {
		if one.station.name == name && one.link.plan.Name == link {
			return one.count.Sent.Packets
		}
	}
	r.t.Fatalf("%s has no link %s", name, link)
	return 0
}
