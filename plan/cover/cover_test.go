package cover

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// plenty is enough work for every problem of this test.
const plenty = Work(1e9)

// random returns a small problem.
func random(r *rand.Rand, points int) (flows []Flow) {
	for range 1 + r.IntN(14) {
		var flow Flow
		for range 1 + r.IntN(3) {
			flow = append(flow, r.Perm(points)[:1+r.IntN(4)])
		}
		flows = append(flows, flow)
	}
	return flows
}

// sees returns the number of flows that points see, counted without the package's own help.
func sees(flows []Flow, points []int) (seen int) {
	for _, flow := range flows {
		all := true
		for _, path := range flow {
			on := false
			for _, point := range path {
				on = on || slices.Contains(points, point)
			}
			all = all && on
		}
		if all {
			seen++
		}
	}
	return seen
}

// bruteForce returns, by number of points, the most flows that so many points see.
func bruteForce(flows []Flow, points int) (most []int) {
	most = make([]int, points+1)
	for set := range 1 << points {
		var chosen []int
		for point := range points {
			if set>>point&1 == 1 {
				chosen = append(chosen, point)
			}
		}
		most[len(chosen)] = max(most[len(chosen)], sees(flows, chosen))
	}
	return most
}

// TestAgainstBruteForce compares choices for random problems with all subsets of the points.
func TestAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worse := 0 // problems in which the greedy choice is not the best
	for n := range 200 {
		const points = 11
		flows := random(r, points)
		most := bruteForce(flows, points)
		fewest := slices.Index(most, len(flows))

		got := Fewest(flows, plenty)
		if len(got.Points) != fewest || !got.Optimal || got.AtLeast != fewest || got.Ratio != 1 {
			t.Fatalf("problem %d, %v: %+v, want %d points", n, flows, got, fewest)
		}
		cut := Fewest(flows, 0)
		if cut.AtLeast > fewest || len(cut.Points) > cut.Greedy ||
			float64(len(cut.Points)) > cut.Ratio*float64(fewest)+1e-9 ||
			cut.Optimal && len(cut.Points) != fewest {
			t.Fatalf("problem %d, %v: without a search %+v, the fewest are %d", n, flows, cut, fewest)
		}
		if cut.Greedy > fewest {
			worse++
		}
		for _, choice := range []Result{got, cut} {
			if seen := sees(flows, choice.Points); seen != len(flows) || !slices.IsSorted(choice.Points) {
				t.Fatalf("problem %d, %v: %v see %d flows", n, flows, choice.Points, seen)
			}
		}
		for limit := 1; limit <= 4; limit++ {
			got, cut := Most(flows, limit, plenty), Most(flows, limit, 0)
			if seen := sees(flows, got.Points); len(got.Points) > limit || seen != most[limit] ||
				!got.Optimal {
				t.Fatalf("problem %d, %v: %d points %+v see %d flows, want %d", n, flows, limit, got, seen,
					most[limit])
			}
			if seen := sees(flows, cut.Points); len(cut.Points) > limit ||
				cut.Optimal && seen != most[limit] {
				t.Fatalf("problem %d, %v: without a search %d points %+v see %d flows, and %d could", n,
					flows, limit, cut, seen, most[limit])
			}
		}
	}
	if worse == 0 {
		t.Error("the greedy choice is always the best, so the problems show nothing of the search")
	}
}

// TestLargerThanBruteForce has a grid of flows for which the answer is known: n senders and n receivers, and
// the fewest points are n NICs.
func TestLargerThanBruteForce(t *testing.T) {
	const n = 16
	var flows []Flow
	for from := range n {
		for to := range n {
			var flow Flow
			for spine := range 4 { // sender, uplink, downlink, receiver's port
				flow = append(flow, []int{from, n + from/4*4 + spine, 2*n + to/4*4 + spine, 3*n + to})
			}
			flows = append(flows, flow)
		}
	}
	if got := Fewest(flows, plenty); len(got.Points) != n || !got.Optimal {
		t.Errorf("%+v, want %d points", got, n)
	}
	if got := Most(flows, 3, 0); sees(flows, got.Points) != 3*n {
		t.Errorf("3 points %+v see %d flows, want %d", got, sees(flows, got.Points), 3*n)
	}
}

// TestSeen counts the paths of one flow.
func TestSeen(t *testing.T) {
	flow := Flow{{1, 2}, {1, 3}, {4}}
	for _, c := range []struct {
		points []int
		want   int
	}{{nil, 0}, {[]int{1}, 2}, {[]int{3, 4}, 2}, {[]int{1, 4}, 3}, {[]int{9}, 0}} {
		if got := flow.Seen(c.points...); got != c.want {
			t.Errorf("points %v are on %d paths, want %d", c.points, got, c.want)
		}
	}
}
