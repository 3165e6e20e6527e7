package convert

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/shlex"

	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// addSettings converts the settings of nodes that testbeds have.
func (i *importer) addSettings() spec.Problems {
	var problems spec.Problems
	for _, n := range i.lab.nodes {
		d, name := i.nodes[n.name.value], i.names.given[n.name.value]
		var err error
		var from text
		var key string
		switch i.roles[n.name.value] {
		case server:
			var node spec.Node
			if l, found := label(d.labels, labelNode); found {
				key, from = labelNode, l
				node, err = spec.ParsePart[spec.Node](labelNode, l.value)
			}
			problems = append(problems, i.fill(&node, name, d)...)
			if entry := (spec.Entry[spec.Node]{Key: name, Value: node}); !isZero(node) {
				i.testbed.Nodes = append(i.testbed.Nodes, entry)
			}
		case bridge, router:
			if l, found := label(d.labels, labelSwitch); found {
				key, from = labelSwitch, l
				var sw spec.Switch
				sw, err = spec.ParsePart[spec.Switch](labelSwitch, l.value)
				i.setSwitch(name, sw)
			}
			if isFRR(d) {
				i.leaveFRR(n.name.value, d)
			} else {
				i.leaveOut(n.name.value, d)
			}
		}
		if startup := d.startup; startup.value != "" && i.frr[n.name.value] == nil {
			i.add(startup.at, "", "left out: startup-config %q", startup.value)
		}
		if err != nil {
			problems = append(problems, i.ofLabel(key, from, err)...)
		}
	}
	return problems
}

func (i *importer) setSwitch(name string, sw spec.Switch) {
	for n := range i.testbed.Fabric.Switches {
		if i.testbed.Fabric.Switches[n].Key == name {
			i.testbed.Fabric.Switches[n].Value = sw
		}
	}
}

func isZero(n spec.Node) bool {
	text, err := spec.FormatPart(n)
	return err == nil && text == "{}"
}

// leaveOut adds notes about settings that a switch cannot have. The settings of an exported switch
// come from the exporter itself.
func (i *importer) leaveOut(name string, d definition) {
	if _, own := label(d.labels, labelSwitch); own {
		return
	}
	const why = "a switch runs no programs"
	for _, what := range []struct {
		key string
		at  []text
	}{{"image", []text{d.image}}, {"entrypoint", []text{d.entrypoint}}, {"cmd", []text{d.cmd}},
		{"cpu", []text{d.cpu}}, {"memory", []text{d.memory}}, {"exec", d.exec}, {"binds", d.binds},
		{"cap-add", d.capabilities}, {"devices", d.devices}, {"env-files", d.envFiles}, {"ports", d.ports},
		{"restart-policy", []text{d.restart}}, {"image-pull-policy", []text{d.pull}}} {
		for _, at := range what.at {
			if at.value != "" {
				if what.key == "exec" {
					i.add(at.at, why, "left out: exec %q of switch %s", at.value, name)
					continue
				}
				i.add(at.at, why, "left out: %s of a switch", what.key)
			}
		}
	}
	if d.health != nil {
		i.add(d.health.at, why, "left out: healthcheck of a switch")
	}
	for _, s := range slices.Concat(d.env, d.sysctls) {
		i.add(s.keyAt, why, "left out: %s of a switch", s.key)
	}
	i.leaveLabels(d)
}

func (i *importer) leaveLabels(d definition) {
	for _, l := range d.labels {
		if !strings.HasPrefix(l.key, "railbed.") {
			i.add(l.keyAt, "", "label %s is left out", l.key)
		}
	}
}

