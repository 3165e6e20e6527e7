package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// likeKernel returns the plan as JSON without the values that only soft switches have.
func likeKernel(t *testing.T, p *Plan, kind string) string {
	t.Helper()
	p.PacketMemory = 0
	for i := range p.Nodes {
		p.Nodes[i].NICQueue, p.Nodes[i].Bypass = 0, false
	}
	for i := range p.Ranks {
		p.Ranks[i].Bypass = false
	}
	for i := range p.Switches {
		s := &p.Switches[i]
		s.Kind, s.ID, s.Forwarding, s.Soft = kind, 0, "", nil
	}
	for i := range p.Links {
		for _, d := range []*Direction{&p.Links[i].AToB, &p.Links[i].BToA} {
			d.JitterKind, d.ReorderBy, d.Queue = "", 0, 0
		}
	}
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSoftIsTheKernelsPlan: a soft switch has the names, addresses, routes and neighbours of a
// router, or of a bridge if it forwards by l2.
func TestSoftIsTheKernelsPlan(t *testing.T) {
	compare := func(name, kind, forwarding string, testbed spec.Testbed) {
		kernel, soft := testbed, testbed
		kernel.Fabric.Switch = spec.Switch{Kind: kind}
		soft.Fabric.Switch = spec.Switch{Kind: spec.Soft, Forwarding: forwarding}
		made := mustCompile(t, &soft)
		checkInvariants(t, made)
		if diff := cmp.Diff(likeKernel(t, mustCompile(t, &kernel), kind),
			likeKernel(t, made, kind)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, testbed := range routedShapes {
		compare(name, spec.Router, "", *testbed)
	}
	compare("single", spec.Bridge, spec.L2, *generated("single-switch", "hosts=9"))
	compare("tree", spec.Bridge, spec.L2,
		*wired("a b c", "s1 s2 s3", "a -- s1", "a -- s2", "b -- s2", "c -- s3", "s1 -- s2", "s2 -- s3"))
}

func TestSoftSeeds(t *testing.T) {
	for balance, want := range map[string]int{spec.Flow: 4, spec.Flowlet: 4, spec.Polarised: 1} {
		testbed := generated("leaf-spine", "leaves=2", "spines=2", "hosts-per-leaf=2")
		testbed.Fabric.Switch = spec.Switch{Kind: spec.Soft, LoadBalance: balance}
		seeds, ids := map[uint32]bool{}, map[uint32]bool{}
		for _, s := range mustCompile(t, testbed).Switches {
			seeds[s.HashSeed], ids[s.ID] = true, true
		}
		if len(seeds) != want || len(ids) != 4 || ids[0] {
			t.Errorf("%s: seeds %v, want %d of them; ids %v", balance, seeds, want, ids)
		}
	}
}

// TestSoftNeedsNothing: settings that need netem elsewhere need no host feature here.
func TestSoftNeedsNothing(t *testing.T) {
	p, err := compileText("requires: [ping]\n" +
		leafSpineFile("  switch: {kind: soft}", "  links:",
			"    default: {delay: 5us, loss: 1%, drop-every: 4}",
			"steps:", "  - link: {where: h0--leaf1, set: {corrupt: 1%, drop-list: [3]}}"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []Requirement{{"ping", "the file requires it", "f:1:12", false}}; !cmp.Equal(want,
		p.Requires) {
		t.Errorf("requires %+v", p.Requires)
	}
	if l := p.Link("h0--leaf1"); l.AToB.Queue != 256<<10 || l.BToA.Queue != 2e6 {
		t.Errorf("queues are %s and %s", l.AToB.Queue, l.BToA.Queue)
	}
}

// Only nodes with nic-path: bypass need kernel bypass of the host.
func TestBypassIsRequired(t *testing.T) {
	p, err := compileText(leafSpineFile("  switch: {kind: soft}", "nodes: {h1: {nic-path: bypass}}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Requirement{{KernelBypass, "node h1 has nic-path: bypass", "f:6:24", false}}
	if !cmp.Equal(want, p.Requires) {
		t.Errorf("requires %+v", p.Requires)
	}
}

// TestWeights: next hops have weights if these differ, with the kernel's switches and with soft
// ones.
func TestWeights(t *testing.T) {
	testbed := wired("a b", "s t u v", "a:eth0 -- s:p0", "a:eth1 -- t:p0", "b -- v", "s -- u:p1", "s -- v",
		"t -- v", "u -- v", "s -- v")
	testbed.Fabric.Links = spec.Ordered[spec.Link]{{Key: "fabric", Value: spec.Link{Weight: 4}},
		{Key: "a:eth1--t:p0", Value: spec.Link{Weight: 5}}, {Key: "a--t", Value: spec.Link{Weight: 5}},
		{Key: "s:p3--v:p4", Value: spec.Link{Weight: 1}}}
	for _, kind := range []string{spec.Router, spec.Soft} {
		testbed.Fabric.Switch.Kind = kind
		testbed.Fabric.Links = slices.DeleteFunc(testbed.Fabric.Links, func(e spec.Entry[spec.Link]) bool {
			return e.Key == "a:eth1--t:p0"
		})
		p := mustCompile(t, testbed)
		checkRoutes(t, p)
		weights := map[string]int{}
		for _, s := range append(p.Switches, Switch{Name: "a", Routes: NewRouteTable(p.Node("a").Routes)}) {
			for r := range s.Routes.All() {
				for _, h := range r.NextHops {
					if len(r.NextHops) > 1 {
						weights[fmt.Sprintf("%s %s", s.Name, h.Dev)] = h.Weight
					} else if h.Weight != 0 {
						t.Errorf("%s: a single next hop %+v has a weight", s.Name, h)
					}
				}
			}
		}
		want := map[string]int{"s p2": 4, "s p3": 0, "a eth0": 0, "a eth1": 5, "v p2": 4, "v p4": 0}
		for key, weight := range want {
			if got, found := weights[key]; found && got != weight {
				t.Errorf("%s: %s has weight %d, want %d (%v)", kind, key, got, weight, weights)
			}
		}
		if weights["s p2"] != 4 || weights["a eth1"] != 5 {
			t.Errorf("%s: weights are %v", kind, weights)
		}
	}
}

// TestPFCThresholds simulates the worst case of a pause frame by frame. The sender never idles, and
// the port forwards nothing. A longest frame has just begun to leave by the port when the pause is
// decided. The delays are such that the pause arrives exactly when a frame has ended and the next
// one begins.
func TestPFCThresholds(t *testing.T) {
	for _, c := range []struct {
		in, out  units.Rate
		mtu      int
		extra    int64 // number of whole frames that are sent during the reaction
		delayOut time.Duration
	}{
		{1e9, 1e9, 1500, 3, 1500}, {1e9, 1e9, 9000, 2, 0}, {10e9, 10e9, 4182, 20, 2000},
		{8e9, 2e9, 1982, 9, 777},
	} {
		frame := int64(c.mtu + 18)
		perByte := func(r units.Rate) float64 { return 8e9 / float64(r) } // ns
		// The time from the decision until the pause has reached the sender.
		message := float64(frame+60)*perByte(c.out) + float64(c.delayOut)
		delayIn := float64(c.extra*frame)*perByte(c.in) - message
		if delayIn < 0 || delayIn != math.Trunc(delayIn) {
			t.Fatalf("%+v: no such delay, %v", c, delayIn)
		}
		h := Hop{MTU: c.mtu, In: Direction{Rate: c.in, Delay: units.Duration(delayIn)},
			Out: Direction{Rate: c.out, Delay: units.Duration(c.delayOut)}}
		p := portPFC(h, &spec.PFC{}, 0)
		// The queue holds xoff. The frame that exceeds it ends at 0. Then frames arrive that were
		// sent from -delayIn on, up to the last frame that began when, or before, the pause
		// arrived.
		over := frame
		for begin := -delayIn; begin <= message; begin += float64(frame) * perByte(c.in) {
			over += frame
		}
		if over != int64(p.Headroom) {
			t.Errorf("%+v: %d bytes arrive above xoff, and the headroom is %d", c, over, p.Headroom)
		}
		if p.XOn != p.Headroom-units.Bytes(frame) || p.XOff != p.XOn+2*units.Bytes(frame) {
			t.Errorf("%+v: %+v", c, p)
		}
	}
}

// TestPFCWithJitter: the longest delay counts.
func TestPFCWithJitter(t *testing.T) {
	base := Direction{Rate: 1e9, Delay: 10e3, Jitter: 2e3}
	for kind, want := range map[string]time.Duration{spec.Uniform: 12e3, spec.Normal: 16e3,
		spec.Exponential: 26e3} {
		d := base
		d.JitterKind = kind
		if got := latest(d); got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	base.JitterKind, base.Jitter = spec.Normal, 9e3
	if got := latest(base); got != 20e3 {
		t.Errorf("normal jitter ends at twice the delay, as it does at 0: got %v", got)
	}
}

// slow simulates a sender whose rate follows the length of the buffer one feedback time earlier,
// while nothing leaves the buffer. It returns the largest length of the buffer until the rate is a
// 500th of the line rate.
func slow(line units.Rate, frame units.Bytes, feedback, period time.Duration,
	rate func(units.Bytes) float64) units.Bytes {
	const step = 50 * time.Nanosecond
	var held units.Bytes
	var history []units.Bytes
	sent, now := 0.0, time.Duration(0)
	told := float64(line)
	for i := 0; told > float64(line)/500 && now < time.Second; i++ {
		history = append(history, held)
		now += step
		if at := now - feedback; at >= 0 && (period == 0 || at%period < step) {
			told = rate(history[at/step])
		}
		if sent += told / 8 * step.Seconds(); sent >= float64(frame) {
			sent -= float64(frame)
			held += frame
		}
	}
	return held
}

// portGFC returns the thresholds of a port by the settings of a file.
func portGFC(h Hop, settings *spec.GFC) PortGFC {
	h.ToNode = true
	return (&GFC{Kind: settings.Kind}).Ports([]PortGFC{givenGFC(settings)}, []Hop{h})[0]
}

// TestGFCThresholds: with the thresholds of the plan the buffer never holds more than BM, even
// while nothing leaves it.
func TestGFCThresholds(t *testing.T) {
	d := Direction{Rate: 10e9, Delay: 5e3}
	h := Hop{MTU: 1500, In: d, Out: d}
	// tau by hand: two delays, two frames and a control frame at 0.8 ns each byte.
	tau := time.Duration(5000 + 5000 + 0.8*(1518+1518+60) + 0.2)
	if got := h.Feedback(); got < tau || got > tau+5 {
		t.Fatalf("feedback takes %v, want %v", got, tau)
	}
	buffer := portGFC(h, &spec.GFC{Kind: spec.GFCBuffer})
	if got := float64(buffer.BM - buffer.B1); math.Abs(got-2*1.25*float64(tau)) > 8 {
		t.Errorf("Bm - B1 is %v, want 2 C tau, %v", got, 2*1.25*float64(tau))
	}
	// 10 Gbit/s / 2^21 is below 8 kbit/s, and B15 is the last that differs.
	if n := len(buffer.Stages); n != 15 || buffer.Stages[0] != buffer.B1 ||
		buffer.Stages[1] != buffer.B1+(buffer.BM-buffer.B1+1)/2 {
		t.Errorf("stages are %v", buffer.Stages)
	}
	if got := time.Duration(portGFC(h, &spec.GFC{Kind: spec.GFCTime}).Period); got != 52428 { // 65,535 bytes
		t.Errorf("the period is %v", got)
	}
}

// TestGFCHolds simulates links of many kinds, with short and long periods.
func TestGFCHolds(t *testing.T) {
	for _, c := range []struct {
		rate   units.Rate
		delay  units.Duration
		mtu    int
		period units.Duration
	}{{10e9, 5e3, 1500, 0}, {10e9, 5e3, 9000, 0}, {1e9, 0, 1500, 0}, {1e9, 50e3, 4200, 0},
		{1e9, 50e3, 4200, 20e3}, {10e9, 100e3, 1500, 10e3}, {10e9, 1e3, 4200, 200e3}} {
		d := Direction{Rate: c.rate, Delay: c.delay}
		h := Hop{MTU: c.mtu, In: d, Out: d}
		buffer := portGFC(h, &spec.GFC{Kind: spec.GFCBuffer})
		held := slow(c.rate, h.frame(), h.Feedback(), 0, func(b units.Bytes) float64 {
			stage := 0
			for stage < len(buffer.Stages) && b >= buffer.Stages[stage] {
				stage++
			}
			return float64(c.rate) / math.Pow(2, float64(stage))
		})
		if held > buffer.Limit || held < buffer.B1 {
			t.Errorf("%+v: buffer-based: the buffer holds %d, with a limit of %d", c, held, buffer.Limit)
		}
		timed := portGFC(h, &spec.GFC{Kind: spec.GFCTime, Period: c.period})
		held = slow(c.rate, h.frame(), h.Feedback(), time.Duration(timed.Period),
			func(b units.Bytes) float64 {
				return float64(c.rate) * min(1,
					max(0, float64(timed.BM)-float64(b))/float64(timed.BM-timed.B1))
			})
		if held > timed.Limit || held < timed.B1 {
			t.Errorf("%+v: time-based: the buffer holds %d, with a limit of %d", c, held, timed.Limit)
		}
	}
}

// TestGFCSettings: values of the file stay, and the others follow from them.
func TestGFCSettings(t *testing.T) {
	d := Direction{Rate: 1e9}
	h := Hop{MTU: 1482, In: d, Out: d} // a frame of 1500 bytes
	size := func(n units.Bytes) *units.Bytes { return &n }
	got := portGFC(h, &spec.GFC{Kind: spec.GFCBuffer, B1: size(10e3), BM: size(10e3 + 8e3), Stages: 4})
	if want := (PortGFC{
		B1:     10e3,
		BM:     18e3,
		Limit:  19500,
		Least:  8e3,
		Stages: []units.Bytes{10e3, 14e3, 16e3, 17e3},
		Given:  GFCGiven{B1: true, BM: true, Stages: 4},
	}); !cmp.Equal(want, got) {
		t.Errorf("got %+v", got)
	}
	room := 2 * h.reaction()
	if got := portGFC(h, &spec.GFC{Kind: spec.GFCBuffer, BM: size(50e3)}); got.B1 != 50e3-room {
		t.Errorf("b1 is %s below bm, want %s", got.BM-got.B1, room)
	}
}

// TestBufferIsDivided adds up the reserved buffer of lossless priorities.
func TestBufferIsDivided(t *testing.T) {
	p, err := compileText(leafSpineFile("  switch: {kind: soft, buffer: 1MB, pfc: {priorities: [3, 4], " +
		"xoff: 20KB, xon: 10KB, headroom: 5KB}, gfc: {b1: 10KB, bm: 30KB, priorities: [2]}, int: true}"))
	if err != nil {
		t.Fatal(err)
	}
	// Four ports, each with two priorities of 25 KB and one of 30 KB and a frame.
	if s := p.Switches[0].Soft; s.Reserved != 4*(2*25e3+30e3+1518) || s.Shared != 1e6-s.Reserved {
		t.Errorf("reserved %s, shared %s", s.Reserved, s.Shared)
	}
	if got := p.Nodes[0].NICs[0].INTRoom; got != INTRoom {
		t.Errorf("INT has %d bytes", got)
	}
	if p.PacketMemory != 256<<20 {
		t.Errorf("memory is %s", p.PacketMemory)
	}
}

func TestPriorityMap(t *testing.T) {
	p, err := compileText(leafSpineFile("  switch: {kind: soft, priorities: {46: 1, 0: 7}}"))
	if err != nil {
		t.Fatal(err)
	}
	got := p.Switches[0].Soft.Priorities
	for dscp, want := range map[int]uint8{0: 7, 1: 0, 7: 0, 8: 1, 45: 5, 46: 1, 47: 5, 63: 7, spec.DSCPRd: 4,
		spec.DSCPRdControl: 6, spec.DSCPTrimmed: 7} {
		if got[dscp] != want {
			t.Errorf("DSCP %d has priority %d, want %d", dscp, got[dscp], want)
		}
	}
	text, err := got.MarshalText()
	if want := "7000000011111111222222223333333344444444555555156666666677777777"; err != nil ||
		string(text) != want {
		t.Errorf("got %s, %v", text, err)
	}
	for _, bad := range []string{"", "0123", "8" + string(text[1:]), string(text) + "0"} {
		if err := new(PriorityMap).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// TestDirectionWith: values that are set override earlier ones, and values that are zero on purpose
// remove them.
func TestDirectionWith(t *testing.T) {
	base := Direction{Rate: 1e9, Queue: 1000, Loss: units.Ratio{Num: 1, Den: 2}, JitterKind: spec.Normal,
		DropEvery: 5, DropList: []uint64{1, 2},
		GilbertElliott: GilbertElliott{Enter: units.Ratio{Num: 1, Den: 3}},
		Reorder:        units.Ratio{Num: 1, Den: 4},
		BitErrorRatio:  units.Ratio{Num: 1, Den: 1e12},
		ReorderBy:      9,
		Overhead:       24,
		Flap:           Flap{Every: 10, For: 1}}
	if got := base.With(spec.Direction{}); !got.Equal(base) {
		t.Errorf("nothing set: %+v", got)
	}
	ratio := units.Ratio{Num: 1, Den: 7}
	got := base.With(spec.Direction{DropList: []int{9, 3, 9},
		GilbertElliott: &spec.GilbertElliott{Enter: ratio, Leave: ratio}, Flap: &spec.Flap{Off: true},
		Zero: spec.ZeroDropEvery | spec.ZeroOverhead | spec.ZeroBitErrorRatio})
	want := base
	want.DropList, want.DropEvery, want.Overhead, want.Flap = []uint64{3, 9}, 0, 0, Flap{}
	want.BitErrorRatio = units.Ratio{}
	want.GilbertElliott = GilbertElliott{Enter: ratio, Leave: ratio, Loss: units.Ratio{Num: 1, Den: 1}}
	if !got.Equal(want) || got.Equal(base) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if diff := cmp.Diff([]string{"jitter-kind", "gilbert-elliott", "drop-every", "drop-list",
		"bit-error-ratio", "reorder", "reorder-by", "overhead", "flap"}, base.SoftOnly()); diff != "" {
		t.Error(diff)
	}
	if keys := (Direction{Rate: 1, Delay: 1, Jitter: 1, Loss: ratio, Queue: 1}).SoftOnly(); keys != nil {
		t.Errorf("a router's link has %v", keys)
	}
	if off := got.With(spec.Direction{GilbertElliott: &spec.GilbertElliott{Off: true},
		Zero: spec.ZeroDropList}); len(off.DropList) != 0 || off.GilbertElliott != (GilbertElliott{}) {
		t.Errorf("got %+v", off)
	}
}

// TestECNBeforePFC: a sender alone fills a queue with marked packets before a port pauses it (Zhu et al.,
// SIGCOMM 2015, section 4), as far as the buffer allows.
func TestECNBeforePFC(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		hosts    int
		xoff     [2]units.Bytes // from, to
	}{
		"the defaults":      {"pfc: true, ecn: true", 4, [2]units.Bytes{160e3, 170e3}},
		"a later kmax":      {"pfc: true, ecn: {kmax: 200KB}", 4, [2]units.Bytes{200e3, 210e3}},
		"without ECN":       {"pfc: true", 4, [2]units.Bytes{6e3, 8e3}},
		"ECN elsewhere":     {"pfc: true, ecn: {priorities: [0]}", 4, [2]units.Bytes{6e3, 8e3}},
		"a given threshold": {"pfc: {xoff: 30KB}, ecn: true", 4, [2]units.Bytes{30e3, 30e3}},
		// Half of 2 MB for 32 ports.
		"many ports":     {"pfc: true, ecn: true", 32, [2]units.Bytes{30e3, 36e3}},
		"a small buffer": {"pfc: true, ecn: true, buffer: 128KB", 4, [2]units.Bytes{15e3, 22e3}},
		"no buffer":      {"pfc: true, ecn: true, buffer: 50KB", 4, [2]units.Bytes{6e3, 8e3}},
	} {
		p := mustCompileText(t, fmt.Sprintf("name: t\nfabric: {topology: single-switch, params: {hosts: "+
			"%d}, switch: "+
			"{%s}, links: {default: {rate: 100mbit, delay: 5us}}}\n", c.hosts, c.settings))
		sw := &p.Switches[0]
		for i := range sw.Ports {
			if at := sw.Ports[i].PFC; at.XOff < c.xoff[0] || at.XOff > c.xoff[1] || at.XOn > at.XOff {
				t.Errorf("%s: port %d has %+v, want xoff in %v", name, i, at, c.xoff)
			}
		}
		if sw.Soft.Shared < sw.Soft.Scheduler.Quantum || sw.Soft.Reserved+sw.Soft.Shared != sw.Soft.Buffer {
			t.Errorf("%s: %s reserved and %s shared", name, sw.Soft.Reserved, sw.Soft.Shared)
		}
	}
}
