package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Kinds of collectives.
const (
	AllReduce = "all-reduce"
	AllToAll  = "all-to-all"
)

// collective is what there is of a kind.
type collective struct {
	// algorithms begin with the default.
	algorithms []string
	// formula is that of its bytes.
	formula string
}

var collectives = map[string]collective{
	AllReduce: {[]string{"ring"}, "ring-all-reduce"},
	AllToAll:  {[]string{"direct", "pairwise"}, "all-to-all"},
}

// defaultAlgorithm is that of a kind; empty is that there is no such kind.
func defaultAlgorithm(kind string) string {
	if k, known := collectives[kind]; known {
		return k.algorithms[0]
	}
	return ""
}

// anyCollective says that one of them is so. What none has is what the enum of its field
// refuses.
func anyCollective(so func(collective) bool) bool {
	for _, k := range collectives {
		if so(k) {
			return true
		}
	}
	return false
}

// collective checks what a workload asks of its kind.
func (c *checker) collective(at string, w *Workload) {
	k, known := collectives[w.Kind]
	if !known {
		return // constraints have said so
	}
	has := func(other collective) bool { return slices.Contains(other.algorithms, w.Algorithm) }
	if !has(k) && anyCollective(has) {
		c.report(at+".algorithm", fmt.Sprintf("algorithm %q of %s", clipped(w.Algorithm), w.Kind), "want "+strings.Join(k.algorithms, " or "))
	}
	if w.Kind == AllToAll {
		if w.RD != nil && !w.RD.Droppable.IsZero() {
			c.reportKey(at+".rd.droppable", "droppable partial sums of "+AllToAll+", which has none", "remove it")
		}
	} else if w.Skew != 0 {
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
		is := func(k collective) bool { return k.formula == b.Formula }
		if k, known := collectives[w.Kind]; known && !is(k) && anyCollective(is) {
			c.report(at+".formula", fmt.Sprintf("formula %q of a workload that is %s", clipped(b.Formula), w.Kind), "want "+k.formula)
		}
	}
}
