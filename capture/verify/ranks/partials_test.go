package ranks

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/testkit/plantest"
)

// adding holds the packets at the ports of two leaves and a spine, for a job of four workers.
type adding struct {
	plan    *plan.Plan
	job     *plan.AggregationJob
	check   evidence.Check
	capture *evidence.Capture
	taps    map[string]*evidence.Tap
}

func newAdding(t *testing.T, topology string) *adding {
	p := plantest.Compile(t, "name: t\nfabric:\n  topology: "+topology+"\n  switch: {kind: soft, "+
		"aggregation: {slots: 2, elements: 10}}\n")
	job, err := p.AggregationFor(p.Ranks, "")
	if err != nil {
		t.Fatal(err)
	}
	w := evidence.Workload{Name: "ar", Sums: &evidence.Sums{Job: job.Number, Epoch: 3}}
	for _, r := range p.Ranks {
		w.Ranks = append(w.Ranks, evidence.Rank{Rank: r.Rank, Node: r.Node, NIC: r.NIC, Addr: r.Addr4,
			Transport: evidence.TransportInSwitch, Expected: units.Bytes(4 * 10 * 4)})
	}
	a := &adding{plan: p, job: job, check: NewPartialSums(w), capture: &evidence.Capture{Plan: p},
		taps: map[string]*evidence.Tap{}}
	for _, s := range p.Switches {
		for _, port := range s.Ports {
			tap := &evidence.Tap{Index: len(a.capture.Taps), Name: s.Name + ":" + port.Name, Node: s.Name,
				Port: port.Name}
			a.capture.Taps = append(a.capture.Taps, tap)
			a.taps[port.Peer[:strings.IndexByte(port.Peer, ':')]+">"+s.Name] = tap
		}
	}
	a.check.Begin(a.capture)
	return a
}

// message is one of ten elements at a switch's port to a neighbour.
func (a *adding) message(at, peer string, way evidence.Direction, kind wire.AggregationKind, workers uint64,
	round uint32, from, to netip.Addr) *evidence.Packet {
	m := wire.Aggregation(make([]byte, wire.AggregationLen))
	m.Encode(&wire.AggregationFields{Kind: kind, Job: a.job.Number, Epoch: 3, Slot: uint16(round / 4),
		Round: round % 4, Bitmap: workers, FanIn: uint8(len(a.job.Workers)), Elements: 10})
	return &evidence.Packet{
		Tap: a.taps[peer+">"+at], Direction: way, Aggregation: m,
		Flow: &evidence.Flow{Src: netip.AddrPortFrom(from, 9), Dst: netip.AddrPortFrom(to,
			wire.PortAggregation),
			Proto: evidence.ProtoUDP},
	}
}

// update returns a worker's update as its leaf receives it.
func (a *adding) update(worker int, round uint32) *evidence.Packet {
	leaf := a.job.Of(worker)
	return a.message(leaf.Switch, a.job.Workers[worker].Node, evidence.In, wire.AggregationUpdate, 1<<worker,
		round, a.job.Workers[worker].Addr4, leaf.Addr4)
}

// partial returns the partial sum that a leaf sends to the spine.
func (a *adding) partial(leaf int, round uint32) *evidence.Packet {
	from := &a.job.Tree[leaf]
	return a.message(from.Switch, a.job.Root().Switch, evidence.Out, wire.AggregationPartial,
		a.job.Below(leaf), round, from.Addr4, a.job.Root().Addr4)
}

