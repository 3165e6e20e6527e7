package cover

import (
	"cmp"
	"slices"
)

// reduced returns a smaller problem with the same minimum. It has no path that includes all points of
// another path, and no point whose paths another point has, too.
func (p *problem) reduced() *problem {
	for {
		var paths [][]int
		kept := make([][][]int, p.points) // by first point
		for _, path := range p.paths {    // ascending lengths: only earlier paths can be parts
			if !slices.ContainsFunc(path, func(first int) bool {
				return slices.ContainsFunc(kept[first], func(part []int) bool { return includes(path, part) })
			}) {
				paths, kept[path[0]] = append(paths, path), append(kept[path[0]], path)
			}
		}
		smaller := problemOf(paths)
		needless := make([]bool, smaller.points)
		for point, through := range smaller.through {
			needless[point] = len(through) > 0 && smaller.dominated(point, needless)
		}
		for i, path := range smaller.paths {
			smaller.paths[i] = slices.DeleteFunc(slices.Clone(path), func(point int) bool {
				return needless[point]
			})
		}
		if !slices.Contains(needless, true) {
			return smaller
		}
		p = problemOf(smaller.paths)
	}
}

// dominated reports whether another point has all paths of a point. Of points with the same paths the first
// is not dominated.
func (p *problem) dominated(point int, needless []bool) bool {
	through := p.through[point]
	for _, other := range p.paths[through[0]] {
		if other == point || needless[other] || len(p.through[other]) < len(through) {
			continue
		}
		if len(p.through[other]) == len(through) && other > point {
			continue
		}
		if includes(p.through[other], through) {
			return true
		}
	}
	return false
}

// includes reports whether a has all of part. Both ascend.
func includes(a, part []int) bool {
	for _, want := range part {
		i, found := slices.BinarySearch(a, want)
		if !found {
			return false
		}
		a = a[i+1:]
	}
	return true
}

// search finds the fewest points by branch and bound. It branches on the points of a path that has no
// chosen point, as one of these points has to be chosen.
type search struct {
	*problem
	work   Work // negative if the search was cut off
	best   []int
	chosen []int
	hits   []int  // chosen points of each path
	banned []bool // points of earlier branches
	used   []int  // the round in which look last used a point
	round  int
}

func newSearch(p *problem, best []int, work Work) *search {
	return &search{problem: p, work: work, best: slices.Clone(best), hits: make([]int, len(p.paths)),
		banned: make([]bool, p.points), used: make([]int, p.points)}
}

func (s *search) run() {
	next, bound, possible := s.nextPath()
	if s.work -= Work(len(s.paths)); s.work < 0 || !possible || len(s.chosen)+bound >= len(s.best) {
		return
	}
	if next < 0 {
		s.best = slices.Clone(s.chosen)
		return
	}
	branches := slices.DeleteFunc(slices.Clone(s.paths[next]), func(p int) bool { return s.banned[p] })
	slices.SortStableFunc(branches, func(a, b int) int { return cmp.Compare(s.left(b), s.left(a)) })
	for _, point := range branches {
		s.chosen = append(s.chosen, point)
		for _, path := range s.through[point] {
			s.hits[path]++
		}
		s.run()
		for _, path := range s.through[point] {
			s.hits[path]--
		}
		s.chosen = s.chosen[:len(s.chosen)-1]
		s.banned[point] = true
	}
	for _, point := range branches {
		s.banned[point] = false
	}
}

// left returns the number of paths of a point that have no chosen point.
func (s *search) left(point int) (paths int) {
	for _, path := range s.through[point] {
		if s.hits[path] == 0 {
			paths++
		}
	}
	return paths
}

// nextPath returns the path without a chosen point that has the fewest points to choose from, or -1 if there
// is none. bound is a number of such paths without a common point. possible is false if a path has no point
// to choose from.
func (s *search) nextPath() (next, bound int, possible bool) {
	next = -1
	fewest := 0
	s.round++
	for i, path := range s.paths {
		if s.hits[i] > 0 {
			continue
		}
		free, apart := 0, true
		for _, point := range path {
			if !s.banned[point] {
				free++
				apart = apart && s.used[point] != s.round
			}
		}
		if free == 0 {
			return i, bound, false
		}
		if next < 0 || free < fewest {
			next, fewest = i, free
		}
		if apart {
			bound++
			for _, point := range path {
				s.used[point] = s.round
			}
		}
	}
	return next, bound, true
}

// mostSearch finds the points that see the most flows by branch and bound. It branches on whether the point
// that touches the most flows is chosen.
type mostSearch struct {
	flows   []Flow
	of      []int   // flow of each path
	through [][]int // paths of each point
	work    Work    // negative if the search was cut off

	hits    []int // chosen points of each path
	missing []int // by flow: paths without a chosen point
	seen    int   // flows without a missing path
	chosen  []int
	banned  []bool

	best     []int
	bestSeen int
}

func newMostSearch(flows []Flow, work Work) *mostSearch {
	s := &mostSearch{flows: flows, work: work, missing: make([]int, len(flows))}
	for i, flow := range flows {
		s.missing[i] = len(flow)
		for _, path := range flow {
			for _, point := range slices.Compact(slices.Sorted(slices.Values(path))) {
				for len(s.through) <= point {
					s.through = append(s.through, nil)
				}
				s.through[point] = append(s.through[point], len(s.of))
			}
			s.of = append(s.of, i)
		}
	}
	s.hits, s.banned = make([]int, len(s.of)), make([]bool, len(s.through))
	return s
}

func (s *mostSearch) choose(point int) {
	for _, path := range s.through[point] {
		if s.hits[path]++; s.hits[path] == 1 {
			if s.missing[s.of[path]]--; s.missing[s.of[path]] == 0 {
				s.seen++
			}
		}
	}
}

func (s *mostSearch) undo(point int) {
	for _, path := range s.through[point] {
		if s.hits[path]--; s.hits[path] == 0 {
			if s.missing[s.of[path]]++; s.missing[s.of[path]] == 1 {
				s.seen--
			}
		}
	}
}

// touched returns the number of flows of which a point has a path that no chosen point has. No choice of
// this point completes more flows. Paths of a flow are neighbours in through.
func (s *mostSearch) touched(point int) (flows int) {
	last := -1
	for _, path := range s.through[point] {
		if flow := s.of[path]; s.hits[path] == 0 && flow != last {
			flows, last = flows+1, flow
		}
	}
	return flows
}

func (s *mostSearch) run(left int) {
	if s.work -= Work(len(s.of)); s.work < 0 {
		return
	}
	if s.seen > s.bestSeen {
		s.best, s.bestSeen = slices.Clone(s.chosen), s.seen
	}
	type branch struct{ point, touched int }
	var branches []branch
	for point := range s.through {
		if touched := s.touched(point); touched > 0 && !s.banned[point] {
			branches = append(branches, branch{point, touched})
		}
	}
	slices.SortStableFunc(branches, func(a, b branch) int { return cmp.Compare(b.touched, a.touched) })
	for i, b := range branches {
		bound := s.seen
		for _, other := range branches[i:min(i+left, len(branches))] {
			bound += other.touched
		}
		if left == 0 || min(bound, len(s.flows)) <= s.bestSeen {
			branches = branches[:i]
			break
		}
		s.choose(b.point)
		s.chosen = append(s.chosen, b.point)
		s.run(left - 1)
		s.chosen = s.chosen[:len(s.chosen)-1]
		s.undo(b.point)
		s.banned[b.point] = true
	}
	for _, b := range branches {
		s.banned[b.point] = false
	}
}
