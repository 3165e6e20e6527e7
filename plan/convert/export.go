package convert

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"railbed/plan"
	"railbed/plan/spec"
)

// DefaultImage is the image of exported nodes that have none. Containerlab's own examples use it.
// It has ip and sh.
const DefaultImage = "ghcr.io/srl-labs/network-multitool"

// entry is a key of a mapping and its value: text, a list of texts, or another mapping.
type entry struct {
	key   string
	value any
}

// mapping is a mapping in the order in which it is written.
type mapping []entry

// node returns the tree of a value.
func node(value any) *yaml.Node {
	switch v := value.(type) {
	case mapping:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, e := range v {
			n.Content = append(n.Content, textNode(e.key), node(e.value))
		}
		return n
	case []mapping:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, m := range v {
			n.Content = append(n.Content, node(m))
		}
		return n
	case []string:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, text := range v {
			n.Content = append(n.Content, textNode(text))
		}
		return n
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v)}
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(v)}
	case float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(v, 'f', -1, 64)}
	}
	return textNode(value.(string))
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

// write returns the text of a file, with a comment at the top.
func write(comment string, file mapping) ([]byte, error) {
	text, err := yaml.Dump(node(file), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("write the exported file: %w", err)
	}
	return append([]byte("# "+comment+"\n"), text...), nil
}

// exporter converts a testbed for another tool.
type exporter struct {
	notes
	testbed *spec.Testbed
	plan    *plan.Plan
	image   string
}

func newExporter(t *spec.Testbed, p *plan.Plan, image string) *exporter {
	e := &exporter{testbed: t, plan: p, image: image}
	if t.Source != nil {
		e.file = t.Source.File
	}
	return e
}

// note adds a case of a class of notes, at the value of a path of the testbed's file.
func (e *exporter) note(path string, c class, example string, args ...any) {
	e.gather(c, e.testbed.Source.Problem(path, "", ""), example, args...)
}

// Classes of notes of an export.
var (
	leftSteps  = class{"a step is left out", "steps are left out", "railbed run does the steps"}
	leftChecks = class{"a check is left out", "checks are left out", "railbed run judges the checks"}
	softened   = class{"a soft switch becomes a kernel switch, and a label keeps its buffer, queues and " +
		"packet settings",
		"soft switches become kernel switches, and labels keep their buffers, queues and packet settings", ""}
	bridges = class{"a bridge must exist on the host: containerlab does not create it",
		"bridges must exist on the host: containerlab does not create them",
		"create each of them first: ip link add NAME type bridge; ip link set NAME up"}
	keptUlimits = class{"ulimits of a node are kept in a label", "nodes have ulimits, which labels keep", ""}
	keptEffects = class{"delay, loss and other effects of a link are kept in a label",
		"links have delay, loss and other effects, which labels keep",
		"containerlab tools netem sets delay, jitter, loss and rate of a running lab's interface"}
	keptRates  = class{"rates of links are kept in labels", "", ""}
	otherBuild = class{"a node has the default image in place of its build or rootfs",
		"nodes have the default image in place of their builds or rootfs", "--image sets the default image"}
	otherRuntime = class{"a node is a container of the default image in place of its runtime",
		"nodes are containers of the default image in place of their runtimes",
		"--image sets the default image"}
	unisolated = class{"a node reaches all networks that the host reaches",
		"nodes reach all networks that the host reaches",
		"a Compose network that publishes ports is not isolated"}
)

// labelled returns labels with one label that keeps a part of the testbed.
func labelled[T any](key string, part T) (mapping, error) {
	text, err := spec.FormatPart(part)
	return mapping{{key, text}}, err
}

// ToContainerlab converts a testbed and its plan to a topology of containerlab. Nodes without an
// image get the given image. The notes list the omissions.
func ToContainerlab(t *spec.Testbed, p *plan.Plan, image string) ([]byte, spec.Problems, error) {
	e := newExporter(t, p, image)
	whole := spec.Testbed{Name: t.Name, Seed: t.Seed, Dilation: t.Dilation, Addressing: t.Addressing,
		AcceptUndilated: t.AcceptUndilated, Requires: t.Requires,
		Fabric: spec.Fabric{Topology: spec.Explicit, Memory: t.Fabric.Memory, Routing: t.Fabric.Routing}}
	labels, err := labelled(labelTestbed, whole)
	if err != nil {
		return nil, nil, err
	}
	var nodes, links any
	if nodes, err = e.nodes(); err != nil {
		return nil, nil, err
	}
	if links, err = e.links(); err != nil {
		return nil, nil, err
	}
	e.leaveSteps(true)
	text, err := write("Made by: railbed export containerlab", mapping{
		{"name", t.Name},
		{"topology", mapping{{"defaults", mapping{{"labels", labels}}},
			{"kinds", mapping{{kindLinux, mapping{{"sysctls", settings(ownSysctls)}}}}}, {"nodes", nodes},
			{"links", links}}},
	})
	return text, e.sorted(), err
}

