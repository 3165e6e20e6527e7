package plan

// unreachable is the distance of a switch without a path.
const unreachable = -1

// distances returns, for every switch, the number of links to the nearest target. The result is
// shared and callers must not change it.
func (c *compiler) distances(targets []int) []int {
	key := keyOf(targets)
	known, found := c.distanceTo[key]
	if !found {
		known = c.search(targets)
		c.distanceTo[key] = known
	}
	return known
}

// search is a breadth-first search over switches. Nodes never forward.
func (c *compiler) search(targets []int) []int {
	distance := make([]int, len(c.ports))
	for i := range distance {
		distance[i] = unreachable
	}
	queue := make([]int, 0, len(c.ports))
	for _, t := range targets {
		if distance[t] != 0 {
			distance[t] = 0
			queue = append(queue, t)
		}
	}
	for at := 0; at < len(queue) && len(queue) < len(distance); at++ {
		from := queue[at]
		for _, p := range c.ports[from] {
			if p.peer.isSwitch && distance[p.peer.index] == unreachable {
				distance[p.peer.index] = distance[from] + 1
				queue = append(queue, p.peer.index)
			}
		}
	}
	return distance
}

// towards returns the ports of a switch at which a shortest path starts.
func (c *compiler) towards(sw int, distance []int) []int { return c.appendTowards(nil, sw, distance) }

// appendTowards does as towards, but appends to ports.
func (c *compiler) appendTowards(ports []int, sw int, distance []int) []int {
	for i, p := range c.ports[sw] {
		if p.peer.isSwitch && distance[sw] > 0 && distance[p.peer.index] == distance[sw]-1 {
			ports = append(ports, i)
		}
	}
	return ports
}

// components numbers the connected parts of the fabric. Switches of one part have the same number.
// Parts are numbered in the order of their first switch.
func (c *compiler) components() []int {
	part := make([]int, len(c.ports))
	for i := range part {
		part[i] = -1
	}
	next := 0
	for i := range part {
		if part[i] >= 0 {
			continue
		}
		for sw, d := range c.distances([]int{i}) {
			if d != unreachable {
				part[sw] = next
			}
		}
		next++
	}
	return part
}

// group is a set of nodes that connect to the same switches. A distant switch reaches all of them
// by the same paths, so one route is enough.
type group struct {
	switches []int // ascending
	nodes    []int
}

// groups returns the groups in the order of their first node.
func (c *compiler) groups() []group {
	at := map[string]int{}
	var groups []group
	for node, attached := range c.attached {
		set := sortedSet(attached)
		key := keyOf(set)
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, group{switches: set})
		}
		groups[i].nodes = append(groups[i].nodes, node)
	}
	return groups
}
