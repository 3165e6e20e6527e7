package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// INTHops is the number of switches for whose telemetry a packet reserves room, if it reserves any.
// The longest path of a fat tree or of hpn has 5 switches. INTRoom is that room in bytes: the block
// of internal/wire with its standard instructions.
const (
	INTHops   = 8
	INTRoom   = intHeader + INTHops*intHop
	intHeader = 16
	intHop    = 24
)

// addSoft decides the settings of soft switches other than forwarding.
func (c *compiler) addSoft() {
	if !c.plan.Soft() {
		return
	}
	c.plan.PacketMemory = c.t.Fabric.PacketMemory()
	telemetry := false
	for i := range c.plan.Switches {
		c.addSoftSwitch(i)
		telemetry = telemetry || *c.settings[i].INT
	}
	for i := range c.plan.Nodes {
		node := &c.plan.Nodes[i]
		settings := c.t.NodeFor(node.Name)
		node.NICQueue = settings.NICQueue
		c.bypass(node, &settings)
		for n := range node.NICs {
			nic := &node.NICs[n]
			if telemetry {
				nic.INTRoom = INTRoom
			}
			if frame := units.Bytes(nic.MTU + longestHeader); node.NICQueue < frame {
				path := c.nodeSetting(node.Name, "nic-queue", func(n spec.Node) bool {
					return n.NICQueue != 0
				})
				c.once(path, fmt.Sprintf("want at least %s, one frame of mtu %d", frame, nic.MTU),
					"nic-queue is %s", node.NICQueue)
				break
			}
		}
	}
}

func (c *compiler) addSoftSwitch(i int) {
	sw, s := &c.plan.Switches[i], &c.settings[i]
	soft := &SoftSwitch{
		LoadBalance: s.LoadBalance, FlowletGap: s.FlowletGap, Buffer: s.Buffer, Alpha: s.Alpha, INT: *s.INT,
		Scheduler: scheduler(s.Scheduler),
	}
	for _, port := range sw.Ports {
		soft.Scheduler.Quantum = max(soft.Scheduler.Quantum, units.Bytes(port.MTU+longestHeader))
	}
	for dscp := range soft.Priorities {
		soft.Priorities[dscp] = uint8(s.PriorityOf(dscp))
	}
	if e := s.ECN; e != nil {
		soft.ECN = &ECN{Kind: e.Kind, Priorities: sortedSet(e.Priorities)}
		if e.Kind == spec.RED {
			soft.ECN.KMin, soft.ECN.KMax, soft.ECN.PMax = e.KMin, e.KMax, e.PMax
		} else {
			soft.ECN.Target, soft.ECN.PersistentTarget, soft.ECN.Interval = e.Target, e.PersistentTarget,
				e.Interval
		}
	}
	if t := s.Trim; t != nil {
		soft.Trim = &Trim{Size: t.Size, DSCP: uint8(*t.DSCP), Queue: *t.Queue,
			Priorities: sortedSet(t.Priorities)}
	}
	if p := s.PFC; p != nil {
		soft.PFC = &PFC{Priorities: sortedSet(p.Priorities), Quanta: uint16(p.Quanta)}
	}
	if g := s.GFC; g != nil {
		soft.GFC = &GFC{Kind: g.Kind, Priorities: sortedSet(g.Priorities)}
	}
	if a := s.Aggregation; a != nil {
		soft.Aggregation = &Aggregation{Slots: a.Slots, Elements: a.Elements, Timeout: a.Timeout}
	}
	sw.Soft = soft
	before := len(c.problems)
	c.checkSoftSwitch(sw, s)
	if len(c.problems) == before {
		c.divideBuffer(i)
	}
}

// scheduler returns the scheduler with the weights of the queues that are not strict.
func scheduler(s *spec.Scheduler) Scheduler {
	made := Scheduler{Strict: slices.Clone(s.Strict)}
	for q := range made.Weights {
		if slices.Contains(s.Strict, q) {
			continue
		}
		made.Weights[q] = 1
		if weight, found := s.Weights.Get(strconv.Itoa(q)); found {
			made.Weights[q] = weight
		}
	}
	return made
}

// toNode reports whether a switch's port is linked to a node.
func (c *compiler) toNode(port *Interface) bool {
	name, _, _ := strings.Cut(port.Peer, ":")
	_, isNode := c.nodeAt[name]
	return isNode
}

