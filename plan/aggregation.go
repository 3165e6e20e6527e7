package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// MaxAggregationMemory is what the slots of all switches of a testbed may take.
const MaxAggregationMemory = units.Bytes(256 << 20)

// Aggregation is the table that adds up vectors of workers.
type Aggregation struct {
	Slots    int            `json:"slots"`
	Elements int            `json:"elements"` // of 4 bytes in each slot
	Timeout  units.Duration `json:"timeout"`
	// Jobs are those of which the switch is the root: one, of all ranks below it, or
	// none where there are no ranks. Below a switch are the ranks whose NICs are
	// joined to it, and those below its neighbours of lower tiers.
	Jobs []AggregationJob `json:"jobs,omitempty"`
}

// settings are what the file gives.
func (a *Aggregation) settings() *Aggregation {
	if a == nil {
		return nil
	}
	return &Aggregation{Slots: a.Slots, Elements: a.Elements, Timeout: a.Timeout}
}

// members is " for 4 ranks", nothing before jobs are decided.
func (a *Aggregation) members() string {
	total := 0
	for i := range a.Jobs {
		total += len(a.Jobs[i].Workers)
	}
	if total == 0 {
		return ""
	}
	return " for " + counted(total, "rank")
}

// AggregationJob is who adds up together: workers send to UDP port
// wire.PortAggregation of an address of a switch, from the address of their NIC.
type AggregationJob struct {
	Number uint16 `json:"number"` // of the job: the root's ID
	// KeySeed makes the workers' keys, wire.AggregationKey, and SwitchSeed those by
	// which switches know each other.
	KeySeed    uint64 `json:"key_seed"`
	SwitchSeed uint64 `json:"switch_seed"`
	// Slots and Elements are the fewest that a switch of the tree has, Timeout the
	// longest.
	Slots    int            `json:"slots"`
	Elements int            `json:"elements"`
	Timeout  units.Duration `json:"timeout"`
	// Workers are the ranks that take part, by their number in the job.
	Workers []Rank `json:"workers"`
	// Tree is the switches that add up, the root first, each behind the one above it.
	Tree []AggregationSwitch `json:"tree"`
}

// AggregationCost is what links have to carry of a job. It is not part of the plan, since links change
// while they run.
type AggregationCost struct {
	// Busiest is how long the link between switches that has most to carry needs for one
	// slot of all workers, one way, and Crossings how many links that slot crosses, nodes' included.
	Busiest   units.Duration
	Crossings int
}

// AggregationSwitch is a switch that adds up for a job.
type AggregationSwitch struct {
	Switch string     `json:"switch"`
	Addr4  netip.Addr `json:"addr4"`
	Addr6  netip.Addr `json:"addr6"`
	// Above is the index in the tree of the switch to which the sum goes; -1 is none.
	Above int `json:"above"`
	// Workers are those of the job that send to this switch.
	Workers []int `json:"workers,omitempty"`
}

// Root is the switch at the top of the tree.
func (j *AggregationJob) Root() *AggregationSwitch { return &j.Tree[0] }

// Of is the switch to which a worker sends.
func (j *AggregationJob) Of(worker int) *AggregationSwitch {
	for i := range j.Tree {
		if slices.Contains(j.Tree[i].Workers, worker) {
			return &j.Tree[i]
		}
	}
	return nil
}

// Below are the bits of the workers below a switch of the tree.
func (j *AggregationJob) Below(at int) (bitmap uint64) {
	for _, w := range j.Tree[at].Workers {
		bitmap |= 1 << w
	}
	for i := at + 1; i < len(j.Tree); i++ {
		if j.Tree[i].Above == at {
			bitmap |= j.Below(i)
		}
	}
	return bitmap
}

// Height is how many switches are between a switch of the tree and its farthest worker, itself
// included.
func (j *AggregationJob) Height(at int) int {
	height := 1
	for i := at + 1; i < len(j.Tree); i++ {
		if j.Tree[i].Above == at {
			height = max(height, 1+j.Height(i))
		}
	}
	return height
}

// Patience is for how long a switch of the tree waits for those below it; from what is above
// it hears something in the patience of one higher than the root.
func (j *AggregationJob) Patience(at int) time.Duration {
	return time.Duration(j.Height(at)) * time.Duration(j.Timeout)
}

// Text is the tree in one line.
func (j *AggregationJob) Text() string {
	var text strings.Builder
	j.describe(&text, 0)
	return text.String()
}

func (j *AggregationJob) describe(text *strings.Builder, at int) {
	text.WriteString(j.Tree[at].Switch)
	var below []string
	if len(j.Tree[at].Workers) > 0 {
		ranks := make([]string, len(j.Tree[at].Workers))
		for i, w := range j.Tree[at].Workers {
			ranks[i] = strconv.Itoa(j.Workers[w].Rank)
		}
		below = append(below, "ranks "+strings.Join(ranks, " "))
	}
	for i := at + 1; i < len(j.Tree); i++ {
		if j.Tree[i].Above == at {
			var one strings.Builder
			j.describe(&one, i)
			below = append(below, one.String())
		}
	}
	fmt.Fprintf(text, " (%s)", strings.Join(below, ", "))
}

