package proof

import (
	"fmt"
	"slices"
	"strings"

	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
)

// rails warns of rings that leave the rails of their ranks.
func (l *prover) rails() {
	for i, step := range l.File.Steps {
		w := step.Workload
		if w == nil {
			continue
		}
		ranks := l.Plan.RanksOf(w.Ranks)
		if _, largest := plan.Algorithms(w, ranks); largest != schedule.Ring {
			continue
		}
		crossings, example := l.crossings(ranks, schedule.Ring)
		if crossings == 0 {
			continue
		}
		want := "want ranks: in an order so that neighbours share a node or a switch"
		if slices.Contains(spec.Algorithms(w.Collective()), schedule.Hierarchical) && plan.HaveRails(ranks) {
			if others, _ := l.crossings(ranks, schedule.Hierarchical); others == 0 {
				want = "want algorithm: hierarchical, which stays on rails, or auto"
			}
		}
		l.Hardly(fmt.Sprintf("steps[%d].workload.algorithm", i), want,
			"the ring of %s crosses rails in %d of %d hops: %s", w.Name, crossings, len(ranks), example)
	}
}

// crossings returns the number of hops of an algorithm that cross rails, and describes the first. A
// hop crosses rails if a rank sends to another node by several switches, although the NIC of
// another rank of that node is on the sender's own switch.
func (l *prover) crossings(ranks []plan.Rank, algorithm string) (count int, example string) {
	at := map[string]string{} // the switch of each NIC
	for _, n := range l.Plan.Nodes {
		for _, nic := range n.NICs {
			at[n.Name+":"+nic.Name], _, _ = strings.Cut(nic.Peer, ":")
		}
	}
	leaf := func(r plan.Rank) string { return at[r.Node+":"+r.NIC] }
	for _, hop := range plan.Hops(algorithm, ranks) {
		from, to := hop[0], hop[1]
		near := slices.IndexFunc(ranks, func(r plan.Rank) bool {
			return r.Node == to.Node && leaf(r) == leaf(from)
		})
		if from.Node == to.Node || leaf(from) == leaf(to) || near < 0 {
			continue
		}
		if count++; count == 1 {
			example = fmt.Sprintf("rank %d on %s:%s sends to rank %d on %s:%s, though rank %d is on %s",
				from.Rank, from.Node, from.NIC, to.Rank, to.Node, to.NIC, ranks[near].Rank, leaf(from))
		}
	}
	return count, example
}