// leaveSteps adds notes about the steps and checks. With commands set, it skips commands that come
// before all other steps, because the other format has them.
func (e *exporter) leaveSteps(commands bool) {
	for i := range e.testbed.Steps {
		if commands = commands && e.isCommand(i); !commands {
			key, action := e.testbed.Steps[i].Action()
			name := action.Traits().Name
			if x := e.testbed.Steps[i].Exec; x != nil && name == "" {
				name = strings.Join(x.Command, " ")
			}
			e.note(fmt.Sprintf("steps[%d]", i), leftSteps, "%s", strings.TrimSpace(key+" "+name))
		}
	}
	for i := range e.testbed.Checks {
		text, _ := spec.FormatPart(e.testbed.Checks[i]) // an example may be empty
		text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
		e.note(fmt.Sprintf("checks[%d]", i), leftChecks, "%s", text)
	}
}

// isCommand reports whether containerlab can perform a step.
func (e *exporter) isCommand(i int) bool {
	s := e.testbed.Steps[i]
	return s.At == nil && s.Exec != nil && !s.Exec.Background && (s.Exec.Expect == nil || *s.Exec.Expect == 0)
}

// commands returns the commands of a node among the first steps.
func (e *exporter) commands(name string) []string {
	var all []string
	for i, s := range e.testbed.Steps {
		if !e.isCommand(i) {
			break
		}
		for _, pattern := range s.Exec.Nodes {
			if spec.Match(pattern, name) {
				all = append(all, quoted(s.Exec.Command))
				break
			}
		}
	}
	return all
}

// quoted returns the words quoted for a shell.
func quoted(words []string) string {
	var all []string
	for _, word := range words {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune(
				"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%", r)
		}) {
			word = "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'"
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

// settings returns the entries of a mapping of texts, sorted.
func settings(m map[string]string) mapping {
	var all mapping
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, entry{key, m[key]})
	}
	return all
}

func (e *exporter) nodes() (mapping, error) {
	var all mapping
	for i := range e.plan.Nodes {
		n := &e.plan.Nodes[i]
		labels, err := labelled(labelNode, e.testbed.NodeSettings(n.Name))
		if err != nil {
			return nil, err
		}
		made := e.testbed.NodeFor(n.Name)
		node := mapping{{"kind", kindLinux}}
		if made.Management != nil {
			if len(made.Management.Publish) > 0 {
				node = append(node, entry{"ports", made.Management.Publish})
			}
		} else {
			node = append(node, entry{"network-mode", "none"})
		}
		node = append(node, e.container(made, n.Name)...)
		if len(n.Env) > 0 {
			node = append(node, entry{"env", settings(n.Env)})
		}
		if len(n.Sysctls) > 0 {
			node = append(node, entry{"sysctls", settings(n.Sysctls)})
		}
		if n.CPU > 0 {
			node = append(node, entry{"cpu", n.CPU})
		}
		if n.Memory > 0 {
			node = append(node, entry{"memory", fmt.Sprintf("%dB", n.Memory)})
		}
		setup := setupOf(n.Loopbacks, n.NICs, n.Routes, n.Rules)
		node = append(node, entry{"exec", append(setup, e.commands(n.Name)...)},
			entry{"labels", labels})
		all = append(all, entry{n.Name, node})
	}
	for i := range e.plan.Switches {
		sw := &e.plan.Switches[i]
		settings := e.testbed.Fabric.SwitchSettings(sw.Name)
		labels, err := labelled(labelSwitch, settings)
		if err != nil {
			return nil, err
		}
		path := fmt.Sprintf("fabric.switches[%q]", sw.Name)
		if sw.Kind == spec.Soft {
			e.note(path, softened, "%s", sw.Name)
		}
		if sw.Bridged() {
			e.note(path, bridges, "%s", sw.Name)
			all = append(all, entry{sw.Name, mapping{{"kind", kindBridge}, {"labels", labels}}})
			continue
		}
		all = append(all, entry{sw.Name, mapping{
			{"kind", kindLinux}, {"image", e.image}, {"network-mode", "none"},
			{"sysctls", mapping{{"net.ipv4.ip_forward", "1"}, {"net.ipv6.conf.all.forwarding", "1"},
				{"net.ipv4.fib_multipath_hash_policy", "1"}}},
			{"exec", setupOf(sw.Loopbacks, sw.Ports, sw.Routes.List(), nil)}, {"labels", labels},
		}})
	}
	return all, nil
}

