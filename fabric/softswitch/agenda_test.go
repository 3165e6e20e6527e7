package softswitch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// TestAgendaIsASortedList: events come in the order of their times. Events of equal times come in
// the order of planning.
func TestAgendaIsASortedList(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 3))
		const ports = 5
		a := newAgenda(ports)
		var list []event
		now := clock.Time(0)
		one := &packet.Packet{}
		for serial := uint64(1); serial <= 2000; {
			if random.IntN(5) < 2 && len(list) > 0 {
				var got event
				a.pop(&got)
				want := list[0]
				list = list[1:]
				if got.leads = false; got != want {
					t.Fatalf("seed %d: got %+v, want %+v", seed, got, want)
				}
				now = want.at
			} else {
				// Times near each other, so that many are equal, and now and then a frame that is
				// held back.
				e := event{at: now + clock.Time(random.IntN(20)), serial: serial,
					port: int32(random.IntN(ports)), packet: one, epoch: uint32(serial)}
				if random.IntN(10) == 0 {
					e.at += 100
				}
				if random.IntN(3) == 0 {
					e.kind, e.packet = lineFree, nil
					a.push(event{at: e.at, kind: e.kind, port: e.port, epoch: e.epoch})
				} else {
					e.kind = arrives
					a.arrival(e.at, e.port, one, e.epoch)
				}
				place, _ := slices.BinarySearchFunc(list, e, func(x, y event) int {
					if x.before(&y) {
						return -1
					}
					return 1
				})
				list = slices.Insert(list, place, e)
				serial++
			}
			if len(list) > 0 && a.next() != list[0].at || len(list) == 0 && a.next() != clock.Never {
				t.Fatalf("seed %d: the next is at %d of %v", seed, a.next(), list)
			}
			held := 0
			for i := range list {
				if list[i].packet != nil {
					held++
				}
			}
			if a.packets() != held {
				t.Fatalf("seed %d: %d packets, want %d", seed, a.packets(), held)
			}
		}
	}
}

// log writes down everything that an engine does.
type log struct{ lines []string }

func (l *log) Observe(o *Observation) {
	l.lines = append(l.lines, fmt.Sprintf(
		"port %d: %d at %d, verdict %d for %v, queue %d holds %d: flow %x, %d of it, % x",
		o.Port, o.Kind, o.Time, o.Verdict, o.Reason, o.Queue, o.Depth, o.Packet.Flow, o.Packet.Ordinal,
		o.Packet.Data[:min(len(o.Packet.Data), 40)]))
}

// TestLanesChangeNothing: random fabrics, faults, traffic and changes give the
// same run, to the last observation, with one plain heap of all events.
func TestLanesChangeNothing(t *testing.T) {
	cases := 20
	if testing.Short() {
		cases = 4
	}
	lines, late := 0, 0
	for seed := range cases {
		run := func(plain bool) []string {
			random := rand.New(rand.NewPCG(uint64(seed), 4))
			seen := &log{}
			r := newRig(t, randomFabric(random), seen)
			for i := range r.engine.ports {
				r.engine.Observe(i, true)
			}
			for i := range r.engine.events.lanes {
				if plain { // a lane that nothing may follow
					r.engine.events.lanes[i] = lane{busy: true, last: clock.Never}
				}
			}
			r.disturb(random)
			r.drain(10 * time.Second)
			for _, a := range r.got {
				seen.lines = append(seen.lines, fmt.Sprintf("%+v", a))
			}
			for i := range r.engine.events.lanes {
				late = max(late, len(r.engine.events.lanes[i].ring))
				if plain && len(r.engine.events.lanes[i].ring) > 0 {
					t.Fatal("the plain heap has lanes")
				}
			}
			return append(seen.lines, fmt.Sprintf("%+v %+v", r.engine.Totals(), r.engine.Ports()))
		}
		with, without := run(false), run(true)
		lines += len(with)
		for i := range min(len(with), len(without)) {
			if with[i] != without[i] {
				t.Fatalf("seed %d, observation %d: with lanes\n%s\nwithout\n%s", seed, i, with[i], without[i])
			}
		}
		if len(with) != len(without) {
			t.Fatalf("seed %d: %d observations with lanes, %d without", seed, len(with), len(without))
		}
	}
	if lines < 1000*cases || late == 0 {
		t.Fatalf("%d observations, lanes of up to %d: nothing was tried", lines, late)
	}
}
