package runner

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/testkit/hosttest"
)

// causeScene is a scenario with one fault. $V is a node that the seed chooses, $N its number, and $T a
// transport.
type causeScene struct {
	kind string
	// fabric adds to the file's switch, links adds to its links, and steps come before the workload.
	fabric, links, steps string
	// during is a step beside the workload, from its 600th large packet on.
	during string
	// alone leaves the workload out.
	alone bool
	// where and what are in the first cause.
	where, what string
}

// sent matches the large packets that the victim sends.
const sent = "where: $V--leaf1 a-to-b, match: ip.len > 500"

func faultStepOf(does string) string { return "  - fault: {name: f, " + does + "}\n" }

// causeScenes are the kinds of faults of the benchmark of why.
var causeScenes = []causeScene{
	{kind: "drop", steps: faultStepOf(sent + ", drop: {share: 2%}"), where: "$V:eth0", what: "fault f"},
	{kind: "nth drop", steps: faultStepOf(sent + ", drop: {nth: [40, 90, 200]}"), where: "$V:eth0",
		what: "fault f"},
	{kind: "corrupt", steps: faultStepOf(sent + ", corrupt: {at: 200B, every: 60}"), where: "$V:eth0",
		what: "corrupted packets: fault f"},
	{kind: "rewrite", steps: faultStepOf(sent + ", rewrite: {field: ip.ttl, to: 7, checksums: keep, " +
		"every: 50}"), where: "$V:eth0", what: "rewritten packets: fault f"},
	{kind: "delay", steps: faultStepOf(sent + ", delay: {by: 8ms, share: 10%}"), where: "$V:eth0",
		what: "delayed packets: fault f"},
	{kind: "delay to a NIC", steps: faultStepOf("where: $V--leaf1 b-to-a, match: ip.len > 500, delay: " +
		"{by: 8ms, share: 10%}"), where: "leaf1:p$N", what: "delayed packets: fault f"},
	{kind: "reorder", steps: faultStepOf(sent + ", reorder: {by: 6, every: 10}"), where: "$V:eth0",
		what: "delayed packets: fault f"},
	{kind: "duplicate", steps: faultStepOf("where: $V--leaf1, duplicate: {}"), where: "leaf1:",
		what: "copies that fault f"},
	{kind: "trim", steps: faultStepOf(sent + " && rd, trim: {share: 5%}"), where: "$V:eth0",
		what: "trimmed packets: fault f"},
	{kind: "limit", steps: faultStepOf(sent + ", limit: {rate: 10mbit}"), where: "$V:eth0", what: "fault f"},
	// Both ends of the link lose packets.
	{kind: "loss", links: ", $V--leaf1: {loss: 2%}", what: "dropped packets: loss"},
	{kind: "slow NIC", links: ", $V--leaf1: {a-to-b: {rate: 10mbit}}", where: "$V:eth0",
		what: "its link has 10 Mbit/s"},
	{kind: "slow switch port", links: ", $V--leaf1: {b-to-a: {rate: 10mbit}}", where: "leaf1:p$N",
		what: "its link has 10 Mbit/s"},
	{kind: "link down", during: "link: {where: $V--leaf1, state: down, for: 300ms}", where: "$V--leaf1",
		what: "the link was down"},
	{kind: "flap", links: ", $V--leaf1: {flap: {every: 400ms, for: 60ms}}", where: "$V--leaf1",
		what: "the link was down"},
	{kind: "partition", during: "fault: {name: f, partition: [[$V], [$O]], for: 200ms}", where: ":eth0",
		what: "dropped packets: fault f"},
	{kind: "hang", during: "fault: {name: f, where: $V, hang: true, for: 400ms}", where: "$V",
		what: "fault f stopped its programs"},
	{kind: "crash", during: "fault: {name: f, rank: $N, crash: true}", where: "$V",
		what: "fault f ended its programs"},
	{kind: "slow node", steps: faultStepOf("where: $V, slow: {cpu: 0.02}"), where: "$V",
		what: "fault f limited the processor time"},
	{kind: "busy node", steps: "  - exec: {name: loops, nodes: [$V], command: [sh, -c, 'for i in 1 2 3 4 " +
		"5 6; do (while :; do :; done) & done; wait'], background: true}\n", where: "$V",
		what: "programs of $V wanted"},
	{kind: "pause", fabric: ", pfc: {priorities: [0, 3]}", steps: faultStepOf("where: 'leaf1:p$N', pause: " +
		"{priorities: [0, 3], every: 60}"), where: "", what: "because of fault f"},
	{kind: "incast", steps: "  - traffic: {name: t, from: [$O], to: [$V], rate: 20mbit, size: 1400B, " +
		"for: 500ms}\n", alone: true, where: "leaf1:p$N", what: "behind packets from "},
	{kind: "small buffer", fabric: ", buffer: 12KB", steps: "  - workload: {name: a2a, kind: all-to-all, " +
		"transport: tcp, size: 256KiB, iterations: 6}\n", alone: true, where: "leaf1:p",
		what: "dropped packets: tail"},
}

