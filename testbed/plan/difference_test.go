package plan

import (
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	const base = "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: 2}, links: {default: {rate: 1gbit}}}\n"
	for _, c := range []struct {
		replace, by string
		links       int
		rest        []string // each the beginning of a line, in order
	}{
		{"", "", 0, nil},
		{"rate: 1gbit", "rate: 100mbit", 8, nil},
		{"default: {rate: 1gbit}", "default: {rate: 1gbit}, \"h0--leaf1\": {a-to-b: {rate: 2gbit}}", 1, nil},
		{"hosts-per-leaf: 2", "hosts-per-leaf: 1", 0, []string{"node h1: ", "node h2, h3: removed", "switch leaf1, leaf2, spine1, spine2: ports; routes", "link h1--leaf2: added", "link h1--leaf1, h2--leaf2, h3--leaf2: removed"}},
		{"rate: 1gbit", "rate: 1gbit, mtu: 9000", 8, []string{"node h0, h1, h2, h3: nics", "switch leaf1, leaf2, spine1, spine2: ports; soft", "link h0--leaf1, h1--leaf1, h2--leaf2, h3--leaf2 and 4 more: mtu 1500, want 9000"}},
		{"name: t\n", "name: t\nnodes: {h2: {cpu: 0.5}}\n", 0, []string{"node h2: cpu none, want 0.5"}},
		{"name: t\n", "name: t\nnodes: {h3: {ranks: 2}}\n", 0, []string{"ranks differ"}},
		{"name: t\n", "name: t\nseed: 9\n", 0, []string{"seed 1, want 9", "node h0, h1, h2, h3: machine_id", "switch leaf1: hash_seed "}},
	} {
		have, err1 := compileText(base)
		want, err2 := compileText(strings.Replace(base, c.replace, c.by, 1))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		got := Compare(have, want)
		if len(got.Links) != c.links || got.Live() != (len(c.rest) == 0) {
			t.Errorf("%s for %s: links %v, rest %q", c.by, c.replace, got.Links, got.Rest)
		}
		at := 0
		for _, line := range c.rest {
			next := slices.IndexFunc(got.Rest[at:], func(l string) bool { return strings.HasPrefix(l, line) })
			if next < 0 {
				t.Errorf("%s for %s: no %q in %q", c.by, c.replace, line, got.Rest)
				break
			}
			at += next + 1
		}
		// What is found is all: without it the plans are the same.
		if len(got.Links)+len(got.Rest) == 0 != (have.Hash() == want.Hash()) {
			t.Errorf("%s for %s: hashes %s, %s, difference %+v", c.by, c.replace, have.Hash(), want.Hash(), got)
		}
	}
}
