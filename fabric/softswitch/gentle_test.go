package softswitch

import (
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
)

// The values of PROTOCOL.md, section 1.1, for messages at 1 Gbit/s: the shortest interval between
// two messages, and the validity of a rate.
const (
	interval = 1024 * 512 * time.Nanosecond
	holds    = 65535 * 512 * time.Nanosecond
)

// gentleRig is a switch with two senders, h0 and h1, and h2 that receives.
func gentleRig(t *testing.T, kind, link string) *rig { return newRig(t, gentleFile(kind, link)) }

func gentleFile(kind, link string) string {
	return single(3, `
  switch: {kind: soft, gfc: {kind: `+kind+`, priorities: [3]}, priorities: {26: 3}}
  links: {default: {rate: 1gbit, delay: 2us`+link+`}}
nodes: {default: {nic-queue: 16MB}}
`)
}

// run lets a time pass.
func (r *rig) run(d time.Duration) { r.engine.Advance(r.engine.Now().Add(d)) }

// incast has both senders send at their full rate for a time.
func (r *rig) incast(d time.Duration) {
	for end := r.engine.Now().Add(d); r.engine.Now() < end; r.run(8 * time.Microsecond) {
		for from := range 2 {
			r.send(r.engine.Now(), flow{from: from, to: 2, dscp: 26}, 1000)
		}
	}
}

// slow is the rate that a sender's NIC is kept below the line's at, or 0.
func (r *rig) slow(nic int) units.Rate { return r.engine.nics[nic].ports[0].egress.Rate(3) }

// told returns the number of messages sent to a sender's NIC.
func (r *rig) told(nic int) uint64 { return r.engine.switches[0].ports[nic].count.SentByPriority[7] }

// released runs until the switch has given the second sender the whole rate.
func (r *rig) released() {
	r.t.Helper()
	for range 10_000 {
		if _, stage := r.engine.switches[0].memory.Asked(1, 3); stage == 0 {
			return
		}
		r.run(time.Microsecond)
	}
	r.t.Fatal("the sender is never given the whole rate")
}

// deafen drops all messages of the switch to the second sender, or none.
func (r *rig) deafen(on bool) {
	r.t.Helper()
	toNIC := r.plan.Links[1].BToA
	if on {
		toNIC.Loss = units.Ratio{Num: 1, Den: 1}
	}
	if err := r.engine.SetLink(r.plan.Links[1].Name, r.plan.Links[1].AToB, toNIC); err != nil {
		r.t.Fatal(err)
	}
}

var gentleKinds = []string{"buffer", "time"}

// TestRatesAreToldWhenALinkComesUp: a link goes down while a sender is slowed, and
// everything drains meanwhile. Once the link is up, the sender has its rate at once.
func TestRatesAreToldWhenALinkComesUp(t *testing.T) {
	for _, kind := range gentleKinds {
		for _, outage := range []time.Duration{20 * interval, time.Second} {
			r := gentleRig(t, kind, "")
			r.incast(2 * time.Millisecond)
			if r.slow(1) == 0 {
				t.Fatalf("%s: an incast slows nobody", kind)
			}
			state := func(up bool) {
				if err := r.engine.SetLinkState(r.plan.Links[1].Name, up); err != nil {
					t.Fatal(err)
				}
			}
			state(false)
			r.released()
			r.run(outage)
			if outage < holds && r.slow(1) == 0 {
				t.Fatalf("%s: the message came over a link that is down", kind)
			}
			state(true)
			if r.run(20 * time.Microsecond); r.slow(1) != 0 {
				t.Errorf("%s: the sender is at %v with nothing queued, 20us after an outage of %v", kind,
					r.slow(1), outage)
			}
			r.balance()
		}
	}
}

// TestLostRatesAreToldAgain: messages are lost on a link that is up. The message that allows the
// whole rate is repeated after 1, 2 and 4 intervals. If all four are lost, the lower rate expires
// at the sender.
func TestLostRatesAreToldAgain(t *testing.T) {
	for _, kind := range gentleKinds {
		for name, c := range map[string]struct{ deaf, full time.Duration }{
			"all but the last are": {4 * interval, 8 * interval},
			"all are lost":         {9 * interval, holds},
		} {
			r := gentleRig(t, kind, "")
			r.incast(2 * time.Millisecond)
			r.deafen(true)
			r.released()
			start := r.engine.Now()
			r.run(c.deaf)
			if r.deafen(false); r.slow(1) == 0 {
				t.Fatalf("%s, %s: it came over a link that loses everything", kind, name)
			}
			if c.full == holds {
				if r.run(4 * interval); r.slow(1) == 0 {
					t.Fatalf("%s, %s: there was one more", kind, name)
				}
			}
			r.engine.Advance(start.Add(c.full))
			if r.slow(1) != 0 {
				t.Errorf("%s, %s: the sender is at %v after %v", kind, name, r.slow(1), c.full)
			}
			r.balance()
		}
	}
}

