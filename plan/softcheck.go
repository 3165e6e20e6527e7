package plan

import (
	"cmp"
	"fmt"
	"slices"

	"railbed/plan/spec"
)

// SwitchSetting returns the path of a setting within a block of a switch's settings, in the most
// specific entry of the file that has it. Without such an entry it returns the path of the block.
func SwitchSetting(t *spec.Testbed, sw, block, key string, has func(spec.Switch) bool) string {
	found := ""
	switchEntries(t, sw, func(path string, s spec.Switch) {
		path += "." + block
		switch {
		case has(s):
			found = path + "." + key
		case found == "" || found == path:
			if t.Source.Has(path) {
				found = path
			}
		}
	})
	return cmp.Or(found, "fabric.switch")
}

// part is SwitchSetting of the compiler's file.
func (c *compiler) part(sw *Switch, block, key string, has func(spec.Switch) bool) string {
	return SwitchSetting(c.t, sw.Name, block, key, has)
}

// says reports whether any entry of a switch has a setting.
func (c *compiler) says(sw *Switch, has func(spec.Switch) bool) bool {
	any := false
	switchEntries(c.t, sw.Name, func(_ string, s spec.Switch) { any = any || has(s) })
	return any
}

// switchEntries calls visit with the entries of the file for a switch, from the least to the most
// specific.
func switchEntries(t *spec.Testbed, sw string, visit func(path string, s spec.Switch)) {
	visit("fabric.switch", t.Fabric.Switch)
	for _, key := range precedence(t.Fabric.Switches, sw, "") {
		entry, _ := t.Fabric.Switches.Get(key)
		visit(fmt.Sprintf("fabric.switches[%q]", key), entry)
	}
}

// checkSoftSwitch reports settings that contradict each other. They may come from different
// entries, so it checks the merged settings.
func (c *compiler) checkSoftSwitch(sw *Switch, s *spec.Switch) {
	soft := sw.Soft
	for _, entry := range s.Scheduler.Weights {
		if q := int(entry.Key[0] - '0'); soft.Scheduler.Weights[q] == 0 {
			path := c.part(sw, "scheduler", fmt.Sprintf("weights[%q]", entry.Key), func(s spec.Switch) bool {
				_, found := weights(s).Get(entry.Key)
				return found
			})
			c.once(path, fmt.Sprintf("remove it, or take %s out of strict", entry.Key),
				"priority %s of %s is strict and has a weight", entry.Key, sw.Name)
		}
	}
	c.checkECN(sw)
	c.checkTrim(sw)
	if soft.PFC != nil && soft.GFC != nil {
		for _, q := range soft.PFC.Priorities {
			if slices.Contains(soft.GFC.Priorities, q) {
				path := c.part(sw, "gfc", "priorities", func(s spec.Switch) bool {
					return s.GFC != nil && len(s.GFC.Priorities) > 0
				})
				c.once(path, "want other priorities for one of them, or pfc: false",
					"priority %d of %s has pfc and gfc", q, sw.Name)
				break
			}
		}
	}
	if soft.Aggregation != nil && sw.Forwarding == spec.L2 {
		path := c.switchSetting(sw.Name, "aggregation", func(s spec.Switch) bool {
			return s.Aggregation != nil
		})
		c.once(path, "want forwarding: l3, or aggregation: false",
			"aggregation needs an address of the switch, and %s forwards by l2", sw.Name)
	}
}

func weights(s spec.Switch) spec.Ordered[int] {
	if s.Scheduler == nil {
		return nil
	}
	return s.Scheduler.Weights
}

