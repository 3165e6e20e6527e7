package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"railbed/testbed/spec"
)

// workersOf are the ranks of a switch's job, as "rank@node:nic".
func workersOf(t *testing.T, p *Plan, sw string) []string {
	t.Helper()
	var workers []string
	s := p.Switch(sw)
	for _, job := range s.Soft.Aggregation.Jobs {
		if job.Number != uint16(s.ID) || job.Addr4 != s.Loopbacks[0].Addr() || job.Addr6 != s.Loopbacks[1].Addr() || job.KeySeed == 0 {
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
	p := mustCompileText(t, "name: t\nfabric:\n  topology: leaf-spine\n  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}\n  switch: {kind: soft, aggregation: {slots: 4}}\n"+
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
	p = mustCompileText(t, "name: t\nfabric:\n  topology: fat-tree\n  params: {k: 4}\n  switch: {kind: soft, aggregation: {slots: 4}}\n")
	for i := range p.Switches {
		sw := &p.Switches[i]
		if got, want := len(workersOf(t, p, sw.Name)), []int{2, 4, 16}[sw.Tier]; got != want {
			t.Errorf("%s of tier %d has %d workers, want %d", sw.Name, sw.Tier, got, want)
		}
	}
}

// TestAggregationRefuses what cannot be.
func TestAggregationRefuses(t *testing.T) {
	for want, text := range map[string]string{
		"leaf1 aggregates, and 65 ranks are below it; want at most 64, or aggregation: false for leaf1": "params: {hosts: 65}\n  switch: {kind: soft, aggregation: {slots: 4}}\n",
		"messages of 360 elements do not fit mtu 1500 of h0:eth0; want at most 359":                     "params: {hosts: 2}\n  switch: {kind: soft, aggregation: {elements: 360}}\n",
		"take more than 256MiB; want fewer slots":                                                       "params: {hosts: 2}\n  switch: {kind: soft, aggregation: {slots: 65536, elements: 1000}}\n  links: {default: {mtu: 9000}}\n",
	} {
		_, err := compileText("name: t\nfabric:\n  topology: single-switch\n  " + text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := compileText("name: t\nfabric:\n  topology: single-switch\n  params: {hosts: 2}\n  switch: {kind: soft, aggregation: {elements: 359}}\n"); err != nil {
		t.Error(err)
	}
}
