package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// A ring of three switches with a host each, all links of 1 Gbit/s and 1 us. The flow of host i
// passes switches i, i+1 and i+2 and ends at host i+2. So each link of the ring carries two flows,
// and the buffers of the ring wait for each other in a circle. It is the example of Qian et al.
// (SIGCOMM 2019, figures 1 and 2).
const (
	ringSize  = 3
	ringRate  = units.Rate(1e9)
	ringDelay = time.Microsecond
	ringFrame = 1000
	class     = 3
	host      = 0 // a switch's port to its host
	next      = 1 // to the next switch of the ring; as an ingress, from the one before
)

type ring struct {
	simulation
	t         *testing.T
	switches  [ringSize]*ringSwitch
	hosts     [ringSize]*line
	delivered [ringSize]int
	dropped   map[Reason]int
	signals   int
}

type ringSwitch struct {
	ring   *ring
	number int
	memory *Memory
	lines  [2]*line
}

// reaction is the time from a signal until the last bit arrives that was sent
// without it, and the bytes that come meanwhile.
const reaction = 2*ringDelay +
	time.Duration(8*(ringFrame+control+ringFrame))*time.Second/time.Duration(ringRate)

func (s *ringSwitch) upstream(ingress int) *line {
	if ingress == host {
		return s.ring.hosts[s.number]
	}
	return s.ring.switches[(s.number+ringSize-1)%ringSize].lines[next]
}

// told calls a function for the far end of an ingress once the signal has arrived.
func (s *ringSwitch) told(ingress int, do func(*Port)) {
	s.ring.signals++
	up := s.upstream(ingress)
	s.ring.in(reaction-time.Duration(8*ringFrame)*time.Second/time.Duration(ringRate)-ringDelay, func() {
		do(up.port)
		up.kick()
	})
}

func (s *ringSwitch) Pause(ingress int, q uint8, on bool) {
	s.told(ingress, func(p *Port) { p.Pause(s.ring.now, q, on) })
}

func (s *ringSwitch) Stage(ingress int, q, stage uint8) {
	s.told(ingress, func(p *Port) { p.Stage(s.ring.now, q, stage) })
}

func (s *ringSwitch) ReportAt(at clock.Time) {
	s.ring.in(at.Sub(s.ring.now), func() { s.memory.Report(s.ring.now) })
}

// rateSwitch also signals rates.
type rateSwitch struct{ *ringSwitch }

func (s rateSwitch) Rate(ingress int, q uint8, share uint16) {
	s.told(ingress, func(p *Port) { p.Share(s.ring.now, q, share) })
}

func newRing(t *testing.T, prepare func(*plan.Switch)) *ring {
	r := &ring{t: t, dropped: map[Reason]int{}}
	for i := range r.switches {
		sw := softSwitch(1<<24, 2)
		prepare(sw)
		s := &ringSwitch{ring: r, number: i}
		var ports []*Port
		if sw.Soft.GFC != nil && sw.Soft.GFC.Kind == spec.GFCTime {
			s.memory, ports = memory(t, sw, rateSwitch{s})
		} else {
			s.memory, ports = memory(t, sw, s)
		}
		for j, p := range ports {
			s.lines[j] = &line{s: &r.simulation, port: p, rate: ringRate, delay: ringDelay, waking: -1}
			p.SetLink(0, plan.Direction{Rate: ringRate})
		}
		s.lines[host].arrived = func(*packet.Packet) { r.delivered[i]++ }
		s.lines[next].arrived = func(one *packet.Packet) { r.arrive((i+1)%ringSize, next, one) }
		r.switches[i] = s
		nic := NewNIC(1 << 30)
		nic.SetLink(0, plan.Direction{Rate: ringRate})
		r.hosts[i] = &line{s: &r.simulation, port: nic, rate: ringRate, delay: ringDelay, waking: -1}
		r.hosts[i].arrived = func(one *packet.Packet) {
			r.feed(i)
			r.arrive(i, host, one)
		}
	}
	for i := range r.hosts {
		r.feed(i)
		r.feed(i)
	}
	return r
}

// feed gives a host one more packet to send. Its Flow is where it goes.
func (r *ring) feed(i int) {
	one := &packet.Packet{Data: make([]byte, ringFrame), Priority: class, Flow: uint64((i + 2) % ringSize)}
	r.hosts[i].port.Enqueue(r.now, one)
	r.hosts[i].kick()
}

func (r *ring) arrive(at, ingress int, one *packet.Packet) {
	egress := next
	if one.Flow == uint64(at) {
		egress = host
	}
	one.Ingress = int32(ingress)
	out := r.switches[at].lines[egress]
	if o := out.port.Enqueue(r.now, one); o.Dropped {
		r.dropped[o.Reason]++
	}
	out.kick()
}

