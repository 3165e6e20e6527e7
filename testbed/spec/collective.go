package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/workloads/collective/schedule"
)

// Kinds of collectives.
const (
	AllReduce     = string(schedule.AllReduce)
	AllGather     = string(schedule.AllGather)
	ReduceScatter = string(schedule.ReduceScatter)
	Broadcast     = string(schedule.Broadcast)
	Reduce        = string(schedule.Reduce)
	AllToAll      = "all-to-all"
)

// Ring is the algorithm in which each rank sends to the next one alone.
const Ring = "ring"

// collectives are the algorithms of each kind, the default first: of all but the barrier,
// which has no bytes to look at.
var collectives = func() map[string][]string {
	all := map[string][]string{AllToAll: {"direct", "pairwise"}}
	for _, kind := range []string{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce} {
		all[kind] = schedule.Algorithms(schedule.Kind(kind))
	}
	return all
}()

// formula is that of the bytes of an algorithm; empty is that there is none. In a broadcast
// and in a reduce some ranks send nothing, and of silence packets prove nothing.
func formula(kind, algorithm string) string {
	switch kind {
	case AllToAll:
		return AllToAll
	case Broadcast, Reduce:
		return ""
	}
	return algorithm + "-" + kind
}

// Algorithms are those of a kind, the default first; none where there is no such kind.
func Algorithms(kind string) []string { return collectives[kind] }

// defaultAlgorithm is that of a kind; empty is that there is no such kind.
func defaultAlgorithm(kind string) string {
	if all, known := collectives[kind]; known {
		return all[0]
	}
	return ""
}

// anyCollective says that one of them is so. What none has is what the enum of its field
// refuses.
func anyCollective(so func(kind string, algorithms []string) bool) bool {
	for kind, algorithms := range collectives {
		if so(kind, algorithms) {
			return true
		}
	}
	return false
}

// collective checks what a workload asks of its kind.
func (c *checker) collective(at string, w *Workload) {
	algorithms, known := collectives[w.Kind]
	if !known {
		return // constraints have said so
	}
	algorithm := cmp.Or(w.Algorithm, defaultAlgorithm(w.Kind))
	has := func(_ string, of []string) bool { return slices.Contains(of, algorithm) }
	if !has(w.Kind, algorithms) && anyCollective(has) {
		c.report(at+".algorithm", fmt.Sprintf("algorithm %q of %s", clipped(algorithm), w.Kind), "want "+strings.Join(algorithms, " or "))
	}
	if w.RD != nil && !w.RD.Droppable.IsZero() && (w.Kind != AllReduce || algorithm != Ring) {
		c.reportKey(at+".rd.droppable", fmt.Sprintf("droppable partial sums of %s by %s, which has none", w.Kind, clipped(algorithm)), "remove it, or take kind: "+AllReduce+" and algorithm: "+Ring)
	}
	if w.RD != nil && w.RD.Control == ControlOffline && w.Kind != AllToAll && algorithm != Ring {
		c.report(at+".rd.control", fmt.Sprintf("control: %s of %s, of which no rates are computed", ControlOffline, clipped(algorithm)), "want algorithm: "+Ring+", or another control")
	}
	if w.Kind != AllToAll && w.Skew != 0 {
		c.reportKey(at+".skew", "a skew of "+w.Kind, "remove it, or take kind: "+AllToAll)
	}
}

// formula checks that a formula is that of the workload.
func (c *checker) formula(at string, b *BytesPerRank) {
	for _, step := range c.t.Steps {
		w := step.Workload
		if w == nil || w.Name != b.Workload && (b.Workload != "" || len(c.workloads) != 1) {
			continue
		}
		algorithm := cmp.Or(w.Algorithm, defaultAlgorithm(w.Kind))
		if !slices.Contains(collectives[w.Kind], algorithm) || !anyCollective(func(kind string, algorithms []string) bool {
			return slices.ContainsFunc(algorithms, func(a string) bool { return formula(kind, a) == b.Formula })
		}) {
			continue // enums and the workload have said so
		}
		if want := formula(w.Kind, algorithm); want != b.Formula {
			c.report(at+".formula", fmt.Sprintf("formula %q of a workload that is %s by %s", clipped(b.Formula), w.Kind, algorithm), "want "+cmp.Or(want, "another check: there are ranks that send nothing"))
		}
	}
}
