package fabricchecks

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"railbed/capture/verify/conditions"
	"railbed/capture/verify/evidence"
	"railbed/internal/plural"
	"railbed/plan"
	"railbed/plan/spec"
)

// Parameters of pathSpread.
const (
	// chanceLimit is the probability below which chance does not explain an uneven spread.
	chanceLimit = 0.01
	// chanceTrials is the number of trials. It resolves probabilities of a few tenths of a percent.
	chanceTrials = 2000
	// chanceFlows is the number of the largest flows that a trial assigns at random. The others are
	// spread evenly, as many small flows are.
	chanceFlows = 512
)

// pathSpread checks that a switch uses all of its equal-cost paths. It counts the packets that
// leave by a group of next hops, by port and by flow. Each port must carry at least a share of the
// mean over the group.
//
// Switches hash: a flow keeps its path, and with few flows a path may stay empty by chance. If a
// port misses its share, the check computes the probability of such a spread. It assigns flows of
// these sizes evenly and independently, and counts how often the result is as uneven. If that is
// likely, the check is INCONCLUSIVE and reports the probability. It fails only if chance does not
// explain the spread.
type pathSpread struct {
	pattern  string
	minShare float64
	// polarised requires the opposite. Each group that carries traffic must have a path that is
	// empty, or almost empty (polarisedShare), although chance would have used it.
	polarised bool
	// flows is the requirement on the paths of flows, or empty.
	flows    string
	capture  *evidence.Capture
	switches evidence.Slots[*spreadSwitch] // by tap index; nil for none
	groups   []*group
}

// spreadSwitch is a switch with equal-cost routes.
type spreadSwitch struct {
	groups []*group
	byFlow evidence.Slots[flowGroup]
	routes []plan.Route
}

// flowGroup is the group of a flow's destination, -1 for none.
type flowGroup struct {
	known bool
	index int32
}

// group is a set of equal-cost next hops of one switch.
type group struct {
	node    string
	ports   []string
	weights []float64
	taps    []*evidence.Tap
	bytes   []float64
	packets []uint64
	flows   []map[int]float64 // flow index to bytes, by port
	count   []map[int]uint64  // flow index to packets, by port
}

// Requirements on the paths of flows.
const (
	onePath   = "one-path"   // each flow uses one path
	everyPath = "every-path" // each flow with enough packets uses every path
)

// polarisedShare is the load of a path, as a share of its fair share, below which the path counts as
// empty. A few packets of the fabric itself do not count as use of a path.
const polarisedShare = 0.001

// enoughPackets is the number of packets per path that a flow needs before everyPath judges it. A
// random spray over two paths misses a given path 16 times with a probability of 1/65,536.
const enoughPackets = 16

var _ = evidence.Register(evidence.Kind{Key: "path-spread", Example: `{switch: "leaf*", min-share: 10%}`,
	Timed: evidence.Never, Conditions: conditions.Conditions{Examine: pathSpreadConditions},
	Make: evidence.Of(NewPathSpread)})

func pathSpreadConditions(l *conditions.Prover, path string, p *spec.PacketsCheck) {
	k := p.PathSpread
	choice := l.Which(func(p *conditions.Port) bool {
		return p.Switch != nil && spec.Match(k.Switch, p.Node) && p.Switch.Routes.Choices()[p.Name]
	})
	if len(choice) == 0 {
		l.Never(path+".switch", "want a switch with several paths of equal cost",
			"no switch %q has equal-cost paths", k.Switch)
	}
	l.Seen(path, choice, true)
}

// NewPathSpread makes the check. A port's least share is a share of the mean, or of the port's weighted
// share. Zero requires that every port carries some traffic.
func NewPathSpread(k *spec.PathSpread) evidence.Check {
	return &pathSpread{pattern: k.Switch, minShare: k.MinShare.Float(), polarised: k.Polarised,
		flows: k.Flows}
}

// Begin implements Check.
func (k *pathSpread) Begin(c *evidence.Capture) { k.capture = c }

func (k *pathSpread) at(tap *evidence.Tap) *spreadSwitch {
	return k.switches.Made(tap.Index, func(i int) *spreadSwitch { return k.enlist(k.capture.Taps[i]) })
}

func (k *pathSpread) enlist(tap *evidence.Tap) *spreadSwitch {
	if !spec.Match(k.pattern, tap.Node) || k.capture.Plan == nil {
		return nil
	}
	for i, other := range k.switches {
		if other != nil && k.capture.Taps[i].Node == tap.Node {
			other.tapped(tap)
			return other
		}
	}
	described := k.capture.Plan.Switch(tap.Node)
	if described == nil {
		return nil
	}
	s := &spreadSwitch{}
	for route := range described.Routes.All() {
		if route.Table == 0 {
			s.routes = append(s.routes, route)
			s.group(tap.Node, route)
		}
	}
	k.groups = append(k.groups, s.groups...)
	s.tapped(tap)
	return s
}

