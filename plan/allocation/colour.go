package allocation

import "slices"

// Matchings cuts pairs into phases in which nobody sends twice and nobody receives
// twice, as few as there can be: as many as the busiest has pairs. sender and
// receiver say whose NIC a rank's is.
func Matchings(pairs []Pair, sender, receiver func(rank int) int) [][]Pair {
	c := colouring{}
	colours := 0
	for _, p := range pairs {
		colours = max(colours, c.add(&edge{end{false, sender(p.From)}, end{true, receiver(p.To)}, p})+1)
	}
	phases := make([][]Pair, colours)
	for e, edges := range c {
		for colour, edge := range edges {
			if !e.receives && edge != nil {
				phases[colour] = append(phases[colour], edge.pair)
			}
		}
	}
	for _, phase := range phases {
		slices.SortFunc(phase, func(a, b Pair) int { return a.From - b.From })
	}
	return slices.DeleteFunc(phases, func(p []Pair) bool { return len(p) == 0 })
}

// end is a NIC that sends, or one that receives.
type end struct {
	receives bool
	nic      int
}

type edge struct {
	from, to end
	pair     Pair
}

// colouring is the edges of a bipartite graph at each end, by colour. No end has two
// of one colour.
type colouring map[end][]*edge

func (c colouring) at(e end, colour int) *edge {
	if colour < len(c[e]) {
		return c[e][colour]
	}
	return nil
}

func (c colouring) set(e end, colour int, to *edge) {
	for colour >= len(c[e]) {
		c[e] = append(c[e], nil)
	}
	c[e][colour] = to
}

// free is the first colour that an end has no edge of.
func (c colouring) free(e end) int {
	if i := slices.Index(c[e], nil); i >= 0 {
		return i
	}
	return len(c[e])
}

// add gives an edge a colour, and returns the highest that it used. Where the two
// ends have no free colour in common, the one that is free at the receiver becomes
// free at the sender: along the path from there on whose edges have this colour and
// the sender's free one in turn, both are swapped. In a bipartite graph that path does
// not come to the receiver.
func (c colouring) add(added *edge) int {
	here, there := c.free(added.from), c.free(added.to)
	colours := [2]int{there, here}
	var path []*edge
	for e := added.from; here != there; {
		next := c.at(e, colours[len(path)%2])
		if next == nil {
			break
		}
		path = append(path, next)
		if e == next.from {
			e = next.to
		} else {
			e = next.from
		}
	}
	for i, e := range path {
		c.set(e.from, colours[i%2], nil)
		c.set(e.to, colours[i%2], nil)
	}
	for i, e := range path {
		c.set(e.from, colours[1-i%2], e)
		c.set(e.to, colours[1-i%2], e)
	}
	c.set(added.from, there, added)
	c.set(added.to, there, added)
	return max(here, there)
}
