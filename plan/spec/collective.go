package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/element"
	"railbed/internal/printable"
	"railbed/plan/schedule"
)

// Kinds of collectives that are also checked or used apart from others. Package schedule has all kinds.
const (
	AllReduce = string(schedule.AllReduce)
	AllGather = string(schedule.AllGather)
	AllToAll  = string(schedule.AllToAll)
	Barrier   = string(schedule.Barrier)
)

// HasRates reports whether rates can be computed for a collective, for control: offline.
func HasRates(kind, algorithm string) bool {
	return (kind == AllToAll || kind == KindMoE) && algorithm != schedule.MSCCL ||
		slices.Contains([]string{schedule.Ring, schedule.Tree, schedule.HalvingDoubling}, algorithm)
}

// WithChannels returns the algorithms of a kind that can use several channels. It excludes a
// barrier, which has no data, and algorithms that define the path of the data themselves.
func WithChannels(kind string) []string {
	if kind == Barrier {
		return nil
	}
	return slices.DeleteFunc(Algorithms(kind), func(algorithm string) bool {
		return slices.Contains([]string{schedule.InNetwork, schedule.Hierarchical, schedule.MSCCL}, algorithm)
	})
}

// HasChannels reports whether a collective can use several channels.
func HasChannels(kind, algorithm string) bool { return slices.Contains(WithChannels(kind), algorithm) }

// InSwitch is the transport of algorithm InNetwork and of no other: the protocol of the switch that
// adds up.
const InSwitch = "in-switch"

// InNetworkTypes and InNetworkOps are the types and operations that switches compute with.
var (
	InNetworkTypes = []string{string(element.Float32), string(element.BFloat16), string(element.Float16),
		string(element.Int32)}
	InNetworkOps = []string{string(element.Sum), string(element.Max), string(element.Min),
		string(element.Average)}
)

// WorkloadKinds returns the kinds of workloads that exchange a buffer.
func WorkloadKinds() (all []string) {
	for _, kind := range schedule.Kinds() {
		all = append(all, string(kind))
	}
	return append(all, KindSGD, KindMoE)
}

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
	case algorithm == schedule.MSCCL:
		return schedule.MSCCL
	case kind == AllToAll || kind == KindMoE:
		return kind
	}
	return algorithm + "-" + kind
}

// rooted returns the kinds with a root.
func rooted() []string {
	return slices.DeleteFunc(WorkloadKinds(), func(kind string) bool { return !schedule.Kind(kind).Rooted() })
}

// formulas returns all formulas of collectives.
func formulas() (all []string) {
	for _, kind := range WorkloadKinds() {
		for _, algorithm := range Algorithms(kind) {
			all = append(all, formula(kind, algorithm))
		}
	}
	return all
}

// Algorithms returns the algorithms of a kind, the default first. It returns none for an unknown
// kind.
func Algorithms(kind string) []string {
	if kind == KindMoE {
		return []string{schedule.Direct, schedule.Pairwise}
	}
	return schedule.Choices(schedule.Kind(kind))
}

// defaultAlgorithm returns the default algorithm of a kind, or "" for an unknown kind.
func defaultAlgorithm(kind string) string { return append(Algorithms(kind), "")[0] }

// defaultOp returns the default operation of a kind, or "" if the kind combines nothing.
func defaultOp(kind string) string {
	if schedule.Kind(kind).Combines() {
		return string(element.Sum)
	}
	return ""
}

// Collective returns the kind of collective that the workload is or, for sgd, uses.
func (w *Workload) Collective() string {
	if w.Kind == KindSGD {
		return w.SGD.Collective()
	}
	return w.Kind
}

