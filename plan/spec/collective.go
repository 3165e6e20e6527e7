package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/element"
	"railbed/plan/schedule"
)

// Kinds of collectives.
const (
	AllReduce     = string(schedule.AllReduce)
	AllGather     = string(schedule.AllGather)
	ReduceScatter = string(schedule.ReduceScatter)
	Broadcast     = string(schedule.Broadcast)
	Reduce        = string(schedule.Reduce)
	Gather        = string(schedule.Gather)
	Scatter       = string(schedule.Scatter)
	Barrier       = string(schedule.Barrier)
	SendReceive   = string(schedule.SendReceive)
	AllToAll      = "all-to-all"
)

// Algorithms with computed rates. An all-to-all has them as well. With Ring each rank sends to the
// next rank only.
const (
	Ring            = "ring"
	Tree            = "tree"
	HalvingDoubling = "halving-doubling"
)

// HasRates reports whether rates can be computed for a collective, for control: offline.
func HasRates(kind, algorithm string) bool {
	return (kind == AllToAll || kind == KindMoE) && algorithm != MSCCL ||
		slices.Contains([]string{Ring, Tree, HalvingDoubling}, algorithm)
}

// Algorithms of an all-to-all. With Direct each rank sends to all others at once, with Pairwise to
// one after the other.
const (
	Direct   = "direct"
	Pairwise = "pairwise"
)

// WithChannels returns the algorithms of a kind that can use several channels. It excludes a
// barrier, which has no data, and algorithms that define the path of the data themselves.
func WithChannels(kind string) []string {
	if kind == Barrier {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(collectives[kind]), func(algorithm string) bool {
		return slices.Contains([]string{InNetwork, Hierarchical, MSCCL}, algorithm)
	})
}

// HasChannels reports whether a collective can use several channels.
func HasChannels(kind, algorithm string) bool { return slices.Contains(WithChannels(kind), algorithm) }

// InSwitch is the transport of algorithm InNetwork and of no other: the protocol of the switch that
// adds up.
const InSwitch = "in-switch"

// Algorithms without computed rates. HyperCube needs a power of two ranks. Hierarchical keeps traffic
// between nodes on rails, a switch performs InNetwork, and a file defines MSCCL.
const (
	HyperCube    = schedule.HyperCube
	InNetwork    = "in-network"
	Hierarchical = "hierarchical"
	MSCCL        = "msccl"
)

// InNetworkTypes and InNetworkOps are the types and operations that switches compute with.
var (
	InNetworkTypes = []string{string(element.Float32), string(element.BFloat16), string(element.Float16),
		string(element.Int32)}
	InNetworkOps = []string{string(element.Sum), string(element.Max), string(element.Min),
		string(element.Average)}
)

// Auto selects, by size and number of ranks, one of the algorithms that consist of messages between
// ranks alone.
const Auto = schedule.Auto

// collectives maps each kind to its algorithms, the default first.
var collectives = func() map[string][]string {
	all := map[string][]string{AllToAll: {Direct, Pairwise}}
	for _, kind := range []string{AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, Gather, Scatter} {
		all[kind] = append(schedule.Algorithms(schedule.Kind(kind)), Auto)
	}
	all[AllReduce] = append(all[AllReduce], InNetwork)
	for _, kind := range []string{AllReduce, AllGather, ReduceScatter} {
		all[kind] = append(all[kind], Hierarchical)
	}
	for kind := range all {
		all[kind] = append(all[kind], MSCCL)
	}
	all[KindMoE] = []string{Direct, Pairwise}
	for _, kind := range []schedule.Kind{schedule.Barrier, schedule.SendReceive} {
		all[string(kind)] = schedule.Algorithms(kind)
	}
	return all
}()

// withChannels returns the advice to use an algorithm with channels, or "" if the kind has none.
func withChannels(kind string) string {
	if all := WithChannels(kind); len(all) > 0 {
		return ", or take algorithm: " + strings.Join(all, " or ")
	}
	return ""
}

