package convert

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"railbed/plan"
	"railbed/plan/spec"
)

// Kinds of containerlab's nodes that are not routers.
const (
	kindLinux     = "linux"
	kindBridge    = "bridge"
	kindOVSBridge = "ovs-bridge"
)

// elsewhere lists kinds of nodes that stand for something outside the lab.
var elsewhere = []string{"host", "ext-container", "k8s-kind", "border0", "mysocketio"}

// wirePrefix begins the names of switches that replace a link between servers.
const wirePrefix = "wire"

// role is the role in the testbed of a node of the lab.
type role int

const (
	left role = iota // left out
	server
	bridge
	router
)

// importer converts a lab to a testbed.
type importer struct {
	*notes
	attempt
	lab       *lab
	options   Options
	runtime   string
	testbed   *spec.Testbed
	names     names
	nodes     map[string]definition // by containerlab's names, with inherited settings
	roles     map[string]role
	frr       map[string]*frrConfig // of routers
	addresses []labAddress
}

// Options of an import.
type Options struct {
	// Runtime is the runtime of nodes with an image: spec.Docker, the default, or spec.Netns, which
	// leaves the image out.
	Runtime string
	// Name is the name of the testbed. Default: the topology's.
	Name string
	// Folder is the path from the folder of the testbed file to the folder of the topology, to
	// which paths in the topology are relative. Default: the same folder.
	Folder string
	// ReadFile reads a file that the topology names, by a path relative to the topology. If it is
	// nil, no files are read.
	ReadFile func(path string) ([]byte, error)
}

// FromContainerlab converts a topology of containerlab to a testbed. Errors and notes use the given
// name of the file. The notes list the omissions and changes. The testbed can be compiled to a
// plan. A topology without a plan is an error, with the notes that explain it.
func FromContainerlab(file string, source []byte, o Options) (*spec.Testbed, spec.Problems, error) {
	l, found, err := readLab(file, source)
	if err != nil {
		return nil, found.sorted(), err
	}
	var left spec.Problems
	// If nodes cannot reach each other, some of them forward for others. If packets are too large for a
	// link on their way, all links have the smallest MTU.
	for _, a := range []attempt{{}, {oneMTU: true}, {forwarding: true}, {forwarding: true, oneMTU: true}} {
		var made *spec.Testbed
		if made, left, err = l.imported(*found, o, a); err == nil {
			return made, left, nil
		}
	}
	return nil, left, err
}

// attempt is a way to import a lab. With forwarding, servers with several links become switches that route.
// With oneMTU all links have the smallest MTU of the lab.
type attempt struct{ forwarding, oneMTU bool }

// imported makes the testbed.
func (l *lab) imported(found notes, o Options, a attempt) (*spec.Testbed, spec.Problems, error) {
	found.all, found.classes = slices.Clone(found.all), nil
	i := &importer{notes: &found, lab: l, options: o, runtime: cmp.Or(o.Runtime, spec.Docker),
		attempt: a, nodes: map[string]definition{}, roles: map[string]role{},
		names: names{taken: map[string]bool{}, given: map[string]string{}}, testbed: &spec.Testbed{}}
	var problems spec.Problems
	for _, step := range []func() spec.Problems{i.settle, i.addNodes, i.addLinks, i.addSettings} {
		if problems = append(problems, step()...); len(problems) > 0 {
			return nil, i.sorted(), problems.Err()
		}
	}
	i.addManagement()
	i.addSteps()
	made, err := i.finished()
	if err != nil {
		return nil, i.sorted(), err
	}
	return made, i.sorted(), nil
}

// finished decodes the testbed in the form of its file, which checks all of it, and compiles the
// plan.
func (i *importer) finished() (*spec.Testbed, error) {
	text, err := spec.Marshal(i.testbed)
	if err != nil {
		return nil, err
	}
	made, err := spec.Decode("the testbed", text)
	if err == nil {
		_, err = plan.Compile(made)
	}
	var problems spec.Problems
	if errors.As(err, &problems) { // their positions are in a file that the user does not have
		first := problems[0]
		return nil, spec.Problems{{File: i.file, Line: 1, Column: 1,
			What: "the topology cannot become a testbed: " + first.What, Want: first.Want}}
	}
	return made, err
}

// inherited returns a node's settings combined with the settings of its group, its kind and the
// defaults, in containerlab's order.
func (l *lab) inherited(n labNode) definition {
	group := cmp.Or(n.group.value, l.defaults.group.value)
	kind := n.kind
	if kind.value == "" && l.groups[group] != nil {
		kind = l.groups[group].kind
	}
	if kind.value == "" {
		kind = l.defaults.kind
	}
	if of := l.kinds[kind.value]; n.group.value == "" && of != nil && of.group.value != "" {
		group = of.group.value
	}
	d := l.defaults
	for _, over := range []*definition{l.kinds[kind.value], l.groups[group], &n.definition} {
		if over != nil {
			d = d.with(*over)
		}
	}
	d.kind = kind
	return d
}