// group adds the set of a route's ports, unless it is there already.
func (s *spreadSwitch) group(node string, route plan.Route) {
	if len(route.NextHops) < 2 {
		return
	}
	g := &group{node: node}
	for _, hop := range route.NextHops {
		g.ports = append(g.ports, hop.Dev)
		g.weights = append(g.weights, float64(max(hop.Weight, 1)))
		g.flows = append(g.flows, map[int]float64{})
		g.count = append(g.count, map[int]uint64{})
	}
	if s.find(g.ports) >= 0 {
		return
	}
	g.taps, g.bytes, g.packets = make([]*evidence.Tap, len(g.ports)), make([]float64, len(g.ports)),
		make([]uint64, len(g.ports))
	s.groups = append(s.groups, g)
}

func (s *spreadSwitch) find(ports []string) int {
	return slices.IndexFunc(s.groups, func(g *group) bool { return slices.Equal(g.ports, ports) })
}

func (s *spreadSwitch) tapped(tap *evidence.Tap) {
	for _, g := range s.groups {
		if i := slices.Index(g.ports, tap.Port); i >= 0 {
			g.taps[i] = tap
		}
	}
}

// groupOf returns the group of the route to a flow's destination. The longest prefix decides.
func (s *spreadSwitch) groupOf(f *evidence.Flow) int32 {
	slot := s.byFlow.At(f.Index)
	if !slot.known {
		*slot = flowGroup{true, -1}
		if route := longestPrefix(s.routes, f.Dst.Addr()); route != nil {
			var ports []string
			for _, hop := range route.NextHops {
				ports = append(ports, hop.Dev)
			}
			slot.index = int32(s.find(ports))
		}
	}
	return slot.index
}

// choices returns the ports of switches that belong to several equal-cost paths.
func (k *pathSpread) choices() (names []string) {
	if k.capture.Plan == nil {
		return nil
	}
	for i := range k.capture.Plan.Switches {
		sw := &k.capture.Plan.Switches[i]
		if !spec.Match(k.pattern, sw.Name) {
			continue
		}
		chosen := sw.Routes.Choices()
		for _, port := range sw.Ports {
			if chosen[port.Name] {
				names = append(names, sw.Name+":"+port.Name)
			}
		}
	}
	return names
}

func longestPrefix(routes []plan.Route, addr netip.Addr) *plan.Route {
	var best *plan.Route
	for i := range routes {
		if dst := routes[i].Dst; dst.Contains(addr) && (best == nil || dst.Bits() > best.Dst.Bits()) {
			best = &routes[i]
		}
	}
	return best
}

// Packet implements Check.
func (k *pathSpread) Packet(p *evidence.Packet) {
	if p.Direction != evidence.Out || p.Flow == nil || p.Drop != "" {
		return
	}
	s := k.at(p.Tap)
	if s == nil || len(s.groups) == 0 {
		return
	}
	index := s.groupOf(p.Flow)
	if index < 0 {
		return
	}
	g := s.groups[index]
	for i, tap := range g.taps {
		if tap == p.Tap {
			g.bytes[i] += float64(p.Length)
			g.packets[i]++
			g.flows[i][p.Flow.Index] += float64(p.Length)
			g.count[i][p.Flow.Index]++
		}
	}
}

// Result implements Check.
func (k *pathSpread) Result() evidence.Result {
	r := evidence.Result{Name: "path-spread " + k.pattern, Measured: map[string]float64{}}
	for _, tap := range k.capture.Taps {
		k.at(tap)
	}
	var found evidence.Finding
	used := 0
	worst := math.Inf(1)
	for _, g := range k.groups {
		if sum(g.bytes) == 0 {
			continue // no packet was routed this way
		}
		used++
		j := g.judge(k.minShare, k.polarised)
		worst = min(worst, j.least)
		r.Details = append(r.Details, j.line)
		switch {
		case j.wrong:
			found.Absent = append(found.Absent, j.reason)
		case j.reason != "":
			found.Unclear = append(found.Unclear, j.reason)
		}
		switch line, judged := g.judgeFlows(k.flows); {
		case line != "" && judged == 0:
			found.Unclear = append(found.Unclear, line)
		case line != "":
			found.Absent = append(found.Absent, line)
		}
	}
	switch {
	case k.capture.Plan == nil:
		found.Unclear = append(found.Unclear, "without a plan the equal-cost paths are not known")
	case used == 0:
		found.Unclear = append(found.Unclear,
			fmt.Sprintf("no packet left a switch %q by equal-cost paths", k.pattern))
	case !math.IsInf(worst, 1):
		r.Measured["least-share"] = worst
	}
	r.Measured["groups"] = float64(used)
	groups := "groups"
	if used == 1 {
		groups = "group"
	}
	r.Summary = fmt.Sprintf("%d %s of equal-cost paths carried traffic", used, groups)
	if used > 0 && !math.IsInf(worst, 1) {
		r.Summary += fmt.Sprintf("; the least loaded path had %.0f%% of its fair share, want %s", worst*100,
			k.wanted())
	}
	k.capture.Conclude(&r, evidence.Need{Ports: k.choices(), AnyOrder: true}, found)
	return r
}

func (k *pathSpread) wanted() string {
	if k.polarised {
		return "none"
	}
	if k.minShare == 0 {
		return "some"
	}
	return fmt.Sprintf("at least %.0f%%", k.minShare*100)
}

