package measure

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
	before   []Moment   // the counters at the last sample, by meter
	lines    [][]Moment // by meter, up to the last interval in which something happened
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

// Moment has the counters of a direction of a link, or their growth in an interval. depth is the greatest
// Depth that a sample saw.
type Moment struct{ Bytes, Depth, Pauses, Marks, Drops, Again uint64 }

// momentOf returns the counters of a meter after a sample.
func momentOf(m *linkMeter) Moment {
	now := Moment{Bytes: m.rate.Bytes, Depth: m.last.Shaper.BacklogBytes, Drops: m.rate.Dropped,
		Pauses: m.held}
	if m.ended != nil {
		for _, counts := range m.ended.Marks {
			now.Marks += counts.Total()
		}
	}
	return now
}

// add adds a sample that the meters took at a time.
func (h *history) add(now time.Time, meters []linkMeter, cpus cpuTime) {
	if h.before == nil {
		h.began, h.interval, h.lines, h.cpusBefore = now, sampleInterval, make([][]Moment, len(meters)), cpus
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
		if h.before[i] = now; now != before || now.Depth > 0 {
			h.grow(i, at, Moment{Bytes: Since(before.Bytes, now.Bytes), Depth: now.Depth,
				Pauses: Since(before.Pauses, now.Pauses), Marks: Since(before.Marks, now.Marks),
				Drops: Since(before.Drops, now.Drops)})
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
func (h *history) grow(line int, at time.Duration, by Moment) {
	last := int((at - 1) / h.interval)
	for len(h.lines[line]) <= last {
		h.lines[line] = append(h.lines[line], Moment{})
	}
	points := h.lines[line]
	points[last].Depth = max(points[last].Depth, by.Depth)
	points[last].Pauses += by.Pauses
	points[last].Marks += by.Marks
	points[last].Drops += by.Drops
	h.parts(at, func(k int, share float64) { points[k].Bytes += uint64(float64(by.Bytes) * share) })
}

// coarsen makes one interval of each two.
func (h *history) coarsen() {
	h.interval *= 2
	for i, points := range h.lines {
		h.lines[i] = halved(points, func(m *Moment, next Moment) {
			m.Depth = max(m.Depth, next.Depth)
			m.Bytes += next.Bytes
			m.Pauses += next.Pauses
			m.Marks += next.Marks
			m.Drops += next.Drops
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

// Series returns the time lines for the report. rates has all directions with traffic, the busiest first. c
// is the timeline's clock.
func (s *Sampler) Series(rates []report.LinkRate, c *clock.Clock) *report.Series {
	h := &s.history
	if h.before == nil || len(rates) == 0 || c == nil {
		return nil
	}
	by := clock.Dilation(c.Dilation())
	made := &report.Series{Source: report.CountersSource, Start: c.Of(h.began).Sub(0).Seconds(),
		Interval: by.Passed(h.interval).Seconds(), LeftOut: max(0, len(rates)-report.SeriesLinks)}
	for _, rate := range rates[:len(rates)-made.LeftOut] {
		i := slices.IndexFunc(s.meters, func(m linkMeter) bool { return m.rate.From == rate.From })
		made.Links = append(made.Links, LinkSeries(&rate, h.lines[i], made.Interval))
	}
	return made
}

// LinkSeries returns the time lines of a direction of a link.
func LinkSeries(of *report.LinkRate, points []Moment, interval float64) report.LinkSeries {
	column := func(value func(m *Moment) uint64) (values []uint64) {
		for i := range points {
			values = append(values, value(&points[i]))
		}
		if !slices.ContainsFunc(values, func(v uint64) bool { return v > 0 }) {
			return nil
		}
		return values
	}
	return report.LinkSeries{From: of.From, To: of.To, Asked: of.Asked,
		Bits:   column(func(m *Moment) uint64 { return uint64(float64(m.Bytes) * 8 / interval) }),
		Depth:  column(func(m *Moment) uint64 { return m.Depth }),
		Pauses: column(func(m *Moment) uint64 { return m.Pauses }),
		Marks:  column(func(m *Moment) uint64 { return m.Marks }),
		Drops:  column(func(m *Moment) uint64 { return m.Drops }),
		Again:  column(func(m *Moment) uint64 { return m.Again }),
	}
}
