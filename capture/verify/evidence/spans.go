package evidence

import (
	"cmp"
	"slices"
)

// span is a time from from to to, in nanoseconds since 1970.
type span struct{ from, to int64 }

func sortSpans(all []span) {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
}

// merged sorts times and joins those that overlap or touch. It reuses the slice.
func merged(all []span) []span {
	sortSpans(all)
	apart := all[:0]
	for _, one := range all {
		if last := len(apart) - 1; last >= 0 && one.from <= apart[last].to {
			apart[last].to = max(apart[last].to, one.to)
		} else {
			apart = append(apart, one)
		}
	}
	return apart
}

// uncovered returns the parts of some times that others leave out.
func uncovered(times, by []span) (left []span) {
	by = slices.Clone(by)
	sortSpans(by)
	for _, t := range times {
		for _, b := range by {
			if b.to <= t.from || b.from >= t.to {
				continue
			}
			if b.from > t.from {
				left = append(left, span{t.from, b.from})
			}
			t.from = b.to
		}
		if t.from < t.to {
			left = append(left, t)
		}
	}
	return left
}

// common returns the parts of some times that others cover.
func common(times, by []span) []span { return uncovered(times, uncovered(times, by)) }
