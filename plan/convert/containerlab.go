package convert

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"railbed/internal/strictyaml"
	"railbed/plan/spec"
)

// format describes containerlab topology files. Their limit is the limit of testbed files. The deepest value
// is an argument of a node's healthcheck.
var format = strictyaml.Format{Noun: "topology", Empty: "write name: and topology:", MaxBytes: 1 << 20,
	Depth: 6}

// lab is the contents of a containerlab topology file.
type lab struct {
	name          text
	defaults      definition
	kinds, groups map[string]*definition
	nodes         []labNode
	links         []labLink
	mgmtSubnet    text
	mgmtSubnet6   text
}

// text is a scalar with its position.
type text struct {
	value string
	at    place
}

// definition is the settings of a node, or of all nodes of a kind or group. The reader adds notes
// about settings that testbeds do not have.
type definition struct {
	kind, group, image, entrypoint, cmd, cpu, memory, restart, pull, startup text
	exec, binds, capabilities, devices, envFiles, ports                      []text
	frrDaemons                                                               []text // of kind frr
	env, sysctls, labels                                                     []setting
	health                                                                   *labHealth
}

// labHealth is a healthcheck, with times in seconds.
type labHealth struct {
	at                                    place
	test                                  []text
	interval, timeout, retries, startsFor text
}

// setting is an entry of a mapping.
type setting struct {
	key   string
	keyAt place
	value text
}

type labNode struct {
	name text
	definition
}

// labLink is a link whose two ends are interfaces of nodes.
type labLink struct {
	at        place
	ends      [2]labEnd
	addresses [2][]text // of each end
	mtu       text
	labels    []setting
}

type labEnd struct {
	node, port string
	at         place
}

// reader reads a topology. It adds errors to problems, and notes about settings that testbeds
// cannot express to notes.
type reader struct {
	notes
	problems spec.Problems
	read     int // number of mappings, see maxMappings
}

// maxMappings bounds the number of mappings that aliases and merge keys expand to.
const maxMappings = 100_000

func (r *reader) wrong(n *yaml.Node, want, what string, args ...any) {
	r.problems = append(r.problems,
		spec.Problem{File: r.file, Line: n.Line, Column: n.Column, What: fmt.Sprintf(what, args...),
			Want: want})
}

// resolved follows aliases.
func resolved(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// mapping calls each for the entries of a mapping. Entries of merge keys come after the mapping's
// own. An empty value counts as an empty mapping.
func (r *reader) mapping(n *yaml.Node, called string, each func(key string, keyNode, value *yaml.Node)) {
	r.merged(n, called, map[string]bool{}, 0, each)
}

func (r *reader) merged(n *yaml.Node, called string, seen map[string]bool, depth int,
	each func(key string, keyNode, value *yaml.Node)) {
	n = resolved(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	r.read++
	if n.Kind != yaml.MappingNode || depth > 10 || r.read > maxMappings {
		r.wrong(n, "want a mapping", "%s is no mapping, or has too many aliases", called)
		return
	}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolved(n.Content[i]), n.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			if value = resolved(value); value.Kind == yaml.SequenceNode {
				merges = append(merges, value.Content...)
			} else {
				merges = append(merges, value)
			}
		case key.Kind != yaml.ScalarNode:
			r.wrong(key, "want a text", "a key of %s is no text", called)
		case !seen[key.Value]:
			seen[key.Value] = true
			each(key.Value, n.Content[i], value)
		case depth == 0:
			r.wrong(key, "remove one", "key %q appears twice in %s", key.Value, called)
		}
	}
	for _, merge := range merges {
		r.merged(merge, called, seen, depth+1, each)
	}
}

// scalar reads a text, which may look like a number.
func (r *reader) scalar(n *yaml.Node, called string) text {
	n = resolved(n)
	if n.Kind != yaml.ScalarNode {
		r.wrong(n, "want a text", "%s is no text", called)
		return text{at: placeOf(n)}
	}
	if n.Tag == "!!null" {
		return text{at: placeOf(n)}
	}
	return text{n.Value, placeOf(n)}
}

