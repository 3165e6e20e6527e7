package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"railbed/plan/spec"
)

// labAddress is an address that a lab gives to an interface of a node.
type labAddress struct {
	node, nic string // containerlab's names
	prefix    netip.Prefix
	at        spec.Problem // without text
}

// Classes of notes about commands of nodes in a fabric that routes.
var (
	leadsNowhere = class{"an address leads nowhere here, and is left out",
		"addresses lead nowhere here, and are left out",
		"the plan gives all NICs addresses, and the names of nodes and routers lead to them"}
	ownDevice = class{"an address of a node's own device leads nowhere beyond the node",
		"addresses of nodes' own devices lead nowhere beyond the nodes",
		"the plan has routes to its own addresses"}
	leftRoutes = class{"a route of a node is left out", "routes of nodes are left out",
		"the plan has routes to all nodes and routers"}
	leftUp = class{"a command is left out whose effect all nodes have",
		"commands are left out whose effect all nodes have", ""}
	renamed = class{"an address in a command becomes a name", "addresses in commands become names", ""}
)

// What a command of a node does.
type effect int

const (
	other effect = iota
	setsAddress
	setsRoute
	setsUp
)

var (
	addsAddress = regexp.MustCompile(`^(?:sudo )?ip(?: -[46])? a(?:d|dd|ddr|ddress)? (?:add|a|replace|change) ` +
		`(?:local )?([0-9a-fA-F.:]+(?:/[0-9]+)?)(?: .*)? dev ([^ ]+)(?: .*)?$`)
	addsOldAddress = regexp.MustCompile(`^(?:sudo )?ifconfig ([^ ]+) ([0-9.]+(?:/[0-9]+)?)` +
		`(?: netmask ([0-9.]+))?(?: up)?$`)
	changesRoute = regexp.MustCompile(`^(?:sudo )?(?:ip(?: -[46])? r(?:o|oute)? ` +
		`(?:a|add|append|replace|change|del|delete) |route (?:-[46n]+ )*(?:add|del) )`)
	setsLinkUp = regexp.MustCompile(`^(?:sudo )?(?:ip l(?:ink)? s(?:et)? (?:dev )?[^ ]+ up|ifconfig [^ ]+ up)$`)
	shell      = regexp.MustCompile(`^(?:/bin/)?(?:ba)?sh$`)
	chained    = regexp.MustCompile(`\s*(?:&&|;|\n)\s*`)
)

// parts returns the commands of a command line, and those of a shell's script one by one.
func parts(words []string) []string {
	if len(words) == 3 && shell.MatchString(words[0]) && strings.HasPrefix(words[1], "-") &&
		strings.HasSuffix(words[1], "c") {
		return slices.DeleteFunc(chained.Split(strings.TrimSpace(words[2]), -1),
			func(part string) bool { return part == "" })
	}
	return []string{strings.Join(words, " ")}
}

// effectOf returns what a command does and, if it sets an address, the address.
func effectOf(command string) (effect, string, netip.Prefix) {
	command = strings.Join(strings.Fields(command), " ")
	nic, addr, mask := "", "", ""
	switch {
	case setsLinkUp.MatchString(command):
		return setsUp, "", netip.Prefix{}
	case changesRoute.MatchString(command):
		return setsRoute, "", netip.Prefix{}
	}
	if found := addsAddress.FindStringSubmatch(command); found != nil {
		addr, nic = found[1], found[2]
	} else if found := addsOldAddress.FindStringSubmatch(command); found != nil {
		nic, addr, mask = found[1], found[2], found[3]
	}
	prefix, err := netip.ParsePrefix(addr)
	if err != nil {
		single, err := netip.ParseAddr(addr)
		if err != nil {
			return other, "", netip.Prefix{}
		}
		bits := single.BitLen()
		if m, err := netip.ParseAddr(mask); err == nil && m.Is4() {
			for bits = 0; bits < 32 && m.As4()[bits/8]&(0x80>>(bits%8)) != 0; bits++ {
			}
		}
		prefix = netip.PrefixFrom(single, bits)
	}
	return setsAddress, nic, prefix
}

