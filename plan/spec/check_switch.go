package spec

import (
	"fmt"
	"slices"
	"strconv"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// Bounds of a soft switch's settings.
const (
	maxBuffer      = units.Bytes(1 << 32)
	maxAlpha       = 1024
	minTrim        = units.Bytes(64)
	maxTrim        = units.Bytes(1024)
	maxWeight      = 1000
	minMemoryBytes = units.Bytes(1 << 20)
	maxMemoryBytes = units.Bytes(1 << 36)
)

func (c *checker) switchSettings(at string, s Switch) {
	c.positive(at+".buffer", uint64(s.Buffer), "buffer is 0B, which drops every packet",
		"want the bytes that can be queued, such as 256KiB")
	c.atMost(at+".buffer", uint64(s.Buffer), uint64(maxBuffer), s.Buffer, "want at most 4GiB")
	c.positive(at+".flowlet-gap", uint64(s.FlowletGap), "flowlet-gap is 0",
		"want a duration such as 50us, or load-balance: spray")
	c.atMost(at+".flowlet-gap", uint64(s.FlowletGap), uint64(maxDelay), s.FlowletGap, "want at most 1m0s")
	if s.FlowletGap != 0 && s.LoadBalance != "" && s.LoadBalance != Flowlet {
		c.Report(at+".flowlet-gap", "a flowlet-gap with load-balance: "+printable.Clip(s.LoadBalance),
			"want load-balance: flowlet, or remove it")
	}
	if a := s.Alpha; !a.IsZero() && a.Float() > maxAlpha {
		c.Report(at+".alpha", fmt.Sprintf("%s.alpha is %s", at, a), fmt.Sprintf("want at most %d", maxAlpha))
	}
	for _, entry := range s.Priorities {
		path := strictyaml.EntryPath(at+".priorities", entry.Key)
		if dscp, err := strconv.Atoi(entry.Key); err != nil || dscp < 0 || dscp > 63 ||
			strconv.Itoa(dscp) != entry.Key {
			c.ReportKey(path, fmt.Sprintf("%q is no DSCP", printable.Clip(entry.Key)), "want 0 to 63")
		} else if entry.Value < 0 || entry.Value >= Priorities {
			c.Report(path, fmt.Sprintf("%d is no priority", entry.Value), "want 0 to 7")
		}
	}
	if s.Scheduler != nil {
		c.scheduler(at+".scheduler", s.Scheduler)
	}
	if s.ECN != nil {
		c.ecn(at+".ecn", s.ECN)
	}
	if s.Trim != nil {
		c.between(at+".trim.size", s.Trim.Size, minTrim, maxTrim)
		c.priorities(at+".trim.priorities", s.Trim.Priorities)
	}
	if s.PFC != nil {
		c.pfc(at+".pfc", s.PFC)
	}
	if s.GFC != nil {
		c.gfc(at+".gfc", s.GFC)
	}
	if a := s.Aggregation; a != nil {
		c.positive(at+".aggregation.timeout", uint64(a.Timeout), "timeout is 0",
			"want a duration such as 1s")
		c.atMost(at+".aggregation.timeout", uint64(a.Timeout), uint64(maxDelay), a.Timeout,
			"want at most 1m0s")
	}
}

// priorities checks a list of queues. A list that the file gives must not be empty.
func (c *checker) priorities(at string, list []int) {
	if len(list) == 0 && c.Source.Has(at) {
		c.Report(at, at+" is empty", "want priorities such as [3], or false in place of the mapping")
	}
	c.distinct(at, list, 0, Priorities-1, "priority")
}

// distinct checks that the numbers of a list are in a range and that none is repeated.
func (c *checker) distinct(at string, list []int, least, most int, what string) {
	seen := make(map[int]bool, len(list))
	for i, n := range list {
		path := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case n < least || n > most:
			c.Report(path, fmt.Sprintf("%d is no %s", n, what), fmt.Sprintf("want %d to %d", least, most))
		case seen[n]:
			c.Report(path, fmt.Sprintf("%s %d occurs twice", what, n), "remove one")
		}
		seen[n] = true
	}
}

