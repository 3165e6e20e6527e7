package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan/spec"
)

// MaxAggregationMemory bounds the memory of the slots of all switches of a testbed.
const MaxAggregationMemory = units.Bytes(256 << 20)

// Aggregation is the table in which a switch adds up vectors of workers.
type Aggregation struct {
	Slots    int            `json:"slots"`
	Elements int            `json:"elements"` // 4-byte values per slot
	Timeout  units.Duration `json:"timeout"`
	// Jobs are the jobs whose root is the switch. There is one job for all ranks below the switch,
	// or none if it has no ranks below. The ranks below a switch are the ranks whose NICs connect
	// to it, and the ranks below its neighbours of lower tiers.
	Jobs []AggregationJob `json:"jobs,omitempty"`
}

// settings returns the settings that the file gives.
func (a *Aggregation) settings() *Aggregation {
	if a == nil {
		return nil
	}
	return &Aggregation{Slots: a.Slots, Elements: a.Elements, Timeout: a.Timeout}
}

// members returns text such as " for 4 ranks", or "" before jobs are decided.
func (a *Aggregation) members() string {
	total := 0
	for i := range a.Jobs {
		total += len(a.Jobs[i].Workers)
	}
	if total == 0 {
		return ""
	}
	return " for " + plural.Count(total, "ranks")
}

// AggregationJob is a set of ranks and switches that add up together. Workers send from the address
// of their NIC to UDP port wire.PortAggregation of an address of a switch.
type AggregationJob struct {
	Number uint16 `json:"number"` // the number of the job: the root's ID
	// KeySeed is the seed of the workers' keys, see wire.AggregationKey. SwitchSeed is the seed of
	// the keys by which switches authenticate each other.
	KeySeed    uint64 `json:"key_seed"`
	SwitchSeed uint64 `json:"switch_seed"`
	// Slots and Elements are the smallest values of a switch of the tree. Timeout is the longest.
	Slots    int            `json:"slots"`
	Elements int            `json:"elements"`
	Timeout  units.Duration `json:"timeout"`
	// Workers are the ranks that take part, by their number in the job.
	Workers []Rank `json:"workers"`
	// Tree holds the switches that add up, the root first, each after the switch above it.
	Tree []AggregationSwitch `json:"tree"`
}

// AggregationCost is the load of a job on links. It is not part of the plan, because links change
// during a run.
type AggregationCost struct {
	// Busiest is the time that the messages of one slot take in one direction of the busiest link
	// between switches. Crossings counts the links that these messages cross, links of nodes
	// included.
	Busiest   units.Duration
	Crossings int
}

// AggregationSwitch is a switch that adds up for a job.
type AggregationSwitch struct {
	Switch string     `json:"switch"`
	Addr4  netip.Addr `json:"addr4"`
	Addr6  netip.Addr `json:"addr6"`
	// Above is the index in the tree of the switch that receives the sum, or -1 for the root.
	Above int `json:"above"`
	// Workers are the workers of the job that send to this switch.
	Workers []int `json:"workers,omitempty"`
}

// Root returns the switch at the top of the tree.
func (j *AggregationJob) Root() *AggregationSwitch { return &j.Tree[0] }

// Of returns the switch to which a worker sends.
func (j *AggregationJob) Of(worker int) *AggregationSwitch {
	for i := range j.Tree {
		if slices.Contains(j.Tree[i].Workers, worker) {
			return &j.Tree[i]
		}
	}
	return nil
}

// Below returns the bitmap of the workers below a switch of the tree.
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

// Height returns the number of switches from a switch of the tree down to its farthest worker,
// itself included.
func (j *AggregationJob) Height(at int) int {
	height := 1
	for i := at + 1; i < len(j.Tree); i++ {
		if j.Tree[i].Above == at {
			height = max(height, 1+j.Height(i))
		}
	}
	return height
}

// Patience returns the time for which a switch of the tree waits for messages from below. For
// messages from above it waits for the patience of a switch one level above the root.
func (j *AggregationJob) Patience(at int) time.Duration {
	return time.Duration(j.Height(at)) * time.Duration(j.Timeout)
}

// Text returns the tree in one line.
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

// Limits of a job: the bits of a bitmap, and the bytes of a message over IPv4 in addition to its
// elements, which internal/wire fixes.
const (
	maxWorkers         = 64
	aggregationHeaders = 20 + 8 + 36
)

// addJobs creates the jobs of the switches that aggregate.
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
			c.once(path, fmt.Sprintf("want at most %d ranks, or aggregation: false for %s in fabric.switches",
				maxWorkers, sw.Name),
				"%s aggregates, and %d ranks are below it", sw.Name, len(job.Workers))
		}
		memory += units.Bytes(len(job.Tree) * job.Slots * 2 * (64 + 4*job.Elements))
		if memory > MaxAggregationMemory {
			c.once(c.part(sw, "aggregation", "slots", func(s spec.Switch) bool {
				return s.Aggregation != nil && s.Aggregation.Slots != 0
			}),
				"want fewer slots, elements or aggregating switches",
				"the slots of aggregating switches take more than %s", MaxAggregationMemory)
			return
		}
		if len(job.Workers) > 0 {
			sw.Soft.Aggregation.Jobs = []AggregationJob{job}
		}
	}
}

func aggregates(sw *Switch) bool { return sw.Soft != nil && sw.Soft.Aggregation != nil }

// job creates the job whose root is the given switch.
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

// checkMessages reports messages that exceed the MTU of a NIC. Links between switches carry as much
// as NICs.
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

// FitsIPv6 returns an error if the messages of a job are too long for IPv6. For IPv4 the compiler
// has checked them.
func (p *Plan) FitsIPv6(job *AggregationJob) error {
	const longer = 20 // bytes by which headers of IPv6 exceed those for IPv4
	rank, mtu := leastMTU(job, p.Node)
	if aggregationHeaders+longer+4*job.Elements <= mtu {
		return nil
	}
	return fmt.Errorf("messages of %d elements by IPv6 do not fit mtu %d of %s:%s; want ip: 4, or "+
		"aggregation: {elements: %d}",
		job.Elements, mtu, rank.Node, rank.NIC, (mtu-aggregationHeaders-longer)/4)
}

// leastMTU returns the smallest MTU of the workers' NICs, and the rank that has it.
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
