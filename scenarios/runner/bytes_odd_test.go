package runner

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// star is a file with so many hosts at one switch, what they do, and checks of the bytes of each
// workload by a formula, to the byte.
func star(hosts int, steps []string, formulas map[string]string) string {
	var checks strings.Builder
	for name, formula := range formulas {
		fmt.Fprintf(&checks, "  - workload: {name: %s, correct: true}\n  - packets: {bytes-per-rank: "+
			"{workload: %s, formula: %s}}\n", name, name, formula)
	}
	return fmt.Sprintf("fabric:\n  topology: single-switch\n  params: {hosts: %d}\n  switch: {kind: "+
		"soft}\n  links: {default: {rate: 1gbit, delay: 5us, mtu: 4200}}\nsteps:\n  - capture: {at: "+
		"[\"h*\"], file: run.pcapng}\n  - %s\nchecks:\n%s",
		hosts, strings.Join(steps, "\n  - "), checks.String())
}

// fewElements is workloads of eight ranks with less than an element for each, or with a rest.
func fewElements() string {
	var steps []string
	formulas := map[string]string{}
	for i, w := range []struct{ kind, algorithm, keys string }{
		{"all-reduce", "ring", "size: 12B"},
		{"all-reduce", "ring", "size: 2B, type: bfloat16"},
		{"all-reduce", "ring", "size: 1200044B"}, // with leave of the receivers
		{"all-reduce", "tree", "size: 12B"},
		{"all-reduce", "halving-doubling", "size: 44B"},
		{"all-reduce", "recursive-doubling", "size: 12B"},
		{"all-gather", "ring", "size: 20B"},
		{"reduce-scatter", "ring", "size: 14B, type: half"},
		{"broadcast", "binomial", "size: 4B, root: 3"},
		{"reduce", "ring", "size: 52B, root: 5"},
		{"all-to-all", "direct", "size: 12B"},
		{"all-to-all", "pairwise", "size: 404B, skew: 2"},
	} {
		formula := w.algorithm + "-" + w.kind
		if w.kind == "all-to-all" {
			formula = w.kind
		}
		for k, transport := range []string{"tcp", "rd", "roce"} {
			if k > 0 && i > 2 && k != 1+i%2 {
				continue // once over one of them is enough
			}
			name := fmt.Sprintf("w%d-%s", i, transport)
			formulas[name] = formula
			steps = append(steps, fmt.Sprintf("workload: {name: %s, kind: %s, algorithm: %s, transport: "+
				"%s, warmup: 1, iterations: 2, %s}", name, w.kind, w.algorithm, transport, w.keys))
		}
	}
	return star(8, steps, formulas)
}

// rails is collectives of four servers with two ranks each: what they send to other servers is wanted.
func rails() string {
	text := star(4, []string{
		"workload: {name: reduce, kind: all-reduce, algorithm: hierarchical, size: 44B, iterations: 2}",
		"workload: {name: gather, kind: all-gather, algorithm: hierarchical, transport: rd, size: 60B, " +
			"iterations: 2}",
		"workload: {name: scatter, kind: reduce-scatter, algorithm: hierarchical, transport: rd, size: " +
			"8012B, iterations: 2}",
		"workload: {name: auto, kind: all-reduce, algorithm: auto, sizes: {from: 12B, to: 49152B, factor: " +
			"64}, iterations: 2}",
		"workload: {name: ring, kind: all-reduce, size: 52B, iterations: 2}",
		"workload: {name: all, kind: all-to-all, transport: rd, size: 4100B, iterations: 1}",
		"workload: {name: barrier, kind: barrier, iterations: 3}",
		"workload: {name: experts, kind: moe, iterations: 1, moe: {experts: 16, tokens: 17, hidden: 128, " +
			"top-k: 3, skew: 0.5}}",
	}, map[string]string{
		"reduce": "hierarchical-all-reduce", "gather": "hierarchical-all-gather",
		"scatter": "hierarchical-reduce-scatter", "auto": "auto-all-reduce", "experts": "moe",
		"ring": "ring-all-reduce", "all": "all-to-all", "barrier": "dissemination-barrier",
	})
	return strings.Replace(text, "steps:", "nodes: {default: {ranks: 2}}\nsteps:", 1)
}

// simAI is a workload of three tensor and two data parallel ranks, whose sizes they cannot share.
const simAI = `HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 3 ep: 1 pp: 1 vpp: 2 ga: 1 all_gpus: 6 checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0
3
embedding	-1	1000	ALLREDUCE	16	1	NONE	0	1	NONE	0	100
mlp_layer	-1	3000	ALLGATHER	8194	2000	REDUCESCATTER	8200	1500	ALLREDUCE	65540	100
experts	-1	3000	ALLTOALL	4100	2000	ALLREDUCE	280004	1500	REDUCESCATTER	4	100
`

