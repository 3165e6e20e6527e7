package measure

import (
	"strings"
	"time"

	"railbed/capture/report"
)

// loadSamples is the least number of samples that show the load in the time of a workload.
const loadSamples = 3

// Load returns how busy processors and links were between two times. It returns nil if the time is too short.
func (s *Sampler) Load(from, to time.Time) *report.Load {
	h := &s.history
	if h.interval == 0 || from.IsZero() {
		return nil
	}
	first := int((from.Sub(h.began) + h.interval - 1) / h.interval)
	last := min(int(to.Sub(h.began)/h.interval), len(h.cpus)) // exclusive
	if first < 0 || last-first < loadSamples {
		return nil
	}
	var cpus cpuTime
	for _, c := range h.cpus[first:last] {
		cpus.add(c, 1)
	}
	if cpus.total == 0 {
		return nil
	}
	l := &report.Load{CPUs: 1 - cpus.idle/cpus.total, Own: cpus.own / cpus.total}
	length := s.dilation().Passed(time.Duration(last-first) * h.interval).Seconds()
	for i := range s.meters {
		rate, bits := &s.meters[i].rate, 0.0
		for k := first; k < min(last, len(h.lines[i])); k++ {
			bits += 8 * float64(h.lines[i][k].Bytes) / length
		}
		if node, _, _ := strings.Cut(rate.From, ":"); s.plan.Node(node) != nil {
			l.Sent += bits
		}
		if rate.Asked > 0 && bits/float64(rate.Asked) >= l.Use {
			l.Use, l.Link, l.Direction = bits/float64(rate.Asked), rate.Link, rate.Direction
		}
	}
	return l
}
