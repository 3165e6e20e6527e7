package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/plan/spec"
)

// FaultPlaces returns the ports at which a fault acts: the ends of links that send the packets
// (spec.Fault.Where), or the NICs of a partition's nodes. It is empty if no port has such a name.
func (p *Plan) FaultPlaces(f *spec.Fault) (places []End) {
	if f.Partition != nil {
		for _, set := range p.parted(f) {
			for _, n := range set {
				for _, nic := range n.NICs {
					places = append(places, End{Node: n.Name, Port: nic.Name})
				}
			}
		}
		return places
	}
	name, direction := f.Place()
	add := func(end End) {
		if !slices.Contains(places, end) {
			places = append(places, end)
		}
	}
	nodes := map[string]bool{}
	for i := range p.Nodes {
		nodes[p.Nodes[i].Name] = true
	}
	named := func(end End) bool {
		return spec.Port{Node: end.Node, Name: end.Port, NIC: nodes[end.Node]}.Selected(name)
	}
	for i := range p.Links {
		l := &p.Links[i]
		// A glob such as h* matches only hosts, although it would match the names of their links, too.
		ofLink := l.Name == name || strings.Contains(name, "--") && spec.Match(name, l.Name)
		if direction != BToA && (ofLink || direction == "" && named(l.A)) {
			add(l.A)
		}
		if direction != AToB && (ofLink || direction == "" && named(l.B)) {
			add(l.B)
		}
	}
	return places
}

// FaultTarget returns the NIC that gets the copies of a mirror, or the switch's port that sends the packets
// of a misroute. For other faults it returns the zero End. The error has the name that is not in the plan.
func (p *Plan) FaultTarget(f *spec.Fault) (End, error) {
	switch {
	case f.Mirror != nil:
		node, nic, err := p.NodeOrNIC(f.Mirror.To)
		switch {
		case err != nil:
			return End{}, err
		case nic != nil:
			return End{Node: node.Name, Port: nic.Name}, nil
		}
		return End{Node: node.Name, Port: node.NICs[0].Name}, nil
	case f.Misroute != nil:
		places := p.FaultPlaces(f)
		if len(places) == 0 {
			return End{}, fmt.Errorf("no port is at %q; want a switch or its ports", f.Where)
		}
		for i, at := range places {
			if p.Switch(at.Node) == nil || at.Node != places[0].Node {
				return End{}, fmt.Errorf("the fault acts at %s and at %s; want ports of one switch as where",
					places[0].Node, places[i].Node)
			}
		}
		for _, l := range p.Links {
			for _, end := range []End{l.A, l.B} {
				named := l.Name == f.Misroute.To || end.Name() == f.Misroute.To
				if named && end.Node == places[0].Node {
					return end, nil
				}
			}
		}
		return End{}, fmt.Errorf("%q is no port and no link of the fault's switch; want a port such as %s",
			f.Misroute.To, places[0].Name())
	}
	return End{}, nil
}