// divideBuffer sets the thresholds of a switch's ports and the parts of its buffer.
func (c *compiler) divideBuffer(i int) {
	sw, s := &c.plan.Switches[i], &c.settings[i]
	var links []Hop
	if s.PFC != nil || s.GFC != nil {
		links = make([]Hop, len(sw.Ports))
	}
	for p := range links {
		links[p] = c.hopOf(i, p)
	}
	var gfc []PortGFC
	if s.GFC != nil {
		gfc = sw.Soft.GFC.Ports(slices.Repeat([]PortGFC{givenGFC(s.GFC)}, len(links)), links)
	}
	marks := marksBeforePauses(sw.Soft, s, links, gfc)
	for p := range sw.Ports {
		port := &sw.Ports[p]
		if s.PFC != nil {
			port.PFC = portPFC(links[p], s.PFC, marks[p])
			sw.Soft.Reserved += units.Bytes(len(sw.Soft.PFC.Priorities)) * (port.PFC.XOff + port.PFC.Headroom)
			c.checkPFC(sw, port)
		}
		if s.GFC != nil {
			port.GFC = &gfc[p]
			sw.Soft.Reserved += units.Bytes(len(sw.Soft.GFC.Priorities)) * port.GFC.Limit
			c.checkGFC(sw, port)
		}
	}
	least := sw.Soft.Reserved + sw.Soft.Scheduler.Quantum
	if sw.Soft.Buffer < least {
		path := c.switchSetting(sw.Name, "buffer", func(s spec.Switch) bool { return s.Buffer != 0 })
		what := fmt.Sprintf("buffer of %s is %s", sw.Name, sw.Soft.Buffer)
		if sw.Soft.Reserved > 0 {
			what += fmt.Sprintf(", and its lossless priorities need %s", sw.Soft.Reserved)
		}
		c.once(path, fmt.Sprintf("want at least %s, which leaves room for one frame", least), "%s", what)
		return
	}
	sw.Soft.Shared = sw.Soft.Buffer - sw.Soft.Reserved
}

// marksBeforePauses returns for each port the length of a queue that ECN marks before PFC pauses the
// port's peer. It is the length above which ECN marks every packet, or less where the buffer is small.
// The smallest thresholds leave a part of the buffer. Larger thresholds take at most half of it, in equal
// parts. The length is 0 if no priority has both, or the file gives xoff.
func marksBeforePauses(soft *SoftSwitch, s *spec.Switch, links []Hop, gfc []PortGFC) []units.Bytes {
	marks := make([]units.Bytes, len(links))
	both := func(q int) bool { return soft.ECN != nil && slices.Contains(soft.ECN.Priorities, q) }
	if s.PFC == nil || s.PFC.XOff != nil || !slices.ContainsFunc(soft.PFC.Priorities, both) {
		return marks
	}
	priorities := units.Bytes(len(soft.PFC.Priorities))
	least := make([]units.Bytes, len(links))
	needed, wanted := soft.Scheduler.Quantum, units.Bytes(0)
	for p, link := range links {
		at := portPFC(link, s.PFC, 0)
		least[p] = at.XOff
		needed += priorities * (at.XOff + at.Headroom)
		_, every := soft.ECN.Lengths(link.Out.Rate)
		wanted = max(wanted, every)
	}
	for _, port := range gfc {
		needed += units.Bytes(len(soft.GFC.Priorities)) * port.Limit
	}
	if needed >= soft.Buffer {
		return marks
	}
	part := (soft.Buffer - needed) / 2 / (priorities * units.Bytes(len(links)))
	for p, link := range links {
		marks[p] = min(wanted, least[p]+part-link.frame())
	}
	return marks
}

// hopOf returns the link at a switch's port as seen by the port.
func (c *compiler) hopOf(sw, port int) Hop {
	at := c.ports[sw][port].link
	l, w := &c.plan.Links[at], c.wires[at]
	h := Hop{MTU: l.MTU, In: l.AToB, Out: l.BToA, ToNode: c.toNode(&c.plan.Switches[sw].Ports[port])}
	if w.a == (endpoint{true, sw, port}) {
		h.In, h.Out = h.Out, h.In
	}
	return h
}

// KernelBypass is the feature of the host by which programs reach NICs past the kernel.
const KernelBypass = "kernel-bypass"

// bypass sets whether programs reach a node's NICs past the kernel. By default they do where they can, except
// in a dual-ToR fabric. There a rank sends by two NICs, and only the kernel changes from one to the other.
func (c *compiler) bypass(node *Node, settings *spec.Node) {
	can := node.Runtime != spec.VM && node.Runtime != spec.CNI
	node.Bypass = settings.NICPath == spec.Bypass || settings.NICPath == "" && can && c.planes() == 1
	c.mirror(node, settings)
	if settings.NICPath != spec.Bypass {
		return // a run requires it if ranks use it, over rd, roce or in-network
	}
	at := c.nodeSetting(node.Name, "nic-path", func(n spec.Node) bool { return n.NICPath != "" })
	c.require(KernelBypass, "node "+node.Name+" has nic-path: bypass", at)
	if !can {
		c.once(at, "want runtime: netns or docker, or remove nic-path",
			"node %s has runtime: %s, and only nodes that share this host's memory can bypass their kernel",
			node.Name, node.Runtime)
	}
}

// mirror sets whether a node has interfaces that show what bypasses its kernel.
func (c *compiler) mirror(node *Node, settings *spec.Node) {
	asked := settings.NICMirror != nil && *settings.NICMirror
	if node.Mirror = asked && node.Bypass; !asked {
		return
	}
	at := c.nodeSetting(node.Name, "nic-mirror", func(n spec.Node) bool { return n.NICMirror != nil })
	if settings.NICPath == spec.KernelPath || settings.NICPath == "" && c.planes() > 1 {
		c.once(at, "want nic-path: bypass, or remove nic-mirror",
			"node %s has nic-path: kernel, so tcpdump sees all packets at its NICs", node.Name)
	}
	for i := range node.NICs {
		name := MirrorName(i)
		if slices.ContainsFunc(node.NICs, func(n Interface) bool { return n.Name == name }) {
			c.once(at, "want another name for the NIC, or remove nic-mirror",
				"node %s has a NIC %s, and nic-mirror makes an interface with this name", node.Name, name)
		}
	}
}