// judgement is the verdict on the loads of a group.
type judgement struct {
	line   string
	reason string // why the group does not pass
	wrong  bool   // chance does not explain the spread
	least  float64
}

func (g *group) judge(minShare float64, polarised bool) judgement {
	var j judgement
	j.least = g.least(g.bytes)
	sizes := g.sizes()
	var loads []string
	for i, port := range g.ports {
		loads = append(loads, plural.Text("%s %.0f bytes, %d packets, %d flows", port, g.bytes[i],
			g.packets[i], len(g.flows[i])))
	}
	j.line = plural.Text("%s: %d flows over %d paths: %s", g.node, len(sizes), len(g.ports),
		strings.Join(loads, "; "))
	for i, tap := range g.taps {
		if tap == nil {
			j.reason = fmt.Sprintf("%s: port %s was not captured", g.node, g.ports[i])
			return j
		}
	}
	if polarised {
		return g.judgePolarised(j, sizes)
	}
	if enough(j.least, minShare) {
		return j
	}
	chance := g.chance(sizes, j.least)
	j.reason = plural.Text("%s: the least loaded of %d paths had %.0f%% of its fair share with %d flows; an "+
		"even hash is as uneven with probability %.2g",
		g.node, len(g.ports), j.least*100, len(sizes), chance)
	j.wrong = chance < chanceLimit
	return j
}

// judgePolarised requires a path without traffic that chance would have used.
func (g *group) judgePolarised(j judgement, sizes []float64) judgement {
	if j.least > polarisedShare {
		j.reason = plural.Text(
			"%s: every one of %d paths carried traffic, the least loaded %.0f%% of its fair share",
			g.node, len(g.ports), j.least*100)
		j.wrong = true
		return j
	}
	if chance := g.chance(sizes, polarisedShare); chance >= chanceLimit {
		j.reason = plural.Text("%s: a path had no traffic; with %d flows an even hash leaves a path without "+
			"traffic with probability %.2g", g.node, len(sizes), chance)
	}
	return j
}

// judgeFlows reports how flows violate the requirement on their paths, or "" if they do not.
func (g *group) judgeFlows(want string) (line string, judged int) {
	if want == "" {
		return "", 0
	}
	paths, packets := map[int]int{}, map[int]uint64{}
	for _, flows := range g.count {
		for flow, n := range flows {
			paths[flow]++
			packets[flow] += n
		}
	}
	bad := 0
	for flow, n := range paths {
		if want == everyPath && packets[flow] < uint64(enoughPackets*len(g.ports)) {
			continue
		}
		judged++
		if want == onePath && n > 1 || want == everyPath && n < len(g.ports) {
			bad++
		}
	}
	switch {
	case bad > 0 && want == onePath:
		return plural.Text("%s: %d of %d flows used more than one path", g.node, bad, judged), judged
	case bad > 0:
		return plural.Text("%s: %d of %d flows did not use every one of %d paths", g.node, bad, judged,
			len(g.ports)), judged
	case judged == 0:
		return fmt.Sprintf("%s: no flow has enough packets to use every path", g.node), judged
	}
	return "", judged
}

// enough compares a share with the required share. If the required share is zero, any positive
// share is enough.
func enough(share, wanted float64) bool {
	if wanted == 0 {
		return share > 0
	}
	return share >= wanted
}

// least returns the smallest load, as a share of its fair share.
func (g *group) least(loads []float64) float64 {
	total, weight := sum(loads), sum(g.weights)
	least := math.Inf(1)
	for i, load := range loads {
		least = min(least, load*weight/(total*g.weights[i]))
	}
	return least
}

// sizes returns the flows' bytes, largest first. A flow that changed its path counts as one flow.
func (g *group) sizes() []float64 {
	total := map[int]float64{}
	for _, flows := range g.flows {
		for flow, bytes := range flows {
			total[flow] += bytes
		}
	}
	sizes := make([]float64, 0, len(total))
	for _, bytes := range total {
		sizes = append(sizes, bytes)
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	return sizes
}

// chance estimates how often an even, independent hash of these flows leaves a path with as little
// as was observed. The draws are seeded, so the same flows give the same result.
func (g *group) chance(sizes []float64, observed float64) float64 {
	if len(sizes) < len(g.ports) {
		return 1 // fewer flows than paths
	}
	random := rand.New(rand.NewPCG(uint64(len(sizes)), uint64(len(g.ports))))
	large := sizes[:min(len(sizes), chanceFlows)]
	rest := sum(sizes[len(large):])
	weight := sum(g.weights)
	uneven := 0
	loads := make([]float64, len(g.ports))
	for range chanceTrials {
		for i := range loads {
			loads[i] = rest * g.weights[i] / weight
		}
		for _, bytes := range large {
			throw := random.Float64() * weight
			i := 0
			for ; i < len(loads)-1 && throw >= g.weights[i]; i++ {
				throw -= g.weights[i]
			}
			loads[i] += bytes
		}
		if g.least(loads) <= observed+1e-9 {
			uneven++
		}
	}
	return float64(uneven) / chanceTrials
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