// parted returns the nodes of each of a partition's sets.
func (p *Plan) parted(f *spec.Fault) (sets [][]*Node) {
	for _, patterns := range f.Partition {
		var set []*Node
		for i := range p.Nodes {
			if slices.ContainsFunc(patterns, func(of string) bool {
				return spec.Match(of, p.Nodes[i].Name)
			}) {
				set = append(set, &p.Nodes[i])
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// FaultMatch returns the display filter of the packets that match a fault: those between the sets of a
// partition, and those of the fault's own match. It is empty if all packets match.
func (p *Plan) FaultMatch(f *spec.Fault) (string, error) {
	if f.Partition == nil {
		return f.Match, nil
	}
	match := p.partitionMatch(f)
	switch {
	case match == "":
		return "", errors.New("the partition has nodes in less than two sets")
	case f.Match != "":
		match = "(" + match + ") && (" + f.Match + ")"
	}
	return match, nil
}

// partitionMatch returns the display filter for the packets that a partition drops: the IP packets from an
// address of a node to an address of a node in another set. For other faults it returns "".
func (p *Plan) partitionMatch(f *spec.Fault) string {
	addresses := func(sets [][]*Node, four bool) string {
		var all []string
		for _, set := range sets {
			for _, n := range set {
				prefixes := slices.Clone(n.Loopbacks)
				for _, nic := range n.NICs {
					prefixes = append(prefixes, nic.Addrs...)
				}
				for _, prefix := range prefixes {
					if prefix.Addr().Is4() == four {
						all = append(all, prefix.Addr().String())
					}
				}
			}
		}
		return strings.Join(all, ", ")
	}
	sets := p.parted(f)
	var ways []string
	for i := range sets {
		others := slices.Concat(sets[:i:i], sets[i+1:])
		for _, family := range []struct {
			name string
			four bool
		}{{"ip", true}, {"ipv6", false}} {
			from, to := addresses(sets[i:i+1], family.four), addresses(others, family.four)
			if from != "" && to != "" {
				ways = append(ways, fmt.Sprintf("%s.src in {%s} && %s.dst in {%s}", family.name, from,
					family.name, to))
			}
		}
	}
	return strings.Join(ways, " || ")
}

var _ = checkStep((*compiler).checkFault)

// checkFault reports a fault at a place that does not exist, and a packet fault that needs soft switches. It
// notes the ports of kernel links and switches at which packet faults act.
func (c *compiler) checkFault(w *words, path string, f *spec.Fault) {
	if f.OfNodes() {
		if f.Where != "" {
			w.name(path+".where", f.Where, "node", w.nodes)
		}
		c.checkNodeFault(path, f)
		return
	}
	if f.Where == "" && f.Partition == nil {
		return
	}
	problems := c.plan.faultProblems(f)
	for _, p := range problems {
		if p.key == "where" {
			name, _ := f.Place()
			p.want = suggest(name, slices.Concat(spec.PortWords, w.links, w.nodes, w.switches), p.want)
		}
		c.wrong(path+"."+p.key, p.want, "%s", p.what)
	}
	if len(problems) == 0 && !c.plan.Soft() && !f.Reboot {
		c.harm(path, f)
	}
}

// ProgramsFeature is the feature, as doctor names it, of hosts with faults at kernel links and switches.
const ProgramsFeature = "bpf-tc"

// harm notes the ports of a packet fault at kernel links and switches, or reports that they cannot have it.
func (c *compiler) harm(path string, f *spec.Fault) {
	key, pick := f.Action()
	switch {
	case !f.Kind().Kernel:
		c.wrong(path+"."+key, "take fabric: {switch: {kind: soft}}, or one of "+
			strings.Join(spec.FaultKeys(true), ", "), "%s needs soft switches", key)
		return
	case !pick.Flows.IsZero():
		c.wrong(path+"."+key+".flows", "take share:, or fabric: {switch: {kind: soft}}",
			"a share of flows needs soft switches")
		return
	}
	if pick.Per == spec.PickMessages {
		c.wrong(path+"."+key+".per", "take fabric: {switch: {kind: soft}}, or remove per:",
			"a fault of messages needs soft switches")
		return
	}
	c.require(ProgramsFeature, "fault "+f.Name+" acts at kernel links or switches", path)
	for _, at := range c.plan.FaultPlaces(f) {
		if !slices.Contains(c.plan.Harmed, at) {
			c.plan.Harmed = append(c.plan.Harmed, at)
		}
	}
}

// checkFaultRanks reports faults of ranks that do not exist, or that are at another node.
func (c *compiler) checkFaultRanks() {
	for i, step := range c.t.Steps {
		if step.Fault != nil && step.Fault.Rank != nil {
			c.checkFaultRank(fmt.Sprintf("steps[%d].fault", i), step.Fault)
		}
	}
}

func (c *compiler) checkFaultRank(path string, f *spec.Fault) {
	at := slices.IndexFunc(c.plan.Ranks, func(r Rank) bool { return r.Rank == *f.Rank })
	switch {
	case len(c.plan.Ranks) == 0:
		c.wrong(path+".rank", "want nodes: {default: {ranks: 1}}, or program: instead",
			"the nodes have no ranks")
	case at < 0:
		c.wrong(path+".rank", fmt.Sprintf("want 0 to %d", len(c.plan.Ranks)-1), "there is no rank %d",
			*f.Rank)
	case f.Where != "" && !spec.Match(f.Where, c.plan.Ranks[at].Node):
		c.wrong(path+".rank", "remove where:, or name "+c.plan.Ranks[at].Node, "rank %d is on %s", *f.Rank,
			c.plan.Ranks[at].Node)
	}
}

// FaultNode reports whether a crash or hang is one of a node.
func (p *Plan) FaultNode(f *spec.Fault, node string) bool {
	if f.Rank != nil && !slices.ContainsFunc(p.Ranks, func(r Rank) bool {
		return r.Rank == *f.Rank && r.Node == node
	}) {
		return false
	}
	return f.Where == "" || spec.Match(f.Where, node)
}

// faultProblem is a part of a fault that names nothing in the plan. Key is its path below the fault.
type faultProblem struct{ key, what, want string }

// faultProblems returns what is wrong with the names of a fault.
func (p *Plan) faultProblems(f *spec.Fault) (problems []faultProblem) {
	of := map[string]int{}
	for i, set := range p.parted(f) {
		key := fmt.Sprintf("partition[%d]", i)
		for j, name := range f.Partition[i] {
			if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return spec.Match(name, n.Name) }) {
				problems = append(problems, faultProblem{fmt.Sprintf("%s[%d]", key, j),
					fmt.Sprintf("%q is no node", name), "want names of nodes, such as " + p.anyNode()})
			}
		}
		if len(f.Partition[i]) == 0 {
			problems = append(problems, faultProblem{key, "no node is in this set",
				"want names of nodes, such as " + p.anyNode()})
		}
		for _, n := range set {
			if other, twice := of[n.Name]; twice {
				problems = append(problems, faultProblem{key,
					fmt.Sprintf("%s is in set %d, too", n.Name, other+1), "want each node in one set"})
			}
			of[n.Name] = i
		}
	}
	if f.Reboot && len(problems) == 0 {
		for _, end := range p.FaultPlaces(f) {
			if p.Switch(end.Node) == nil {
				return append(problems, faultProblem{"reboot", end.Node + " is a node, and switches reboot",
					"want a switch or a glob of switches, such as " + p.Switches[0].Name})
			}
		}
	}
	if len(problems) == 0 && !f.OfNodes() && len(p.FaultPlaces(f)) == 0 {
		want := `want a link such as "` + p.Links[0].Name + `", ` + spec.PortForm
		if link, _, _ := strings.Cut(f.Where, " "); strings.Contains(link, "--") {
			want = p.wantLink(link)
		}
		problems = append(problems, faultProblem{"where", fmt.Sprintf("no port is at %q", f.Where), want})
	}
	if _, err := p.FaultTarget(f); err != nil && len(problems) == 0 {
		key, _ := f.Action()
		what, want, _ := strings.Cut(err.Error(), "; ")
		problems = append(problems, faultProblem{key + ".to", what, want})
	}
	return problems
}

// CheckFault reports a fault whose names are not in the plan, or that its nodes cannot have.
func (p *Plan) CheckFault(f *spec.Fault) error {
	problems := p.faultProblems(f)
	if f.OfNodes() {
		problems = append(append(problems, p.noNode(f)...), p.nodeProblems(f)...)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s: %s; %s", problems[0].key, problems[0].what, problems[0].want)
	}
	return nil
}
