package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"railbed/internal/nearest"
	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// PacketsCheck judges the captured packets. Exactly one of the fields is set.
type PacketsCheck struct {
	// BytesPerRank compares the bytes that each rank sent with the bytes that its algorithm sends.
	BytesPerRank *BytesPerRank `yaml:"bytes-per-rank,omitempty" json:"bytes-per-rank,omitempty"`
	// RankNIC names a workload, all of whose traffic must leave by the NICs of its ranks.
	RankNIC string `yaml:"rank-nic,omitempty" json:"rank-nic,omitempty" names:"workload"`
	// Crossed names a run of a stack. Everything that a rank had to send to other nodes must leave
	// by the rank's own NIC within the time of the run. None of it may leave by another NIC of the
	// node.
	Crossed string `yaml:"crossed,omitempty" json:"crossed,omitempty" names:"stack"`
	// RailLocal names a workload. None of its packets may pass a link between switches. Traffic
	// that stays on rails passes none.
	RailLocal string `yaml:"rail-local,omitempty" json:"rail-local,omitempty" names:"workload"`
	// PartialSums names a workload with algorithm: in-network. Each switch that adds up below the
	// root must send one sum of everything below it per round of a slot. It may send it again only
	// if one of the nodes below asked again.
	PartialSums string `yaml:"partial-sums,omitempty" json:"partial-sums,omitempty" names:"sums"`
	// Conservation names a switch or a glob. Everything that enters a switch must leave it.
	Conservation string `yaml:"conservation,omitempty" json:"conservation,omitempty" names:"switch"`
	// PathSpread judges how traffic is spread over equal-cost uplinks.
	PathSpread *PathSpread `yaml:"path-spread,omitempty" json:"path-spread,omitempty"`
	// Marks judges how many packets of ECN-capable transports carry Congestion Experienced.
	Marks *MarksCheck `yaml:"marks,omitempty" json:"marks,omitempty" limited:"time"`
	// Drops judges the packets that soft switches and emulated NICs dropped, by reason.
	Drops *DropsCheck `yaml:"drops,omitempty" json:"drops,omitempty" limited:"time"`
	// Lossless requires that every packet that an emulated NIC accepted reaches the far NIC.
	Lossless *LosslessCheck `yaml:"lossless,omitempty" json:"lossless,omitempty" empty:"all packets"`
	// Trims judges packets that switches cut to their headers.
	Trims *TrimsCheck `yaml:"trims,omitempty" json:"trims,omitempty" empty:"all trimmed packets" limited:"time"`
	// Pauses judges the PFC frames, and requires that paused ports send nothing.
	Pauses *PausesCheck `yaml:"pauses,omitempty" json:"pauses,omitempty"`
	// Deadlock is none or some: whether a cycle of switches that pause each other and send nothing
	// must be absent or present.
	Deadlock string `yaml:"deadlock,omitempty" json:"deadlock,omitempty" jsonschema:"enum=none,enum=some" names:"word"`
	// Reordering judges the share of packets that arrived out of order (RFC 4737, section 4.2).
	Reordering *ReorderingCheck `yaml:"reordering,omitempty" json:"reordering,omitempty"`
	// Outage judges for how long flows of datagrams were interrupted.
	Outage *OutageCheck `yaml:"outage,omitempty" json:"outage,omitempty"`
	// Throughput judges how fast packets arrived, for each pair of nodes.
	Throughput *ThroughputCheck `yaml:"throughput,omitempty" json:"throughput,omitempty" limited:"time"`
	// QueueDepth judges the lengths of soft switches' queues, whenever a packet was sent, marked or dropped.
	QueueDepth *QueueDepthCheck `yaml:"queue-depth,omitempty" json:"queue-depth,omitempty" limited:"time"`
	// Pacing requires that rd sends nothing ahead of the schedule of its rate.
	Pacing *PacingCheck `yaml:"pacing,omitempty" json:"pacing,omitempty"`
	// RoCE checks a rule of RoCEv2 on every connection.
	RoCE *RoCECheck `yaml:"roce,omitempty" json:"roce,omitempty"`
	// That is a statement about the packets of rd, which must hold. The packets are followed from
	// NIC to NIC.
	That string `yaml:"that,omitempty" json:"that,omitempty" jsonschema:"enum=every rd message is placed exactly once,enum=no rd packet is sent again without need" names:"word"`
	// Latency judges how long packets took from NIC to NIC.
	Latency *LatencyCheck `yaml:"latency,omitempty" json:"latency,omitempty" limited:"time"`
	// LinkBytes judges the bytes of frames that each direction of links carried, from the Ethernet header
	// on.
	LinkBytes *LinkBytesCheck `yaml:"link-bytes,omitempty" json:"link-bytes,omitempty" limited:"time"`
	// Flows judges how many flows passed ports, in either direction. Packets of one flow have the same
	// addresses, protocol and ports. Switches that hash need many flows to spread traffic over paths of
	// equal cost.
	Flows *FlowsCheck `yaml:"flows,omitempty" json:"flows,omitempty"`
	// Rule is a condition over packets that filters select.
	Rule *Rule `yaml:"rule,omitempty" json:"rule,omitempty" limited:"time"`
	// During limits the check to the time in which a fault, or a step with a name, was active. Of the
	// checks, rule, throughput, latency, drops, marks, trims, queue-depth and link-bytes can be limited.
	// A packet counts if it was recorded in the time. For latency, and for the first packet of a rule with
	// after, it counts if it left in the time. If the fault was never active, or nothing was recorded in the
	// time, the check is INCONCLUSIVE. A pair or a flow of a traffic step is judged without packets only if
	// the step was active in the time. The check is then INCONCLUSIVE, because the step may have sent nothing
	// in that time. Default: all the time of the capture.
	During string `yaml:"during,omitempty" json:"during,omitempty"`
	// Outside limits the check to the time before and after a fault or a step, as during limits it to the
	// time in between. Default: all the time of the capture.
	Outside string `yaml:"outside,omitempty" json:"outside,omitempty"`
}

