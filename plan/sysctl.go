package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"railbed/plan/spec"
)

// RefusedSysctl reports a sysctl of a file that contradicts the plan of a node with these NICs, and says
// what would be right. It returns "" for any other sysctl: only the kernel knows its values. Names have
// dots.
func RefusedSysctl(nics []string, name, value string) (what, want string) {
	parts := strings.Split(name, ".")
	if len(parts) != 5 || parts[0] != "net" || parts[2] != "conf" && parts[2] != "neigh" {
		return "", ""
	}
	at, key := parts[3], parts[4]
	own := slices.Concat(nics, []string{"all", "default", "lo"})
	switch {
	case !slices.Contains(own, at):
		return fmt.Sprintf("the node has no interface %s", at), "want " + strings.Join(own, ", ")
	case parts[1] == "ipv6" && key == "disable_ipv6" && number(value) != "0":
		return "the plan gives every interface of the node IPv6 addresses, which this sysctl forbids",
			"remove it: programs can use IPv4 alone"
	case parts[1] == "ipv6" && key == "addr_gen_mode" && at != "lo" && number(value) != "1":
		return "with this sysctl the kernel adds link-local addresses to the plan's", "want 1, or remove it"
	case parts[1] == "ipv4" && at == "all" && len(nics) > 1 &&
		(key == "arp_ignore" && number(value) == "0" || key == "arp_announce" && number(value) != "2"):
		return fmt.Sprintf("with this sysctl each of the node's %d NICs answers for the addresses of the "+
			"others", len(nics)), "remove it: nodes have arp_ignore 1 and arp_announce 2"
	}
	return "", ""
}

// number returns a value without the leading zeros that the kernel does not print.
func number(value string) string {
	value = strings.TrimSpace(value)
	if trimmed := strings.TrimLeft(value, "0"); trimmed != "" {
		return trimmed
	}
	return value[:min(len(value), 1)]
}

// checkSysctls reports sysctls that contradict the plan or each other. The file's sysctls replace
// Railbed's, where that is harmless: see fabric.
func (c *compiler) checkSysctls() {
	for i := range c.plan.Nodes {
		node := &c.plan.Nodes[i]
		var nics []string
		for _, nic := range node.NICs {
			nics = append(nics, nic.Name)
		}
		if c.t.NodeFor(node.Name).Management != nil {
			nics = append(nics, ManagementName)
		}
		for _, name := range slices.Sorted(maps.Keys(node.Sysctls)) {
			if what, want := RefusedSysctl(nics, name, node.Sysctls[name]); what != "" {
				c.once(c.sysctlAt(node.Name, name), want, "%s of %s: %s", name, node.Name, what)
			}
		}
		c.checkForwarding(node)
	}
}

// checkForwarding reports values of one setting under its two names.
func (c *compiler) checkForwarding(node *Node) {
	const short, long = "net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"
	a, b := node.Sysctls[short], node.Sysctls[long]
	if a != "" && b != "" && number(a) != number(b) {
		c.once(c.sysctlAt(node.Name, long), "want one of them", "%s of %s is %s, and %s, the same "+
			"setting, is %s",
			long, node.Name, b, short, a)
	}
}

// sysctlAt returns the path of the value that decides a sysctl of a node.
func (c *compiler) sysctlAt(node, name string) string {
	return c.nodeSetting(node, fmt.Sprintf("sysctls[%q]", name), func(n spec.Node) bool {
		return n.Sysctls[name] != ""
	})
}
