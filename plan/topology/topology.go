// Package topology generates the graphs of fabrics: the hosts, the switches and the wiring of their
// ports.
//
// Generators are pure functions of whole numbers: the same parameters give the same graph, in the
// same order. Hosts are named h0, h1, ... with NICs eth0, eth1, .... Switches are named leaf1,
// spine1, ... with ports p0, p1, ... in the order in which they were wired, servers' side first.
package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/nearest"
)

// Names of the generators, as in files.
const (
	SingleSwitch  = "single-switch"
	LeafSpine     = "leaf-spine"
	FatTree       = "fat-tree"
	RailOptimized = "rail-optimized"
	HPN           = "hpn"
	Torus         = "torus"
	Dragonfly     = "dragonfly"
)

// Roles of switches.
const (
	roleSwitch = "switch"
	roleLeaf   = "leaf"
	roleSpine  = "spine"
	roleTor    = "tor"
	roleAgg    = "agg"
	roleCore   = "core"
)

// Graph is a fabric and its hosts. All names of hosts and switches are distinct. Every link's ends
// exist, and no port has two links.
type Graph struct {
	Hosts    []Host
	Switches []Switch
	Links    []Link
	// Planes is the number of NICs in each rail of a host. They are adjacent, and each is at a switch of
	// another plane. 0 means that each NIC is a rail of its own.
	Planes int
}

// Host is a server.
type Host struct {
	Name string
	// Ports holds the names of the NICs in order.
	Ports []string
}

// Switch is a switch.
type Switch struct {
	Name string
	Role string
	// Tier counts from 0 at the servers' side.
	Tier int
	// Group is the pod, rail or plane to which the switch belongs, such as "pod1". It is empty if
	// the topology has none.
	Group string
	// At is the position in the grid of a torus, one coordinate for each dimension.
	At []int
	// Ports holds the names of the ports in order.
	Ports []string
}

// End is one end of a link.
type End struct {
	Node, Port string
}

// Link connects two ports. A is the end nearer to the servers. Between equals it is the switch that
// comes first, or that the wiring names first.
type Link struct {
	A, B End
}

// Param is a parameter of a generator.
type Param struct {
	Name string
	// Default is the value if the file gives none. It is 0 if Required is set.
	Default  int
	Required bool
	// Min and Max bound the value, inclusive.
	Min, Max int
	// Even reports whether the value must be even.
	Even bool
	// Doc describes the parameter in one line.
	Doc string
}

// Want describes the range of the parameter.
func (p Param) Want() string {
	kind := "a whole number"
	if p.Even {
		kind = "an even number"
	}
	return fmt.Sprintf("want %s from %d to %d", kind, p.Min, p.Max)
}

// Generator generates graphs of one topology.
type Generator struct {
	Name string
	// Summary describes the topology in one line.
	Summary string
	Params  []Param
	// size returns an upper bound of the size of the graph, so that huge graphs are refused before
	// they are built.
	size func(p map[string]int) size
	// check returns the error of parameters that are each within bounds, or nil. It may be nil.
	check func(p map[string]int) *ParamError
	build func(b *builder, p map[string]int)
}

// Limits of a graph. Above them the plan's tables do not fit a machine, and a typing error is more
// likely.
const (
	maxHosts    = 1 << 12
	maxSwitches = 1 << 10
	maxLinks    = 1 << 17
)

type size struct{ hosts, switches, links int }

// ParamError is an error in one parameter.
type ParamError struct {
	Topology string
	// Param is the parameter's name. It is empty if the topology itself is unknown.
	Param string
	// What describes the error, and Want the correct form.
	What, Want string
	// Missing reports whether the parameter was not given.
	Missing bool
}

// Error implements error.
func (e *ParamError) Error() string {
	return e.What + "; " + e.Want
}

// Generators returns all generators in the order of the documentation.
func Generators() []Generator { return slices.Clone(generators) }

// Names returns the generators' names in the order of the documentation.
func Names() []string {
	names := make([]string, len(generators))
	for i, g := range generators {
		names[i] = g.Name
	}
	return names
}

// Find returns the generator with a name.
func Find(name string) (Generator, bool) {
	i := slices.IndexFunc(generators, func(g Generator) bool { return g.Name == name })
	if i < 0 {
		return Generator{}, false
	}
	return generators[i], true
}

// Generate builds the graph of a topology. Its error joins one *ParamError for every parameter that
// is unknown, missing or out of range.
func Generate(name string, params map[string]int) (*Graph, error) {
	g, found := Find(name)
	if !found {
		return nil, &ParamError{Topology: name, What: fmt.Sprintf("topology %q does not exist", name),
			Want: want(name)}
	}
	values, err := g.resolve(params)
	if err != nil {
		return nil, err
	}
	b := newBuilder()
	g.build(b, values)
	return b.graph, nil
}

// resolve checks the parameters and adds the defaults.
func (g Generator) resolve(params map[string]int) (map[string]int, error) {
	var errs []error
	fail := func(param, what, want string, missing bool) {
		errs = append(errs, &ParamError{Topology: g.Name, Param: param, What: what, Want: want,
			Missing: missing})
	}
	values := map[string]int{}
	for _, p := range g.Params {
		value, given := params[p.Name]
		switch {
		case !given && p.Required:
			fail(p.Name, fmt.Sprintf("%s needs the parameter %q, %s", g.Name, p.Name, p.Doc), p.Want(), true)
			continue
		case !given:
			value = p.Default
		case value < p.Min || value > p.Max || p.Even && value%2 != 0:
			fail(p.Name, fmt.Sprintf("%s: %s is %d", g.Name, p.Name, value), p.Want(), false)
			continue
		}
		values[p.Name] = value
	}
	for _, name := range sortedKeys(params) {
		if !slices.ContainsFunc(g.Params, func(p Param) bool { return p.Name == name }) {
			fail(name, fmt.Sprintf("%s has no parameter %q", g.Name, name),
				"want "+strings.Join(g.ParamNames(), ", "), false)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if g.check != nil {
		if err := g.check(values); err != nil {
			err.Topology = g.Name
			return nil, err
		}
	}
	if n := g.size(values); n.hosts > maxHosts || n.switches > maxSwitches || n.links > maxLinks {
		return nil, &ParamError{Topology: g.Name, Param: g.Params[0].Name,
			What: fmt.Sprintf("%s with these parameters has %d hosts, %d switches and %d links", g.Name,
				n.hosts, n.switches, n.links),
			Want: fmt.Sprintf("want at most %d hosts, %d switches and %d links", maxHosts, maxSwitches,
				maxLinks)}
	}
	return values, nil
}

// ParamNames returns the names of the parameters in the order of the documentation.
func (g Generator) ParamNames() []string {
	names := make([]string, len(g.Params))
	for i, p := range g.Params {
		names[i] = p.Name
	}
	return names
}

func sortedKeys(m map[string]int) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// want names the generator that a misspelt name most likely meant, or all.
func want(name string) string {
	if near := nearest.Word(name, Names()); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "want " + strings.Join(Names(), ", ")
}
