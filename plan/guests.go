package plan

import (
	"cmp"
	"fmt"
	"math"
	"regexp"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// Host features that virtual machines need.
const (
	QEMU     = "qemu"
	VMKernel = "vm-kernel"
	Tap      = "tap"
)

// LeastGuestMemory is the least memory with which a virtual machine boots. DefaultGuestMemory is
// its memory if the file gives none.
const (
	LeastGuestMemory   units.Bytes = 256 << 20
	DefaultGuestMemory units.Bytes = 512 << 20
)

// Guest is a node that is a virtual machine, with its resources.
type Guest struct {
	Node       string      `json:"node"`
	Processors int         `json:"processors"`
	Memory     units.Bytes `json:"memory"`
	Modules    []string    `json:"modules,omitempty"`
}

// Guests returns all virtual machines.
func (p *Plan) Guests() (all []Guest) {
	for _, n := range p.Nodes {
		if n.Runtime == spec.VM {
			all = append(all, n.Guest())
		}
	}
	return all
}

// Guest returns the virtual machine of a node.
func (n *Node) Guest() Guest {
	return Guest{n.Name, max(1, int(math.Ceil(n.CPU))), cmp.Or(n.Memory, DefaultGuestMemory), n.Modules}
}

var moduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// checkGuest reports settings that the runtime of a node does not support, and unsupported values.
func (c *compiler) checkGuest(name string, settings spec.Node) {
	if len(settings.Modules) > 0 && settings.Runtime != spec.VM {
		path := c.nodeSetting(name, "modules", func(n spec.Node) bool { return n.Modules != nil })
		c.once(path, "add runtime: vm, or remove modules",
			"modules need a kernel of the node's own, and node %s uses the host's kernel", name)
	}
	for i, module := range settings.Modules {
		if !moduleName.MatchString(module) {
			path := c.nodeSetting(name, "modules", func(n spec.Node) bool { return n.Modules != nil })
			c.once(fmt.Sprintf("%s[%d]", path, i), "want a name such as sch_netem", "invalid module %q",
				module)
		}
	}
	if settings.Runtime == spec.VM && settings.Memory != 0 && settings.Memory < LeastGuestMemory {
		path := c.nodeSetting(name, "memory", func(n spec.Node) bool { return n.Memory != 0 })
		c.once(path, fmt.Sprintf("want at least %s, or remove memory for the default %s", LeastGuestMemory,
			DefaultGuestMemory), "memory of %s is %s, too little for its kernel to boot", name,
			settings.Memory)
	}
}

// requireGuests adds the requirements of virtual machines, at the first of them.
func (c *compiler) requireGuests() {
	for i := range c.plan.Nodes {
		n := &c.plan.Nodes[i]
		if n.Runtime != spec.VM {
			continue
		}
		path := c.nodeSetting(n.Name, "runtime", func(n spec.Node) bool { return n.Runtime != "" })
		for _, feature := range []string{QEMU, VMKernel, Tap} {
			c.require(feature, "node "+n.Name+" is a virtual machine", path)
		}
		return
	}
}
