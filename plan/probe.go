package plan

import (
	"slices"

	"railbed/plan/spec"
)

var _ = checkStep((*compiler).checkProbe)

// checkProbe reports probes between nodes that do not exist, or without a switch that writes telemetry.
func (c *compiler) checkProbe(_ *words, path string, p *spec.Probe) {
	for _, end := range []struct{ key, name string }{{"from", p.From}, {"to", p.To}} {
		if _, _, err := c.plan.NodeOrNIC(end.name); err != nil && end.name != "" {
			c.wrong(path+"."+end.key, "", "%v", err)
		}
	}
	if !slices.ContainsFunc(c.settings, func(s spec.Switch) bool { return s.INT != nil && *s.INT }) {
		c.wrong(path, "add int: true to fabric.switch, with kind: soft",
			"no switch writes telemetry into probes")
	}
}
