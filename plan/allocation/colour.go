package allocation

import "slices"

// Matchings divides pairs into phases in which no NIC sends twice and no NIC receives twice. It
// returns the smallest possible number of phases, which is the number of pairs of the busiest NIC.
// sender and receiver return the NIC of a rank.
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

// end is a sending NIC or a receiving NIC.
type end struct {
	receives bool
	nic      int
}

type edge struct {
	from, to end
	pair     Pair
}

// colouring maps each end to its edges by colour. An end has at most one edge of a colour.
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

// free returns the first colour of which an end has no edge.
func (c colouring) free(e end) int {
	if i := slices.Index(c[e], nil); i >= 0 {
		return i
	}
	return len(c[e])
}

// add gives an edge a colour and returns the highest colour that it used. If the two ends have no
// free colour in common, add makes the receiver's free colour free at the sender. To do so it
// follows the path from the sender whose edges have this colour and the sender's free colour in
// turn, and swaps the two colours along it. In a bipartite graph that path does not reach the
// receiver.
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
