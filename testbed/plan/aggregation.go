package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"railbed/fabric/units"
	"railbed/testbed/spec"
)

// MaxAggregationMemory is what the slots of all switches of a testbed may take.
const MaxAggregationMemory = units.Bytes(256 << 20)

// Aggregation is the table that adds up vectors of workers.
type Aggregation struct {
	Slots    int            `json:"slots"`
	Elements int            `json:"elements"` // of 4 bytes in each slot
	Timeout  units.Duration `json:"timeout"`
	// Jobs are the switch's: one, of all ranks below it, or none where there are
	// no ranks. Below a switch are the ranks whose NICs are joined to it, and
	// those below its neighbours of lower tiers.
	Jobs []AggregationJob `json:"jobs,omitempty"`
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

// AggregationJob is who adds up together. Workers send to UDP port
// wire.PortAggregation of an address of the switch, from the address of their
// NIC.
type AggregationJob struct {
	Number uint16     `json:"number"` // of the job: the switch's ID
	Addr4  netip.Addr `json:"addr4"`
	Addr6  netip.Addr `json:"addr6"`
	// KeySeed makes the workers' keys, wire.AggregationKey.
	KeySeed uint64 `json:"key_seed"`
	// Workers are the ranks that take part, by their number in the job.
	Workers []Rank `json:"workers"`
}

// Limits of a job: the bits of a bitmap; and what a message over IPv4 has beside
// its elements, which transports/wire fixes.
const (
	maxWorkers         = 64
	aggregationHeaders = 20 + 8 + 36
)

// addJobs decides the jobs of the switches that aggregate.
func (c *compiler) addJobs() {
	memory := units.Bytes(0)
	for i := range c.plan.Switches {
		sw := &c.plan.Switches[i]
		if sw.Soft == nil || sw.Soft.Aggregation == nil {
			continue
		}
		a := sw.Soft.Aggregation
		memory += units.Bytes(a.Slots * 2 * (64 + 4*a.Elements))
		if memory > MaxAggregationMemory {
			c.once(c.part(sw, "aggregation", "slots", func(s spec.Switch) bool { return s.Aggregation != nil && s.Aggregation.Slots != 0 }),
				"want fewer slots or elements, or switches", "the slots of aggregating switches take more than %s", MaxAggregationMemory)
			return
		}
		job := AggregationJob{Number: uint16(sw.ID), Addr4: sw.Loopbacks[0].Addr(), Addr6: sw.Loopbacks[1].Addr(), KeySeed: c.aggregationSeed(sw.Name)}
		below := c.below(i)
		for _, rank := range c.plan.Ranks {
			node := c.nodeAt[rank.Node]
			nic := slices.IndexFunc(c.plan.Nodes[node].NICs, func(n Interface) bool { return n.Name == rank.NIC })
			if !below[c.attached[node][nic]] {
				continue
			}
			job.Workers = append(job.Workers, rank)
			if mtu := c.plan.Nodes[node].NICs[nic].MTU; aggregationHeaders+4*a.Elements > mtu {
				path := c.part(sw, "aggregation", "elements", func(s spec.Switch) bool { return s.Aggregation != nil && s.Aggregation.Elements != 0 })
				c.once(path, fmt.Sprintf("want at most %d, or a greater mtu", (mtu-aggregationHeaders)/4),
					"messages of %d elements do not fit mtu %d of %s:%s", a.Elements, mtu, rank.Node, rank.NIC)
			}
		}
		if len(job.Workers) > maxWorkers {
			path := c.switchSetting(sw.Name, "aggregation", func(s spec.Switch) bool { return s.Aggregation != nil })
			c.once(path, fmt.Sprintf("want at most %d, or aggregation: false for %s in fabric.switches", maxWorkers, sw.Name),
				"%s aggregates, and %d ranks are below it", sw.Name, len(job.Workers))
		}
		if len(job.Workers) > 0 {
			a.Jobs = []AggregationJob{job}
		}
	}
}

// below are a switch and those that are reached from it through lower tiers only.
func (c *compiler) below(sw int) map[int]bool {
	found := map[int]bool{sw: true}
	for next := []int{sw}; len(next) > 0; next = next[1:] {
		at := next[0]
		for _, p := range c.ports[at] {
			if peer := p.peer.index; p.peer.isSwitch && !found[peer] && c.plan.Switches[peer].Tier < c.plan.Switches[at].Tier {
				found[peer] = true
				next = append(next, peer)
			}
		}
	}
	return found
}

func (c *compiler) aggregationSeed(sw string) uint64 {
	sum := c.digest("aggregation", sw)
	return binary.BigEndian.Uint64(sum[:8])
}
