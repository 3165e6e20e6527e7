package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/internal/units"
	"railbed/plan/schedule"
)

// forest holds the switches and ranks of a plan by indices.
type forest struct {
	plan     *Plan
	switchAt map[string]int
	leafOf   []int // the switch of each rank's NIC
}

func (p *Plan) forest() *forest {
	f := &forest{plan: p, switchAt: map[string]int{}, leafOf: make([]int, len(p.Ranks))}
	for i := range p.Switches {
		f.switchAt[p.Switches[i].Name] = i
	}
	peers := map[End]string{}
	for i := range p.Nodes {
		for _, nic := range p.Nodes[i].NICs {
			peers[End{Node: p.Nodes[i].Name, Port: nic.Name}] = nic.Peer
		}
	}
	for i, r := range p.Ranks {
		name, _, _ := strings.Cut(peers[End{Node: r.Node, Port: r.NIC}], ":")
		f.leafOf[i] = f.switchAt[name]
	}
	return f
}

// tree is the part of the fabric below a switch.
type tree struct {
	*forest
	order []int       // the root first, each after its parent
	up    map[int]hop // for each switch except the root
	ranks []int       // the ranks below, in order
}

// hop is a switch's port and the switch at its other end.
type hop struct{ port, peer int }

// below returns a switch and the switches that can be reached from it through lower tiers only.
// Each is reached over the fewest links. Among several such paths the first is taken.
func (f *forest) below(root int) *tree {
	t := &tree{forest: f, order: []int{root}, up: map[int]hop{}}
	for i := 0; i < len(t.order); i++ {
		at := &f.plan.Switches[t.order[i]]
		for _, port := range at.Ports {
			name, far, _ := strings.Cut(port.Peer, ":")
			peer, isSwitch := f.switchAt[name]
			if _, met := t.up[peer]; !isSwitch || met || peer == root ||
				f.plan.Switches[peer].Tier >= at.Tier {
				continue
			}
			up := slices.IndexFunc(f.plan.Switches[peer].Ports, func(p Interface) bool {
				return p.Name == far
			})
			t.up[peer] = hop{port: up, peer: t.order[i]}
			t.order = append(t.order, peer)
		}
	}
	for rank, leaf := range f.leafOf {
		if slices.Contains(t.order, leaf) {
			t.ranks = append(t.ranks, rank)
		}
	}
	return t
}

// fill fills in the tree of the job. Each worker and each switch sends to the next switch towards
// the root that aggregates and to which several of them send.
func (t *tree) fill(job *AggregationJob) {
	// Both are by the switch that receives from them or forwards for them.
	workers, switches := map[int][]int{}, map[int][]int{}
	for worker, rank := range t.ranks {
		leaf := t.leafOf[rank]
		workers[leaf] = append(workers[leaf], worker)
	}
	member := map[int]bool{t.order[0]: true}
	for _, at := range slices.Backward(t.order[1:]) {
		next := t.up[at].peer
		if len(workers[at])+len(switches[at]) > 1 && aggregates(&t.plan.Switches[at]) {
			member[at] = true
			switches[next] = append(switches[next], at)
			continue
		}
		workers[next] = append(workers[next], workers[at]...)
		switches[next] = append(switches[next], switches[at]...)
	}
	place := map[int]int{} // index in the tree
	for _, at := range t.order {
		if !member[at] {
			continue
		}
		place[at] = len(job.Tree)
		sw := &t.plan.Switches[at]
		one := AggregationSwitch{Switch: sw.Name, Addr4: sw.Loopbacks[0].Addr(),
			Addr6: sw.Loopbacks[1].Addr(), Above: -1, Workers: workers[at]}
		slices.Sort(one.Workers)
		if next, below := t.up[at]; below {
			for !member[next.peer] {
				next = t.up[next.peer]
			}
			one.Above = place[next.peer]
		}
		job.Tree = append(job.Tree, one)
	}
}

// AggregationCost returns the load of one slot of all workers of a job on links on its way up. The
// way down has the same load.
func (p *Plan) AggregationCost(job *AggregationJob) (cost AggregationCost) {
	f := p.forest()
	t := f.below(f.switchAt[job.Root().Switch])
	carried := map[int]int{} // messages, by the switch that sends them up
	climb := func(at int, to string) {
		for ; t.plan.Switches[at].Name != to; at = t.up[at].peer {
			carried[at]++
			cost.Crossings++
		}
	}
	cost.Crossings = len(job.Workers)
	for worker, rank := range t.ranks {
		climb(t.leafOf[rank], job.Of(worker).Switch)
	}
	for _, one := range job.Tree[1:] {
		climb(t.switchAt[one.Switch], job.Tree[one.Above].Switch)
	}
	for at, messages := range carried {
		sw := &t.plan.Switches[at]
		if d := t.plan.Sends(sw.Name, sw.Ports[t.up[at].port].Name); d != nil && d.Rate > 0 {
			bits := uint64(messages) * 8 * uint64(aggregationHeaders+4*job.Elements)
			cost.Busiest = max(cost.Busiest, units.Duration(bits*uint64(time.Second)/uint64(d.Rate)))
		}
	}
	return cost
}

