package plan

import (
	"fmt"

	"railbed/plan/spec"
)

// checkLinkSteps reports link steps that would be refused during the run, because their settings
// contradict other settings of the link. If several steps change a link, the result depends on
// their times, and only the run checks it.
func (c *compiler) checkLinkSteps() {
	for i := range c.plan.Links {
		l := &c.plan.Links[i]
		only, set := -1, 0
		for j, step := range c.t.Steps {
			if step.Link == nil || step.Link.Set == nil {
				continue
			}
			if name, _ := step.Link.Target(); spec.Match(name, l.Name) {
				only, set = j, set+1
			}
		}
		if set == 1 {
			c.checkLinkStep(l, only)
		}
	}
}

// checkLinkStep does as checkLinkSteps for a single step that changes a link.
func (c *compiler) checkLinkStep(l *Link, number int) {
	step := c.t.Steps[number].Link
	_, direction := step.Target()
	for _, side := range []struct {
		name string
		d    Direction
	}{{AToB, l.AToB}, {BToA, l.BToA}} {
		if direction != "" && direction != side.name || side.d.Check(l.MTU) != nil {
			continue
		}
		for _, found := range side.d.Change(l.MTU, *step.Set).Conflicts(l.MTU) {
			path := fmt.Sprintf("steps[%d].link.set", number)
			if found.Given(*step.Set) {
				path += "." + found.Key
			}
			c.once(path, found.Want, "%s on %s", found.What, l.Name)
		}
	}
}