// file returns the scenario's file for a seed. The transport is tcp for even seeds.
func (c *causeScene) file(seed int) (text string, fill *strings.Replacer) {
	victim := seed % 4
	var others []string
	for node := range 4 {
		if node != victim {
			others = append(others, fmt.Sprintf("h%d", node))
		}
	}
	transport := []string{"tcp", "rd"}[seed%2]
	if c.kind == "trim" { // TCP's packets are not trimmed
		transport = "rd"
	}
	fill = strings.NewReplacer("$V", fmt.Sprintf("h%d", victim), "$N", strconv.Itoa(victim), "$O",
		strings.Join(others, ", "))
	text = fmt.Sprintf(`seed: %d
fabric:
  topology: single-switch
  params: {hosts: 4}
  switch: {kind: soft%s}
  links: {default: {rate: 50mbit, delay: 20us}%s}
steps:
  - capture: {at: [all], file: run.pcapng}
`, seed+1, c.fabric, c.links) + c.steps
	if !c.alone {
		text += "  - workload: {name: ar, kind: all-reduce, transport: " + transport +
			", size: 512KiB, iterations: 6}\n"
	}
	if c.during != "" {
		text += "  - when: 600th ip.len > 500\n    " + c.during + "\n"
	}
	return fill.Replace(text), fill
}

// TestWhyBenchmark runs scenarios with one known cause each, and prints the share of those whose cause `why`
// names first, with the first causes of the others. RAILBED_WHY_SEEDS is the number of seeds, by default 1.
// The share has to be nine tenths from 10 seeds on. With fewer seeds, or on a busy machine, it proves
// nothing.
func TestWhyBenchmark(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	hosttest.Long(t)
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("RAILBED_WHY_SEEDS"), "1"))
	if err != nil {
		t.Fatalf("RAILBED_WHY_SEEDS: %v", err)
	}
	first, runs := 0, 0
	for i := range causeScenes {
		for seed := range seeds {
			c := &causeScenes[i]
			text, fill := c.file(seed + i)
			o := options(t, text)
			if _, err := Run(t.Context(), o); err != nil {
				t.Errorf("%s, seed %d: %v", c.kind, seed+i, err)
				continue
			}
			runs++
			where, what := firstOf(t, o)
			wantWhere, wantWhat := fill.Replace(c.where), fill.Replace(c.what)
			if strings.Contains(where, wantWhere) && strings.Contains(what, wantWhat) {
				first++
				continue
			}
			t.Logf("%s, seed %d: want first %q at %s; got %s: %s", c.kind, seed+i, wantWhat, wantWhere,
				where, what)
		}
	}
	t.Logf("why named the cause first in %d of %d runs of %d kinds", first, runs, len(causeScenes))
	if seeds >= 10 && first*10 < runs*9 {
		t.Error("want nine tenths")
	}
}

// firstOf returns the first cause of the answer with the most messages.
func firstOf(t *testing.T, o Options) (where, what string) {
	t.Helper()
	run, err := bundle.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	r, err := follow.ReadRun(t.Context(), run)
	if err != nil {
		return "", err.Error()
	}
	most := -1
	for _, a := range r.Why(r.Select(follow.Selection{})) {
		if a.Messages > most && len(a.Causes) > 0 {
			most, where, what = a.Messages, a.Causes[0].Where[0], a.Causes[0].What
		}
	}
	return where, what
}
