// Package cover chooses the fewest points of a fabric that see given flows.
//
// A point is a port that sends packets. A flow has one or several paths, and each packet of the flow takes
// one of them. A set of points sees a flow if it has a point of each path of the flow. To see all flows is
// therefore the hitting set problem over paths, which is set cover with paths as elements (Karp,
// "Reducibility among Combinatorial Problems", 1972). The package is pure.
package cover

import (
	"cmp"
	"slices"
)

// Flow is the paths that the packets of a flow may take. A path is the numbers of its points. A flow
// has at least one path, and a path at least one point.
type Flow [][]int

// Seen returns the number of the flow's paths that have one of the points.
func (f Flow) Seen(points ...int) (paths int) {
	for _, path := range f {
		if slices.ContainsFunc(path, func(p int) bool { return slices.Contains(points, p) }) {
			paths++
		}
	}
	return paths
}

// Result is a choice of points.
type Result struct {
	// Points are the chosen points, ascending.
	Points []int
	// Optimal is set if the choice was proven to be the best.
	Optimal bool
	// Greedy is the number of points that the greedy method chose.
	Greedy int
	// AtLeast is the proven minimum number of points that see all flows.
	AtLeast int
	// Ratio bounds the size of the choice: at most Ratio times the fewest points. 0 means that no bound
	// is known.
	Ratio float64
}

// Work bounds the search for the best choice. Its unit is a look at one path. The package looks at some
// 10^8 paths per second.
type Work int

// mostPaths is the largest number of different paths for which the best choice is searched. The search
// first compares all pairs of paths.
const mostPaths = 5000

// Fewest returns the fewest points that see all flows, found by branch and bound, if the search ends
// within work. Otherwise it returns the smallest choice that it found.
//
// The first choice is greedy: the point with the most paths that no chosen point has, again and again. If d
// is the largest number of paths of a point, its size is at most the d-th harmonic number times the
// minimum. See Chvátal, "A Greedy Heuristic for the Set-Covering Problem", 1979.
func Fewest(flows []Flow, work Work) Result {
	p := newProblem(flows)
	greedy := p.greedy()
	result := Result{Points: greedy, Greedy: len(greedy), AtLeast: p.packing()}
	if result.AtLeast == len(greedy) {
		result.Optimal = true
	} else if len(p.paths) <= mostPaths {
		s := newSearch(p.reduced(), greedy, work)
		s.run()
		result.Points, result.Optimal = s.best, s.work >= 0
	}
	if result.Optimal {
		result.AtLeast = len(result.Points)
	}
	if result.Ratio = 1; !result.Optimal {
		result.Ratio = min(harmonic(p.busiest()), float64(len(result.Points))/float64(result.AtLeast))
	}
	slices.Sort(result.Points)
	return result
}

// harmonic returns 1 + 1/2 + ... + 1/n.
func harmonic(n int) (sum float64) {
	for ; n > 0; n-- {
		sum += 1 / float64(n)
	}
	return sum
}

// problem is an instance with each path once.
type problem struct {
	points  int
	paths   [][]int // points of each path, ascending
	through [][]int // paths of each point
}

func newProblem(flows []Flow) *problem {
	var paths [][]int
	for _, flow := range flows {
		for _, path := range flow {
			paths = append(paths, slices.Compact(slices.Sorted(slices.Values(path))))
		}
	}
	return problemOf(paths)
}

// problemOf makes a problem. Its paths are in the order of their lengths.
func problemOf(paths [][]int) *problem {
	slices.SortFunc(paths, func(a, b []int) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b))
	})
	p := &problem{paths: slices.CompactFunc(paths, slices.Equal)}
	for _, path := range p.paths {
		p.points = max(p.points, path[len(path)-1]+1)
	}
	p.through = make([][]int, p.points)
	for i, path := range p.paths {
		for _, point := range path {
			p.through[point] = append(p.through[point], i)
		}
	}
	return p
}

// busiest returns the largest number of paths of a point.
func (p *problem) busiest() (most int) {
	for _, through := range p.through {
		most = max(most, len(through))
	}
	return most
}

// greedy returns points that have all paths, without points that the others make needless.
func (p *problem) greedy() []int {
	hits := make([]int, len(p.paths)) // number of chosen points of each path
	left := make([]int, p.points)     // paths of each point that no chosen point has
	for point, through := range p.through {
		left[point] = len(through)
	}
	var chosen []int
	for missing := len(p.paths); missing > 0; {
		best := 0
		for point, n := range left {
			if n > left[best] {
				best = point
			}
		}
		chosen = append(chosen, best)
		for _, path := range p.through[best] {
			if hits[path]++; hits[path] == 1 {
				missing--
				for _, point := range p.paths[path] {
					left[point]--
				}
			}
		}
	}
	for i := len(chosen) - 1; i >= 0; i-- {
		through := p.through[chosen[i]]
		if !slices.ContainsFunc(through, func(path int) bool { return hits[path] == 1 }) {
			for _, path := range through {
				hits[path]--
			}
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	return chosen
}

// packing returns a number of paths without a common point, so that each needs a point of its own.
func (p *problem) packing() (paths int) {
	used := make([]bool, p.points)
	for _, path := range p.paths {
		if !slices.ContainsFunc(path, func(point int) bool { return used[point] }) {
			paths++
			for _, point := range path {
				used[point] = true
			}
		}
	}
	return paths
}

// Most returns at most limit points that see as many flows as possible. It takes the points that see all
// flows, if these are not more. Otherwise it searches within work.
//
// The search starts with a greedy choice: again and again the point that adds the largest share of flows.
// Each path of a flow is an equal share of the flow. Result.Ratio is 0 unless the choice is optimal.
func Most(flows []Flow, limit int, work Work) Result {
	all := Fewest(flows, work)
	if len(all.Points) <= limit {
		all.Optimal, all.Ratio = true, 1 // for the number of flows
		return all
	}
	s := newMostSearch(flows, work)
	greedy := s.greedy(limit)
	s.best, s.bestSeen = greedy, s.seenBy(greedy)
	s.run(limit)
	result := Result{Points: s.best, Greedy: len(greedy), AtLeast: all.AtLeast, Optimal: s.work >= 0}
	if result.Optimal {
		result.Ratio = 1
	}
	slices.Sort(result.Points)
	return result
}

// seenBy returns the number of flows that a set of points sees.
func (s *mostSearch) seenBy(points []int) (flows int) {
	for _, flow := range s.flows {
		if flow.Seen(points...) == len(flow) {
			flows++
		}
	}
	return flows
}

// greedy returns limit points, or fewer if these see all flows.
func (s *mostSearch) greedy(limit int) (chosen []int) {
	for len(chosen) < limit {
		best, most := -1, 0.0
		for point := range s.through {
			share := 0.0
			for _, path := range s.through[point] {
				if s.hits[path] == 0 {
					share += 1 / float64(len(s.flows[s.of[path]]))
				}
			}
			if share > most+1e-9 { // sums of the same shares differ by rounding
				best, most = point, share
			}
		}
		if best < 0 {
			break
		}
		s.choose(best)
		chosen = append(chosen, best)
	}
	for _, point := range chosen {
		s.undo(point)
	}
	return chosen
}