func (c *checker) scheduler(at string, s *Scheduler) {
	c.distinct(at+".strict", s.Strict, 0, Priorities-1, "priority")
	for _, entry := range s.Weights {
		path := strictyaml.EntryPath(at+".weights", entry.Key)
		q, err := strconv.Atoi(entry.Key)
		switch {
		case err != nil || q < 0 || q >= Priorities || strconv.Itoa(q) != entry.Key:
			c.ReportKey(path, fmt.Sprintf("%q is no priority", printable.Clip(entry.Key)), "want 0 to 7")
		case entry.Value < 1 || entry.Value > maxWeight:
			c.Report(path, fmt.Sprintf("weight is %d", entry.Value),
				fmt.Sprintf("want 1 to %d; a queue of weight 0 would never be served", maxWeight))
		case slices.Contains(s.Strict, q):
			c.Report(path, fmt.Sprintf("priority %d is strict and has a weight", q), "remove one of them")
		}
	}
}

func (c *checker) ecn(at string, e *ECN) {
	c.positive(at+".kmax", uint64(e.KMax), "kmax is 0B", "want a size such as 160KB")
	c.atMost(at+".kmin", uint64(e.KMin), uint64(maxBuffer), e.KMin, "want at most 4GiB")
	c.atMost(at+".kmax", uint64(e.KMax), uint64(maxBuffer), e.KMax, "want at most 4GiB")
	c.positive(at+".kmin", uint64(e.KMin), "kmin is 0B",
		"want a size such as 40KB; 1B marks from the first packet that waits")
	c.positive(at+".pmax", e.PMax.Num, "pmax is 0", "want a share such as 20%, or ecn: false")
	if e.KMin != 0 && e.KMax != 0 && e.KMin > e.KMax {
		c.Report(at+".kmin", fmt.Sprintf("kmin is %s and kmax %s", e.KMin, e.KMax), "want kmin at most kmax")
	}
	for _, time := range []struct {
		key string
		of  units.Duration
	}{{"target", e.Target}, {"persistent-target", e.PersistentTarget}, {"interval", e.Interval}} {
		c.positive(at+"."+time.key, uint64(time.of), time.key+" is 0", "want a duration such as 100us")
		c.atMost(at+"."+time.key, uint64(time.of), uint64(maxDelay), time.of, "want at most 1m0s")
	}
	if e.Target != 0 && e.PersistentTarget > e.Target {
		c.Report(at+".persistent-target",
			fmt.Sprintf("persistent-target is %s and target %s", e.PersistentTarget, e.Target),
			"want at most the target: ecn-sharp marks every packet above it")
	}
	others := map[string][]string{RED: {"target", "persistent-target", "interval"},
		ECNSharp: {"kmin", "kmax", "pmax"}}
	for _, key := range set(*e, others[e.Kind]) {
		c.Report(at+"."+key, fmt.Sprintf("%s with kind: %s", key, e.Kind),
			"remove it, or take the other kind")
	}
	c.priorities(at+".priorities", e.Priorities)
}

func (c *checker) pfc(at string, p *PFC) {
	c.threshold(at+".xoff", p.XOff)
	c.threshold(at+".xon", p.XOn)
	c.threshold(at+".headroom", p.Headroom)
	if p.XOff != nil && p.XOn != nil && *p.XOn > *p.XOff {
		c.Report(at+".xon", fmt.Sprintf("xon is %s and xoff %s", *p.XOn, *p.XOff), "want xon at most xoff")
	}
	c.priorities(at+".priorities", p.Priorities)
}

func (c *checker) gfc(at string, g *GFC) {
	c.threshold(at+".b1", g.B1)
	c.threshold(at+".bm", g.BM)
	if g.B1 != nil && g.BM != nil && *g.B1 >= *g.BM {
		c.Report(at+".b1", fmt.Sprintf("b1 is %s and bm %s", *g.B1, *g.BM), "want b1 below bm")
	}
	c.positive(at+".period", uint64(g.Period), "period is 0", "want a duration such as 50us")
	c.atMost(at+".period", uint64(g.Period), uint64(maxDelay), g.Period, "want at most 1m0s")
	switch {
	case g.Stages != 0 && g.Kind == GFCTime:
		c.Report(at+".stages", "stages with kind: time", "remove it, or take kind: buffer")
	case g.Period != 0 && g.Kind != GFCTime && g.Kind != "":
		c.Report(at+".period", "a period with kind: buffer", "remove it, or take kind: time")
	}
	c.priorities(at+".priorities", g.Priorities)
}

func (c *checker) threshold(path string, value *units.Bytes) {
	if value != nil {
		c.atMost(path, uint64(*value), uint64(maxBuffer), *value, "want at most 4GiB")
	}
}