// rates are the shares of a line that each flow had for a while, by where it ends.
func (r *ring) rates(during time.Duration) (share [ringSize]float64) {
	before := r.delivered
	r.run(r.now.Add(during))
	for i := range share {
		bits := float64(r.delivered[i]-before[i]) * ringFrame * 8
		share[i] = bits / (float64(ringRate) * during.Seconds())
	}
	return share
}

// deadlock are the switches whose links wait for each other in a circle, nil
// without one.
func (r *ring) deadlock() []int {
	var edges [][2]int
	for i, s := range r.switches {
		for _, w := range s.memory.Waits(nil) {
			// The link into the switch waits for the one out of it.
			if w.Ingress == next && w.Egress == next && w.Priority == class {
				edges = append(edges, [2]int{(i + ringSize - 1) % ringSize, i})
			}
		}
	}
	if cycles := Cycles(edges); cycles != nil {
		return cycles[0]
	}
	return nil
}

// storm stops what leaves the switches for the hosts for a while.
func (r *ring) storm(during time.Duration) {
	set := func(on bool) {
		for _, s := range r.switches {
			s.lines[host].port.Pause(r.now, class, on)
			s.lines[host].kick()
		}
	}
	set(true)
	r.in(during, func() { set(false) })
}

// Two layouts of the buffer: an equal reservation for all ingresses, and a larger reservation for
// the links of the ring than for the hosts.
var (
	unit  = units.Bytes(reaction * time.Duration(ringRate) / 8 / time.Second)
	alike = [2]units.Bytes{host: unit, next: unit}
	ahead = [2]units.Bytes{host: unit, next: 4 * unit}
)

// pauses keeps xoff for each ingress and its headroom.
func pauses(xoff [2]units.Bytes) func(*plan.Switch) {
	return func(sw *plan.Switch) {
		withPFC(sw, plan.PortPFC{XOff: 4*unit + 2*ringFrame, XOn: unit, Headroom: unit + ringFrame}, class)
		for i := range sw.Ports {
			at := *sw.Ports[i].PFC
			at.XOff = xoff[i] + 2*ringFrame
			sw.Ports[i].PFC = &at
		}
	}
}

// gentle reserves b1 for each ingress and the room that the theorems require. It is 2*C*tau for
// stages, and (sqrt(tau/T)+1)^2*C*T, which is 4*C*tau, for rates that are signalled every T = tau.
// Two frames are added, because frames are not a fluid.
func gentle(kind string, b1 [2]units.Bytes) func(*plan.Switch) {
	return func(sw *plan.Switch) {
		most := plan.PortGFC{B1: 4 * unit, BM: 16 * unit, Limit: 16 * unit}
		withGFC(sw, kind, most, class)
		for i := range sw.Ports {
			at := plan.PortGFC{B1: b1[i], BM: b1[i] + 2*unit}
			if kind == spec.GFCTime {
				at.Period = units.Duration(reaction)
				at.BM = b1[i] + 4*unit
			} else {
				for k := range 17 {
					at.Stages = append(at.Stages, at.BM-(at.BM-at.B1)>>k)
				}
			}
			at.Limit = at.BM + 2*ringFrame
			sw.Ports[i].GFC = &at
		}
	}
}

// With PFC the ring deadlocks: no link of it ever sends again, and the wait-for
// graph names all of them.
func TestRingDeadlocksWithPFC(t *testing.T) {
	for name, c := range map[string]struct {
		layout [2]units.Bytes
		storm  time.Duration
	}{"by itself": {alike, 0}, "after a storm": {ahead, 2 * time.Millisecond}} {
		r := newRing(t, pauses(c.layout))
		if c.storm > 0 {
			if share := r.rates(20 * time.Millisecond); share[0] < 0.49 || r.deadlock() != nil {
				t.Errorf("%s: before it, flows have %.3f of a line and wait in a circle %v", name, share,
					r.deadlock())
			}
			r.storm(c.storm)
		}
		r.rates(10 * time.Millisecond)
		signals := r.signals
		if share := r.rates(time.Second); share != [ringSize]float64{} || r.signals != signals {
			t.Errorf("%s: flows have %.5f of a line, and %d signals are sent", name, share, r.signals-signals)
		}
		if cycle := r.deadlock(); len(cycle) != ringSize {
			t.Errorf("%s: %v wait in a circle, want all three", name, cycle)
		}
		if len(r.dropped) > 0 {
			t.Errorf("%s: dropped %v", name, r.dropped)
		}
	}
}