func (r *reader) list(n *yaml.Node, called string) []*yaml.Node {
	n = resolved(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, "want a list", "%s is no list", called)
		return nil
	}
	return n.Content
}

func (r *reader) texts(n *yaml.Node, called string) []text {
	var all []text
	for _, element := range r.list(n, called) {
		all = append(all, r.scalar(element, called))
	}
	return all
}

func (r *reader) settings(n *yaml.Node, called string) []setting {
	var all []setting
	r.mapping(n, called, func(key string, keyNode, value *yaml.Node) {
		all = append(all, setting{key, placeOf(keyNode), r.scalar(value, called+"."+key)})
	})
	return all
}

// readLab reads a file of containerlab.
func readLab(file string, source []byte) (*lab, *notes, error) {
	r := &reader{notes: notes{file: file}}
	l := &lab{kinds: map[string]*definition{}, groups: map[string]*definition{}}
	source = r.withoutVariables(source)
	root, err := format.Parse(file, source)
	if at := templated.FindIndex(source); err != nil && at != nil {
		line := 1 + bytes.Count(source[:at[0]], []byte("\n"))
		return nil, &r.notes, spec.Problems{{File: file, Line: line, Column: 1,
			What: "the file is a Go template",
			Want: "want the topology that containerlab makes from it"}}
	}
	if err != nil {
		return nil, &r.notes, err
	}
	r.withoutUnset(root, "the file")
	r.mapping(root, "the file", func(key string, keyNode, value *yaml.Node) {
		switch key {
		case "name":
			l.name = r.scalar(value, key)
		case "topology":
			r.topology(value, l)
		case "mgmt":
			r.mgmt(value, l)
		case "prefix", "settings", "debug":
			r.add(placeOf(keyNode), "", "%s is left out", key)
		default:
			r.wrong(keyNode, "want name, prefix, mgmt, settings or topology", "unknown key %q", key)
		}
	})
	if len(l.nodes) == 0 && len(r.problems) == 0 {
		r.wrong(root, "want topology: {nodes: {a: {kind: linux}}}", "the topology has no nodes")
	}
	if err := r.problems.Err(); err != nil {
		return nil, &r.notes, err
	}
	return l, &r.notes, nil
}

// templated matches a line that begins with an action of a template.
var templated = regexp.MustCompile(`(?m)^\s*\{\{`)

// mgmt reads the management network. Testbeds have only its addresses.
func (r *reader) mgmt(n *yaml.Node, l *lab) {
	r.mapping(n, "mgmt", func(key string, keyNode, value *yaml.Node) {
		switch key {
		case "ipv4-subnet", "ipv4_subnet":
			l.mgmtSubnet = r.scalar(value, "mgmt."+key)
			return
		case "ipv6-subnet", "ipv6_subnet":
			l.mgmtSubnet6 = r.scalar(value, "mgmt."+key)
			return
		}
		r.add(placeOf(keyNode), "the testbed has a management network of its own", "left out: %s of mgmt",
			key)
	})
}

func (r *reader) topology(n *yaml.Node, l *lab) {
	r.mapping(n, "topology", func(key string, keyNode, value *yaml.Node) {
		switch key {
		case "defaults":
			l.defaults = r.definition(value, "topology.defaults")
		case "kinds", "groups":
			into := map[string]map[string]*definition{"kinds": l.kinds, "groups": l.groups}[key]
			r.mapping(value, "topology."+key, func(name string, _, value *yaml.Node) {
				d := r.definition(value, "topology."+key+"."+name)
				into[name] = &d
			})
		case "nodes":
			r.mapping(value, "topology.nodes", func(name string, keyNode, value *yaml.Node) {
				l.nodes = append(l.nodes, labNode{text{name, placeOf(keyNode)},
					r.definition(value, "node "+name)})
			})
		case "links":
			for _, link := range r.list(value, "topology.links") {
				r.link(resolved(link), l)
			}
		default:
			r.wrong(keyNode, "want nodes, links, kinds, groups or defaults", "unknown key %q in topology",
				key)
		}
	})
}

