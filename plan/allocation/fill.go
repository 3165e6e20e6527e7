package allocation

import "slices"

// use is a link, as an index into the capacities, and the share of a pair's bytes that it carries.
type use struct {
	Link  int
	Share float64
}

// leastShare is the tolerance for sums of shares.
const leastShare = 1e-9

// fill shares links among flows with max-min fairness: a flow can get more only at the expense of a
// flow that has no more. All rates grow equally until a link is full. The flows that use that link
// keep their rates, and the others continue to grow. Fill returns the rates, in the unit of the
// capacities, and for each flow the link that limits it. Each flow uses at least one link.
func fill(capacity []float64, flows [][]use) (rates []float64, tight []int) {
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
			break // the other flows use no measurable share of any link
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
			at := slices.IndexFunc(uses, func(u use) bool { return u.Share > leastShare && full[u.Link] })
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
