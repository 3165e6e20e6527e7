package fabric

import (
	"fmt"
	"slices"

	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
)

// SoftSide is the name of the namespace that holds the far ends of NICs that are connected to soft
// switches. No node or switch can have this name.
const SoftSide = "@soft"

// Namespaces returns the names of the network namespaces that a plan needs: nodes and kernel
// switches, in the plan's order, then SoftSide if it has soft switches.
func Namespaces(p *plan.Plan) []string {
	var names []string
	for _, n := range p.Nodes {
		names = append(names, n.Name)
	}
	for _, s := range p.Switches {
		if s.Kind != spec.Soft {
			names = append(names, s.Name)
		}
	}
	if p.Soft() {
		names = append(names, SoftSide)
	}
	return names
}

// kernelSide returns the kernel's part of a plan with soft switches. It has the nodes, and one
// switch in place of all soft ones, whose ports only pass frames to the soft switches. A node's
// frames are shaped to the link's rate, which holds back the node's sockets. The soft switches do
// everything else that a link does.
func kernelSide(p *plan.Plan) *plan.Plan {
	if !p.Soft() {
		return p
	}
	soft := map[string]bool{}
	for _, s := range p.Switches {
		soft[s.Name] = s.Kind == spec.Soft
	}
	side := plan.Switch{Name: SoftSide, Kind: spec.Soft}
	kernel := *p
	kernel.Switches = slices.DeleteFunc(slices.Clone(p.Switches), func(s plan.Switch) bool {
		return soft[s.Name]
	})
	kernel.Links = nil
	for i, l := range p.Links {
		if soft[l.A.Node] && soft[l.B.Node] {
			continue
		}
		if soft[l.A.Node] || soft[l.B.Node] {
			l = hostSide(l, soft[l.A.Node], softPort(i), clock.Dilation(p.Dilation))
			side.Ports = append(side.Ports,
				plan.Interface{Name: softPort(i), MAC: softMAC(i), MTU: l.MTU, Link: l.Name})
		}
		kernel.Links = append(kernel.Links, l)
	}
	kernel.Switches = append(kernel.Switches, side)
	return &kernel
}

// softPort returns the name of the interface at the far end of the plan's i-th link.
func softPort(link int) string { return fmt.Sprintf("s%d", link) }

// softMAC returns that interface's address. No frame is sent to it. So the kernel discards the
// frames that it sees, after the soft switches have received them.
func softMAC(link int) plan.MAC {
	return plan.MAC{0x06, 0x52, 0x42, byte(link >> 16), byte(link >> 8), byte(link)}
}

// hostSide returns the kernel's part of a link between a node and a soft switch, which is A or B.
func hostSide(l plan.Link, switchIsA bool, name string, by clock.Dilation) plan.Link {
	far := plan.End{Node: SoftSide, Port: name}
	if switchIsA {
		l.A, l.AToB, l.BToA = far, plan.Direction{}, nodeSide(l.BToA, by)
	} else {
		l.B, l.BToA, l.AToB = far, plan.Direction{}, nodeSide(l.AToB, by)
	}
	return l
}

// nodeSide returns the shaping at the node, which works in real time.
func nodeSide(d plan.Direction, by clock.Dilation) plan.Direction {
	return plan.Direction{Rate: units.Rate(by.Real(uint64(d.Rate))), Queue: d.Queue}
}

// softBurst returns the burst of a node's shaper before a soft switch. The emulated NIC after it
// keeps the rate to the bit. So the burst only has to be large enough for a host that wakes up
// late, and small enough for the NIC's queue. It is half a millisecond, and at least four frames.
func softBurst(s shape) units.Bytes {
	const frames, ethernet = 4, 14
	return max(units.Bytes(frames*(s.mtu+ethernet)), units.Bytes(s.rate/8/2000))
}