// without lists settings of nodes that testbeds do not have, with the reason or the replacement.
var without = map[string]string{
	"aliases":                 "nodes are known by their names alone",
	"auto-remove":             "",
	"certificate":             "",
	"cgroup-parent":           "",
	"cgroupns-mode":           "",
	"components":              "",
	"config":                  "",
	"cpu-set":                 "cpu: limits CPU time without a set of CPUs",
	"credentials":             "",
	"dns":                     "nodes have a hosts file, and management: {dns: [ADDRESS]} sets name servers",
	"enforce-startup-config":  "",
	"hostname":                "a node's host name is its name",
	"license":                 "",
	"link-apply-mode":         "",
	"mgmt-ipv4":               "management: {} gives a node a management NIC, with addresses of the plan",
	"mgmt-ipv6":               "management: {} gives a node a management NIC, with addresses of the plan",
	"mgmt_ipv4":               "management: {} gives a node a management NIC, with addresses of the plan",
	"mgmt_ipv6":               "management: {} gives a node a management NIC, with addresses of the plan",
	"network-mode":            "a node has a network of its own",
	"pid-mode":                "",
	"position":                "",
	"privileged":              "",
	"publish":                 "ports publishes a port on the host",
	"runtime":                 "",
	"SANs":                    "",
	"security-opts":           "",
	"shm-size":                "",
	"stages":                  "all nodes start together, and steps run in order",
	"startup-delay":           "all nodes start together, and steps can have times",
	"suppress-startup-config": "",
	"tmpfs":                   "",
	"type":                    "",
	"user":                    "",
	"volumes":                 "",
	"wait-for":                "steps run in order",
}

func (r *reader) definition(n *yaml.Node, called string) definition {
	var d definition
	scalars := map[string]*text{"kind": &d.kind, "group": &d.group, "image": &d.image,
		"entrypoint": &d.entrypoint, "cmd": &d.cmd, "cpu": &d.cpu, "memory": &d.memory,
		"restart-policy": &d.restart, "image-pull-policy": &d.pull, "startup-config": &d.startup}
	lists := map[string]*[]text{"exec": &d.exec, "binds": &d.binds, "cap-add": &d.capabilities,
		"devices": &d.devices, "env-files": &d.envFiles, "ports": &d.ports}
	mappings := map[string]*[]setting{"env": &d.env, "sysctls": &d.sysctls, "labels": &d.labels}
	r.mapping(n, called, func(key string, keyNode, value *yaml.Node) {
		at := called + "." + key
		if into, is := scalars[key]; is {
			*into = r.scalar(value, at)
		} else if into, is := lists[key]; is {
			*into = r.texts(value, at)
		} else if into, is := mappings[key]; is {
			*into = r.settings(value, at)
		} else if key == "healthcheck" {
			d.health = r.health(value, at, placeOf(keyNode))
		} else if key == "extras" {
			d.frrDaemons = r.extras(value, at)
		} else if key == "network-mode" && resolved(value).Value == "none" {
			// All nodes of testbeds have this value.
		} else if why, is := without[key]; is {
			r.add(placeOf(keyNode), why, "left out: %s of %s", key, called)
		} else {
			r.wrong(keyNode, "remove it, or look up the key in containerlab's manual",
				"unknown key %q in %s", key, called)
		}
	})
	return d
}

func (r *reader) health(n *yaml.Node, called string, at place) *labHealth {
	h := &labHealth{at: at}
	numbers := map[string]*text{"interval": &h.interval, "timeout": &h.timeout, "retries": &h.retries,
		"start-period": &h.startsFor}
	r.mapping(n, called, func(key string, keyNode, value *yaml.Node) {
		if into, is := numbers[key]; is {
			*into = r.scalar(value, called+"."+key)
			if _, err := strconv.ParseUint(into.value, 10, 16); err != nil && into.value != "" {
				r.wrong(value, "want a whole number", "%s of %s is %q", key, called, into.value)
			}
		} else if key == "test" {
			h.test = r.texts(value, called+".test")
		} else {
			r.wrong(keyNode, "want test, interval, timeout, retries or start-period", "unknown key %q in %s",
				key, called)
		}
	})
	return h
}

