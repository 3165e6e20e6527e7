package runner

import (
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/internal/clock"
)

// history has the time lines of all directions of links, in intervals of real time from its first sample.
// When a run has lasted for report.SeriesPoints intervals, each two become one.
type history struct {
	began    time.Time
	at       time.Duration // of the last sample, after began
	interval time.Duration
	before   []moment   // the counters at the last sample, by meter
	lines    [][]moment // by meter, up to the last interval in which something happened
	// cpusBefore is the time of all CPUs at the last sample, and cpus their time in each interval.
	cpusBefore cpuTime
	cpus       []cpuTime
}

// cpuTime is in seconds, of all CPUs together. own is the time of the testbed's programs and of the thread
// that moves frames.
type cpuTime struct{ idle, total, own float64 }

// add adds a share of a time.
func (c *cpuTime) add(t cpuTime, share float64) {
	c.idle += share * t.idle
	c.total += share * t.total
	c.own += share * t.own
}

// moment has the counters of a direction of a link, or their growth in an interval. depth is the greatest
// depth that a sample saw.
type moment struct{ bytes, depth, pauses, marks, drops, again uint64 }

// momentOf returns the counters of a meter after a sample.
func momentOf(m *linkMeter) moment {
	now := moment{bytes: m.rate.Bytes, depth: m.last.Shaper.BacklogBytes, drops: m.rate.Dropped,
		pauses: m.held}
	if m.ended != nil {
		for _, counts := range m.ended.Marks {
			now.marks += counts.Total()
		}
	}
	return now
}

// add adds a sample that the meters took at a time.
func (h *history) add(now time.Time, meters []linkMeter, cpus cpuTime) {
	if h.before == nil {
		h.began, h.interval, h.lines, h.cpusBefore = now, sampleInterval, make([][]moment, len(meters)), cpus
		for i := range meters {
			h.before = append(h.before, momentOf(&meters[i]))
		}
		return
	}
	at := now.Sub(h.began)
	for at > report.SeriesPoints*h.interval {
		h.coarsen()
	}
	for i := range meters {
		now, before := momentOf(&meters[i]), h.before[i]
		if h.before[i] = now; now != before || now.depth > 0 {
			h.grow(i, at, moment{bytes: since(before.bytes, now.bytes), depth: now.depth,
				pauses: since(before.pauses, now.pauses), marks: since(before.marks, now.marks),
				drops: since(before.drops, now.drops)})
		}
	}
	h.growCPUs(at, cpus)
	h.at = at
}

// growCPUs spreads the time of the CPUs since the last sample over the time between the two samples.
func (h *history) growCPUs(at time.Duration, now cpuTime) {
	grown := now
	grown.add(h.cpusBefore, -1)
	h.cpusBefore = now
	h.parts(at, func(k int, share float64) {
		for len(h.cpus) <= k {
			h.cpus = append(h.cpus, cpuTime{})
		}
		h.cpus[k].add(grown, share)
	})
}

// parts calls part for each interval between the last sample and a time, with its share of this time.
func (h *history) parts(at time.Duration, part func(k int, share float64)) {
	for k := int(h.at / h.interval); k <= int((at-1)/h.interval); k++ {
		begin := time.Duration(k) * h.interval
		part(k, float64(min(begin+h.interval, at)-max(begin, h.at))/float64(at-h.at))
	}
}

// grow adds the growth of a direction's counters since the last sample. The bytes are spread over the time
// between the two samples. The rest counts for the interval of this sample.
func (h *history) grow(line int, at time.Duration, by moment) {
	last := int((at - 1) / h.interval)
	for len(h.lines[line]) <= last {
		h.lines[line] = append(h.lines[line], moment{})
	}
	points := h.lines[line]
	points[last].depth = max(points[last].depth, by.depth)
	points[last].pauses += by.pauses
	points[last].marks += by.marks
	points[last].drops += by.drops
	h.parts(at, func(k int, share float64) { points[k].bytes += uint64(float64(by.bytes) * share) })
}

// coarsen makes one interval of each two.
func (h *history) coarsen() {
	h.interval *= 2
	for i, points := range h.lines {
		h.lines[i] = halved(points, func(m *moment, next moment) {
			m.depth = max(m.depth, next.depth)
			m.bytes += next.bytes
			m.pauses += next.pauses
			m.marks += next.marks
			m.drops += next.drops
		})
	}
	h.cpus = halved(h.cpus, func(c *cpuTime, next cpuTime) { c.add(next, 1) })
}

// halved adds each second value to the value before it, in place.
func halved[T any](all []T, add func(to *T, next T)) []T {
	for k, one := range all {
		if k%2 == 0 {
			all[k/2] = one
		} else {
			add(&all[k/2], one)
		}
	}
	return all[:(len(all)+1)/2]
}

// series returns the time lines for the report. rates has all directions with traffic, the busiest first. c
// is the timeline's clock.
func (h *history) series(meters []linkMeter, rates []report.LinkRate, c *clock.Clock) *report.Series {
	if h.before == nil || len(rates) == 0 || c == nil {
		return nil
	}
	by := clock.Dilation(c.Dilation())
	s := &report.Series{Source: report.CountersSource, Start: c.Of(h.began).Sub(0).Seconds(),
		Interval: by.Passed(h.interval).Seconds(), LeftOut: max(0, len(rates)-report.SeriesLinks)}
	for _, rate := range rates[:len(rates)-s.LeftOut] {
		i := slices.IndexFunc(meters, func(m linkMeter) bool { return m.rate.From == rate.From })
		s.Links = append(s.Links, linkSeries(&rate, h.lines[i], s.Interval))
	}
	return s
}

// linkSeries returns the time lines of a direction of a link.
func linkSeries(of *report.LinkRate, points []moment, interval float64) report.LinkSeries {
	column := func(value func(m *moment) uint64) (values []uint64) {
		for i := range points {
			values = append(values, value(&points[i]))
		}
		if !slices.ContainsFunc(values, func(v uint64) bool { return v > 0 }) {
			return nil
		}
		return values
	}
	return report.LinkSeries{From: of.From, To: of.To, Asked: of.Asked,
		Bits:   column(func(m *moment) uint64 { return uint64(float64(m.bytes) * 8 / interval) }),
		Depth:  column(func(m *moment) uint64 { return m.depth }),
		Pauses: column(func(m *moment) uint64 { return m.pauses }),
		Marks:  column(func(m *moment) uint64 { return m.marks }),
		Drops:  column(func(m *moment) uint64 { return m.drops }),
		Again:  column(func(m *moment) uint64 { return m.again }),
	}
}
