package allocation

import "slices"

// Use is a link, by its place in the capacities, and the share of a pair's bytes
// that it carries.
type Use struct {
	Link  int
	Share float64
}

// leastShare is what sums of shares may be off by.
const leastShare = 1e-9

// Fill shares links among flows so that none can have more but by taking from one
// that has no more than it: max-min fairly. All rates grow alike until a link is
// full; the flows that use it keep what they have, and the others grow on. It
// returns the rates, in the unit of the capacities, and for each flow the link that
// stopped it. Flows use one link at least.
func Fill(capacity []float64, flows [][]Use) (rates []float64, tight []int) {
	rates, tight = make([]float64, len(flows)), make([]int, len(flows))
	left, weight := slices.Clone(capacity), make([]float64, len(capacity))
	open := make([]bool, len(flows))
	for i, uses := range flows {
		open[i] = true
		for _, u := range uses {
			weight[u.Link] += u.Share
		}
	}
	level := 0.0
	for remaining := len(flows); remaining > 0; {
		next := -1.0
		for l, w := range weight {
			if w > leastShare && (next < 0 || left[l]/w < next) {
				next = max(left[l]/w, 0)
			}
		}
		if next < 0 {
			break // the others use nothing that can be measured
		}
		level += next
		full := make([]bool, len(capacity))
		for l, w := range weight {
			if w > leastShare {
				left[l] -= next * w
				full[l] = left[l] <= leastShare*capacity[l]
			}
		}
		for i, uses := range flows {
			if !open[i] {
				continue
			}
			at := slices.IndexFunc(uses, func(u Use) bool { return u.Share > leastShare && full[u.Link] })
			if at < 0 {
				continue
			}
			open[i], rates[i], tight[i] = false, level, uses[at].Link
			remaining--
			for _, u := range uses {
				weight[u.Link] -= u.Share
			}
		}
	}
	return rates, tight
}
