package evidence

import (
	"fmt"

	"railbed/internal/plural"
	"railbed/plan/spec"
)

// LostBefore returns the number of packets that left a program and were lost before the tap of their NIC, and
// why: DroppedBefore and WithoutCarrier.
func (c *Capture) LostBefore(nic *Tap) (packets uint64, reasons []string) {
	packets, reasons = c.DroppedBefore(nic)
	if n, why := c.WithoutCarrier(nic.Node + ":" + nic.Port); n > 0 {
		packets, reasons = packets+n, append(reasons, why)
	}
	return packets, reasons
}

// WithoutCarrier returns the number of packets that the kernel of a node could not pass to a NIC, because
// the NIC's link was down, and what happened. No tap sees these packets, so their flows and times are not
// known.
func (c *Capture) WithoutCarrier(nic string) (packets uint64, what string) {
	packets = c.Lost[nic]
	return packets, plural.Text(nic+" lost %d packets: the other end of its link was down or took no "+
		"packets of that size", packets)
}

// NeverSeen names the packets of a node that were lost before the tap of a NIC, because the NIC's link was
// down or loses packets. Packets for which the queue of the NIC had no room are not among them.
func (c *Capture) NeverSeen(nic string) (lines []string) {
	if n, why := c.WithoutCarrier(nic); n > 0 {
		lines = append(lines, why)
	}
	node, port := spec.SplitPort(nic)
	end, is := c.Interface(node, port)
	if !is || c.Plan.Soft() || c.QueueDrops[nic] == 0 {
		return lines
	}
	if sends := c.Plan.Sends(node, port); c.interrupted != nil && c.interrupted(end.Link) ||
		sends != nil && !sends.Loss.IsZero() {
		lines = append(lines, plural.Text(nic+" lost %d packets: its link was down, loses packets or had no "+
			"room for them", c.QueueDrops[nic]))
	}
	return lines
}

// DroppedBefore returns the packets that the queue of a NIC, the loss of a kernel link and faults on kernel
// links dropped before the tap of the NIC, and why.
func (c *Capture) DroppedBefore(nic *Tap) (packets uint64, reasons []string) {
	at := nic.Node + ":" + nic.Port
	if n := c.QueueDrops[at]; n > 0 {
		packets += n
		reasons = append(reasons, plural.Text("the kernel of %s dropped %d packets before the tap of %s: %s",
			nic.Node, n, at, c.narrow(nic)))
	}
	// A fault at an emulated NIC acts behind the tap.
	if n := c.Harm[at].Dropped; n > 0 && (c.Plan == nil || !c.Plan.Soft()) {
		packets += n
		reasons = append(reasons, plural.Text("faults dropped %d packets before the tap of %s", n, at))
	}
	return packets, reasons
}

// UnknownSenders returns a reason why groups of packets may be unknown of which nothing arrived: the capture
// lacks NICs of senders, or a part of the selected time at them.
func (c *Capture) UnknownSenders(nics []string, t *Times) []string {
	var lacking []string
	for _, name := range nics {
		tap := c.TapNamed(name)
		if tap == nil || len(c.unrecorded([]*Tap{tap}, Need{times: t})) > 0 {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return []string{plural.Text("not recorded: %d NICs of senders, such as %s; what they sent in vain "+
		"is not known", len(lacking), lacking[0])}
}

// narrow names what drops the packets that a node's kernel does not pass to a NIC, and the remedy.
func (c *Capture) narrow(nic *Tap) string {
	if c.Plan == nil {
		return "the queue of its link"
	}
	node, sends, link := c.Plan.Node(nic.Node), c.Plan.Sends(nic.Node, nic.Port), ""
	if port, _ := c.Interface(nic.Node, nic.Port); port != nil {
		link = port.Link
	}
	switch {
	case node == nil || sends == nil:
		return "the queue of its link"
	case c.Plan.Soft() && sends.Queue >= node.NICQueue:
		return fmt.Sprintf("nic-queue; raise nodes.%s.nic-queue, which is %v", nic.Node, node.NICQueue)
	case !c.Plan.Soft() && !sends.Loss.IsZero():
		return fmt.Sprintf("the queue and the loss of link %s", link)
	}
	return fmt.Sprintf("the queue of link %s; raise its queue, which is %v", link, sends.Queue)
}