// findAddresses collects the addresses that commands and links give to interfaces.
func (i *importer) findAddresses() {
	for _, l := range i.lab.links {
		for side, end := range l.ends {
			for _, a := range l.addresses[side] {
				if prefix, err := netip.ParsePrefix(a.value); err == nil {
					i.addresses = append(i.addresses,
						labAddress{end.node, end.port, prefix, i.problem(a.at)})
				}
			}
		}
	}
	for _, n := range i.lab.nodes {
		if i.roles[n.name.value] == left {
			continue
		}
		for _, command := range i.nodes[n.name.value].exec {
			for _, part := range parts(i.words(command)) {
				if does, nic, prefix := effectOf(part); does == setsAddress {
					i.addresses = append(i.addresses,
						labAddress{n.name.value, nic, prefix, i.problem(command.at)})
				}
			}
		}
	}
}

// addressesOf returns the addresses of an end of a link, without their length.
func (i *importer) addressesOf(end labEnd) (texts []string) {
	for _, a := range i.addresses {
		if a.node == end.node && a.nic == end.port {
			texts = append(texts, a.prefix.Addr().String())
		}
	}
	return texts
}

// routes reports whether the testbed's fabric routes, so that addresses of the lab lead nowhere. In
// an exported file they are the plan's.
func (i *importer) routes() bool {
	_, exported := label(i.lab.defaults.labels, labelTestbed)
	return !exported && i.testbed.Fabric.Switch.Kind != spec.Bridge
}

// isNIC reports whether a device of a node is its loopback or an end of a link.
func (i *importer) isNIC(node, device string) bool {
	return device == "lo" || slices.ContainsFunc(i.lab.links, func(l labLink) bool {
		return slices.ContainsFunc(l.ends[:], func(end labEnd) bool {
			return end.node == node && end.port == device
		})
	})
}

// leaves reports whether a command only does what the plan does, and notes it.
func (i *importer) leaves(node string, command text, words []string) bool {
	all := parts(words)
	for _, part := range all {
		switch does, nic, prefix := effectOf(part); {
		case does == setsAddress && !i.isNIC(node, nic):
			i.gather(ownDevice, i.problem(command.at), "%s: %s on %s", node, prefix, nic)
			return false
		case does == other:
			return false
		}
	}
	for _, part := range all {
		at := i.problem(command.at)
		switch does, nic, prefix := effectOf(part); does {
		case setsAddress:
			i.gather(leadsNowhere, at, "%s: %s on %s", node, prefix, nic)
		case setsRoute:
			i.gather(leftRoutes, at, "%s: %s", node, part)
		default:
			i.gather(leftUp, at, "%s: %s", node, part)
		}
	}
	return true
}

// addressIn matches what may be an address, with the length of a prefix if there is one.
var addressIn = regexp.MustCompile(`[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:/[0-9]+)?|[0-9a-fA-F]{0,4}:[0-9a-fA-F:]*:[0-9a-fA-F:]*(?:/[0-9]+)?`)

// named replaces the lab's addresses of nodes by the names of the nodes. It returns the addresses of
// the lab's networks that belong to no node.
func (i *importer) named(node string, at place, words []string) (unknown []string) {
	for n, word := range words {
		words[n] = addressIn.ReplaceAllStringFunc(word, func(found string) string {
			address, _, isPrefix := strings.Cut(found, "/")
			addr, err := netip.ParseAddr(address)
			if err != nil {
				return found
			}
			owner, inLab := "", false
			for _, a := range i.addresses {
				if a.node == node && !i.isNIC(node, a.nic) && a.prefix.Addr() == addr {
					return found // the node has it
				}
				inLab = inLab || a.prefix.Contains(addr)
				if a.prefix.Addr() == addr {
					owner = i.names.given[a.node]
				}
			}
			switch {
			case inLab && owner != "" && !isPrefix:
				i.gather(renamed, i.problem(at), "%s: %s is %s", node, found, owner)
				return owner
			case inLab && !slices.Contains(unknown, address):
				unknown = append(unknown, address)
			}
			return found
		})
	}
	return unknown
}

// tryAddress adds a step that fails unless an address of the lab leads somewhere. The command after
// it needs the address, and could pass without it.
func (i *importer) tryAddress(node string, at place, command, address string) {
	i.add(at, "write the name of a node or router there, and remove the step that tries the address",
		"%q needs address %s, which leads nowhere here: a step tries it first, and fails", command, address)
	i.testbed.Steps = append(i.testbed.Steps, spec.Step{Exec: &spec.Exec{
		Name: fmt.Sprintf("address-%d", len(i.testbed.Steps)+1), Nodes: []string{i.names.given[node]},
		Command: []string{"ping", "-c1", "-W2", address}}})
}
