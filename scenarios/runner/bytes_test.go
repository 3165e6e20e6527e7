package runner

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"railbed/scenarios/runner/judge"

	"railbed/capture/verify"
	"railbed/internal/element"
	"railbed/internal/verdict"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// bytesOfAll returns a file with each kind of collective by its default algorithm over each
// transport, and the checks of their bytes. With five ranks it also has each other algorithm over
// one of the transports. Each collective runs in two sizes that the ranks cannot share evenly.
func bytesOfAll(ranks int) string {
	var steps, checks strings.Builder
	transports := []string{"tcp", "rd", "roce"}
	number := ranks
	add := func(kind, algorithm, transport, keys string) {
		name := fmt.Sprintf("w%d-%s-%s", number, kind, transport)
		formula := algorithm + "-" + kind
		if kind == spec.AllToAll || kind == spec.KindMoE {
			formula = kind
		}
		fmt.Fprintf(&steps, "  - workload: {name: %s, kind: %s, algorithm: %s, transport: %s, warmup: 0%s}\n",
			name, kind, algorithm, transport, keys)
		fmt.Fprintf(&checks, "  - workload: {name: %s, correct: true}\n  - packets: {bytes-per-rank: "+
			"{workload: %s, formula: %s, tolerance: 0%%}}\n", name, name, formula)
	}
	for _, kind := range spec.WorkloadKinds() {
		if kind == spec.KindSGD {
			continue
		}
		for a, algorithm := range spec.Algorithms(kind) {
			if algorithm == schedule.MSCCL || algorithm == schedule.InNetwork ||
				algorithm == schedule.Hierarchical || algorithm == schedule.HyperCube {
				continue // files, and testbeds, of their own
			}
			if a > 0 && ranks != 5 {
				continue
			}
			for _, transport := range transports {
				if number++; a > 0 && transport != transports[number/3%3] {
					continue
				}
				keys := fmt.Sprintf(", iterations: 1, type: %s, sizes: {from: 24008B, to: 96032B, factor: 4}",
					element.Types()[number%12])
				if algorithm == schedule.Auto { // one size by another algorithm than the other
					keys = strings.Replace(keys, "24008B, to: 96032B, factor: 4",
						"6008B, to: 96128B, factor: 16", 1)
				}
				switch kind {
				case spec.Barrier:
					keys = ", iterations: 10"
				case spec.KindMoE:
					keys = fmt.Sprintf(", iterations: 1, moe: {experts: %d, tokens: 48, hidden: 512, "+
						"top-k: 3, skew: 0.5}", 2*ranks)
				case string(schedule.Broadcast), string(schedule.Reduce):
					keys += fmt.Sprintf(", root: %d", number%ranks)
				}
				if schedule.Kind(kind).Combines() {
					keys += fmt.Sprintf(", op: %s", element.Ops()[number%5])
				}
				add(kind, algorithm, transport, keys)
			}
		}
	}
	return fmt.Sprintf("fabric:\n  topology: single-switch\n  params: {hosts: %d}\n  switch: {kind: "+
		"soft}\n  links: {default: {rate: 1gbit, delay: 5us, mtu: 4200}}\nsteps:\n  - capture: {at: "+
		"[\"h*\"], file: run.pcapng}\n%schecks:\n%s", ranks, steps.String(), checks.String())
}

// TestBytesOfCollectives checks that each kind of collective sends exactly the bytes of its steps,
// over each transport and among numbers of ranks that are no powers of two. It also checks that
// expecting a byte less, or for a barrier a message less, fails.
func TestBytesOfCollectives(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	for i, ranks := range []int{3, 5, 6} {
		if !hosttest.Sampled(t, i) {
			continue
		}
		o := options(t, bytesOfAll(ranks))
		r, held := runAndHold(t, o)
		for i, c := range r.Checks {
			if c.Verdict != verdict.Pass {
				t.Errorf("%d ranks: %s: %s %s %v", ranks, c.Name, c.Verdict, c.Summary, o.File.Checks[i])
			}
		}
		wantQueuePairsOfTheirOwn(t, held)
		if ranks != 5 {
			continue
		}
		for i := range held.Workloads {
			all := held.Workloads[i].Traffic.Ranks
			rank := &all[i%ranks]
			wantOther(rank)
		}
		for i, c := range rejudge(t, o, held) {
			if o.File.Checks[i].Packets != nil && c.Verdict != verdict.Fail {
				t.Errorf("with another formula: %s: %s %s", c.Name, c.Verdict, c.Summary)
			}
		}
	}
}

// wantOther has a rank send a byte or a message more than wanted. That it sent less would prove
// nothing where a busy host lost packets before the tap.
func wantOther(rank *verify.Rank) {
	switch {
	case rank.Empty != nil:
		rank.Empty.Messages--
	case rank.Expected > 0:
		rank.Expected--
	default: // it sends nothing, and so nothing is lost
		rank.Expected++
	}
}

// wantQueuePairsOfTheirOwn holds that no queue pair's number at an address is of two workloads.
func wantQueuePairsOfTheirOwn(t *testing.T, held *judge.Evidence) {
	t.Helper()
	type block struct {
		addr  netip.Addr
		first uint32
	}
	owners, next := map[block]string{}, map[netip.Addr]uint32{}
	for _, w := range held.Workloads {
		for _, rank := range w.Traffic.Ranks {
			if rank.QueuePairs == nil {
				continue
			}
			at := block{rank.Addr, rank.QueuePairs.First}
			if owner, met := owners[at]; met {
				t.Errorf("%s has the queue pairs of %s at %v", w.Traffic.Name, owner, rank.Addr)
			}
			if owners[at] = w.Traffic.Name; at.first <= next[at.addr] { // any would not be in order
				t.Errorf("%s has queue pairs from %d on, after %d", w.Traffic.Name, at.first, next[at.addr])
			}
			next[at.addr] = at.first
		}
	}
	if len(owners) == 0 {
		t.Error("no queue pairs")
	}
}
