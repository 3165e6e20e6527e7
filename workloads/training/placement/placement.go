// Package placement chooses the ranks of a testbed that a training job gets.
package placement

import (
	"fmt"
	"slices"

	"railbed/plan"
	"railbed/plan/spec"
)

// Choose takes so many ranks that nobody has, in the order of the job's own ranks. taken says
// whose a rank is. The same plan and the same ranks taken give the same choice.
//
// A block is the servers whose first NICs are at one switch, as those of a leaf. The policies:
//
//   - packed fills blocks one after the other, and in a block server after server: that block
//     which fits with the least left over or, where none fits, the one with the most free
//     ranks. So few jobs share a link, and few ranks are behind another switch than their
//     neighbours.
//   - spread takes the next rank from the next block, and within a block from the next server:
//     what a placement for availability does, and what is left when a cluster is fragmented.
//   - rail-aware packs by the switch of each rank's own NIC, so that ranks of one rail come
//     first and neighbours stay on it (rails as in Wang et al., "Rail-only", 2023).
//   - non-idle-aware packs too, but looks at who is there: blocks without ranks of other jobs
//     come first, then those with the fewest. No paper was found that defines the word.
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
		return nil, fmt.Errorf("place %d ranks: the testbed has %d, and jobs beside this one have %d of them",
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
	return nil, fmt.Errorf("place %d ranks: policy %q is not known", count, policy)
}

type chooser struct {
	plan  *plan.Plan
	taken map[int]string
}

// far is what stands at the other end of a node's NIC.
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

// block is that of a rank's server, and rail the switch of its own NIC.
func (c *chooser) block(rank int) string {
	node := c.plan.Ranks[rank].Node
	return c.far(node, c.plan.Node(node).NICs[0].Name)
}

func (c *chooser) rail(rank int) string {
	return c.far(c.plan.Ranks[rank].Node, c.plan.Ranks[rank].NIC)
}

// group is ranks that are at one place.
type group struct {
	name  string
	ranks []int // free ones
	busy  int   // of other jobs
}

// groups are the free ranks by place, in the order in which the plan has these, and how many
// are taken there.
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

// pack fills places one after the other.
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
	for i := range groups { // one rank of each server before the second of any
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
