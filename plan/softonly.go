package plan

import (
	"fmt"
	"slices"

	"railbed/plan/spec"
)

// setting is a key and a test whether an entry of the file has it.
type setting[T any] struct {
	key string
	has func(T) bool
}

// softSwitchOnly lists the settings that only soft switches have.
var softSwitchOnly = []setting[spec.Switch]{
	{"forwarding", func(s spec.Switch) bool { return s.Forwarding != "" }},
	{"load-balance", func(s spec.Switch) bool { return s.LoadBalance != "" }},
	{"flowlet-gap", func(s spec.Switch) bool { return s.FlowletGap != 0 }},
	{"alpha", func(s spec.Switch) bool { return !s.Alpha.IsZero() }},
	{"scheduler", func(s spec.Switch) bool { return s.Scheduler != nil }},
	{"priorities", func(s spec.Switch) bool { return len(s.Priorities) > 0 }},
	{"ecn", func(s spec.Switch) bool { return s.ECN != nil }},
	{"trim", func(s spec.Switch) bool { return s.Trim != nil }},
	{"pfc", func(s spec.Switch) bool { return s.PFC != nil }},
	{"gfc", func(s spec.Switch) bool { return s.GFC != nil }},
	{"int", func(s spec.Switch) bool { return s.INT != nil }},
	{"aggregation", func(s spec.Switch) bool { return s.Aggregation != nil }},
}

// checkSoftOnly reports settings that the kernel's switches do not support, and weights in fabrics
// without routing.
func (c *compiler) checkSoftOnly() {
	c.checkWeights()
	if c.plan.Dilation > 1 && !c.plan.Soft() {
		c.once("dilation", "use soft switches (kind: soft), or take dilation: 1, divide the links' "+
			"rates by this factor and multiply their delays by it",
			"dilation is %d, and the kernel's links and switches keep real time", c.plan.Dilation)
	}
	if c.plan.Soft() || len(c.plan.Switches) == 0 {
		return
	}
	for i := range c.plan.Switches {
		sw := &c.plan.Switches[i]
		for _, f := range softSwitchOnly {
			if f.has(c.settings[i]) {
				c.softOnly(c.switchSetting(sw.Name, f.key, f.has), f.key, "switches")
			}
		}
	}
	c.checkSoftLinks()
	for i, step := range c.t.Steps {
		if step.Link == nil || step.Link.Set == nil {
			continue
		}
		for _, s := range spec.LinkSettings {
			if s.By == spec.SoftSwitch && s.Given(*step.Link.Set) {
				c.softOnly(fmt.Sprintf("steps[%d].link.set.%s", i, s.Key), s.Key, "links")
			}
		}
	}
	if c.t.Fabric.Memory != 0 {
		c.softOnly("fabric.memory", "memory", "fabrics")
	}
	for _, entry := range c.t.Nodes {
		if entry.Value.NICQueue != 0 {
			c.softOnly(fmt.Sprintf("nodes[%q].nic-queue", entry.Key), "nic-queue", "NICs")
		}
		if entry.Value.NICMirror != nil && *entry.Value.NICMirror {
			c.softOnly(fmt.Sprintf("nodes[%q].nic-mirror", entry.Key), "nic-mirror", "NICs")
		}
		if entry.Value.NICPath == spec.Bypass {
			c.softOnly(fmt.Sprintf("nodes[%q].nic-path", entry.Key), "nic-path", "NICs")
		}
	}
}

// softOnly reports a setting that only soft switches have, once.
func (c *compiler) softOnly(path, key, what string) {
	of := map[string]string{"switches": "", "links": "links of ", "NICs": "NICs at ",
		"fabrics": "fabrics of "}[what]
	first := c.plan.Switches[0]
	c.once(path, "use a soft switch (kind: soft), or remove "+key,
		"%s is only for %ssoft switches, and %s is a %s", key, of, first.Name, first.Kind)
}

// once reports a problem with the value of a path, the first time only, because one value applies
// to many switches and links.
func (c *compiler) once(path, want, what string, args ...any) {
	if c.reported == nil {
		c.reported = map[string]bool{}
	}
	if !c.reported[path] {
		c.reported[path] = true
		c.wrong(path, want, what, args...)
	}
}

// checkSoftLinks reports settings that links of the kernel's switches do not support.
func (c *compiler) checkSoftLinks() {
	var used []*spec.LinkSetting
	for _, s := range spec.LinkSettings {
		given := func(e spec.Entry[spec.Link]) bool {
			l := e.Value
			return s.Given(l.Direction) || l.AToB != nil && s.Given(*l.AToB) ||
				l.BToA != nil && s.Given(*l.BToA)
		}
		if s.By == spec.SoftSwitch && slices.ContainsFunc(c.t.Fabric.Links, given) {
			used = append(used, s)
		}
	}
	if len(used) == 0 {
		return
	}
	for i := range c.plan.Links {
		l := &c.plan.Links[i]
		settings := c.t.Fabric.LinkFor(l.Name, l.Class)
		for _, s := range used {
			if s.Given(*settings.AToB) {
				c.softOnly(c.linkSetting(*l, AToB, s), s.Key, "links")
			}
			if s.Given(*settings.BToA) {
				c.softOnly(c.linkSetting(*l, BToA, s), s.Key, "links")
			}
		}
	}
}

// checkWeights reports weights if packets have no choice of paths.
func (c *compiler) checkWeights() {
	if !c.bridged() {
		return
	}
	for i := range c.plan.Links {
		l := &c.plan.Links[i]
		if l.Weight == 0 {
			continue
		}
		c.once(c.linkWeight(*l), "want "+c.routing()+", or remove weight",
			"weight is only for equal-cost paths, and %s has none", c.plan.Switches[0].Name)
	}
}

// linkWeight returns the path of the weight of a link.
func (c *compiler) linkWeight(l Link) string {
	return c.linkEntry(l, func(path string, entry spec.Link) string {
		if entry.Weight != 0 {
			return path + ".weight"
		}
		return ""
	})
}