// with returns the settings overridden by more specific ones. Lists and mappings are combined.
// Other settings are replaced.
func (d definition) with(over definition) definition {
	first := func(specific, general text) text {
		if specific.value != "" {
			return specific
		}
		return general
	}
	merged := definition{
		image:        first(over.image, d.image),
		entrypoint:   first(over.entrypoint, d.entrypoint),
		cmd:          first(over.cmd, d.cmd),
		cpu:          first(over.cpu, d.cpu),
		memory:       first(over.memory, d.memory),
		restart:      first(over.restart, d.restart),
		pull:         first(over.pull, d.pull),
		startup:      first(over.startup, d.startup),
		frrDaemons:   slices.Concat(d.frrDaemons, over.frrDaemons),
		capabilities: slices.Concat(d.capabilities, over.capabilities),
		devices:      slices.Concat(d.devices, over.devices),
		exec:         d.exec, binds: slices.Concat(d.binds, over.binds),
		envFiles: slices.Concat(d.envFiles, over.envFiles),
		ports:    slices.Concat(d.ports, over.ports),
		health:   cmp.Or(over.health, d.health),
		env:      slices.Concat(d.env, over.env),
		sysctls:  slices.Concat(d.sysctls, over.sysctls),
		labels:   slices.Concat(d.labels, over.labels),
	}
	if len(over.exec) > 0 {
		merged.exec = over.exec
	}
	return merged
}

func label(all []setting, key string) (text, bool) {
	for _, l := range slices.Backward(all) {
		if l.key == key {
			return l.value, true
		}
	}
	return text{}, false
}

// settle decides the role of each node of the lab: a server, a switch that bridges or routes, or
// none.
func (i *importer) settle() spec.Problems {
	var problems spec.Problems
	for _, n := range i.lab.nodes {
		d := i.lab.inherited(n)
		i.nodes[n.name.value] = d
		if d.kind.value == "" {
			problems = append(problems, spec.Problem{File: i.file, Line: n.name.at.line,
				Column: n.name.at.column, What: fmt.Sprintf("node %s has no kind", n.name.value),
				Want: "want kind: linux, or another kind of containerlab"})
		}
	}
	outside := func(name string) bool {
		d, known := i.nodes[name]
		return known && slices.Contains(elsewhere, d.kind.value)
	}
	links := map[string]int{}
	for _, l := range i.lab.links {
		if !outside(l.ends[0].node) && !outside(l.ends[1].node) {
			links[l.ends[0].node]++
			links[l.ends[1].node]++
		}
	}
	servers := 0
	for _, n := range i.lab.nodes {
		r := i.roleOf(n, links[n.name.value])
		i.roles[n.name.value] = r
		if r == server {
			servers++
		}
	}
	for _, n := range i.lab.nodes {
		i.tell(n)
	}
	if servers == 0 && len(problems) == 0 {
		i.add(i.lab.name.at, "add hosts: and their links to send packets through it",
			"the lab has no end hosts, and neither has the testbed")
	}
	return problems
}

// roleOf returns the role of a node with the given number of links in a lab with servers.
func (i *importer) roleOf(n labNode, links int) role {
	d := i.nodes[n.name.value]
	_, isSwitch := label(d.labels, labelSwitch)
	switch kind := d.kind.value; {
	case slices.Contains(elsewhere, kind):
		i.add(n.name.at, "", "node %s of kind %s is outside of the lab, and left out with its links",
			n.name.value, kind)
		return left
	case links == 0:
		i.add(n.name.at, "every node of a testbed is on the fabric", "node %s has no link, and is left out",
			n.name.value)
		return left
	case kind == kindBridge || kind == kindOVSBridge:
		return bridge
	case kind == kindLinux && !isSwitch && !isFRR(d) &&
		(links < 2 || !i.forwarding && i.forwards(n) == ""):
		return server
	}
	return router
}

// routerImage matches the images of other routing software than FRRouting.
var routerImage = regexp.MustCompile(`(^|/)(bird[0-9]?|gobgpd?|vyos|quagga|openbgpd|holo|freertr|rare)` +
	`([-_.][^/]*)?([:@][^/]*)?$`)

// forwards returns what shows that a node of kind linux is a router, or "": an image, or a sysctl of the
// node, its kind or its group. A sysctl of all nodes of a lab shows nothing.
func (i *importer) forwards(n labNode) string {
	d := i.nodes[n.name.value]
	if _, own := label(d.labels, labelNode); own {
		return ""
	}
	if routerImage.MatchString(d.image.value) {
		return "image " + d.image.value
	}
	for _, s := range d.sysctls[min(len(i.lab.defaults.sysctls), len(d.sysctls)):] {
		if slices.Contains(forwardingSysctls, s.key) && s.value.value == "1" {
			return "sysctl " + s.key
		}
	}
	return ""
}