// formula returns the formula for the bytes that a rank sends with an algorithm.
func formula(kind, algorithm string) string {
	switch {
	case algorithm == MSCCL:
		return MSCCL
	case kind == AllToAll || kind == KindMoE:
		return kind
	}
	return algorithm + "-" + kind
}

// Algorithms returns the algorithms of a kind, the default first. It returns nil for an unknown
// kind.
func Algorithms(kind string) []string { return collectives[kind] }

// defaultAlgorithm returns the default algorithm of a kind, or "" for an unknown kind.
func defaultAlgorithm(kind string) string {
	if all, known := collectives[kind]; known {
		return all[0]
	}
	return ""
}

// defaultOp returns the default operation of a kind, or "" if the kind combines nothing.
func defaultOp(kind string) string {
	if schedule.Kind(kind).Combines() {
		return string(element.Sum)
	}
	return ""
}

// anyCollective reports whether so holds for any kind. The enum of a field refuses values that no
// kind has.
func anyCollective(so func(kind string, algorithms []string) bool) bool {
	for kind, algorithms := range collectives {
		if so(kind, algorithms) {
			return true
		}
	}
	return false
}

// Collective returns the kind of collective that the workload is or, for sgd, uses.
func (w *Workload) Collective() string {
	if w.Kind == KindSGD {
		return w.SGD.kind()
	}
	return w.Kind
}

// collective checks the settings of a workload against its kind.
func (c *checker) collective(at string, w *Workload) {
	kind := w.Collective()
	algorithms, known := collectives[kind]
	if !known {
		return // constraints has reported it
	}
	algorithm := cmp.Or(w.Algorithm, defaultAlgorithm(kind))
	has := func(_ string, of []string) bool { return slices.Contains(of, algorithm) }
	if !has(kind, algorithms) && anyCollective(has) {
		c.report(at+".algorithm", fmt.Sprintf("%s has no algorithm %q", kind, clipped(algorithm)),
			"want "+strings.Join(algorithms, " or "))
	}
	switch {
	case algorithm == MSCCL && w.File == "":
		c.report(at+".algorithm", "algorithm: "+MSCCL+" without a file",
			"want file: NAME.xml, relative to this file")
	case algorithm != MSCCL && w.File != "":
		c.reportKey(at+".file", "file with algorithm: "+clipped(algorithm),
			"want algorithm: "+MSCCL+", or remove it")
	}
	if w.MayDrop() && (kind != AllReduce || algorithm != Ring) {
		c.reportKey(at+".rd.droppable",
			fmt.Sprintf("droppable partial sums of %s by %s, which can drop none", kind,
				clipped(algorithm)),
			"remove it, or take kind: "+AllReduce+" and algorithm: "+Ring)
	}
	if w.MayDrop() && (cmp.Or(w.Type, string(element.Float32)) != string(element.Float32) ||
		cmp.Or(w.Op, string(element.Sum)) != string(element.Sum)) {
		c.reportKey(at+".rd.droppable", "droppable partial sums that are not sums of float",
			"remove it, or take type: "+string(element.Float32)+" and op: "+string(element.Sum))
	}
	if w.Op != "" && !schedule.Kind(kind).Combines() {
		c.reportKey(at+".op", "an op of "+kind+", which combines nothing", "remove it")
	}
	if w.Root != 0 && !schedule.Kind(kind).Rooted() {
		c.reportKey(at+".root", "a root of "+kind+", which has no root",
			"remove it, or take kind: "+strings.Join([]string{Broadcast, Reduce, Gather, Scatter}, " or "))
	}
	c.inNetwork(at, w, algorithm)
	switch {
	case w.Channels == 0:
	case w.Kind == KindSGD || !HasChannels(kind, algorithm):
		c.reportKey(at+".channels", clipped(w.Kind)+" by "+clipped(algorithm)+" has no channels",
			"remove it"+withChannels(w.Kind))
	case w.RD != nil && (w.MayDrop() || w.RD.Control == ControlOffline || w.RD.Control == ControlArbiter):
		c.reportKey(at+".channels", "channels with computed rates or droppable bytes",
			"remove channels, or control and droppable")
	}
	if w.RD != nil && w.RD.Control == ControlOffline && !HasRates(kind, algorithm) {
		c.report(at+".rd.control", fmt.Sprintf("control: %s with algorithm: %s, which has no computed rates",
			ControlOffline, clipped(algorithm)), "want algorithm: "+Ring+", or another control")
	}
	if (kind != AllToAll || algorithm == MSCCL) && w.Skew != 0 {
		c.reportKey(at+".skew", kind+" by "+clipped(algorithm)+" has no skew",
			"remove it, or take kind: "+AllToAll+" and algorithm: "+Direct+" or "+Pairwise)
	}
}