// TestRatesHold: if hardly anything leaves (a frame of each sender in the time for which two
// messages hold), senders stay slowed and nothing is lost. They get messages every 8 intervals and
// after changes. Once all frames have left, no more messages are sent.
func TestRatesHold(t *testing.T) {
	for kind, every := range map[string]time.Duration{"buffer": 8 * interval,
		"time": interval * 65535 / 65536} {
		r := gentleRig(t, kind, "")
		out := r.engine.switches[0].ports[2]
		out.egress.Limit(r.engine.Now(), 3, 250e3) // the last stage is 122 kbit/s
		r.incast(5 * time.Millisecond)
		for range 50 {
			if r.slow(0) == 0 || r.slow(1) == 0 {
				t.Fatalf("%s: at %v the senders are at %v and %v, and hardly anything leaves", kind,
					r.engine.Now(), r.slow(0), r.slow(1))
			}
			r.run(10 * time.Millisecond)
		}
		before := r.told(1)
		r.run(200 * time.Millisecond)
		if got, most := r.told(1)-before, uint64(200*time.Millisecond/every)+1; got < most/2 || got > 2*most {
			t.Errorf("%s: %d messages in 200 ms, want about %d", kind, got, most)
		}
		out.egress.Limit(r.engine.Now(), 3, 0)
		out.kick()
		r.run(100 * time.Millisecond)
		if r.count != r.engine.Totals().Received || r.engine.Totals().Dropped != 0 || r.slow(0) != 0 ||
			r.slow(1) != 0 {
			t.Fatalf("%s: %d of %d delivered, %d lost, the senders are at %v and %v; want all, at the "+
				"whole rate",
				kind, r.count, r.engine.Totals().Received, r.engine.Totals().Dropped, r.slow(0), r.slow(1))
		}
		before = r.told(0) + r.told(1) + r.told(2)
		if r.run(time.Second); r.told(0)+r.told(1)+r.told(2) != before {
			t.Errorf("%s: %d messages, and nothing is slowed", kind, r.told(0)+r.told(1)+r.told(2)-before)
		}
		if r.told(2) != 0 {
			t.Errorf("%s: a node that sends nothing was told %d times", kind, r.told(2))
		}
	}
}

// observer is a function that implements Observer.
type observer func(*Observation)

func (o observer) Observe(one *Observation) { o(one) }

// TestIdleGFCPlansNothing: a switch with nothing queued has nothing to do, before a load
// and some time after it. In between it reports at the multiples of the period, the
// first after a length has exceeded B0, the last when all senders have the whole line.
func TestIdleGFCPlansNothing(t *testing.T) {
	for _, kind := range gentleKinds {
		reported := []clock.Time{} // when the second sender's port sent a message
		r := newRig(t, gentleFile(kind, ""), observer(func(o *Observation) {
			if o.Kind == Sent && (o.Verdict == Slowed || o.Verdict == Resumed) {
				reported = append(reported, o.Time)
			}
		}))
		sw := r.engine.switches[0]
		r.engine.Observe(sw.ports[1].index, true)
		if next := r.engine.Advance(0); next != clock.Never {
			t.Fatalf("%s: nothing was sent, and something is planned for %d", kind, next)
		}
		for _, begin := range []clock.Time{0, clock.Time(time.Second) + 1} {
			r.engine.Advance(begin)
			count, before := r.count, len(reported)
			var exceeded clock.Time
			for range 100 {
				for from := range 2 {
					r.send(r.engine.Now(), flow{from: from, to: 2, dscp: 26}, 1000)
				}
				for range 8 {
					if r.run(time.Microsecond); exceeded == 0 &&
						sw.memory.Held(1, 3) > int64(r.plan.Switches[0].Ports[1].GFC.B1) {
						exceeded = r.engine.Now()
					}
				}
			}
			end := r.drain(10 * time.Second)
			if next := r.engine.Advance(end); next != clock.Never || r.slow(0) != 0 || r.slow(1) != 0 ||
				r.count != count+200 {
				t.Errorf("%s: %d delivered, the senders are at %v and %v, and something is planned for %d",
					kind, r.count-count, r.slow(0), r.slow(1), next)
			}
			// As long as the last rate below the line's would have held.
			if idle := end.Sub(begin); idle > 3*time.Millisecond+holds {
				t.Errorf("%s: idle %v after the beginning", kind, idle)
			}
			if len(reported) == before || exceeded == 0 {
				t.Fatalf("%s: the load slowed nobody", kind)
			}
			period := clock.Time(r.plan.Switches[0].Ports[1].GFC.Period)
			if first := reported[before]; kind == "time" &&
				(first%period != 0 || first < exceeded-1000 || first > exceeded+period) {
				t.Errorf("B0 is exceeded at %d, and the first report is at %d, want the next multiple of %d",
					exceeded, first, period)
			}
		}
	}
}