// Limits of a job: the bits of a bitmap; and what a message over IPv4 has beside
// its elements, which internal/wire fixes.
const (
	maxWorkers         = 64
	aggregationHeaders = 20 + 8 + 36
)

// addJobs decides the jobs of the switches that aggregate.
func (c *compiler) addJobs() {
	f, memory := c.plan.forest(), units.Bytes(0)
	for i := range c.plan.Switches {
		sw := &c.plan.Switches[i]
		if !aggregates(sw) {
			continue
		}
		job := c.job(f, i)
		if len(job.Workers) > maxWorkers {
			path := c.switchSetting(sw.Name, "aggregation", func(s spec.Switch) bool {
				return s.Aggregation != nil
			})
			c.once(path, fmt.Sprintf("want at most %d, or aggregation: false for %s in fabric.switches",
				maxWorkers, sw.Name),
				"%s aggregates, and %d ranks are below it", sw.Name, len(job.Workers))
		}
		memory += units.Bytes(len(job.Tree) * job.Slots * 2 * (64 + 4*job.Elements))
		if memory > MaxAggregationMemory {
			c.once(c.part(sw, "aggregation", "slots", func(s spec.Switch) bool {
				return s.Aggregation != nil && s.Aggregation.Slots != 0
			}),
				"want fewer slots or elements, or switches",
				"the slots of aggregating switches take more than %s", MaxAggregationMemory)
			return
		}
		if len(job.Workers) > 0 {
			sw.Soft.Aggregation.Jobs = []AggregationJob{job}
		}
	}
}

func aggregates(sw *Switch) bool { return sw.Soft != nil && sw.Soft.Aggregation != nil }

// job is that of which a switch is the root.
func (c *compiler) job(f *forest, root int) AggregationJob {
	sw := &c.plan.Switches[root]
	a := sw.Soft.Aggregation
	job := AggregationJob{
		Number:     uint16(sw.ID),
		KeySeed:    c.aggregationSeed("aggregation", sw.Name),
		SwitchSeed: c.aggregationSeed("aggregation of switches", sw.Name),
		Slots:      a.Slots, Elements: a.Elements, Timeout: a.Timeout,
	}
	t := f.below(root)
	for _, rank := range t.ranks {
		job.Workers = append(job.Workers, c.plan.Ranks[rank])
	}
	if len(job.Workers) == 0 || len(job.Workers) > maxWorkers {
		return job
	}
	t.fill(&job)
	for _, one := range job.Tree {
		member := c.plan.Switch(one.Switch).Soft.Aggregation
		job.Slots, job.Elements, job.Timeout = min(job.Slots, member.Slots),
			min(job.Elements, member.Elements), max(job.Timeout, member.Timeout)
	}
	c.checkMessages(sw, &job)
	return job
}

// checkMessages refuses messages that are longer than what a NIC carries; links between switches
// carry as much.
func (c *compiler) checkMessages(root *Switch, job *AggregationJob) {
	node := func(name string) *Node { return &c.plan.Nodes[c.nodeAt[name]] }
	if rank, mtu := leastMTU(job, node); aggregationHeaders+4*job.Elements > mtu {
		path := c.part(root, "aggregation", "elements", func(s spec.Switch) bool {
			return s.Aggregation != nil && s.Aggregation.Elements != 0
		})
		c.once(path, fmt.Sprintf("want at most %d, or a greater mtu", (mtu-aggregationHeaders)/4),
			"messages of %d elements do not fit mtu %d of %s:%s", job.Elements, mtu, rank.Node, rank.NIC)
	}
}

// FitsIPv6 says why the messages of a job are too long for IPv6, nil where they are not: a plan's
// fit in IPv4.
func (p *Plan) FitsIPv6(job *AggregationJob) error {
	const longer = 20 // headers of IPv6 than of IPv4
	rank, mtu := leastMTU(job, p.Node)
	if aggregationHeaders+longer+4*job.Elements <= mtu {
		return nil
	}
	return fmt.Errorf("messages of %d elements by IPv6 do not fit mtu %d of %s:%s; want ip: 4, or "+
		"aggregation: {elements: %d}",
		job.Elements, mtu, rank.Node, rank.NIC, (mtu-aggregationHeaders-longer)/4)
}

// leastMTU is that of the NICs of the workers' nodes, and whose it is.
func leastMTU(job *AggregationJob, node func(name string) *Node) (whose Rank, mtu int) {
	for _, rank := range job.Workers {
		for _, nic := range node(rank.Node).NICs {
			if nic.Name == rank.NIC && (mtu == 0 || nic.MTU < mtu) {
				whose, mtu = rank, nic.MTU
			}
		}
	}
	return whose, mtu
}

func (c *compiler) aggregationSeed(purpose, sw string) uint64 {
	sum := c.digest(purpose, sw)
	return binary.BigEndian.Uint64(sum[:8])
}
