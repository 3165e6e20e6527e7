package softswitch

import (
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
)

// towards is a node's link with its two directions, to the node and from it, of
// which each may be changed.
func (r *rig) towards(node int) (l *plan.Link, to, from *plan.Direction) {
	r.t.Helper()
	l = &r.plan.Links[node]
	switch r.plan.Nodes[node].Name {
	case l.A.Node:
		return l, &l.BToA, &l.AToB
	case l.B.Node:
		return l, &l.AToB, &l.BToA
	}
	r.t.Fatalf("link %s does not end at node %d", l.Name, node)
	return nil, nil, nil
}

// relink gives a link the specified settings.
func (r *rig) relink(l *plan.Link) {
	r.t.Helper()
	if err := r.engine.SetLink(l.Name, l.AToB, l.BToA); err != nil {
		r.t.Fatal(err)
	}
}

// TestFlapOutlivesOtherChanges: a direction's flaps go on as they were while the
// other one, and what else is set for it, changes more often than it falls.
// Another schedule begins when it is set.
func TestFlapOutlivesOtherChanges(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}}\n"))
	link, to, from := r.towards(1)
	const every, down = 100 * time.Millisecond, 50 * time.Millisecond
	run := func(begin clock.Time, length time.Duration, disturb func(n int)) {
		t.Helper()
		for at := begin; at < begin.Add(length); at = at.Add(time.Millisecond) {
			r.engine.Advance(at)
			before := r.count
			if since := at.Sub(begin); since%(90*time.Millisecond) == 0 && since > 0 {
				disturb(int(since / (90 * time.Millisecond)))
			}
			r.send(at, flow{from: 0, to: 1}, 1000)
			r.engine.Advance(at + 26_000)
			since := at.Sub(begin)
			if up := since < every || since%every >= down; (r.count > before) != up {
				t.Fatalf("%v after it was set, the direction is up: %t, want %t", since, r.count > before, up)
			}
		}
	}
	to.Flap = plan.Flap{Every: units.Duration(every), For: units.Duration(down)}
	r.relink(link)
	run(0, time.Second, func(n int) {
		from.Loss = units.Ratio{Num: uint64(n % 2), Den: 2}
		to.DropEvery = uint64(1000_000 + n)
		r.relink(link)
	})
	begin := clock.Time(1234 * time.Millisecond)
	r.engine.Advance(begin)
	to.Flap = plan.Flap{}
	r.relink(link)
	to.Flap = plan.Flap{Every: units.Duration(every), For: units.Duration(down)}
	r.relink(link)
	run(begin, 400*time.Millisecond, func(int) {})
	r.balance()
}

// TestQueueLimitFollowsTheLink: the queue limit of a link is the limit set last, from the next
// packet on.
func TestQueueLimitFollowsTheLink(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}, "+
		"\"h1--leaf1\": {rate: 100mbit}}\n"))
	link, to, _ := r.towards(1)
	burst := func() (lost uint64) {
		before := r.dropped(Tail)
		begin := r.engine.Now()
		for n := range 20 {
			r.send(begin+clock.Time(n*8000), flow{from: 0, to: 1}, 1000)
		}
		r.drain(time.Second)
		r.balance()
		return r.dropped(Tail) - before
	}
	if lost := burst(); lost != 0 {
		t.Fatalf("%d frames lost in a queue without a limit", lost)
	}
	// The line takes two of the 20, which come in 160 us, and 4 may wait.
	to.Queue = 4000
	r.relink(link)
	if lost := burst(); lost != 14 {
		t.Errorf("%d frames lost in a queue of 4 frames, want 14", lost)
	}
	to.Queue = 0
	r.relink(link)
	if lost := burst(); lost != 0 {
		t.Errorf("%d frames lost once the limit is gone", lost)
	}
}

// TestNoCatchUpWhereNothingMayBeLost: a frame with a late notice does not make up for the delay if
// the far end is lossless at its priority. At other priorities it does.
func TestNoCatchUpWhereNothingMayBeLost(t *testing.T) {
	for _, c := range []struct {
		dscp uint8
		want clock.Time
	}{
		{26, 30_000 + 2*(8000+50_000)}, // lossless: from when it was noticed on
		{0, 1000 + 2*(8000+50_000)},
	} {
		r := newRig(t, single(2, "  switch: {kind: soft, pfc: {priorities: [3]}, priorities: {26: 3}}\n  "+
			"links: {default: {rate: 1gbit, delay: 50us}}\n"))
		r.engine.Advance(30_000)
		r.send(1000, flow{from: 0, to: 1, dscp: c.dscp}, 1000)
		r.drain(time.Second)
		if len(r.got) != 1 || r.got[0].at != c.want {
			t.Errorf("DSCP %d: arrivals %+v, want at %d", c.dscp, r.got, c.want)
		}
	}
}

// TestCatchUpBeginsAfterAPause: a late frame makes up for the time since a pause
// ended and no more, whether the pause ran out or was taken back.
func TestCatchUpBeginsAfterAPause(t *testing.T) {
	const arrived = 480 + 5000 // of a frame of 60 bytes
	for _, c := range []struct {
		name string
		back clock.Time // when the pause is taken back; 0 is never
		ends clock.Time
	}{
		{"ran out", 0, arrived + 100*512},
		{"taken back", 20_000, 20_000 + arrived},
	} {
		r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}}\n"))
		r.pause(0, 1, quantaOf(0, 100))
		if c.back != 0 {
			r.pause(c.back, 1, quantaOf(0, 0))
		}
		r.engine.Advance(100_000)
		// It would have come to the switch at 14,000, when its port was paused.
		r.send(1000, flow{from: 0, to: 1}, 1000)
		r.drain(time.Second)
		if want := c.ends + 8000 + 5000; len(r.got) != 1 || r.got[0].at != want {
			t.Errorf("%s: arrivals %+v, want at %d", c.name, r.got, want)
		}
	}
}

// TestDuplicatesMeetFaultsOfTheirOwn: of a packet and its duplicate the next link
// loses each by its own draw, so that often one of them arrives.
func TestDuplicatesMeetFaultsOfTheirOwn(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}, "+
		"\"h0--leaf1\": {duplicate: 100%}, \"h1--leaf1\": {loss: 50%}}\n"))
	const n = 1000
	copies := map[uint64]int{} // by ordinal
	r.engine.options.Deliver = func(_ int, one *packet.Packet) {
		copies[one.Ordinal]++
		r.engine.Pool().Put(one)
	}
	for i := range n {
		r.send(clock.Time(i)*20_000, flow{from: 0, to: 1}, 1000)
	}
	r.drain(time.Second)
	r.balance()
	alone, both := 0, 0
	for _, count := range copies {
		if count == 1 {
			alone++
		} else {
			both++
		}
	}
	// A half and a quarter of the packets, with 5 standard deviations.
	if alone < 420 || alone > 580 || both < 180 || both > 320 {
		t.Errorf("of %d packets with a duplicate, one arrives of %d and both of %d; want about %d and %d", n,
			alone, both, n/2, n/4)
	}
}