// TestLossyLinksAndRates: links lose a fifth of all frames, including messages. The receiver's link
// stays busy, and no sender stays slow for long after the end.
func TestLossyLinksAndRates(t *testing.T) {
	for _, kind := range gentleKinds {
		r := gentleRig(t, kind, ", loss: 20%, reorder: 1%")
		r.incast(100 * time.Millisecond)
		r.run(100 * time.Millisecond)
		totals := r.engine.Totals()
		if lost := r.dropped(Loss) + r.dropped(Headroom); lost != totals.Dropped ||
			r.dropped(Headroom) > totals.Received/100 {
			t.Errorf("%s: %d lost, %d by links and %d for want of headroom; want hardly any of the latter",
				kind, totals.Dropped, r.dropped(Loss), r.dropped(Headroom))
		}
		// Of 12,500 frames each, 64 % cross two such links; the receiver's has room
		// for 25,000 in the 200 ms.
		if want := totals.Received * 64 / 100; r.count < want*95/100 {
			t.Errorf("%s: %d delivered of %d, want %d", kind, r.count, totals.Received, want)
		}
		if r.run(holds); r.slow(0) != 0 || r.slow(1) != 0 {
			t.Errorf("%s: the senders are at %v and %v, and nothing waits", kind, r.slow(0), r.slow(1))
		}
		r.balance()
	}
}

// TestSlowedPriorityHoldsBackNothingElse: a frame that waits for its rate delays no other frame,
// and leaves when the rate rises.
func TestSlowedPriorityHoldsBackNothingElse(t *testing.T) {
	r := gentleRig(t, "buffer", "")
	tell := func(stage uint16) {
		r.engine.switches[0].ports[0].slow(3, stage, false)
		r.engine.settle()
		r.run(10 * time.Microsecond)
	}
	tell(12) // 244 kbit/s, a frame in 33 ms
	for range 2 {
		r.send(r.engine.Now(), flow{from: 0, to: 2, dscp: 26}, 1000)
	}
	const way = 2*(8+2)*time.Microsecond + 1
	r.run(way)
	if r.count != 1 {
		t.Fatalf("%d delivered, want the first", r.count)
	}
	r.send(r.engine.Now(), flow{from: 0, to: 2}, 1000)
	if r.run(way); r.count != 2 || r.got[1].dscp != 0 {
		t.Errorf("%d delivered, want that of another priority", r.count)
	}
	tell(0)
	if r.run(way); r.count != 3 {
		t.Errorf("%d delivered, want all once the rate is the line's", r.count)
	}
	r.balance()
}

// TestForgedRates: however many messages arrive, a port keeps one event for the requested rates,
// and a rate expires as the protocol specifies.
func TestForgedRates(t *testing.T) {
	r := gentleRig(t, "buffer", "")
	nic, before := r.engine.nics[0].ports[0], len(r.engine.events.heap)
	for n := range 10_000 {
		tellRate(nic, uint8(n%18))
		r.run(time.Microsecond)
	}
	if got := len(r.engine.events.heap) - before; got > 1 {
		t.Errorf("%d events are planned, want one", got)
	}
	last := r.engine.Now().Add(-time.Microsecond)
	if r.engine.Advance(last.Add(holds) - 1); r.slow(0) == 0 {
		t.Error("the rate is forgotten early")
	}
	if r.engine.Advance(last.Add(holds)); r.slow(0) != 0 {
		t.Error("the rate is not forgotten")
	}
	if next := r.engine.Advance(r.engine.Now()); next != clock.Never {
		t.Errorf("something is planned for %v", next)
	}
}

// tellRate makes a port apply a stage of priority 3, as if the far end had requested it.
func tellRate(one *port, stage uint8) {
	frame := one.engine.pool.Get()
	fields := wire.GFCFields{Enable: 1 << 3, Values: [8]uint16{3: uint16(stage)}}
	frame.Data = frame.Data[:wire.EncodeGFCFrame(frame.Data, one.far.mac, &fields)]
	frame.Parse()
	one.takeControl(frame)
	one.engine.pool.Put(frame)
}