// With Gentle Flow Control the same ring, with the same trigger, continues at the flows' max-min
// share. It is half a line each, because each link of the ring carries two flows (Qian et al.,
// section 6: 5 of 10 Gbit/s). No packet is lost.
func TestRingStaysLiveWithGFC(t *testing.T) {
	for kind, layout := range map[string][2]units.Bytes{
		spec.GFCBuffer: ahead,
		spec.GFCTime:   {host: unit, next: 5 * unit}, // no less than Bm of the hosts
	} {
		r := newRing(t, gentle(kind, layout))
		r.rates(time.Millisecond)
		for i := range 3 {
			for at, share := range r.rates(20 * time.Millisecond) {
				if share < 0.495 || share > 0.505 {
					t.Errorf("%s: after %d storms the flow to host %d has %.4f of a line, want 0.5", kind, i,
						at, share)
				}
			}
			r.storm(2 * time.Millisecond)
			r.rates(10 * time.Millisecond)
		}
		if len(r.dropped) > 0 || r.deadlock() != nil {
			t.Errorf("%s: dropped %v, waits in a circle: %v", kind, r.dropped, r.deadlock())
		}
	}
}

// Cycles finds what there is, each from its smallest place on.
func TestCycles(t *testing.T) {
	for _, c := range []struct {
		edges [][2]int
		want  [][]int
	}{
		{nil, nil},
		{[][2]int{{1, 2}, {2, 3}, {1, 3}, {3, 4}}, nil},
		{[][2]int{{1, 1}}, [][]int{{1}}},
		{[][2]int{{5, 1}, {1, 2}, {2, 7}, {2, 3}, {3, 1}, {7, 8}}, [][]int{{1, 2, 3}}},
		{[][2]int{{0, 1}, {2, 3}, {3, 2}, {1, 4}}, [][]int{{2, 3}}},
		// One ring, entered anywhere.
		{[][2]int{{9, 3}, {1, 2}, {2, 3}, {3, 4}, {4, 1}}, [][]int{{1, 2, 3, 4}}},
		{[][2]int{{3, 4}, {4, 1}, {1, 2}, {2, 3}, {9, 2}}, [][]int{{1, 2, 3, 4}}},
		// Two, one on the way to the other.
		{[][2]int{{1, 2}, {2, 1}, {2, 3}, {3, 4}, {4, 3}}, [][]int{{1, 2}, {3, 4}}},
		{[][2]int{{0, 2}, {2, 3}, {3, 2}, {0, 5}, {5, 6}, {6, 5}, {6, 0}}, [][]int{{2, 3}, {5, 6}}},
		// Two that have a place in common are one.
		{[][2]int{{1, 2}, {2, 1}, {2, 3}, {3, 2}}, [][]int{{1, 2}}},
	} {
		if got := Cycles(c.edges); !slices.EqualFunc(got, c.want, slices.Equal[[]int]) {
			t.Errorf("%v: cycles %v, want %v", c.edges, got, c.want)
		}
	}
}

// TestCyclesOfRandomGraphs: the found cycles have no place in common, and none is left once their
// places are removed.
func TestCyclesOfRandomGraphs(t *testing.T) {
	several := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 6))
		var edges [][2]int
		places := 2 + random.IntN(20)
		for range random.IntN(2 * places) {
			edges = append(edges, [2]int{random.IntN(places), random.IntN(places)})
		}
		taken := map[int]bool{}
		cycles := Cycles(edges)
		for _, cycle := range cycles {
			for i, from := range cycle {
				if edge := [2]int{from, cycle[(i+1)%len(cycle)]}; !slices.Contains(edges, edge) ||
					taken[from] || from < cycle[0] {
					t.Fatalf("seed %d: %v of %v: it does not wait at %v, is in another, or begins elsewhere",
						seed, cycle, edges, edge)
				}
				taken[from] = true
			}
		}
		// Remove places that wait for no remaining place, until there are none.
		left := slices.DeleteFunc(slices.Clone(edges), func(e [2]int) bool {
			return taken[e[0]] || taken[e[1]]
		})
		for before := -1; before != len(left); {
			before = len(left)
			left = slices.DeleteFunc(slices.Clone(left), func(e [2]int) bool {
				return !slices.ContainsFunc(left, func(f [2]int) bool { return f[0] == e[1] })
			})
		}
		if len(left) > 0 {
			t.Fatalf("seed %d: %v of %v, and %v wait in circles", seed, cycles, edges, left)
		}
		if len(cycles) > 1 {
			several++
		}
	}
	if several < 100 {
		t.Errorf("%d graphs with several cycles: nothing was tried", several)
	}
}