// Limited returns the name of the step or fault to whose time the check is limited, or to the time outside of
// it. The name is empty if the check has no limit.
func (p *PacketsCheck) Limited() (name string, outside bool) {
	if p.During == "" && p.Outside != "" {
		return p.Outside, true
	}
	return p.During, false
}

// TimeWords returns the limit in time in the words of the file: "during fault-1".
func (p *PacketsCheck) TimeWords() string {
	name, outside := p.Limited()
	if outside {
		return "outside " + name
	}
	return "during " + name
}

// limitable are the checks that can be limited in time.
var limitable = strictyaml.Keys(slices.DeleteFunc(
	slices.Clone(strictyaml.Fields(reflect.TypeFor[PacketsCheck]())),
	func(f strictyaml.Field) bool { return f.Tag.Get("limited") == "" }))

// packetLimit checks the limit in time of a check.
func (c *checker) packetLimit(at string, p *PacketsCheck) {
	if p.During != "" && p.Outside != "" {
		c.ReportKey(at+".outside", "during and outside are both set", "remove one of them")
	}
	for _, limit := range []struct{ key, name string }{{"during", p.During}, {"outside", p.Outside}} {
		if limit.name == "" {
			continue
		}
		if kind := p.Kind(); kind != "" && !slices.Contains(limitable, kind) {
			c.ReportKey(at+"."+limit.key, fmt.Sprintf("%s in a check of %s, which is about the whole capture",
				limit.key, kind), "remove it; it can be in checks of "+strings.Join(limitable, ", "))
		}
		names := namesOfFaults(c.t.Steps)
		for i := range c.t.Steps {
			names = append(names, c.t.Steps[i].Traits().Name)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		if slices.Contains(names, limit.name) || c.Full() || c.Known("steps") || c.Broken("steps") {
			continue
		}
		want := "add name: to a fault or another step"
		if len(names) > 0 {
			_, want = nearest.Suggest(limit.name, names)
		}
		c.Report(at+"."+limit.key,
			fmt.Sprintf("no fault or step is named %q", printable.Clip(limit.name)), want)
	}
}

// BytesPerRank compares bytes of ranks with a formula. Payload counts, in total and to each other rank,
// for the size, type and number of ranks. A text instead of a mapping is the name of the workload.
type BytesPerRank struct {
	// Workload is the workload's name. Default: the only one of the file.
	Workload string `yaml:"workload,omitempty" json:"workload,omitempty" names:"only" alone:"true"`
	// Formula is the formula of the workload's algorithm and kind. The expected bytes are counted from
	// the algorithm's steps, to the byte, even if ranks cannot share the size evenly. Headers and
	// replies of a transport do not count. Nor does traffic between ranks of one node, which passes no
	// link. Default: the workload's formula.
	//
	// If ranks share the size evenly, each of n ranks sends:
	//
	//   - ring-all-reduce: 2(n-1)/n of the size.
	//   - ring-all-gather, hypercube-all-gather, ring-reduce-scatter, all-to-all: (n-1)/n. An
	//     all-to-all with a skew sends all but the rank's own part.
	//   - tree-all-reduce: 1/2 to each neighbour in each of two trees.
	//   - halving-doubling-all-reduce: 2(p-1)/p among p ranks, the greatest power of two. Each
	//     other rank sends and receives the whole size.
	//   - recursive-doubling-all-reduce: log2(p) times the size. Each other rank sends and receives
	//     the whole size.
	//   - hierarchical-all-reduce: to other nodes, of N nodes, 2(N-1)/N of the rail's part of the
	//     size. The other hierarchical kinds send half of that.
	//   - in-network-all-reduce: the size once.
	//   - msccl: the bytes that the file's sends carry to other nodes.
	//   - ring-broadcast, ring-reduce: the size, except that the rank at the end of the ring sends
	//     nothing.
	//   - binomial-broadcast, binomial-reduce: the size to each child or to the parent.
	//   - direct-gather: 1/n from each rank but the root. direct-scatter: 1/n from the root to each
	//     other rank.
	//   - binomial-gather, binomial-scatter: 1/n for each rank whose part passes.
	//   - {Sends}
	//   - moe: from each rank to each other rank, its messages to that rank's experts and the
	//     replies of its own experts.
	//   - training: the bytes that the program of a training job gives for each rank.
	Formula string `yaml:"formula,omitempty" json:"formula,omitempty" jsonschema:"enum=ring-all-reduce,enum=tree-all-reduce,enum=halving-doubling-all-reduce,enum=recursive-doubling-all-reduce,enum=hierarchical-all-reduce,enum=in-network-all-reduce,enum=ring-all-gather,enum=hierarchical-all-gather,enum=ring-reduce-scatter,enum=hierarchical-reduce-scatter,enum=ring-broadcast,enum=binomial-broadcast,enum=ring-reduce,enum=binomial-reduce,enum=auto-all-reduce,enum=auto-all-gather,enum=auto-reduce-scatter,enum=auto-broadcast,enum=auto-reduce,enum=hypercube-all-gather,enum=direct-gather,enum=binomial-gather,enum=auto-gather,enum=direct-scatter,enum=binomial-scatter,enum=auto-scatter,enum=ring-sendrecv,enum=all-to-all,enum=dissemination-barrier,enum=moe,enum=msccl,enum=training,enum=messages,enum=FORMULAS"`
	// Tolerance is the share by which the bytes may differ from the bytes that the rank should
	// send. If it should send nothing, the share is of the most that any rank should send. Default
	// 0%: exact.
	Tolerance units.Ratio `yaml:"tolerance,omitempty" json:"tolerance,omitzero"`
}

func (b *BytesPerRank) form(c *checker, at string) { c.formula(at, b) }

// PathSpread judges how traffic is spread over a switch's equal-cost uplinks. By default every
// uplink must carry some traffic.
type PathSpread struct {
	// Switch is a name or glob.
	Switch string `yaml:"switch" json:"switch" names:"switch"`
	// MinShare is the least traffic of an uplink, as a share of the mean over all uplinks. Default
	// 0%: any traffic is enough.
	MinShare units.Ratio `yaml:"min-share,omitempty" json:"min-share,omitzero"`
	// Polarised requires the opposite: an uplink without traffic, although there are enough flows that
	// an even hash would have used it. Default false.
	Polarised bool `yaml:"polarised,omitempty" json:"polarised,omitempty"`
	// Flows adds a requirement: one-path, each flow uses one uplink; every-path, each flow with enough
	// packets uses all uplinks. Default: not judged.
	Flows string `yaml:"flows,omitempty" json:"flows,omitempty" jsonschema:"enum=one-path,enum=every-path"`
}

func (k *PathSpread) form(c *checker, at string) {
	if k.Polarised && k.MinShare.Num != 0 {
		c.Report(at+".min-share", "min-share and polarised are both set", "remove one of them")
	}
}
