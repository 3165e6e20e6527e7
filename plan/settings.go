package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
)

const (
	// frameOverhead is the length of a frame beyond its MTU: the Ethernet header.
	frameOverhead = 14
	// maxQueueTime bounds the default queue of a slow link, which would otherwise hold seconds of
	// traffic. minQueueFrames keeps the queue large enough for bursts.
	maxQueueTime   = 100 * time.Millisecond
	minQueueFrames = 16
)

// direction returns the plan's direction of the wire from one end to the other, with all values
// set.
func (c *compiler) direction(d spec.Direction, mtu int, from, to endpoint) Direction {
	sw := to.index
	if from.isSwitch {
		sw = from.index
	}
	soft := c.settings[sw].Kind == spec.Soft
	made := Direction{}.With(d)
	if made.Queue == 0 {
		made.Queue = c.defaultQueue(d.Rate, mtu, c.settings[sw].Buffer)
		switch {
		case soft && from.isSwitch:
			// The dynamic thresholds of the switch bound the queue. A buffer smaller than a frame
			// is refused later.
			made.Queue = max(c.settings[sw].Buffer, units.Bytes(mtu+frameOverhead))
		case soft:
			node := c.t.NodeFor(c.plan.Nodes[from.index].Name)
			made.Queue = c.defaultQueue(d.Rate, mtu, node.NICQueue)
		}
	}
	if soft {
		made.JitterKind = cmp.Or(made.JitterKind, spec.Uniform)
		made.ReorderBy = cmp.Or(made.ReorderBy, made.DefaultReorderBy(mtu))
	}
	return made
}

// defaultQueue returns the default size of the drop-tail queue in front of a link: the buffer, or
// less if sending the buffer takes too long.
func (c *compiler) defaultQueue(rate units.Rate, mtu int, buffer units.Bytes) units.Bytes {
	inTime := units.Bytes(rate.BytesPerSecond() / uint64(time.Second/maxQueueTime))
	return max(min(buffer, inTime), minQueueFrames*units.Bytes(mtu+frameOverhead))
}

// checkDirections checks settings of a link that depend on each other and may come from different
// entries.
func (c *compiler) checkDirections(l Link) {
	for _, side := range []struct {
		name string
		d    Direction
	}{{AToB, l.AToB}, {BToA, l.BToA}} {
		for _, found := range side.d.Conflicts(l.MTU) {
			c.wrong(c.linkSetting(l, side.name, found.LinkSetting), found.Want, "%s", found.What)
		}
	}
}

// linkSetting returns the path of the value that decides a setting of one direction of a link. It is
// the value in the last entry, in order of precedence, that has the setting.
func (c *compiler) linkSetting(l Link, side string, s *spec.LinkSetting) string {
	return c.linkEntry(l, func(path string, entry spec.Link) string {
		own := entry.AToB
		if side == BToA {
			own = entry.BToA
		}
		switch {
		case own != nil && s.Given(*own):
			return path + "." + side + "." + s.Key
		case s.Given(entry.Direction):
			return path + "." + s.Key
		}
		return ""
	})
}

// linkMTU returns the path of the value that decides a link's MTU.
func (c *compiler) linkMTU(l Link) string {
	return c.linkEntry(l, func(path string, entry spec.Link) string {
		if entry.MTU != 0 {
			return path + ".mtu"
		}
		return ""
	})
}

// linkEntry calls pick with the entries that apply to a link, the most specific first, until it
// returns a path. If no call does, it returns the path of all links.
func (c *compiler) linkEntry(l Link, pick func(path string, entry spec.Link) string) string {
	keys := precedence(c.t.Fabric.Links, l.Name, l.Class)
	for _, key := range slices.Backward(keys) {
		entry, _ := c.t.Fabric.Links.Get(key)
		if path := pick(fmt.Sprintf("fabric.links[%q]", key), entry); path != "" {
			return path
		}
	}
	return "fabric.links"
}

// nodeSetting returns the path of the value that decides a field of a node.
func (c *compiler) nodeSetting(name, field string, has func(spec.Node) bool) string {
	for _, key := range slices.Backward(precedence(c.t.Nodes, name, "")) {
		if entry, _ := c.t.Nodes.Get(key); has(entry) {
			return fmt.Sprintf("nodes[%q].%s", key, field)
		}
	}
	return "nodes"
}

// switchKind returns the path of the value that decides a switch's kind.
func (c *compiler) switchKind(name string) string {
	return c.switchSetting(name, "kind", func(s spec.Switch) bool { return s.Kind != "" })
}

// switchSetting returns the path of the value that decides a setting of a switch. It is the value
// in the last entry, in order of precedence, that has the setting.
func (c *compiler) switchSetting(name, field string, has func(spec.Switch) bool) string {
	for _, key := range slices.Backward(precedence(c.t.Fabric.Switches, name, "")) {
		if entry, _ := c.t.Fabric.Switches.Get(key); has(entry) {
			return fmt.Sprintf("fabric.switches[%q].%s", key, field)
		}
	}
	return "fabric.switch." + field
}

// precedence returns the keys that apply to a name, from the least to the most specific, in the
// order in which package spec merges them.
func precedence[T any](entries spec.Ordered[T], name, class string) []string {
	var keys, globs []string
	for _, key := range []string{spec.DefaultKey, class} {
		if _, found := entries.Get(key); found && key != "" {
			keys = append(keys, key)
		}
	}
	exact := false
	for _, entry := range entries {
		switch {
		case spec.IsGlob(entry.Key) && spec.Match(entry.Key, name):
			globs = append(globs, entry.Key)
		case entry.Key == name && name != class && name != spec.DefaultKey:
			exact = true
		}
	}
	keys = append(keys, globs...)
	if exact {
		keys = append(keys, name)
	}
	return keys
}

// checkOverrides reports keys that match nothing. A misspelt override would otherwise have no
// effect and no message.
func (c *compiler) checkOverrides() {
	f := &c.t.Fabric
	w := c.words()
	report := func(kind, path string, unmatched, names []string) {
		for _, key := range unmatched {
			c.wrongKey(fmt.Sprintf("%s[%q]", path, key), wantName(key, kind, names), "%q is no %s", key, kind)
		}
	}
	report("node", "nodes", c.t.Nodes.Unmatched(w.nodes...), w.nodes)
	report("switch", "fabric.switches", f.Switches.Unmatched(w.switches...), w.switches)
	report("link", "fabric.links",
		f.Links.Unmatched(append([]string{spec.HostLink, spec.FabricLink}, w.links...)...), w.links)
}

// addRanks numbers the ranks, by node and then by rank of the node.
func (c *compiler) addRanks() {
	for i := range c.plan.Nodes {
		node := &c.plan.Nodes[i]
		if node.Runtime == spec.CNI {
			continue // the container runtime starts its programs
		}
		for r := range c.t.NodeFor(node.Name).Ranks {
			home := c.homeOf(i, r)
			home.Rank = len(c.plan.Ranks)
			c.plan.Ranks = append(c.plan.Ranks, home)
		}
	}
}
