package softswitch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"railbed/internal/units"
	"railbed/plan"
)

// compiled returns the plan's GFC thresholds at a port.
func compiled(t *testing.T, text, sw string, port int) plan.PortGFC {
	t.Helper()
	at := *newRig(t, text).plan.Switch(sw).Ports[port].GFC
	at.Stages = nil
	return at
}

// sameGFC reports whether thresholds are those, whatever the file gives.
func sameGFC(a, b plan.PortGFC) bool {
	return a.B1 == b.B1 && a.BM == b.BM && a.Limit == b.Limit && a.Period == b.Period
}

// TestGFCFollowsTheLink: a link becomes longer while its sender is slowed. Nothing is lost, and the
// thresholds in force are the plan's for such a link. If the file sets the thresholds of the short
// link, the same load overruns them. Changing back restores the original thresholds.
func TestGFCFollowsTheLink(t *testing.T) {
	const short, long = 5 * time.Microsecond, 2 * time.Millisecond
	for _, kind := range gentleKinds {
		kind = ", kind: " + kind
		first := press(t, "16MB", "gfc", kind)
		planned := first.gfc()
		text := strings.Replace(pressedFile("16MB", "gfc", kind), `"h1--leaf1":`,
			`"h0--leaf1": {delay: 2ms}, "h1--leaf1":`, 1)
		far := compiled(t, text, "leaf1", first.at.number)
		for _, given := range []string{"", fmt.Sprintf(", b1: %dB, bm: %dB", planned.B1, planned.BM)} {
			p := press(t, "16MB", "gfc", kind+given)
			spare := p.at.station.memory.Spare()
			p.run(20 * time.Millisecond)
			if p.slow(0) == 0 || p.engine.Totals().Dropped != 0 {
				t.Fatalf("%s: the sender is at %v, %d drops before the change; want it slowed, and none",
					kind, p.slow(0), p.engine.Totals().Dropped)
			}
			if err := p.set(1e9, 1e9, long, long); err != nil {
				t.Fatal(err)
			}
			before := p.count
			p.run(200 * time.Millisecond)
			if lost := p.dropped(Headroom); (lost > 0) != (given != "") {
				t.Errorf("%s%s: %d frames were lost", kind, given, lost)
			}
			// 100 Mbit/s carry frames of 1,514 bytes.
			if want := uint64(100_000_000 / 5 / 8 / 1514); given == "" && p.count-before < want*98/100 {
				t.Errorf("%s: %d delivered, want %d: the slow link is not kept busy", kind, p.count-before,
					want)
			}
			if at := p.gfc(); given == "" && !sameGFC(at, far) ||
				given != "" && (at.B1 != planned.B1 || at.BM != planned.BM) {
				t.Errorf("%s%s: thresholds are %+v, want those of a plan, %+v", kind, given, at, far)
			}
			lost := p.dropped(Headroom)
			if err := p.set(1e9, 1e9, short, short); err != nil {
				t.Fatal(err)
			}
			p.run(500 * time.Millisecond)
			if p.dropped(Headroom) != lost && given == "" {
				t.Errorf("%s: %d frames were lost on the way back", kind, p.dropped(Headroom)-lost)
			}
			if at := p.gfc(); !sameGFC(at, planned) || p.at.station.memory.Spare() != spare {
				t.Errorf("%s%s: thresholds are %+v again, want %+v; %d bytes are spare, want %d", kind, given,
					at, planned, p.at.station.memory.Spare(), spare)
			}
		}
	}
}

// gfc returns the GFC thresholds in the port's state.
func (p *pressed) gfc() plan.PortGFC { return p.engine.Ports()[p.at.index].GFC }

// TestChangesOfRateAndDelayAreGentle: no change of a link under load loses a packet, however soon
// it follows another change.
func TestChangesOfRateAndDelayAreGentle(t *testing.T) {
	for _, kind := range gentleKinds {
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 3))
			p := press(t, "256MB", "gfc", ", kind: "+kind)
			for change := range 60 {
				to := p.change(random)
				if lost := p.engine.Totals().Dropped; lost > 0 {
					t.Fatalf("%s, seed %d, change %d to %s: %d frames are lost", kind, seed, change, to, lost)
				}
			}
		}
	}
}

