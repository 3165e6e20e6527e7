package plan

import (
	"slices"

	"railbed/plan/spec"
)

// checkProbe reports probes between nodes that do not exist, or without a switch that writes telemetry.
func (c *compiler) checkProbe(w *words, path string, p *spec.Probe) {
	w.name(path+".from", p.From, "node", w.nodes)
	w.name(path+".to", p.To, "node", w.nodes)
	if !slices.ContainsFunc(c.settings, func(s spec.Switch) bool { return s.INT != nil && *s.INT }) {
		c.wrong(path, "add int: true to fabric.switch, with kind: soft",
			"no switch writes telemetry into probes")
	}
}
