package evidence

import "railbed/plan"

// Programs such as traceroute(8) send packets whose TTL ends before the packets can arrive. Each router that
// forwards a packet decrements its TTL, and drops the packet instead if the TTL was 1 (RFC 1812, 5.3.1).

// Expires reports whether a packet that leaves a node for another has a TTL with which it cannot arrive,
// whichever path it takes. Bridges do not count as routers. A packet whose TTL ends on a longer path, such as
// in a loop, does not expire in this sense.
func (c *Capture) Expires(p *Packet, of Pair) bool {
	if c.Plan == nil || p.IP == 0 || int(p.TTL) > len(c.Plan.Switches)+len(c.Plan.Nodes) {
		return false
	}
	if c.routers == nil {
		c.routers = map[string]map[string]int{}
	}
	if c.routers[of.From] == nil {
		c.routers[of.From] = routersFrom(c.Plan, of.From)
	}
	least, connected := c.routers[of.From][of.To]
	return connected && int(p.TTL) <= least
}

// routersFrom returns the least number of routers between a node and each other node and switch. Nodes may
// be routers, too.
func routersFrom(p *plan.Plan, from string) map[string]int {
	beside := map[string][]string{}
	for i := range p.Links {
		a, b := p.Links[i].A.Node, p.Links[i].B.Node
		beside[a], beside[b] = append(beside[a], b), append(beside[b], a)
	}
	least := map[string]int{from: 0}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		at, cost := next[0], least[next[0]]
		if sw := p.Switch(at); at != from && (sw == nil || !sw.Bridged()) {
			cost++
		}
		for _, to := range beside[at] {
			if known, seen := least[to]; !seen || cost < known {
				least[to] = cost
				next = append(next, to)
			}
		}
	}
	return least
}
