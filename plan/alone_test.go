package plan

import "testing"

// TestSwitchesAlone: a fabric needs no hosts.
func TestSwitchesAlone(t *testing.T) {
	for _, settings := range []string{"switch: {kind: soft}", "switch: {kind: router}",
		"switch: {kind: bridge}",
		"switch: {forwarding: l2}", "switch: {kind: router}, routing: {daemon: frr}",
		"switch: {pfc: true, ecn: true, int: true, trim: true, aggregation: true}"} {
		p := mustCompileText(t, "name: t\nfabric: {topology: explicit, "+settings+
			", switches: {r1: {}, r2: {}, r3: {}}, connect: [r1 -- r2, r2 -- r3]}\n")
		if len(p.Nodes) != 0 || len(p.Ranks) != 0 || len(p.Switches) != 3 || len(p.Links) != 2 {
			t.Errorf("%s: %d nodes, %d switches, %d links", settings, len(p.Nodes), len(p.Switches),
				len(p.Links))
		}
	}
}
