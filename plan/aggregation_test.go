package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// workersOf returns the ranks of a switch's job, as "rank@node:nic".
func workersOf(t *testing.T, p *Plan, sw string) []string {
	t.Helper()
	var workers []string
	s := p.Switch(sw)
	for _, job := range s.Soft.Aggregation.Jobs {
		if job.Number != uint16(s.ID) || job.Root().Addr4 != s.Loopbacks[0].Addr() ||
			job.Root().Addr6 != s.Loopbacks[1].Addr() || job.KeySeed == 0 || job.SwitchSeed == job.KeySeed {
			t.Errorf("%s: %+v", sw, job)
		}
		for _, w := range job.Workers {
			workers = append(workers, fmt.Sprintf("%d@%s:%s", w.Rank, w.Node, w.NIC))
			if rank := p.Ranks[w.Rank]; rank != w {
				t.Errorf("%s: %+v is not rank %+v", sw, w, rank)
			}
		}
	}
	return workers
}

func mustCompileText(t *testing.T, text string) *Plan {
	t.Helper()
	file, err := spec.Decode("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return mustCompile(t, file)
}

// TestAggregationJobs: a switch adds up for the ranks below it.
func TestAggregationJobs(t *testing.T) {
	p := mustCompileText(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, "+
		"hosts-per-leaf: 2}\n  switch: {kind: soft, aggregation: {slots: 4}}\n"+
		"nodes: {h1: {ranks: 2}}\n")
	for sw, want := range map[string][]string{
		"leaf1":  {"0@h0:eth0", "1@h1:eth0", "2@h1:eth0"},
		"leaf2":  {"3@h2:eth0", "4@h3:eth0"},
		"spine1": {"0@h0:eth0", "1@h1:eth0", "2@h1:eth0", "3@h2:eth0", "4@h3:eth0"},
		"spine2": {"0@h0:eth0", "1@h1:eth0", "2@h1:eth0", "3@h2:eth0", "4@h3:eth0"},
	} {
		if diff := cmp.Diff(want, workersOf(t, p, sw)); diff != "" {
			t.Errorf("%s: %s", sw, diff)
		}
	}
	seeds := map[uint64]bool{}
	for i := range p.Switches {
		seeds[p.Switches[i].Soft.Aggregation.Jobs[0].KeySeed] = true
	}
	if len(seeds) != len(p.Switches) {
		t.Errorf("%d seeds for %d switches", len(seeds), len(p.Switches))
	}
	// In a pod of a fat tree the aggregation switches have the pod below them.
	p = mustCompileText(t, "name: t\nfabric:\n  topology: fat-tree\n  params: {k: 4}\n  switch: {kind: "+
		"soft, aggregation: {slots: 4}}\n")
	for i := range p.Switches {
		sw := &p.Switches[i]
		if got, want := len(workersOf(t, p, sw.Name)), []int{2, 4, 16}[sw.Tier]; got != want {
			t.Errorf("%s of tier %d has %d workers, want %d", sw.Name, sw.Tier, got, want)
		}
	}
}

// TestAggregationTrees checks which switches add up for which ranks, and which tree is taken.
func TestAggregationTrees(t *testing.T) {
	const soft = "  switch: {kind: soft, aggregation: {slots: 4}}\n"
	for name, test := range map[string]struct {
		text, root, want  string
		busiest           time.Duration
		crossings, height int
	}{
		"one switch": {"topology: single-switch\n  params: {hosts: 3}\n" + soft, "",
			"leaf1 (ranks 0 1 2)", 0, 3, 1},
		"spine": {"topology: leaf-spine\n  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n" +
			soft, "", "spine1 (leaf1 (ranks 0 1), leaf2 (ranks 2 3))", 0, 6, 2},
		"named": {"topology: leaf-spine\n  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n" +
			soft, "spine2", "spine2 (leaf1 (ranks 0 1), leaf2 (ranks 2 3))", 0, 6, 2},
		"faster spine": {"topology: leaf-spine\n  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n" +
			soft + "  links: {default: {rate: 1gbit}, \"*--spine2\": {rate: 10gbit}}\n", "",
			"spine2 (leaf1 (ranks 0 1), leaf2 (ranks 2 3))", 870 * time.Nanosecond, 6, 2},
		"one leaf adds": {"topology: leaf-spine\n  params: {leaves: 2, spines: 1, hosts-per-leaf: 2}\n" +
			soft + "  switches: {leaf2: {aggregation: false}}\n  links: {default: {rate: 1gbit}}\n", "",
			"spine1 (ranks 2 3, leaf1 (ranks 0 1))", 17408 * time.Nanosecond, 7, 2},
		"one for a leaf": {"topology: leaf-spine\n  params: {leaves: 3, spines: 1, hosts-per-leaf: 1}\n" +
			soft, "", "spine1 (ranks 0 1 2)", 0, 6, 1},
		"rails": {"topology: rail-optimized\n  params: {servers: 3, rails: 2, spines: 2}\n" + soft +
			"nodes: {default: {ranks: 2}}\n", "", "spine1 (leaf1 (ranks 0 2 4), leaf2 (ranks 1 3 5))", 0, 8,
			2},
		"three levels": {"topology: fat-tree\n  params: {k: 4}\n" + soft, "",
			"core1 (agg1 (leaf1 (ranks 0 1), leaf2 (ranks 2 3)), agg3 (leaf3 (ranks 4 5), leaf4 (ranks 6 " +
				"7)), " +
				"agg5 (leaf5 (ranks 8 9), leaf6 (ranks 10 11)), agg7 (leaf7 (ranks 12 13), leaf8 (ranks 14 " +
				"15)))",
			0, 28, 3},
		"only the core and edges": {"topology: fat-tree\n  params: {k: 4}\n" + soft +
			"  switches: {\"agg*\": {aggregation: false}}\n", "",
			"core1 (leaf1 (ranks 0 1), leaf2 (ranks 2 3), leaf3 (ranks 4 5), leaf4 (ranks 6 7), " +
				"leaf5 (ranks 8 9), leaf6 (ranks 10 11), leaf7 (ranks 12 13), leaf8 (ranks 14 15))", 0, 32,
			2},
	} {
		p := mustCompileText(t, "name: t\nfabric:\n  "+test.text)
		job, err := p.AggregationFor(p.Ranks, test.root)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cost := p.AggregationCost(job)
		if got := job.Text(); got != test.want ||
			time.Duration(cost.Busiest) != test.busiest && test.busiest > 0 ||
			cost.Crossings != test.crossings || job.Height(0) != test.height {
			t.Errorf("%s: %s, busiest %v, %d links crossed, height %d; want %s, %v, %d, %d", name, got,
				cost.Busiest, cost.Crossings, job.Height(0), test.want, test.busiest, test.crossings,
				test.height)
		}
		if all := job.Below(0); all != 1<<len(p.Ranks)-1 {
			t.Errorf("%s: workers %b are below the root", name, all)
		}
	}
	two := mustCompileText(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, "+
		"hosts-per-leaf: 2}\n"+soft)
	first := two.Switch("spine1").Soft.Aggregation.Jobs[0].Number
	if job, err := two.AggregationFor(two.Ranks, "", first); err != nil || job.Root().Switch != "spine2" {
		t.Errorf("beside a collective at spine1: %+v, %v", job, err)
	}
	some := []Rank{two.Ranks[1], two.Ranks[2]}
	some[0].Rank, some[1].Rank = 0, 1
	if _, err := two.AggregationFor(some, ""); err == nil ||
		!strings.Contains(err.Error(), "spine1 also has other ranks below it") {
		t.Errorf("ranks 1 and 2 alone: %v", err)
	}
	if _, err := two.AggregationFor(two.Ranks, "spine1", first); err == nil ||
		!strings.Contains(err.Error(), "spine1 adds up for another collective") {
		t.Errorf("beside a collective at spine1, again at spine1: %v", err)
	}
	p := mustCompileText(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 1, "+
		"hosts-per-leaf: 2}\n"+
		"  switch: {kind: soft, aggregation: {slots: 8, elements: 100, timeout: 2s}}\n  switches: {leaf1: "+
		"{aggregation: {slots: 4}}, leaf2: {aggregation: {elements: 50, timeout: 3s}}}\n")
	if job, err := p.AggregationFor(p.Ranks, ""); err != nil || job.Slots != 4 || job.Elements != 50 ||
		time.Duration(job.Timeout) != 3*time.Second || job.Patience(0) != 6*time.Second {
		t.Errorf("%+v, %v; want what all have", job, err)
	}
}

// TestAggregationChanges: rates of links can be changed live, whatever tree they favour. Other
// changes are described in the words of files.
func TestAggregationChanges(t *testing.T) {
	const base = "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, hosts-per-leaf: " +
		"2}, switch: {kind: soft, aggregation: {slots: 8}}, links: {default: {rate: 1gbit}}}\n"
	have := mustCompileText(t, base)
	if d := Compare(have, mustCompileText(t, strings.Replace(base, "1gbit", "2gbit", 1))); !d.Live() ||
		len(d.Links) != 6 {
		t.Errorf("another rate is told as %q", d.Rest)
	}
	for by, want := range map[string]string{
		"aggregation: {slots: 9}": "switch leaf1, leaf2, spine1: " +
			"aggregation.slots 8, want 9",
		"aggregation: {slots: 8, timeout: 2s}": "switch leaf1, leaf2, spine1: " +
			"aggregation.timeout 1s, want 2s",
		"aggregation: {slots: 8}}, switches: {leaf1: {aggregation: false}": "switch leaf1: " +
			"aggregation.elements 256, want none",
	} {
		if d := Compare(have, mustCompileText(t,
			strings.Replace(base, "aggregation: {slots: 8}", by, 1))); d.Live() ||
			!strings.HasPrefix(d.Rest[0], want) || strings.ContainsAny(strings.Join(d.Rest, " "), "_{[") {
			t.Errorf("%s is told as %q, want %q", by, d.Rest, want)
		}
	}
}

// TestAggregationRefusesWorkloads that no switch can add up, at their position.
func TestAggregationRefusesWorkloads(t *testing.T) {
	const spines = "topology: leaf-spine\n  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n"
	step := func(more string) string {
		return "steps: [{workload: {name: w, kind: all-reduce, algorithm: in-network, size: 4KiB" + more +
			"}}]\n"
	}
	for want, text := range map[string]string{
		"f:6:59: no switch adds up for exactly these ranks: spine1 or spine2 is above them, without " +
			"aggregation; want aggregation: {} in fabric.switch, or for spine1 in fabric.switches": spines +
			"  switch: {kind: soft}\n" + step(""),
		"f:6:59: no switch adds up for exactly these ranks: only soft switches can, and this testbed " +
			"has kind: router; want fabric: {switch: {kind: soft, aggregation: {}}}": spines +
			"  switch: {kind: router}\n" + step(""),
		"f:6:91: no switch adds up for exactly these ranks at leaf1; want spine1 or spine2": spines +
			"  switch: {kind: soft, aggregation: {}}\n" + step(", switch: leaf1"),
		"f:6:91: \"spine3\" is no switch": spines + "  switch: {kind: soft, aggregation: {}}\n" +
			step(", switch: spine3"),
		"f:6:87: messages of 355 elements by IPv6 do not fit mtu 1500 of h0:eth0; want ip: 4, or " +
			"aggregation: {elements: 354}": spines +
			"  switch: {kind: soft, aggregation: {elements: 355}}\n" + step(", ip: 6"),
		"f:9:59: no switch adds up for exactly these ranks: they have no common switch above them; want a " +
			"topology whose leaves share a switch": "topology: torus\n  params: {x: 2, y: 2, z: 2}\n" +
			"  switch: {kind: soft, aggregation: {}}\n\n\n\n" + step(""),
	} {
		_, err := compileText("name: t\nfabric:\n  " + text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestAggregationRefuses invalid settings.
func TestAggregationRefuses(t *testing.T) {
	for _, c := range []struct{ want, text string }{
		{
			"leaf1 aggregates, and 65 ranks are below it; want at most 64 ranks, " +
				"or aggregation: false for leaf1",
			"65}\n  switch: {kind: soft, aggregation: {slots: 4}}\n",
		}, {
			"messages of 360 elements do not fit mtu 1500 of h0:eth0; want at most 359",
			"2}\n  switch: {kind: soft, aggregation: {elements: 360}}\n",
		}, {
			"take more than 256MiB; want fewer slots",
			"2}\n  switch: {kind: soft, aggregation: {slots: 65536, elements: 1000}}\n" +
				"  links: {default: {mtu: 9000}}\n",
		},
	} {
		_, err := compileText("name: t\nfabric:\n  topology: single-switch\n  params: {hosts: " + c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := compileText("name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n  switch: " +
		"{kind: soft, aggregation: {elements: 359}}\n"); err != nil {
		t.Error(err)
	}
}