// inNetwork checks the workload of algorithm: in-network.
func (c *checker) inNetwork(at string, w *Workload, algorithm string) {
	if algorithm != InNetwork {
		if w.Transport == InSwitch {
			c.report(at+".transport", "transport: "+InSwitch+" with algorithm: "+clipped(algorithm),
				"want algorithm: "+InNetwork+", or another transport")
		}
		if w.Switch != "" {
			c.reportKey(at+".switch", "switch with algorithm: "+clipped(algorithm),
				"want algorithm: "+InNetwork+", or remove it")
		}
		return
	}
	computes := func(key, value string, all []string) {
		if value != "" && !slices.Contains(all, value) {
			c.report(at+"."+key, fmt.Sprintf("%s: %s with algorithm: %s, with which no switch computes", key,
				clipped(value), InNetwork), "want one of "+strings.Join(all, ", "))
		}
	}
	computes("type", w.Type, InNetworkTypes)
	computes("op", w.Op, InNetworkOps)
	if w.Transport != "" && w.Transport != InSwitch {
		c.report(at+".transport", "transport: "+clipped(w.Transport)+" with algorithm: "+InNetwork+
			", which uses the switch's own protocol", "remove it")
	}
}

// formula checks that the formula of a check fits its workload.
func (c *checker) formula(at string, b *BytesPerRank) {
	if b.Formula == "" {
		return
	}
	if b.Formula == FormulaTraining && c.workloads[b.Workload] && c.t.training(b.Workload) == nil {
		c.report(at+".formula", fmt.Sprintf("formula %s of %s, which is no training job", FormulaTraining,
			b.Workload), "want the formula of its algorithm and kind, such as ring-all-reduce")
	}
	if b.Formula == FormulaMessages && c.workloads[b.Workload] && c.t.messages(b.Workload) == nil {
		c.report(at+".formula", fmt.Sprintf("formula %s of %s, which is no messages step",
			FormulaMessages, b.Workload), "want the formula of its algorithm and kind, such as "+
			"ring-all-reduce")
	}
	for _, step := range c.t.Steps {
		if step.Training != nil {
			c.trainingFormula(at, b, step.Training)
		}
		if m := step.Messages; m != nil && m.Name == b.Workload && b.Formula != FormulaMessages &&
			!c.known(at+".formula") {
			c.report(at+".formula", fmt.Sprintf("formula %q of a messages step",
				clipped(b.Formula)), "want "+FormulaMessages)
		}
		w := step.Workload
		if w == nil || w.Name != b.Workload && (b.Workload != "" || len(c.workloads) != 1) {
			continue
		}
		kind := w.Collective()
		algorithm := cmp.Or(w.Algorithm, defaultAlgorithm(kind))
		if !slices.Contains(collectives[kind], algorithm) ||
			!anyCollective(func(kind string, algorithms []string) bool {
				return slices.ContainsFunc(algorithms, func(a string) bool {
					return formula(kind, a) == b.Formula
				})
			}) {
			continue // enums and the workload's check have reported it
		}
		switch want := formula(kind, algorithm); {
		case !slices.Contains(enumOf[BytesPerRank]("formula"), want):
			c.reportKey(at+".formula", "no formula exists for a workload that is "+kind, "remove it")
		case want != b.Formula:
			c.report(at+".formula", fmt.Sprintf("formula %q of a workload that is %s by %s",
				clipped(b.Formula), kind, algorithm), "want "+want)
		}
	}
}
