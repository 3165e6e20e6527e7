package runner

import (
	"fmt"
	"slices"

	"railbed/plan"
	"railbed/plan/spec"
)

// stepRequirements returns the features of the host that steps need beside the plan's own.
func stepRequirements(file *spec.Testbed, p *plan.Plan) []plan.Requirement {
	if p.Soft() {
		return bypassRequirement(file, p)
	}
	return netemRequirements(file)
}

// netemRequirements returns the requirements of link changes at kernel switches.
func netemRequirements(file *spec.Testbed) []plan.Requirement {
	var needs []plan.Requirement
	for i, step := range file.Steps {
		if step.Link != nil && step.Link.Set != nil && (plan.Direction{}).With(*step.Link.Set).NeedsNetem() {
			needs = append(needs, plan.Requirement{
				Feature: plan.Netem, Reason: "delay, loss or the like on " + step.Link.Where,
				Where: file.Source.Pos(fmt.Sprintf("steps[%d].link.set", i)).String(),
			})
		}
	}
	return needs
}

// bypassRequirement returns the requirement of the first step whose ranks bypass their kernels by default.
// Nodes with nic-path: bypass have the requirement in the plan.
func bypassRequirement(file *spec.Testbed, p *plan.Plan) []plan.Requirement {
	required := func(r plan.Requirement) bool { return r.Feature == plan.KernelBypass }
	if slices.ContainsFunc(p.Requires, required) {
		return nil
	}
	for i := range file.Steps {
		traits := file.Steps[i].Traits()
		if traits.Carriage == nil || !slices.Contains(spec.Bypassing, traits.Transport) {
			continue
		}
		for _, rank := range p.RanksOf(traits.Carriage.Ranks) {
			if rank.Bypass {
				key, _ := file.Steps[i].Action()
				return []plan.Requirement{{
					Feature: plan.KernelBypass,
					Reason:  fmt.Sprintf("%s in %s passes by the kernel", traits.Transport, rank.Node),
					Where:   file.Source.Pos(fmt.Sprintf("steps[%d].%s", i, key)).String(),
				}}
			}
		}
	}
	return nil
}