// TestPartialSums: the check distinguishes a leaf that aggregates correctly from leaves that do
// not.
func TestPartialSums(t *testing.T) {
	const leaves = "leaf-spine\n  params: {leaves: 2, spines: 1, hosts-per-leaf: 2}"
	for name, test := range map[string]struct {
		topology string
		// at is asked before each round's last message of leaf2, its partial sum, and may put others
		// in its place.
		at   func(a *adding, round uint32, p *evidence.Packet) []*evidence.Packet
		end  func(a *adding)
		want verdict.Verdict
		text string
	}{
		"right": {want: pass, text: "leaf2: 4 partial sums of ranks [2 3] up to spine1, 160 bytes of " +
			"elements for 320 that came to it; 0 sent again, 0 lost"},
		"one sum for each host": {at: func(a *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			one, other := a.partial(2, round), a.partial(2, round)
			for i, p := range []*evidence.Packet{one, other} {
				f := p.Aggregation.Fields()
				f.Bitmap = 4 << i
				p.Aggregation.Encode(&f)
			}
			return []*evidence.Packet{one, other}
		}, want: fail, text: "sum of ranks [2], want of ranks [2 3] to spine1"},
		"to somebody else": {at: func(a *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			p.Flow.Dst = netip.AddrPortFrom(a.job.Tree[1].Addr4, wire.PortAggregation)
			return []*evidence.Packet{p}
		}, want: fail, text: "want of ranks [2 3] to spine1"},
		"twice": {at: func(_ *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			if round == 1 {
				return []*evidence.Packet{p, p}
			}
			return []*evidence.Packet{p}
		}, want: fail, text: "slot 0, round 1 up 2 times, and was asked again 0 times"},
		"twice, when one asked again": {at: func(a *adding, round uint32,
			p *evidence.Packet) []*evidence.Packet {
			return []*evidence.Packet{p, a.update(3, round), p}
		}, want: pass, text: "4 sent again"},
		"lost, and again when one asked": {at: func(a *adding, round uint32,
			p *evidence.Packet) []*evidence.Packet {
			lost := *p
			lost.Drop = "loss"
			return []*evidence.Packet{p, &lost, a.update(2, round), p}
		}, want: pass, text: "4 sent again, 4 lost"},
		"dropped before it was sent": {at: func(a *adding, round uint32,
			p *evidence.Packet) []*evidence.Packet {
			lost := *p
			lost.Drop = "tail"
			return []*evidence.Packet{&lost, a.update(2, round), p}
		}, want: pass, text: "0 sent again, 4 lost"},
		"not at all": {at: func(_ *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			if round == 2 {
				return nil
			}
			return []*evidence.Packet{p}
		}, want: fail, text: "no partial sum of slot 0, round 2 went up"},
		"before all came": {at: func(a *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			return []*evidence.Packet{a.partial(1, round+1), p}
		}, want: fail, text: "before the updates of ranks [0 1] had come"},
		"an old one": {at: func(a *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			if round == 2 {
				return []*evidence.Packet{p, a.partial(2, 0)}
			}
			return []*evidence.Packet{p}
		}, want: fail, text: "after its round 0 was over"},
		"a host's update passes": {at: func(a *adding, round uint32, p *evidence.Packet) []*evidence.Packet {
			w := &a.job.Workers[2]
			return []*evidence.Packet{p, a.message("leaf2", "spine1", evidence.Out, wire.AggregationUpdate, 4,
				round, w.Addr4, a.job.Root().Addr4)}
		}, want: fail, text: "forwarded an update from"},
		"shorter": {at: func(_ *adding, _ uint32, p *evidence.Packet) []*evidence.Packet {
			f := p.Aggregation.Fields()
			f.Elements = 9
			p.Aggregation.Encode(&f)
			return []*evidence.Packet{p}
		}, want: fail, text: "leaf2: sent 144 bytes up, the algorithm sends 160"},
		"another epoch": {at: func(_ *adding, _ uint32, p *evidence.Packet) []*evidence.Packet {
			f := p.Aggregation.Fields()
			f.Epoch = 4
			p.Aggregation.Encode(&f)
			return []*evidence.Packet{p}
		}, want: fail, text: "no partial sum of slot 0, round 0 went up"},
		"not at all, by a tap that lost packets": {at: func(a *adding, round uint32,
			p *evidence.Packet) []*evidence.Packet {
			a.taps["spine1>leaf2"].Lost = 1
			if round == 2 {
				return nil
			}
			return []*evidence.Packet{p}
		}, want: unclear, text: "no partial sum of slot 0, round 2 went up"},
		"a port without a tap": {end: func(a *adding) {
			a.taps["h3>leaf2"].Port = "p9"
		}, want: unclear, text: "not recorded: "},
		"at one switch": {topology: "single-switch\n  params: {hosts: 4}", want: unclear},
	} {
		t.Run(name, func(t *testing.T) {
			if test.topology == "" {
				test.topology = leaves
			}
			a := newAdding(t, test.topology)
			for round := range uint32(4) {
				for worker := range 4 {
					a.check.Packet(a.update(worker, round))
				}
				for leaf := 1; leaf < len(a.job.Tree); leaf++ {
					last := []*evidence.Packet{a.partial(leaf, round)}
					if leaf == 2 && test.at != nil {
						last = test.at(a, round, last[0])
					}
					for _, p := range last {
						a.check.Packet(p)
					}
				}
			}
			if test.end != nil {
				test.end(a)
			}
			if r := a.check.Result(); r.Verdict != test.want ||
				!strings.Contains(strings.Join(r.Details, "\n"), test.text) {
				t.Errorf("%v, want %v with %q: %s\n%s", r.Verdict, test.want, test.text, r.Summary,
					strings.Join(r.Details, "\n"))
			}
		})
	}
}