var forwardingSysctls = []string{"net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding",
	"net.ipv6.conf.all.forwarding"}

// tell adds a note about the role of a node that is not a server in the lab.
func (i *importer) tell(n labNode) {
	d, name := i.nodes[n.name.value], n.name.value
	_, own := label(d.labels, labelSwitch)
	switch r := i.roles[name]; {
	case r == left || own:
	case d.kind.value == kindOVSBridge:
		i.add(n.name.at, "", "bridge %s becomes a bridge of the kernel instead of Open vSwitch", name)
	case r != router || isFRR(d): // addRouting notes routers of FRRouting
	case d.kind.value != kindLinux:
		i.add(n.name.at, "", "node %s of kind %s becomes a switch that routes; its software does not run",
			name, d.kind.value)
	case i.forwards(n) != "":
		i.add(n.name.at, "",
			"node %s has %s, and becomes a switch that routes; its software does not run", name,
			i.forwards(n))
	default:
		i.add(n.name.at, "", "node %s forwards for others, and becomes a switch that routes; its software "+
			"does not run", name)
	}
}

// addNodes declares servers and switches under names that testbeds allow.
func (i *importer) addNodes() spec.Problems {
	t, f := i.testbed, &i.testbed.Fabric
	f.Topology = spec.Explicit
	t.Name = cmp.Or(i.options.Name, plainName(i.lab.name.value), "lab")
	if text, found := label(i.lab.defaults.labels, labelTestbed); found {
		base, err := spec.ParsePart[spec.Testbed](labelTestbed, text.value)
		if err != nil {
			return i.ofLabel(labelTestbed, text, err)
		}
		base.Name, base.Fabric.Topology = t.Name, f.Topology
		*t = base
	} else if t.Name != i.lab.name.value && t.Name != i.options.Name {
		i.add(i.lab.name.at, "", "the testbed is called %s", t.Name)
	}
	for _, n := range i.lab.nodes {
		r := i.roles[n.name.value]
		if r == left {
			continue
		}
		name := i.names.give(n.name.value)
		if name != n.name.value {
			i.add(n.name.at, "", "node %s is called %s", n.name.value, name)
		}
		if r == server {
			f.Hosts = append(f.Hosts, name)
		} else {
			f.Switches = append(f.Switches, spec.Entry[spec.Switch]{Key: name})
		}
	}
	return nil
}

// ofLabel returns a problem with a label, at the position of the label.
func (i *importer) ofLabel(name string, l text, err error) spec.Problems {
	what := err.Error()
	var problems spec.Problems
	if errors.As(err, &problems) {
		what = problems[0].What
		if problems[0].Want != "" {
			what += "; " + problems[0].Want
		}
	}
	return spec.Problems{{File: i.file, Line: l.at.line, Column: l.at.column,
		What: fmt.Sprintf("label %s: %s", name, what)}}
}

var notInPorts = regexp.MustCompile(`[^a-zA-Z0-9._-]+`)

// port returns the interface under a name that testbeds allow, or "" for the next free one.
func (i *importer) port(end labEnd) string {
	port := notInPorts.ReplaceAllString(end.port, "-")
	first := port == "" || !regexp.MustCompile(`^[a-zA-Z0-9]`).MatchString(port)
	switch {
	case len(port) > 15, first, slices.Contains([]string{"all", "br0", "default", "lo"}, port):
		i.add(end.at, "", "interface %s of %s gets another name", end.port, end.node)
		return ""
	case port != end.port:
		i.add(end.at, "", "interface %s of %s is called %s", end.port, end.node, port)
	}
	return ":" + port
}

// chooseSwitches makes all switches bridges if the lab has no other switches and bridges are
// possible. They must have no loop and be in one network that has all servers. Otherwise the
// switches route.
func (i *importer) chooseSwitches() {
	f := &i.testbed.Fabric
	named := false
	bridges, routers := []string{}, 0
	for _, n := range i.lab.nodes {
		_, own := label(i.nodes[n.name.value].labels, labelSwitch)
		named = named || own
		switch i.roles[n.name.value] {
		case router:
			routers++
		case bridge:
			bridges = append(bridges, n.name.value)
		}
	}
	if named {
		return // an exported file gives all settings
	}
	if routers == 0 {
		f.Switch.Kind = spec.Bridge
		if _, err := plan.Compile(i.testbed); err == nil {
			return
		}
	}
	f.Switch.Kind = spec.Soft
	i.addRouting()
	for _, name := range bridges {
		i.add(i.at(name), "the switches of a testbed are of one kind, and bridges must join all nodes "+
			"without loops", "bridge %s becomes a switch that routes", name)
	}
}

func (i *importer) at(node string) place {
	for _, n := range i.lab.nodes {
		if n.name.value == node {
			return n.name.at
		}
	}
	return place{}
}