// container returns the container settings of a node in containerlab's format.
func (e *exporter) container(made spec.Node, name string) mapping {
	path := fmt.Sprintf("nodes[%q]", name)
	if made.Runtime != spec.Docker || made.Image == "" {
		e.standsIn(made, name)
		return mapping{{"image", e.image}}
	}
	c := mapping{{"image", made.Image}}
	if made.Idle {
		c = append(c, entry{"entrypoint", "sleep"}, entry{"cmd", "infinity"})
	}
	for _, e := range []struct {
		key   string
		words []string
	}{{"entrypoint", made.Entrypoint}, {"cmd", made.Command}} {
		if len(e.words) > 0 {
			c = append(c, entry{e.key, quoted(e.words)})
		}
	}
	for _, e := range []struct {
		key  string
		list []string
	}{{"binds", made.Binds}, {"cap-add", made.Capabilities}, {"devices", made.Devices}} {
		if len(e.list) > 0 {
			c = append(c, entry{e.key, e.list})
		}
	}
	if made.Restart != "" {
		c = append(c, entry{"restart-policy", made.Restart})
	}
	if made.Pull != "" {
		c = append(c, entry{"image-pull-policy",
			map[string]string{spec.PullMissing: "IfNotPresent", spec.PullNever: "Never",
				spec.PullAlways: "Always"}[made.Pull]})
	}
	if made.Health != nil {
		interval, retries := healthOf(made.Health)
		c = append(c, entry{"healthcheck",
			mapping{{"test", append([]string{"CMD"}, made.Health.Command...)}, {"interval", interval},
				{"timeout", interval}, {"retries", retries}}})
	}
	if len(made.Ulimits) > 0 {
		e.note(path, keptUlimits, "%s", name)
	}
	return c
}

// standsIn notes that a node becomes a container of the default image.
func (e *exporter) standsIn(made spec.Node, name string) {
	path := fmt.Sprintf("nodes[%q]", name)
	switch made.Runtime {
	case spec.Netns:
	case spec.Docker:
		e.note(path, otherBuild, "%s", name)
	default:
		e.note(path, otherRuntime, "%s: %s", name, made.Runtime)
	}
}

// healthOf returns the seconds between two checks of a healthcheck, which are also the timeout of
// each check, and the number of checks that may fail within the testbed's timeout.
func healthOf(h *spec.Health) (interval, retries int) {
	const whole, most = 30 * time.Second, 500 * time.Millisecond // the defaults of testbed files
	between, patience := cmp.Or(time.Duration(h.Interval), most), cmp.Or(time.Duration(h.Timeout), whole)
	interval = int((between + time.Second - 1) / time.Second)
	return interval, max(1, int(patience/time.Second)/(2*interval))
}

// maxCommand bounds the length in bytes of a command line that has several commands.
const maxCommand = 400

// setupOf returns the command lines that give a container the configuration of the plan's node or
// router: addresses, routes and rules.
func setupOf(loopbacks []netip.Prefix, ports []plan.Interface, routes []plan.Route,
	rules []plan.Rule) (commands []string) {
	lines := []string{"ip link set lo up"}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, addr := range loopbacks {
		add("ip addr add %s dev lo", addr)
	}
	for _, port := range ports {
		add("ip link set dev %s up", port.Name)
		for _, addr := range port.Addrs {
			nodad := ""
			if addr.Addr().Is6() {
				nodad = " nodad"
			}
			add("ip addr add %s dev %s%s", addr, port.Name, nodad)
		}
	}
	for _, r := range routes {
		line := "ip route replace " + r.Dst.String()
		if r.Table != 0 {
			line += fmt.Sprintf(" table %d", r.Table)
		}
		if r.Src.IsValid() {
			line += " src " + r.Src.String()
		}
		for _, hop := range r.NextHops {
			if len(r.NextHops) > 1 {
				line += " nexthop"
			}
			if hop.Via.IsValid() {
				line += " via " + hop.Via.String()
			}
			line += " dev " + hop.Dev
			if len(r.NextHops) > 1 && hop.Weight > 1 {
				line += fmt.Sprintf(" weight %d", hop.Weight)
			}
		}
		add("%s", line)
	}
	for _, r := range rules {
		family := "-4"
		if r.From.Addr().Is6() {
			family = "-6"
		}
		add("ip %s rule add pref %d from %s table %d", family, r.Priority, r.From, r.Table)
	}
	for part := ""; len(lines) > 0; part = "" {
		for len(lines) > 0 && (part == "" || len(part)+len(lines[0]) < maxCommand) {
			part, lines = part+" "+lines[0]+";", lines[1:]
		}
		commands = append(commands, "sh -c '"+ownCommands+strings.TrimSuffix(part, ";")+"'")
	}
	return commands
}

func (e *exporter) links() ([]mapping, error) {
	var all []mapping
	for _, l := range e.plan.Links {
		settings := e.testbed.Fabric.LinkSettings(l.Name, l.Class)
		labels, err := labelled(labelLink, settings)
		if err != nil {
			return nil, err
		}
		if len(l.AToB.Effects())+len(l.BToA.Effects()) > 0 || l.AToB.Rate != l.BToA.Rate {
			e.note(fmt.Sprintf("fabric.links[%q]", l.Name), keptEffects, "%s", l.Name)
		}
		all = append(all, mapping{
			// The short form, with ends as texts, has no labels.
			{"type", "veth"}, {"endpoints",
				[]mapping{{{"node", l.A.Node}, {"interface", l.A.Port}},
					{{"node", l.B.Node}, {"interface", l.B.Port}}}}, {"mtu", l.MTU}, {"labels", labels},
		})
	}
	e.note("fabric.links", keptRates, "")
	return all, nil
}
