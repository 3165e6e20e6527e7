package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/fabric/softswitch/forward"
	"railbed/plan"
	"railbed/plan/cover"
	"railbed/plan/spec"
)

// CoverOptions are the options of Cover.
type CoverOptions struct {
	// Flows are words for flows, as Flows takes them.
	Flows []string
	// At lists the places of points that may be chosen, as in spec.Fault.Where. Default: all.
	At []string
	// Max is the largest number of points. Default: as many as see all flows.
	Max int
	// Exact requires the best choice. Without it, a greedy choice stands if the search takes long.
	Exact bool
}

// Coverage is a choice of points that see flows. A point sees a flow if it sends packets of the flow. Points
// together see a flow if each path that the flow's packets may take has one of them.
type Coverage struct {
	Points []CoverPoint `json:"points"`
	// Flows is the number of flows, and NotSeen the names of those that the points do not see.
	Flows   int      `json:"flows"`
	NotSeen []string `json:"not_seen,omitempty"`
	// Optimal is set if no choice is better: fewer points or, with a limit, more flows.
	Optimal bool `json:"optimal"`
	// Greedy is the number of points of the greedy choice, and AtLeast a proven minimum for all flows.
	Greedy  int `json:"greedy"`
	AtLeast int `json:"at_least"`
	// Ratio is the proven bound of the number of points, in parts of the fewest. With a limit it is omitted
	// unless the choice is optimal.
	Ratio float64 `json:"ratio,omitempty"`
	// Faults has a line of a file for each point: a fault that loses 1 % of the packets.
	Faults []string `json:"faults"`
}

// CoverPoint is a port that sends.
type CoverPoint struct {
	Point string `json:"point"` // as in spec.Fault.Where
	To    string `json:"to"`    // the port at the other end of the link
	Sees  []Sees `json:"sees"`
}

// Sees is how much of a flow a point sees: Paths of the Of paths that the flow's packets may take.
type Sees struct {
	Flow  string `json:"flow"`
	Paths int    `json:"paths"`
	Of    int    `json:"of"`
}

// Bounds of Cover. quick takes a fraction of a second on a machine of 2024, and long some ten seconds.
const (
	mostCoverPaths = 500_000
	quick          = cover.Work(2e7)
	long           = cover.Work(1e9)
)

// ErrCover is the error of flows that no choice of points sees, or of a search that took too long.
var ErrCover = errors.New("cover")

// Cover chooses the fewest points that see flows of a file, by the plan's paths with all links up.
func Cover(o Options, c CoverOptions) (*Coverage, error) {
	if !o.Plan.Soft() {
		return nil, fmt.Errorf("%w: faults of packets need soft switches; take fabric: "+
			"{switch: {kind: soft}}", ErrCover)
	}
	flows, err := Flows(o, c.Flows)
	if err != nil {
		return nil, err
	}
	m := &coverMap{number: map[plan.End]int{}}
	if err := m.allow(o.Plan, c.At); err != nil {
		return nil, err
	}
	if err := m.find(o.Plan, flows); err != nil {
		return nil, err
	}
	if len(m.blind) > 0 && c.Max == 0 {
		return nil, fmt.Errorf("%w: no port at these places sends all packets of %s; allow more places, or "+
			"take a limit of points", ErrCover, several(m.blind))
	}
	work := quick
	if c.Exact {
		work = long
	}
	var chosen cover.Result
	if c.Max == 0 {
		chosen = cover.Fewest(m.flows, work)
	} else {
		chosen = cover.Most(m.flows, c.Max, work)
	}
	if c.Exact && !chosen.Optimal {
		return nil, fmt.Errorf("%w: the best choice of points was not found within the bounds of the "+
			"search; without exact, %d points are known, and at least %d are needed for all flows", ErrCover,
			len(chosen.Points), chosen.AtLeast)
	}
	return m.coverage(o.Plan, chosen), nil
}

// coverMap has the flows as numbers of points.
type coverMap struct {
	allowed map[plan.End]bool // nil for all
	number  map[plan.End]int
	ends    []plan.End
	flows   []cover.Flow
	names   []string // of flows
	blind   []string // names of flows with a path without an allowed point
}

// allow reads the places of points.
func (m *coverMap) allow(p *plan.Plan, at []string) error {
	for _, where := range at {
		f := &spec.Fault{Where: where}
		if err := p.CheckFault(f); err != nil {
			return fmt.Errorf("%w: %w", ErrCover, err)
		}
		if m.allowed == nil {
			m.allowed = map[plan.End]bool{}
		}
		for _, end := range p.FaultPlaces(f) {
			m.allowed[end] = true
		}
	}
	return nil
}

// find adds the paths of flows.
func (m *coverMap) find(p *plan.Plan, flows []Flow) error {
	paths, err := forward.NewPaths(p)
	if err != nil {
		return err
	}
	left := mostCoverPaths
	for _, f := range flows {
		found, err := paths.Of(f.Node, f.Flow, left)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrCover, f.Name, err)
		}
		left -= len(found)
		var flow cover.Flow
		for _, path := range found {
			var points []int
			for _, end := range path {
				if m.allowed == nil || m.allowed[end] {
					points = append(points, m.numberOf(end))
				}
			}
			flow = append(flow, points)
		}
		if slices.ContainsFunc(flow, func(points []int) bool { return len(points) == 0 }) {
			m.blind = append(m.blind, f.Name)
			continue
		}
		m.flows, m.names = append(m.flows, flow), append(m.names, f.Name)
	}
	return nil
}

func (m *coverMap) numberOf(end plan.End) int {
	n, known := m.number[end]
	if !known {
		n = len(m.ends)
		m.number[end], m.ends = n, append(m.ends, end)
	}
	return n
}

// coverage describes a choice.
func (m *coverMap) coverage(p *plan.Plan, chosen cover.Result) *Coverage {
	c := &Coverage{Points: []CoverPoint{}, Flows: len(m.flows) + len(m.blind), NotSeen: m.blind,
		Optimal: chosen.Optimal, Greedy: chosen.Greedy, AtLeast: chosen.AtLeast, Ratio: chosen.Ratio,
		Faults: []string{}}
	for _, number := range chosen.Points {
		end := m.ends[number]
		point := CoverPoint{Point: end.Name(), To: peer(p, end), Sees: []Sees{}}
		for i, flow := range m.flows {
			if seen := flow.Seen(number); seen > 0 {
				point.Sees = append(point.Sees, Sees{m.names[i], seen, len(flow)})
			}
		}
		c.Points = append(c.Points, point)
		c.Faults = append(c.Faults, fmt.Sprintf("- fault: {where: %q, drop: {share: 1%%}}", point.Point))
	}
	for i, flow := range m.flows {
		if flow.Seen(chosen.Points...) < len(flow) {
			c.NotSeen = append(c.NotSeen, m.names[i])
		}
	}
	return c
}

// peer returns the other end of a port's link.
func peer(p *plan.Plan, end plan.End) string {
	for _, l := range p.Links {
		switch end {
		case l.A:
			return l.B.Name()
		case l.B:
			return l.A.Name()
		}
	}
	return ""
}

// several joins names, and counts those beyond the first few.
func several(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