// link reads a link in either of containerlab's forms: with ends as texts, or with a type and ends
// as mappings.
func (r *reader) link(n *yaml.Node, l *lab) {
	found := labLink{at: placeOf(n)}
	kind := text{value: "veth"}
	var ends []labEnd
	var addresses []place
	r.mapping(n, "a link", func(key string, keyNode, value *yaml.Node) {
		switch key {
		case "type":
			kind = r.scalar(value, "type of a link")
		case "endpoints":
			for _, end := range r.list(value, "endpoints of a link") {
				ends = append(ends, r.end(resolved(end)))
			}
		case "mtu":
			found.mtu = r.scalar(value, "mtu of a link")
		case "labels":
			found.labels = r.settings(value, "labels of a link")
		case "ipv4", "ipv6":
			addresses = append(addresses, placeOf(keyNode))
			for side, address := range r.texts(value, key+" of a link") {
				if side < len(found.addresses) {
					found.addresses[side] = append(found.addresses[side], address)
				}
			}
		case "vars":
			r.add(placeOf(keyNode), "", "vars of a link are left out")
		case "endpoint", "host-interface", "mode", "remote", "vni", "udp-port", "dst-port", "src-port",
			"parent-interface":
			// Links of the other types are left out as a whole.
		default:
			r.wrong(keyNode, "want endpoints, type, mtu, labels, vars, ipv4 or ipv6",
				"unknown key %q of a link", key)
		}
	})
	for _, at := range addresses {
		r.add(at, "the plan gives every link its addresses", "addresses of a link are left out")
	}
	if t := strings.ToLower(strings.TrimSpace(kind.value)); t != "veth" && t != "brief" {
		if !slices.Contains([]string{"host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "veth-stitch",
			"dummy", "bridge"}, t) {
			r.problems = append(r.problems,
				spec.Problem{File: r.file, Line: kind.at.line, Column: kind.at.column,
					What: fmt.Sprintf("unknown type %q of a link", t),
					Want: "want veth, or another type of containerlab"})
			return
		}
		r.add(found.at, "links join nodes and switches of the testbed", "a link of type %s is left out", t)
		return
	}
	if len(ends) != 2 {
		r.wrong(n, `want endpoints: ["a:eth1", "b:eth1"]`, "a link has %d ends", len(ends))
		return
	}
	found.ends = [2]labEnd(ends)
	for _, end := range ends {
		if slices.Contains([]string{"host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy"},
			end.node) {
			r.add(found.at, "links join nodes and switches of the testbed", "a link to %s is left out",
				end.node)
			return
		}
	}
	l.links = append(l.links, found)
}

func (r *reader) end(n *yaml.Node) labEnd {
	end := labEnd{at: placeOf(n)}
	if n.Kind == yaml.ScalarNode {
		var found bool
		if end.node, end.port, found = strings.Cut(n.Value, ":"); !found || end.node == "" || end.port == "" {
			r.wrong(n, `want "NODE:INTERFACE"`, "end %q of a link names no interface", n.Value)
		}
		return end
	}
	r.mapping(n, "an end of a link", func(key string, keyNode, value *yaml.Node) {
		switch key {
		case "node":
			end.node = r.scalar(value, "node of a link").value
		case "interface":
			end.port = r.scalar(value, "interface of a link").value
		case "mac", "ipv4", "ipv6":
			r.add(placeOf(keyNode), "the plan decides", "%s of an end of a link is left out", key)
		case "vars":
			r.add(placeOf(keyNode), "", "vars of an end of a link are left out")
		default:
			r.wrong(keyNode, "want node, interface, mac, ipv4, ipv6 or vars",
				"unknown key %q of an end of a link", key)
		}
	})
	if end.node == "" || end.port == "" {
		r.wrong(n, "want {node: NAME, interface: NAME}", "an end of a link names no interface")
	}
	return end
}