func (c *compiler) checkECN(sw *Switch) {
	e := sw.Soft.ECN
	switch {
	case e == nil:
	case e.KMin > e.KMax:
		key, has := "kmax", func(s spec.Switch) bool { return s.ECN != nil && s.ECN.KMax != 0 }
		if !c.says(sw, has) {
			key, has = "kmin", func(s spec.Switch) bool { return s.ECN != nil && s.ECN.KMin != 0 }
		}
		c.once(c.part(sw, "ecn", key, has), "want kmin at most kmax", "kmin of %s is %s and kmax %s", sw.Name,
			e.KMin, e.KMax)
	case e.PersistentTarget > e.Target:
		path := c.part(sw, "ecn", "persistent-target", func(s spec.Switch) bool {
			return s.ECN != nil && s.ECN.PersistentTarget != 0
		})
		c.once(path, "want at most the target: ecn-sharp marks every packet above it",
			"persistent-target of %s is %s and target %s", sw.Name, e.PersistentTarget, e.Target)
	case e.Kind == spec.RED && !c.says(sw, func(s spec.Switch) bool {
		return s.ECN != nil && s.ECN.Kind != ""
	}):
		// The kind is a default. Settings that this kind does not use were meant for the other
		// kind.
		for _, f := range []setting[spec.Switch]{
			{"target", func(s spec.Switch) bool { return s.ECN != nil && s.ECN.Target != 0 }},
			{"persistent-target", func(s spec.Switch) bool {
				return s.ECN != nil && s.ECN.PersistentTarget != 0
			}},
			{"interval", func(s spec.Switch) bool { return s.ECN != nil && s.ECN.Interval != 0 }},
		} {
			if c.says(sw, f.has) {
				c.once(c.part(sw, "ecn", f.key, f.has), "add kind: "+spec.ECNSharp,
					"%s is only for ecn-sharp, and ecn of %s is red", f.key, sw.Name)
			}
		}
	}
}

func (c *compiler) checkTrim(sw *Switch) {
	soft := sw.Soft
	t := soft.Trim
	if t == nil {
		return
	}
	priorities := func(s spec.Switch) bool { return s.Trim != nil && len(s.Trim.Priorities) > 0 }
	if got := int(soft.Priorities[t.DSCP]); got != t.Queue {
		key, has := "dscp", func(s spec.Switch) bool { return s.Trim != nil && s.Trim.DSCP != nil }
		if !c.says(sw, has) {
			key, has = "queue", func(s spec.Switch) bool { return s.Trim != nil && s.Trim.Queue != nil }
		}
		path := c.part(sw, "trim", key, has)
		c.once(path, fmt.Sprintf("want a dscp of priority %d, because the next switch queues by dscp",
			t.Queue),
			"trimmed packets of %s have dscp %d of priority %d, and queue: %d", sw.Name, t.DSCP, got,
			t.Queue)
	}
	if slices.Contains(t.Priorities, t.Queue) {
		c.once(c.part(sw, "trim", "priorities", priorities),
			"want other priorities",
			"priority %d of %s is trimmed and is the queue of trimmed packets", t.Queue, sw.Name)
	}
	for _, lossless := range []struct {
		name       string
		priorities []int
	}{{"pfc", soft.PFC.lossless()}, {"gfc", soft.GFC.lossless()}} {
		for _, q := range lossless.priorities {
			if slices.Contains(t.Priorities, q) {
				c.once(c.part(sw, "trim", "priorities", priorities), "want other priorities for one of them",
					"priority %d of %s is lossless by %s and trimmed", q, sw.Name, lossless.name)
			}
		}
	}
}

func (p *PFC) lossless() []int {
	if p == nil {
		return nil
	}
	return p.Priorities
}

func (g *GFC) lossless() []int {
	if g == nil {
		return nil
	}
	return g.Priorities
}

func (c *compiler) checkPFC(sw *Switch, port *Interface) {
	if p := port.PFC; p.XOn > p.XOff {
		path := c.part(sw, "pfc", "xon", func(s spec.Switch) bool { return s.PFC != nil && s.PFC.XOn != nil })
		c.once(path, "want xon at most xoff", "xon of %s:%s is %s and xoff %s", sw.Name, port.Name, p.XOn,
			p.XOff)
	}
}

func (c *compiler) checkGFC(sw *Switch, port *Interface) {
	if g := port.GFC; g.B1 >= g.BM {
		has := func(s spec.Switch) bool { return s.GFC != nil && s.GFC.BM != nil }
		key := "bm"
		if !c.says(sw, has) {
			key, has = "b1", func(s spec.Switch) bool { return s.GFC != nil && s.GFC.B1 != nil }
		}
		c.once(c.part(sw, "gfc", key, has), "want b1 below bm", "b1 of %s:%s is %s and bm %s", sw.Name,
			port.Name, g.B1, g.BM)
	}
}
