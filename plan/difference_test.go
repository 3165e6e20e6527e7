package plan

import (
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	const base = "name: t\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 2, hosts-per-leaf: " +
		"2}, links: {default: {rate: 1gbit}}}\n"
	for _, c := range []struct {
		replace, by string
		links       int
		rest        []string // prefixes of all lines, in order
	}{
		{"", "", 0, nil},
		{"rate: 1gbit", "rate: 100mbit", 8, nil},
		{"default: {rate: 1gbit}", "default: {rate: 1gbit}, \"h0--leaf1\": {a-to-b: {rate: 2gbit}}", 1, nil},
		{"hosts-per-leaf: 2", "hosts-per-leaf: 1", 0,
			[]string{"node h2, h3: removed", "link h1--leaf2: added",
				"link h1--leaf1, h2--leaf2, h3--leaf2: removed"}},
		{"rate: 1gbit", "rate: 1gbit, mtu: 9000", 8,
			[]string{"link h0--leaf1, h1--leaf1, h2--leaf2, h3--leaf2 and 4 more: mtu 1500, want 9000"}},
		{"name: t\n", "name: t\nnodes: {h2: {cpu: 0.5}}\n", 0, []string{"node h2: cpu none, want 0.5"}},
		{"name: t\n", "name: t\nnodes: {h1: {rdma: rxe}}\n", 0, []string{"node h1: rdma none, want rxe"}},
		{"name: t\n", "name: t\nnodes: {h3: {ranks: 2}}\n", 0, []string{"node h3: ranks 1, want 2"}},
		{"name: t\n", "name: t\nnodes: {h1: {env: {KEY: s3cret}, sysctls: {net.core.somaxconn: 9}}}\n", 0,
			[]string{"node h1: env.KEY differs; sysctls.net.core.somaxconn none, want 9"}},
		{"name: t\n", "name: t\nseed: 9\n", 0, []string{"seed 1, want 9"}},
		{"2}, links", "2}, switch: {buffer: 1MB, ecn: {kmin: 40KB, kmax: 160KB, pmax: 20%}}, links", 8,
			[]string{"switch leaf1, leaf2, spine1, spine2: buffer 2MB, want 1MB; ecn.kind none, want red; " +
				"ecn.kmax none, want 160KB; ecn.kmin none, want 40KB; ecn.pmax none, want 20%"}},
		{"2}, links", "2}, switches: {leaf1: {load-balance: spray}}, links", 0,
			[]string{"switch leaf1: load-balance flow, want spray"}},
		{"name: t\n", "name: t\naddressing: {loopbacks4: 10.9.0.0/16}\n", 0,
			[]string{"node h0, h1, h2, h3: other addresses, routes or ports",
				"switch leaf1, leaf2, spine1, spine2: other addresses"}},
		{"name: t\n", "name: t\nnodes: {h3: {nic-path: kernel}}\n", 0,
			[]string{"node h3: nic-path bypass, want kernel"}},
		{"name: t\n", "name: t\nnodes: {h3: {nic-mirror: true}}\n", 0,
			[]string{"node h3: nic-mirror none, want true"}},
		{"name: t\n", "name: t\nnodes: {h3: {nic-queue: 1MB}}\n", 1,
			[]string{"node h3: nic-queue 256KiB, want 1MB"}},
		{"2}, links", "2}, memory: 128MiB, links", 0, []string{"memory of the fabric 256MiB, want 128MiB"}},
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
		if len(got.Rest) != len(c.rest) {
			t.Errorf("%s for %s: told %q, want %q", c.by, c.replace, got.Rest, c.rest)
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
		for _, line := range got.Rest {
			for _, internal := range []string{"_", "soft", "neighbo", "next_hops", "s3cret", "{", "["} {
				if strings.Contains(line, internal) {
					t.Errorf("%s for %s: %q, of which %q is no word of files", c.by, c.replace, line,
						internal)
				}
			}
		}
		// Compare finds every difference: without one the plans are the same.
		if len(got.Links)+len(got.Rest) == 0 != (have.Hash() == want.Hash()) {
			t.Errorf("%s for %s: hashes %s, %s, difference %+v", c.by, c.replace, have.Hash(), want.Hash(),
				got)
		}
	}
}

// TestChanges: two runs' plans differ in the words of files, links' settings included.
func TestChanges(t *testing.T) {
	const base = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, links: {default: {rate: " +
		"1gbit}}}\n"
	for _, c := range []struct {
		replace, by string
		want        []string
	}{
		{"", "", nil},
		{"rate: 1gbit", "rate: 2gbit", []string{"link h0--leaf1, h1--leaf1: rate 1gbit, now 2gbit"}},
		{"rate: 1gbit", "rate: 1gbit, delay: 5us", []string{
			"link h0--leaf1, h1--leaf1: delay none, now 5us"}},
		{"rate: 1gbit", "rate: 1gbit, bit-error-ratio: 1e-12", []string{
			"link h0--leaf1, h1--leaf1: bit-error-ratio none, now 1e-12"}},
		{"rate: 1gbit}", "rate: 1gbit}, \"h1--leaf1\": {b-to-a: {loss: 1%}}", []string{
			"link h1--leaf1 b-to-a: loss none, now 1%"}},
		{"name: t\n", "name: t\nnodes: {h1: {cpu: 0.5}}\n", []string{"node h1: cpu none, now 0.5"}},
		{"name: t\n", "name: t\nseed: 2\n", []string{"seed 1, now 2"}},
		{"hosts: 2", "hosts: 3", []string{"node h2: added", "link h2--leaf1: added"}},
	} {
		before, now := mustCompileText(t, base), mustCompileText(t, strings.Replace(base, c.replace, c.by, 1))
		if got := Changes(before, now); !slices.Equal(got, c.want) {
			t.Errorf("%s for %s: %q, want %q", c.by, c.replace, got, c.want)
		}
	}
}

// The buffer that a switch reserves for PFC and GFC follows its links, except for values of the
// file.
func TestCompareHeadroom(t *testing.T) {
	const base = "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft, " +
		"buffer: 4MB, pfc: {xon: 50KB}, gfc: {priorities: [2], b1: 40KB, stages: 9}}, links: {default: " +
		"{rate: 1gbit, delay: 5us}}}\n"
	for _, c := range []struct{ replace, by, rest string }{
		{"delay: 5us", "delay: 100us", ""},
		{"rate: 1gbit", "rate: 4gbit", ""},
		{"xon: 50KB", "xon: 51KB", "switch leaf1: pfc.xon 50KB, want 51KB"},
		{"xon: 50KB", "xon: 50KB, headroom: 60KB", "switch leaf1: pfc.headroom none, want 60KB"},
		{"pfc: {xon: 50KB}", "pfc: {xon: 50KB, priorities: [3, 4]}",
			"switch leaf1: pfc.priorities 3, want 3,4"},
		{"b1: 40KB", "b1: 41KB", "switch leaf1: gfc.b1 40KB, want 41KB"},
		{"b1: 40KB, stages: 9", "bm: 90KB, stages: 8",
			"switch leaf1: gfc.b1 40KB, want none; gfc.bm none, want 90KB; gfc.stages 9, want 8"},
		{"stages: 9", "kind: time, period: 50us",
			"switch leaf1: gfc.kind buffer, want time; gfc.period none, want 50us; gfc.stages 9, want none"},
		{"buffer: 4MB", "buffer: 5MB", "switch leaf1: buffer 4MB, want 5MB"},
	} {
		have, err1 := compileText(base)
		want, err2 := compileText(strings.Replace(base, c.replace, c.by, 1))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		got := Compare(have, want)
		if rest := strings.Join(got.Rest, "\n"); rest != c.rest || len(got.Links) == 0 && c.rest == "" {
			t.Errorf("%s for %s: links %v, rest %q, want %q", c.by, c.replace, got.Links, rest, c.rest)
		}
	}
}