// size matches a number of bytes as containerlab writes it: 1G is 10^9 bytes, 1Gi 2^30.
var size = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(i?)b?$`)

func parseSize(text string) (units.Bytes, bool) {
	found := size.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if found == nil {
		return 0, false
	}
	number, err := strconv.ParseFloat(found[1], 64)
	base := 1000.0
	if found[3] != "" {
		base = 1024
	}
	number *= math.Pow(base, float64(strings.Index(" kmgt", cmp.Or(found[2], " "))))
	return units.Bytes(number), err == nil && number < 1<<50
}

// fill converts the settings of a server.
func (i *importer) fill(node *spec.Node, name string, d definition) spec.Problems {
	var problems spec.Problems
	wrong := func(at text, want, what string) {
		problems = append(problems, spec.Problem{File: i.file, Line: at.at.line, Column: at.at.column,
			What: fmt.Sprintf("invalid %s %q of node %s", what, at.value, name), Want: want})
	}
	if d.cpu.value != "" {
		cpu, err := strconv.ParseFloat(d.cpu.value, 64)
		if err != nil || cpu < 0 {
			wrong(d.cpu, "want a number of cores", "cpu")
		}
		node.CPU = cpu
	}
	if d.memory.value != "" {
		memory, ok := parseSize(d.memory.value)
		if !ok {
			wrong(d.memory, "want a size such as 512MB", "memory")
		}
		node.Memory = memory
	}
	i.fillEnv(node, d)
	i.publish(node, d.ports)
	_, exported := label(d.labels, labelTestbed)
	for _, s := range d.sysctls {
		if own, is := ownSysctls[s.key]; exported && is && own == s.value.value {
			continue
		}
		if !strings.HasPrefix(s.key, "net.") {
			i.add(s.keyAt, "a node has only the sysctls of its network namespace, net.*",
				"sysctl %s is left out", s.key)
			continue
		}
		if what, want := plan.RefusedSysctl(i.nicsOf(name), s.key, s.value.value); what != "" {
			i.add(s.keyAt, want, "sysctl %s is left out: %s", s.key, what)
			delete(node.Sysctls, s.key)
			continue
		}
		if node.Sysctls == nil {
			node.Sysctls = map[string]string{}
		}
		node.Sysctls[s.key] = s.value.value
	}
	i.fillContainer(node, d)
	i.leaveLabels(d)
	return problems
}

// nicsOf returns the names of a server's NICs.
func (i *importer) nicsOf(name string) (nics []string) {
	for n, link := range i.testbed.Fabric.Connect {
		for _, end := range strings.Split(link, " -- ") {
			if node, nic, _ := strings.Cut(end, ":"); node == name {
				nics = append(nics, cmp.Or(nic, fmt.Sprintf("the NIC of connect[%d]", n)))
			}
		}
	}
	return nics
}

// fillContainer converts the container settings of a node.
func (i *importer) fillContainer(node *spec.Node, d definition) {
	if _, own := label(d.labels, labelNode); own {
		if node.Runtime == spec.Docker && node.Image != "" {
			node.Image = d.image.value
		}
		return // the label has the other settings
	}
	// Containerlab's handling of images of other kinds is not supported here.
	if i.runtime != spec.Docker || d.image.value == "" || d.kind.value != kindLinux || isFRR(d) {
		const why = "a node of runtime netns runs the host's programs, with its files"
		for _, at := range []text{d.image, d.entrypoint, d.cmd, d.restart, d.pull} {
			if at.value != "" {
				i.add(at.at, why, "%q is left out", at.value)
			}
		}
		for _, at := range slices.Concat(d.binds, d.capabilities, d.devices) {
			i.add(at.at, why, "%q is left out", at.value)
		}
		if d.health != nil {
			i.add(d.health.at, why, "the healthcheck is left out")
		}
		return
	}
	i.addHealth(node, d.health)
	node.Runtime, node.Image = spec.Docker, d.image.value
	node.Entrypoint, node.Command = i.words(d.entrypoint), i.words(d.cmd)
	for _, bind := range d.binds {
		i.bind(node, bind)
	}
	for _, c := range d.capabilities {
		node.Capabilities = append(node.Capabilities, strings.TrimPrefix(strings.ToUpper(c.value), "CAP_"))
	}
	for _, device := range d.devices {
		node.Devices = append(node.Devices, device.value)
	}
	if slices.ContainsFunc(d.exec, func(c text) bool {
		return setsNetwork.MatchString(c.value)
	}) && !slices.Contains(node.Capabilities, netAdmin) {
		node.Capabilities = append(node.Capabilities, netAdmin)
	}
	i.policy(&node.Pull, d.pull, map[string]string{"ifnotpresent": spec.PullMissing, "never": spec.PullNever,
		"always": spec.PullAlways})
	i.policy(&node.Restart, d.restart,
		map[string]string{"no": spec.RestartNo, "on-failure": spec.RestartOnFailure,
			"always": spec.RestartAlways, "unless-stopped": spec.RestartAlways})
}

const netAdmin = "NET_ADMIN"

// setsNetwork matches commands that change the node's network. Containerlab's containers are
// privileged, and Railbed's are not.
var setsNetwork = regexp.MustCompile(`\b(ip|tc|bridge|ifconfig|route|sysctl) `)

// words splits a command as containerlab does.
func (i *importer) words(command text) []string {
	if command.value == "" {
		return nil
	}
	words, err := shlex.Split(command.value)
	if err != nil {
		i.add(command.at, "", "%q cannot be split into words, and is left out", command.value)
		return nil
	}
	return words
}

// bind converts a bind mount, without options of other systems.
func (i *importer) bind(node *spec.Node, bind text) {
	parts := strings.Split(bind.value, ":")
	switch {
	case len(parts) < 2 || len(parts) > 3 || strings.Contains(bind.value, "__") ||
		!strings.HasPrefix(parts[1], "/"):
		i.add(bind.at, `want "HOST:/CONTAINER"`, "bind %q is left out", bind.value)
		return
	case len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw":
		i.add(bind.at, "", "%q of bind %q is left out", parts[2], bind.value)
		parts = parts[:2]
	}
	if parts[0] = i.hostPath(parts[0]); parts[0] == "" {
		i.add(bind.at, "want a path from the topology's folder, or an absolute path",
			"bind %q is left out", bind.value)
		return
	}
	node.Binds = append(node.Binds, strings.Join(parts, ":"))
}

func (i *importer) policy(into *string, from text, policies map[string]string) {
	policy, known := policies[strings.ToLower(from.value)]
	if from.value != "" && !known {
		i.add(from.at, "", "%q is left out", from.value)
	}
	*into = policy
}

func isOwnCommand(command string) bool { return strings.Contains(command, ownCommands) }

// addSteps makes steps of the commands that containerlab runs when all nodes are up. Nodes with the
// same command share a step.
func (i *importer) addSteps() {
	i.nameAddresses()
	for _, n := range i.lab.nodes {
		if i.roles[n.name.value] != server {
			continue
		}
		for _, command := range i.nodes[n.name.value].exec {
			if isOwnCommand(command.value) {
				continue
			}
			words := i.words(command)
			if len(words) == 0 || i.routes() && i.leaves(n.name.value, command, words) {
				continue
			}
			name := i.names.given[n.name.value]
			if i.routes() {
				for _, address := range i.named(n.name.value, command.at, words) {
					i.tryAddress(n.name.value, command.at, command.value, address)
				}
			}
			if steps := i.testbed.Steps; len(steps) > 0 {
				if last := steps[len(steps)-1].Exec; slices.Equal(last.Command, words) &&
					!slices.Contains(last.Nodes, name) {
					last.Nodes = append(last.Nodes, name)
					continue
				}
			}
			i.testbed.Steps = append(i.testbed.Steps,
				spec.Step{Exec: &spec.Exec{Nodes: []string{name}, Command: words}})
		}
	}
	i.testbed.SetDefaults()
}

// nameAddresses replaces the lab's addresses in the programs and variables of nodes.
func (i *importer) nameAddresses() {
	for _, n := range i.lab.nodes {
		for e := range i.testbed.Nodes {
			entry := &i.testbed.Nodes[e]
			if i.roles[n.name.value] != server || entry.Key != i.names.given[n.name.value] || !i.routes() {
				continue
			}
			lists := [][]string{entry.Value.Entrypoint, entry.Value.Command}
			if entry.Value.Health != nil {
				lists = append(lists, entry.Value.Health.Command)
			}
			for _, list := range lists {
				for _, address := range i.named(n.name.value, n.name.at, list) {
					i.tryAddress(n.name.value, n.name.at, strings.Join(list, " "), address)
				}
			}
			for _, key := range slices.Sorted(maps.Keys(entry.Value.Env)) {
				value := []string{entry.Value.Env[key]}
				for _, address := range i.named(n.name.value, n.name.at, value) {
					i.tryAddress(n.name.value, n.name.at, key, address)
				}
				entry.Value.Env[key] = value[0]
			}
		}
	}
}