// collective checks the settings of a workload against its kind.
func (c *checker) collective(at string, w *Workload) {
	kind := w.Collective()
	algorithms := Algorithms(kind)
	if algorithms == nil {
		return // constraints has reported it
	}
	algorithm := cmp.Or(w.Algorithm, algorithms[0])
	if !slices.Contains(algorithms, algorithm) && slices.Contains(enumOf[Workload]("algorithm"), algorithm) {
		c.Report(at+".algorithm", fmt.Sprintf("%s has no algorithm %q", kind, printable.Clip(algorithm)),
			"want "+strings.Join(algorithms, " or "))
	}
	switch {
	case algorithm == schedule.MSCCL && w.File == "":
		c.Report(at+".algorithm", "algorithm: "+schedule.MSCCL+" without a file",
			"want file: NAME.xml, relative to this file")
	case algorithm != schedule.MSCCL && w.File != "":
		c.ReportKey(at+".file", "file with algorithm: "+printable.Clip(algorithm),
			"want algorithm: "+schedule.MSCCL+", or remove it")
	}
	if w.MayDrop() && (kind != AllReduce || algorithm != schedule.Ring) {
		c.ReportKey(at+".rd.droppable",
			fmt.Sprintf("droppable partial sums of %s by %s, which can drop none", kind,
				printable.Clip(algorithm)),
			"remove it, or take kind: "+AllReduce+" and algorithm: "+schedule.Ring)
	}
	if w.MayDrop() && (cmp.Or(w.Type, string(element.Float32)) != string(element.Float32) ||
		cmp.Or(w.Op, string(element.Sum)) != string(element.Sum)) {
		c.ReportKey(at+".rd.droppable", "droppable partial sums that are not sums of float",
			"remove it, or take type: "+string(element.Float32)+" and op: "+string(element.Sum))
	}
	if w.Op != "" && !schedule.Kind(kind).Combines() {
		c.ReportKey(at+".op", "an op of "+kind+", which combines nothing", "remove it")
	}
	if w.Root != 0 && !schedule.Kind(kind).Rooted() {
		c.ReportKey(at+".root", "a root of "+kind+", which has no root",
			"remove it, or take kind: "+strings.Join(rooted(), " or "))
	}
	c.inNetwork(at, w, algorithm)
	switch {
	case w.Channels == 0:
	case w.Kind == KindSGD || !HasChannels(kind, algorithm):
		c.ReportKey(at+".channels",
			printable.Clip(w.Kind)+" by "+printable.Clip(algorithm)+" has no channels",
			"remove it"+withChannels(w.Kind))
	case w.RD != nil && (w.MayDrop() || w.RD.Control == ControlOffline || w.RD.Control == ControlArbiter):
		c.ReportKey(at+".channels", "channels with computed rates or droppable bytes",
			"remove channels, or control and droppable")
	}
	if w.RD != nil && w.RD.Control == ControlOffline && !HasRates(kind, algorithm) {
		c.Report(at+".rd.control", fmt.Sprintf("control: %s with algorithm: %s, which has no computed rates",
			ControlOffline, printable.Clip(algorithm)),
			"want algorithm: "+schedule.Ring+", or another control")
	}
	if (kind != AllToAll || algorithm == schedule.MSCCL) && w.Skew != 0 {
		c.ReportKey(at+".skew", kind+" by "+printable.Clip(algorithm)+" has no skew",
			"remove it, or take kind: "+AllToAll+" and algorithm: "+schedule.Direct+" or "+schedule.Pairwise)
	}
}

// inNetwork checks the workload of algorithm: in-network.
func (c *checker) inNetwork(at string, w *Workload, algorithm string) {
	if algorithm != schedule.InNetwork {
		if w.Transport == InSwitch {
			c.Report(at+".transport", "transport: "+InSwitch+" with algorithm: "+printable.Clip(algorithm),
				"want algorithm: "+schedule.InNetwork+", or another transport")
		}
		if w.Switch != "" {
			c.ReportKey(at+".switch", "switch with algorithm: "+printable.Clip(algorithm),
				"want algorithm: "+schedule.InNetwork+", or remove it")
		}
		return
	}
	computes := func(key, value string, all []string) {
		if value != "" && !slices.Contains(all, value) {
			c.Report(at+"."+key, fmt.Sprintf("%s: %s with algorithm: %s, with which no switch computes", key,
				printable.Clip(value), schedule.InNetwork), "want one of "+strings.Join(all, ", "))
		}
	}
	computes("type", w.Type, InNetworkTypes)
	computes("op", w.Op, InNetworkOps)
	if w.Transport != "" && w.Transport != InSwitch {
		c.Report(at+".transport", "transport: "+printable.Clip(w.Transport)+" with algorithm: "+
			schedule.InNetwork+", which uses the switch's own protocol", "remove it")
	}
}

// formula checks that the formula of a check fits its workload.
func (c *checker) formula(at string, b *BytesPerRank) {
	if b.Formula == "" {
		return
	}
	if b.Formula == FormulaTraining && c.workloads[b.Workload] && c.t.training(b.Workload) == nil {
		c.Report(at+".formula", fmt.Sprintf("formula %s of %s, which is no training job", FormulaTraining,
			b.Workload), "want the formula of its algorithm and kind, such as ring-all-reduce")
	}
	if b.Formula == FormulaMessages && c.workloads[b.Workload] && c.t.messages(b.Workload) == nil {
		c.Report(at+".formula", fmt.Sprintf("formula %s of %s, which is no messages step",
			FormulaMessages, b.Workload), "want the formula of its algorithm and kind, such as "+
			"ring-all-reduce")
	}
	for _, step := range c.t.Steps {
		if step.Training != nil {
			c.trainingFormula(at, b, step.Training)
		}
		if m := step.Messages; m != nil && m.Name == b.Workload && b.Formula != FormulaMessages &&
			!c.Known(at+".formula") {
			c.Report(at+".formula", fmt.Sprintf("formula %q of a messages step",
				printable.Clip(b.Formula)), "want "+FormulaMessages)
		}
		w := step.Workload
		if w == nil || w.Name != b.Workload && (b.Workload != "" || len(c.workloads) != 1) {
			continue
		}
		kind := w.Collective()
		algorithm := cmp.Or(w.Algorithm, defaultAlgorithm(kind))
		if !slices.Contains(Algorithms(kind), algorithm) || !slices.Contains(formulas(), b.Formula) {
			continue // enums and the workload's check have reported it
		}
		if want := formula(kind, algorithm); want != b.Formula {
			c.Report(at+".formula", fmt.Sprintf("formula %q of a workload that is %s by %s",
				printable.Clip(b.Formula), kind, algorithm), "want "+want)
		}
	}
}
