package softswitch

import (
	"math/rand/v2"
	"testing"
	"time"

	"railbed/fabric/softswitch/queue"
	"railbed/internal/clock"
	"railbed/internal/wire"
)

// pause has a node send a PFC frame at a time.
func (r *rig) pause(at clock.Time, from int, fields wire.PFCFields) {
	r.t.Helper()
	one := r.engine.Pool().Get()
	if one == nil {
		r.t.Fatal("no packet memory")
	}
	one.Data = one.Data[:wire.EncodePFCFrame(one.Data, wire.MAC{2, 9}, &fields)]
	r.engine.Receive(from, one, at)
}

// quantaOf requests a pause of one priority.
func quantaOf(priority uint8, quanta uint16) wire.PFCFields {
	fields := wire.PFCFields{Enable: 1 << priority}
	fields.Quanta[priority] = quanta
	return fields
}

// TestPauseCountsOwnBitTimes: over a link with another rate in each direction, a pause quantum is
// the time in which the paused port sends 512 bits (IEEE 802.3, annex 31B.2). This holds for both
// ends.
func TestPauseCountsOwnBitTimes(t *testing.T) {
	const quanta, up, down = 1000, 1e9, 100e6 // of the node, of the switch
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}}\n"))
	link, toNode, toSwitch := r.towards(0)
	toNode.Rate, toSwitch.Rate = down, up
	r.relink(link)
	// The node's frame of 60 bytes pauses the switch, whose bits take 10 ns.
	r.pause(0, 0, quantaOf(0, quanta))
	r.send(0, flow{from: 1, to: 0}, 1000)
	r.drain(time.Second)
	const arrived = 480 + 5000
	if want := clock.Time(arrived + quanta*512*10 + 80_000 + 5000); len(r.got) != 1 || r.got[0].at != want {
		t.Errorf("arrivals %+v, want one at %d", r.got, want)
	}
	// A frame of the switch pauses the NIC, whose bits take 1 ns.
	nic := r.engine.nics[0].ports[0]
	nic.honourPause(0, quanta)
	begin := r.engine.Now()
	r.send(begin, flow{from: 0, to: 1}, 1000)
	r.drain(time.Second)
	if want := begin + quanta*512 + 2*(8000+5000); len(r.got) != 2 || r.got[1].at != want {
		t.Errorf("arrivals %+v, want the second at %d", r.got, want)
	}
	r.balance()
}

// TestForgedPausesAreBounded: however many pauses arrive, and whatever the order of their ends, a
// port has one event for all of them. No pause costs memory, and every pause holds until its own
// end.
func TestForgedPausesAreBounded(t *testing.T) {
	r := newRig(t, single(2, "  switch: {kind: soft}\n  links: {default: {rate: 1gbit, delay: 5us}}\n"))
	r.silent = true
	at := r.engine.nics[0].ports[0].far
	random := rand.New(rand.NewPCG(1, 5))
	var ends [queue.Priorities]clock.Time // as the frames specify
	most, ended, shortened := 0, 0, 0
	check := func() {
		t.Helper()
		now, events := r.engine.Now(), 0
		for i := range r.engine.events.heap {
			if e := &r.engine.events.heap[i]; e.kind == pauseEnds && e.port == int32(at.index) {
				events++
			}
		}
		most = max(most, len(r.engine.events.heap))
		for q, end := range ends {
			if paused := at.egress.Paused().Has(uint8(q)); paused != (end > now) {
				t.Fatalf("at %d priority %d is paused: %t, and its pause ends at %d", now, q, paused, end)
			}
			if end > now && events != 1 {
				t.Fatalf("%d events for the ends of the port's pauses", events)
			}
		}
	}
	for n := range 20_000 {
		// Each pause that is shorter than the one before ends before what is planned.
		fields := wire.PFCFields{Enable: uint8(random.UintN(256))}
		for q := range fields.Quanta {
			switch random.IntN(4) {
			case 0:
				fields.Quanta[q] = uint16(random.UintN(65536))
			case 1:
				fields.Quanta[q] = uint16(random.UintN(20))
			case 2:
				fields.Quanta[q] = uint16(60_000 - 100*(n%600))
			}
		}
		begin := r.engine.Now()
		r.pause(begin, 0, fields)
		r.engine.Advance(begin + 480 + 5000) // it has arrived
		for q := range ends {
			if fields.Enable>>q&1 == 0 {
				continue
			}
			end := r.engine.Now() + clock.Time(fields.Quanta[q])*512
			if fields.Quanta[q] == 0 {
				end = 0
			}
			if ends[q] > end && end > r.engine.Now() {
				shortened++
			}
			ends[q] = end
		}
		check()
		for range random.IntN(4) {
			before := at.egress.Paused()
			r.engine.Advance(r.engine.Now().Add(time.Duration(random.IntN(1_000_000))))
			if at.egress.Paused() != before {
				ended++
			}
			check()
		}
	}
	if most > 4*len(r.engine.ports) || ended < 1000 || shortened < 1000 {
		t.Errorf("%d events at most; %d pauses ended and %d were shortened", most, ended, shortened)
	}
	quanta := uint16(60_000)
	if allocated := testing.AllocsPerRun(1000, func() {
		quanta -= 40 // each ends before the one before
		begin := r.engine.Now()
		r.pause(begin, 0, quantaOf(3, quanta))
		r.engine.Advance(begin + 480 + 5000)
	}); allocated != 0 {
		t.Errorf("%v allocations for a forged pause", allocated)
	}
	if planned := len(r.engine.events.heap); planned > 4*len(r.engine.ports) {
		t.Errorf("%d events are planned for %d ports", planned, len(r.engine.ports))
	}
	r.drain(time.Minute)
	if at.egress.Paused() != 0 || r.engine.events.next() != clock.Never {
		t.Errorf("paused %b, next event at %d: it never ends", at.egress.Paused(), r.engine.events.next())
	}
	r.balance()
}
