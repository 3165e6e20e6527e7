package runner

import (
	"slices"
	"testing"

	"railbed/plan"
)

// A run needs kernel bypass of the host if a node asks for it, or if ranks of a step use it by default.
func TestStepsNeedBypass(t *testing.T) {
	const rd = "workload: {name: w, kind: all-reduce, size: 1KiB, transport: rd"
	for name, c := range map[string]struct {
		kind, nodes, step string
		want              []string // reasons
	}{
		"rd": {step: rd + "}", want: []string{"rd in h0 passes by the kernel"}},
		"roce": {step: "workload: {name: w, kind: all-reduce, size: 1KiB, transport: roce}",
			want: []string{"roce in h0 passes by the kernel"}},
		"in-network": {step: "workload: {name: w, kind: all-reduce, size: 1KiB, algorithm: in-network}",
			want: []string{"in-switch in h0 passes by the kernel"}},
		"training": {step: "training: {name: w, model: {layers: 2, hidden: 64, sequence: 8, dp: 4, " +
			"tflops: 1}, transport: rd}", want: []string{"rd in h0 passes by the kernel"}},
		"messages": {step: "messages: {name: w, closed: {sizes: storage, count: 9}, transport: rd}",
			want: []string{"rd in h0 passes by the kernel"}},
		"some nodes": {nodes: "h0: {nic-path: kernel}", step: rd + ", ranks: [0, 1]}",
			want: []string{"rd in h1 passes by the kernel"}},
		"no such rank": {nodes: "'h[0-1]': {nic-path: kernel}", step: rd + ", ranks: [0, 1]}"},
		"asked for, too": {nodes: "h1: {nic-path: bypass}", step: rd + "}",
			want: []string{"node h1 has nic-path: bypass"}},
		"tcp":              {step: "workload: {name: w, kind: all-reduce, size: 1KiB}"},
		"no ranks":         {step: "sleep: 1s"},
		"virtual machines": {nodes: "default: {runtime: vm}", step: rd + "}"},
		"kernel switches":  {kind: "router", step: rd + "}"},
	} {
		kind := "soft, aggregation: {slots: 16}"
		if c.kind != "" {
			kind = c.kind
		}
		o := options(t, "fabric: {topology: single-switch, params: {hosts: 4}, switch: {kind: "+kind+"}}\n"+
			"nodes: {"+c.nodes+"}\nsteps:\n  - "+c.step+"\n")
		var found []string
		for _, r := range slices.Concat(o.Plan.Requires, stepRequirements(o.File, o.Plan)) {
			if r.Feature == plan.KernelBypass {
				found = append(found, r.Reason)
			}
			if r.Feature == plan.KernelBypass && r.Where == "" {
				t.Errorf("%s: no place", name)
			}
		}
		if !slices.Equal(found, c.want) {
			t.Errorf("%s: requires %q, want %q", name, found, c.want)
		}
	}
}