// TestRingOfLinksThatChange: a ring that would deadlock stays live with GFC, and loses nothing,
// while all its links become twenty times longer and short again. Thresholds for the short links
// would lose frames on the long ones. Links between switches follow the bytes that the hosts' links
// let wait.
func TestRingOfLinksThatChange(t *testing.T) {
	const settings = "gfc: {kind: %s, priorities: [3]}"
	for _, kind := range gentleKinds {
		text := strings.Replace(ring(fmt.Sprintf(settings, kind)), "buffer: 600KB", "buffer: 4MB", 1)
		r := newRig(t, text)
		longer := newRig(t, strings.Replace(text, "delay: 5us", "delay: 100us", 1))
		become := func(other *rig) {
			for _, l := range other.plan.Links {
				if err := r.engine.SetLink(l.Name, l.AToB, l.BToA); err != nil {
					t.Fatal(err)
				}
			}
		}
		equal := func(other *rig) {
			t.Helper()
			for i, sw := range r.engine.switches {
				for n, p := range sw.ports {
					if at, want := r.engine.Ports()[p.index].GFC,
						other.plan.Switches[i].Ports[n].GFC; !sameGFC(at, *want) {
						t.Errorf("%s: thresholds at %s are %+v, want %+v", kind, p.name, at, *want)
					}
				}
			}
		}
		r.offer(20 * time.Millisecond)
		for _, other := range []*rig{longer, newRig(t, text)} {
			become(other)
			before := r.count
			r.offer(time.Duration(r.engine.Now()) + 60*time.Millisecond)
			const half = 5 * 125_000 * 60 / 1000 / 2 / 2
			if lost := r.engine.Totals().Dropped; lost != 0 || r.count-before < half*8/10 ||
				len(r.engine.Deadlocks()) != 0 {
				t.Errorf("%s: %d lost, %d of %d delivered, deadlocks %+v; want none, nearly all, none", kind,
					lost, r.count-before, half, r.engine.Deadlocks())
			}
		}
		r.run(3 * time.Second) // until the NICs are empty
		equal(newRig(t, text))
		become(longer)
		r.run(time.Second)
		equal(longer)
		r.balance()
	}
}

// TestRingOfRandomChanges: no change of a link of such a ring loses a packet or stops the ring.
func TestRingOfRandomChanges(t *testing.T) {
	for _, kind := range gentleKinds {
		for seed := range uint64(5) {
			random := rand.New(rand.NewPCG(seed, 9))
			r := newRig(t, strings.Replace(ring("gfc: {kind: "+kind+", priorities: [3]}"), "buffer: 600KB",
				"buffer: 64MB", 1))
			r.silent = true
			for range 20 {
				l := r.plan.Links[random.IntN(len(r.plan.Links))]
				for _, d := range []*plan.Direction{&l.AToB, &l.BToA} {
					d.Delay = units.Duration(random.IntN(1 << (4 + random.IntN(15))))
					d.Rate = []units.Rate{500e6, 1e9, 2e9}[random.IntN(3)]
				}
				r.relink(&l)
				r.offer(time.Duration(r.engine.Now()) + time.Duration(random.IntN(5000))*time.Microsecond)
			}
			before := r.count
			r.offer(time.Duration(r.engine.Now()) + 50*time.Millisecond)
			// At least half of the load that a ring of the slowest links carries.
			if lost, most := r.engine.Totals().Dropped,
				uint64(5*62_500*50/1000/2/2); lost > 0 || r.count-before < most/2 {
				t.Errorf("%s, seed %d: %d lost, and %d delivered, want none and at least %d", kind, seed,
					lost, r.count-before, most/2)
			}
			r.balance()
		}
	}
}

