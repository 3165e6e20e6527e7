package runner

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/plan/spec"
	"railbed/workloads/collective"
	"railbed/workloads/training/moe"
	"railbed/workloads/worker"
)

// plannedAllToAll is an all-to-all at computed rates.
const plannedAllToAll = `name: a
fabric: {topology: single-switch, params: {hosts: 4}, links: {default: {rate: 100mbit}}}
steps: [{workload: {name: w, kind: all-to-all, algorithm: ALGORITHM, transport: rd, size: 4KiB, rd: {control: offline RATES}}}]
`

// TestRatesOfAllToAll checks that an all-to-all gets rates of its pattern: in one phase for all
// pairs at once, or in conflict-free phases. A file with several phases must be refused for an
// algorithm with one phase.
func TestRatesOfAllToAll(t *testing.T) {
	compile := func(algorithm, file string) *Options {
		text := strings.NewReplacer("ALGORITHM", algorithm, "RATES", file).Replace(plannedAllToAll)
		path := filepath.Join(t.TempDir(), "a.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		testbed, err := spec.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(testbed)
		if err != nil {
			t.Fatal(err)
		}
		return &Options{File: testbed, Plan: p, Path: path}
	}
	for algorithm, want := range map[string]struct {
		phases, pairs int
		rate          uint64
	}{"direct": {1, 12, 98_000_000 / 3}, "pairwise": {3, 4, 98_000_000}} {
		f, _, err := Rates(*compile(algorithm, ""), "w")
		if err != nil {
			t.Fatal(err)
		}
		if f.Pattern != allocation.AllToAll || len(f.Phases) != want.phases ||
			len(f.Phases[0].Rates) != want.pairs || uint64(f.Phases[0].Rates[0].Rate) != want.rate {
			t.Errorf("%s: %+v", algorithm, f)
		}
	}
	o := compile("direct", ", rates: r.json")
	found, _, err := Rates(*compile("pairwise", ""), "w")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(filepath.Dir(o.Path), "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := found.Write(file); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Rates(*o, "w"); !errors.Is(err, ErrRates) ||
		!strings.Contains(err.Error(), "a.yaml:3:") ||
		!strings.Contains(err.Error(), "want algorithm: pairwise") {
		t.Errorf("phases of an algorithm that has one: %v", err)
	}
}

// TestRatesByDemand checks that an all-to-all of unequal parts and a mixture of experts have rates
// in proportion to the bytes of each pair, out and back.
func TestRatesByDemand(t *testing.T) {
	for _, c := range []struct {
		step     string
		exchange int
	}{
		{"kind: all-to-all, size: 64KiB, skew: 1", 0},
		{"kind: moe, moe: {experts: 8, tokens: 64, hidden: 512, top-k: 2, skew: 1}", 0},
		{"kind: moe, moe: {experts: 8, tokens: 64, hidden: 512, top-k: 2, skew: 1}", 1},
	} {
		path := filepath.Join(t.TempDir(), "a.yaml")
		text := "name: a\nfabric: {topology: single-switch, params: {hosts: 4}, links: {default: {rate: " +
			"100mbit}}}\nsteps: [{workload: {name: w, " + c.step +
			", algorithm: direct, transport: rd, rd: {control: offline}}}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := load(t, path)
		file, back, err := Rates(o, "w")
		if err != nil {
			t.Fatal(err)
		}
		carried := collective.Skewed(4, 64<<10/4, 1, o.Plan.Seed)
		if c.step[:9] == "kind: moe" {
			carried = worker.Matrices(moe.ConfigOf(o.File.Steps[0].Workload.MoE, 4, o.Plan.Seed))[c.exchange]
			if c.exchange == 1 {
				file = back
			}
		}
		// The last ends when the port with most to do can: 98 % of its rate are for data.
		var last, most float64
		for rank := range 4 {
			var in, out float64
			for other := range 4 {
				if other == rank {
					continue
				}
				in, out = in+float64(carried[other][rank]), out+float64(carried[rank][other])
				last = max(last, float64(carried[rank][other])/float64(file.From(rank, 0)[other]))
			}
			most = max(most, in/98e6, out/98e6)
		}
		if math.Abs(last/most-1) > 1e-3 {
			t.Errorf("%s, exchange %d: the last pair ends after %v, the fullest port could after %v", c.step,
				c.exchange, last, most)
		}
	}
}

// TestRatesOfJobs checks that the computed rates of training jobs and messages follow from the
// pairs that send, among a job's own ranks. Two pairs at once use a leaf's uplink, and one pair
// stays within the leaf.
func TestRatesOfJobs(t *testing.T) {
	const head = `name: a
fabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, hosts-per-leaf: 2}, switch: {kind: soft}, links: {default: {rate: 100mbit}, "leaf*--spine1": {rate: 50mbit}}}
steps: [`
	for _, c := range []struct {
		step string
		want map[allocation.Pair]uint64
	}{
		{"training: {name: t, trace: t.cm, ranks: [3, 0, 1], transport: rd, rd: {control: offline RATES}}",
			map[allocation.Pair]uint64{{From: 0, To: 1}: 24_500_000, {From: 0, To: 2}: 24_500_000,
				{From: 1, To: 2}: 73_500_000}},
		{"messages: {name: m, transport: rd, ip: 6, rd: {control: offline RATES}, blocks: {servers: 1, " +
			"count: 40}}", map[allocation.Pair]uint64{{From: 1, To: 0}: 49_000_000,
			{From: 2, To: 0}: 24_500_000, {From: 3, To: 0}: 24_500_000}},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"a.yaml": head + "{" + strings.Replace(c.step, " RATES", "", 1) + "}]\n",
			"b.yaml": head + "{" + strings.Replace(c.step, " RATES", ", rates: r.json", 1) + "}]\n",
			"t.cm": "Nodes 3\nConnections 3\n0->1 start 0 size 100\n0->2 start 0 size 100\n1->2 start 0 " +
				"size 100\n", "r.json": `{"format": "` + allocation.Format +
				`", "testbed": "a", "ranks": 2, "phases": [{"rates": []}]}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o := load(t, filepath.Join(dir, "a.yaml"))
		name := o.File.Steps[0].Work()
		found, _, err := Rates(o, name)
		if err != nil {
			t.Fatal(err)
		}
		got := map[allocation.Pair]uint64{}
		for _, e := range found.Phases[0].Rates {
			got[allocation.Pair{From: e.From, To: e.To}] = uint64(e.Rate)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Error(diff)
		}
		o = load(t, filepath.Join(dir, "b.yaml"))
		if _, _, err := Rates(o, name); !errors.Is(err, ErrRates) ||
			!strings.Contains(err.Error(), "b.yaml:3:") || !strings.Contains(err.Error(), "is for 2 ranks") {
			t.Errorf("rates for other ranks: %v", err)
		}
	}
}