// fineRing is a program of MSCCL for an all-reduce around a ring, in so many channels, each in chunks of
// its own.
func fineRing(ranks, channels int) string {
	var xml strings.Builder
	fmt.Fprintf(&xml, "<algo name=\"fine-ring\" proto=\"Simple\" nchannels=\"%d\" nchunksperloop=\"%d\" "+
		"ngpus=\"%d\" coll=\"allreduce\" inplace=\"0\">\n", channels, ranks*channels, ranks)
	for r := range ranks {
		fmt.Fprintf(&xml, "<gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"0\">\n", r,
			ranks*channels, ranks*channels)
		for c := range channels {
			fmt.Fprintf(&xml, "<tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"%d\">\n", c, (r+1)%ranks,
				(r+ranks-1)%ranks, c)
			for step := range 2*ranks - 1 {
				op, from, to := "rrs", "i", "i"
				switch {
				case step == 0:
					op = "s"
				case step == ranks-1:
					op, to = "rrcs", "o"
				case step == 2*ranks-2:
					op, from, to = "r", "o", "o"
				case step >= ranks:
					op, from, to = "rcs", "o", "o"
				}
				chunk := c*ranks + (r-1-step+3*ranks)%ranks
				fmt.Fprintf(&xml, "<step s=\"%d\" type=\"%s\" srcbuf=\"%s\" srcoff=\"%d\" dstbuf=\"%s\" "+
					"dstoff=\"%d\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n", step, op, from,
					chunk, to, chunk)
			}
			xml.WriteString("</tb>\n")
		}
		xml.WriteString("</gpu>\n")
	}
	return xml.String() + "</algo>\n"
}

// TestBytesThatRanksCannotShare: what ranks send is wanted to the byte where they cannot share the
// size evenly, and where small messages have much framing around them.
func TestBytesThatRanksCannotShare(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	cases := map[string]struct {
		text  string
		files map[string]string
	}{
		"eight ranks": {fewElements(), nil},
		"SimAI": {star(6, []string{
			"training: {name: tcp, trace: job.txt, iterations: 2}",
			"training: {name: rd, trace: job.txt, transport: rd, iterations: 2}",
			"training: {name: roce, trace: job.txt, transport: roce, bytes-scale: 1/3, iterations: 1}",
		}, map[string]string{"tcp": "training", "rd": "training", "roce": "training"}),
			map[string]string{"job.txt": simAI}},
		"a switch that adds up": {strings.Replace(star(6, []string{
			"workload: {name: one, kind: all-reduce, algorithm: in-network, size: 4B, iterations: 2}",
			"workload: {name: few, kind: all-reduce, algorithm: in-network, type: half, size: 2054B, " +
				"warmup: 0, iterations: 3}",
		}, map[string]string{"one": "in-network-all-reduce", "few": "in-network-all-reduce"}), "{kind: soft}",
			"{kind: soft, aggregation: {slots: 16, elements: 256, timeout: 5s}}", 1), nil},
		"servers with two rails": {rails(), nil},
		"a fine ring of 16": {star(16, []string{
			"workload: {name: tcp, kind: all-reduce, algorithm: msccl, file: ring.xml, size: 128KiB, " +
				"warmup: 0, iterations: 2}",
			"workload: {name: rd, kind: all-reduce, algorithm: msccl, file: ring.xml, transport: rd, size: " +
				"126KiB, warmup: 0, iterations: 1}",
		}, map[string]string{"tcp": "msccl", "rd": "msccl"}), map[string]string{"ring.xml": fineRing(16, 8)}},
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		if !hosttest.Sampled(t, i) {
			continue
		}
		c := cases[name]
		t.Run(name, func(t *testing.T) {
			o := options(t, c.text)
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(filepath.Dir(o.Path), name), []byte(text),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, held := runAndHold(t, o)
			for _, check := range r.Checks {
				if check.Verdict != verdict.Pass {
					t.Errorf("%s: %s %s %v", check.Name, check.Verdict, check.Summary, check.Details)
				}
			}
			for i := range held.Workloads {
				wantOther(&held.Workloads[i].Traffic.Ranks[i%6])
			}
			for i, check := range rejudge(t, o, held) {
				if o.File.Checks[i].Packets != nil && check.Verdict != verdict.Fail {
					t.Errorf("with another number: %s: %s %s", check.Name, check.Verdict, check.Summary)
				}
			}
		})
	}
}