// TestHostLinkMovesTheOthers: where a host's link changes, GFC between switches begins
// behind it as in a plan that has it so.
func TestHostLinkMovesTheOthers(t *testing.T) {
	for _, kind := range gentleKinds {
		text := strings.Replace(ring("gfc: {kind: "+kind+", priorities: [3]}"), "buffer: 600KB",
			"buffer: 4MB", 1)
		r := newRig(t, text)
		host := &r.plan.Nodes[0]
		var link *plan.Link
		for i := range r.plan.Links {
			if l := &r.plan.Links[i]; l.A.Node == host.Name || l.B.Node == host.Name {
				link = l
			}
		}
		want := newRig(t, strings.Replace(text, "5us}}", `5us}, "`+link.Name+`": {delay: 200us}}`, 1))
		moved := 0
		for round, to := range []*rig{want, newRig(t, text)} {
			l := to.plan.Link(link.Name)
			if err := r.engine.SetLink(l.Name, l.AToB, l.BToA); err != nil {
				t.Fatal(err)
			}
			r.drain(time.Second)
			for _, p := range r.engine.ports {
				if sw := to.plan.Switch(p.end.Node); sw != nil {
					if at := r.engine.Ports()[p.index].GFC; !sameGFC(at, *sw.Ports[p.number].GFC) {
						t.Errorf("%s, round %d: thresholds at %s are %+v, want %+v", kind, round, p.name, at,
							*sw.Ports[p.number].GFC)
					} else if p.far.station != r.engine.nics[0] &&
						at.B1 != r.plan.Switch(p.end.Node).Ports[p.number].GFC.B1 {
						moved++
					}
				}
			}
		}
		if moved != 2 {
			t.Errorf("%s: %d ports to switches moved, want the two of the host's switch", kind, moved)
		}
	}
}

// TestRefusedChangeChangesNothing: when the switch at one end of a link has no room for the new
// reservation, the other end keeps its old one, at once and later.
func TestRefusedChangeChangesNothing(t *testing.T) {
	for _, flowControl := range []string{"pfc", "gfc"} {
		r := newRig(t, `
name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 1}
  switch: {kind: soft, buffer: 8MB, `+flowControl+`: {priorities: [3]}}
  switches: {spine1: {buffer: 200KB}}
  links: {default: {rate: 1gbit, delay: 100us}}
`)
		before := r.engine.Ports()
		same := func(when string) {
			for i, at := range r.engine.Ports() {
				if at.PFC != before[i].PFC || !sameGFC(at.GFC, before[i].GFC) {
					t.Errorf("%s, %s: thresholds at %s are %+v, %+v; want %+v, %+v", flowControl, when,
						at.Port, at.PFC, at.GFC, before[i].PFC, before[i].GFC)
				}
			}
		}
		const name = "leaf1--spine1"
		for _, delay := range []time.Duration{time.Microsecond, 5 * time.Millisecond} {
			d := r.plan.Link(name).AToB
			d.Delay = units.Duration(delay)
			err := r.engine.SetLink(name, d, d)
			if (err != nil) != (delay == 5*time.Millisecond) {
				t.Fatalf("%s: %v: %v", flowControl, delay, err)
			}
			if err == nil {
				r.run(time.Second)
				before = r.engine.Ports()
				continue
			}
			if want := "keep buffer for lossless priorities at spine1:"; !strings.Contains(err.Error(),
				want) {
				t.Errorf("%v, want %s", err, want)
			}
			same("refused")
			r.run(time.Second)
			same("a second later")
		}
	}
}

// TestRatesInTheTimesOfTheLink: a link becomes a hundred times faster while a message that slows
// its sender is in flight. At the new rate the message holds for a far shorter time than the
// interval between repetitions at the old rate. The sender stays slowed.
func TestRatesInTheTimesOfTheLink(t *testing.T) {
	r := newRig(t, single(3, `
  switch: {kind: soft, buffer: 16MB, gfc: {kind: buffer, b1: 4KB, bm: 2MB, stages: 8, priorities: [3]}, priorities: {26: 3}}
  links: {default: {rate: 100mbit, delay: 1ms}}
nodes: {default: {nic-queue: 16MB}}
`))
	r.engine.switches[0].ports[2].egress.Limit(0, 3, 1e6)
	for range 20 { // of which the fifth exceeds b1; a frame leaves every 8 ms
		r.send(0, flow{from: 1, to: 2, dscp: 26}, 1000)
	}
	for r.told(1) == 0 {
		r.run(time.Microsecond)
	}
	d := r.plan.Links[1].AToB
	d.Rate = 10e9
	if err := r.engine.SetLink(r.plan.Links[1].Name, d, d); err != nil {
		t.Fatal(err)
	}
	r.run(1100 * time.Microsecond)
	for range 500 {
		if r.run(100 * time.Microsecond); r.slow(1) == 0 {
			t.Fatalf("at %d the sender is at the whole rate, and %d bytes wait", r.engine.Now(),
				r.engine.switches[0].memory.Held(1, 3))
		}
	}
}