// AggregationJobs returns the jobs of all switches, by their roots, in the plan's order.
func (p *Plan) AggregationJobs() (jobs []*AggregationJob) {
	for i := range p.Switches {
		if sw := &p.Switches[i]; aggregates(sw) {
			for k := range sw.Soft.Aggregation.Jobs {
				jobs = append(jobs, &sw.Soft.Aggregation.Jobs[k])
			}
		}
	}
	return jobs
}

// ErrNoTree means that no switch can add up for the ranks of a collective.
var ErrNoTree = errors.New("no switch adds up for exactly these ranks")

// AggregationFor returns the job for a collective of the given ranks. Among the jobs with exactly
// these ranks it takes the job with the least load on its busiest link, then the fewest link
// crossings, then the first in order. A root selects the switch of that name. Jobs whose numbers
// are busy belong to other collectives and are skipped.
func (p *Plan) AggregationFor(ranks []Rank, root string, busy ...uint16) (*AggregationJob, error) {
	var found []*AggregationJob
	for _, job := range p.AggregationJobs() {
		if slices.EqualFunc(job.Workers, ranks, sameWorker) {
			found = append(found, job)
		}
	}
	asked := slices.DeleteFunc(slices.Clone(found), func(job *AggregationJob) bool {
		return root != "" && job.Root().Switch != root
	})
	if len(asked) == 0 {
		return nil, p.noTree(ranks, root, found)
	}
	found = slices.DeleteFunc(slices.Clone(asked), func(job *AggregationJob) bool {
		return slices.Contains(busy, job.Number)
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("%s adds up for another collective of these ranks; want this collective "+
			"after it, or aggregation at another switch above the ranks", asked[0].Root().Switch)
	}
	costs := map[*AggregationJob]AggregationCost{}
	for _, job := range found {
		costs[job] = p.AggregationCost(job)
	}
	return slices.MinFunc(found, func(a, b *AggregationJob) int {
		return cmp.Or(cmp.Compare(costs[a].Busiest, costs[b].Busiest),
			cmp.Compare(costs[a].Crossings, costs[b].Crossings))
	}), nil
}

// sameWorker reports whether two ranks use the same NIC, whatever their numbers.
func sameWorker(a, b Rank) bool { return a.Node == b.Node && a.NIC == b.NIC && a.Addr4 == b.Addr4 }

// noTree explains why there is no job, and how to get one.
func (p *Plan) noTree(ranks []Rank, root string, found []*AggregationJob) error {
	if root != "" && len(found) > 0 {
		names := make([]string, len(found))
		for i, job := range found {
			names[i] = job.Root().Switch
		}
		return fmt.Errorf("%w at %s; want %s", ErrNoTree, root, strings.Join(names, " or "))
	}
	if !p.Soft() {
		kind := "none"
		if len(p.Switches) > 0 {
			kind = p.Switches[0].Kind
		}
		return fmt.Errorf("%w: only soft switches can, and this testbed has kind: %s; want fabric: "+
			"{switch: {kind: soft, aggregation: {}}}", ErrNoTree, kind)
	}
	with, rest := p.above(ranks)
	switch {
	case len(with) > 0:
		return fmt.Errorf("%w: %s is above them, without aggregation; want aggregation: {} in "+
			"fabric.switch, or for %s in fabric.switches", ErrNoTree, strings.Join(with, " or "), with[0])
	case len(rest) > 0:
		return fmt.Errorf("%w: %s also has other ranks below it; let all ranks below it take part", ErrNoTree,
			rest[0])
	}
	return fmt.Errorf("%w: they have no common switch above them; want a topology whose leaves share a "+
		"switch, such as leaf-spine, or another algorithm", ErrNoTree)
}

// above returns the names of switches that have exactly these ranks below them, and of switches
// that have others as well.
func (p *Plan) above(ranks []Rank) (exactly, more []string) {
	f := p.forest()
	for i := range p.Switches {
		below := f.below(i).ranks
		has := !slices.ContainsFunc(ranks, func(r Rank) bool {
			return !slices.ContainsFunc(below, func(rank int) bool { return sameWorker(p.Ranks[rank], r) })
		})
		switch {
		case has && len(below) == len(ranks):
			exactly = append(exactly, p.Switches[i].Name)
		case has:
			more = append(more, p.Switches[i].Name)
		}
	}
	return exactly, more
}

// checkInNetwork reports workloads with algorithm: in-network for which no job exists.
func (c *compiler) checkInNetwork() {
	for i, step := range c.t.Steps {
		w := step.Workload
		if w == nil || w.Algorithm != schedule.InNetwork {
			continue
		}
		job, err := c.plan.AggregationFor(c.plan.RanksOf(w.Ranks), w.Switch)
		at := "algorithm"
		switch {
		case err == nil && w.Version() == 6:
			at, err = "ip", c.plan.FitsIPv6(job)
		case err != nil && w.Switch != "":
			at = "switch"
		}
		if err != nil {
			what, want, _ := strings.Cut(err.Error(), "; ")
			c.wrong(fmt.Sprintf("steps[%d].workload.%s", i, at), want, "%s", what)
		}
	}
}
