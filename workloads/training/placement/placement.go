// Package placement chooses the ranks of a testbed that a training job gets.
package placement

import (
	"fmt"
	"slices"

	"railbed/plan"
	"railbed/plan/spec"
)

// Choose chooses count free ranks for a job, in the order of the job's own ranks. taken maps each
// taken rank to its job. The choice depends only on the plan and the taken ranks.
//
// A block is the set of servers whose first NICs are at the same switch, such as the servers of a
// leaf. The policies:
//
//   - packed fills blocks one after the other, and in a block server after server. It takes the
//     block that fits with the least left over or, if none fits, the block with the most free
//     ranks. So few jobs share a link, and few ranks are at another switch than their neighbours.
//   - spread takes the next rank from the next block, and within a block from the next server. A
//     placement for availability does the same, and a fragmented cluster has the same result.
//   - rail-aware packs by the switch of each rank's own NIC. So a rail's ranks come first and
//     neighbours stay on the rail (rails as in Wang et al., "Rail-only", 2023).
//   - non-idle-aware packs too, but considers other jobs: blocks without ranks of other jobs come
//     first, then the blocks with the fewest. No paper was found that defines the term.
func Choose(p *plan.Plan, policy string, count int, taken map[int]string) ([]int, error) {
	var free []int
	for rank := range p.Ranks {
		if taken[rank] == "" {
			free = append(free, rank)
		}
	}
	switch others := len(p.Ranks) - len(free); {
	case len(free) >= count:
	case others == 0:
		return nil, fmt.Errorf("place %d ranks: the testbed has %d", count, len(p.Ranks))
	default:
		return nil, fmt.Errorf("place %d ranks: the testbed has %d, of which other jobs use %d",
			count, len(p.Ranks), others)
	}
	c := chooser{plan: p, taken: taken}
	switch policy {
	case spec.PlacementPacked:
		return c.pack(free, count, c.block, false), nil
	case spec.PlacementNonIdleAware:
		return c.pack(free, count, c.block, true), nil
	case spec.PlacementRailAware:
		return c.pack(free, count, c.rail, false), nil
	case spec.PlacementSpread:
		return c.spread(free, count), nil
	}
	return nil, fmt.Errorf("place %d ranks: unknown policy %q, want %s, %s, %s or %s", count, policy,
		spec.PlacementPacked, spec.PlacementSpread, spec.PlacementRailAware, spec.PlacementNonIdleAware)
}

type chooser struct {
	plan  *plan.Plan
	taken map[int]string
}

// far returns the peer of a node's NIC.
func (c *chooser) far(node, nic string) string {
	n := c.plan.Node(node)
	if n == nil {
		return ""
	}
	for i := range n.NICs {
		if n.NICs[i].Name != nic {
			continue
		}
		if link := c.plan.Link(n.NICs[i].Link); link != nil {
			if link.A.Node == node {
				return link.B.Node
			}
			return link.A.Node
		}
	}
	return ""
}

// block returns the block of a rank's server, and rail the switch of its own NIC.
func (c *chooser) block(rank int) string {
	node := c.plan.Ranks[rank].Node
	return c.far(node, c.plan.Node(node).NICs[0].Name)
}

func (c *chooser) rail(rank int) string {
	return c.far(c.plan.Ranks[rank].Node, c.plan.Ranks[rank].NIC)
}

// group is the ranks of a block or rail.
type group struct {
	name  string
	ranks []int // free ranks
	busy  int   // number of ranks of other jobs
}

// groups returns the free ranks and the number of taken ranks by block or rail, in the plan's
// order.
func (c *chooser) groups(free []int, at func(int) string) (all []group) {
	index := map[string]int{}
	for rank := range c.plan.Ranks {
		name := at(rank)
		if _, known := index[name]; !known {
			index[name] = len(all)
			all = append(all, group{name: name})
		}
		if g := &all[index[name]]; c.taken[rank] != "" {
			g.busy++
		} else if slices.Contains(free, rank) {
			g.ranks = append(g.ranks, rank)
		}
	}
	return all
}

// pack fills blocks or rails one after the other.
func (c *chooser) pack(free []int, count int, at func(int) string, idleFirst bool) (chosen []int) {
	groups := c.groups(free, at)
	for len(chosen) < count {
		left := count - len(chosen)
		best := -1
		better := func(a, b *group) bool {
			if idleFirst && a.busy != b.busy {
				return a.busy < b.busy
			}
			if fits := len(a.ranks) >= left; fits != (len(b.ranks) >= left) {
				return fits
			} else if fits {
				return len(a.ranks) < len(b.ranks)
			}
			return len(a.ranks) > len(b.ranks)
		}
		for i := range groups {
			if len(groups[i].ranks) > 0 && (best < 0 || better(&groups[i], &groups[best])) {
				best = i
			}
		}
		n := min(left, len(groups[best].ranks))
		chosen = append(chosen, groups[best].ranks[:n]...)
		groups[best].ranks = nil
	}
	return chosen
}

// spread takes ranks from all blocks in turn.
func (c *chooser) spread(free []int, count int) (chosen []int) {
	groups := c.groups(free, c.block)
	for i := range groups { // one rank of each server before a second rank of any
		var turns [][]int
		seen := map[string]int{}
		for _, rank := range groups[i].ranks {
			node := c.plan.Ranks[rank].Node
			if seen[node] == len(turns) {
				turns = append(turns, nil)
			}
			turns[seen[node]] = append(turns[seen[node]], rank)
			seen[node]++
		}
		groups[i].ranks = slices.Concat(turns...)
	}
	for turn := 0; len(chosen) < count; turn++ {
		for i := range groups {
			if turn < len(groups[i].ranks) && len(chosen) < count {
				chosen = append(chosen, groups[i].ranks[turn])
			}
		}
	}
	return chosen
}
