package plan

import (
	"fmt"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// reorderFrames is the default number of frames that overtake a reordered frame.
const reorderFrames = 4

// defaultReorderBy returns the default time by which a reordered packet is held back: the time of
// reorderFrames full frames of a link with the given MTU.
func (d Direction) defaultReorderBy(mtu int) units.Duration {
	return units.Duration(d.Rate.SerialisationTime(
		reorderFrames * (units.Bytes(mtu+frameOverhead) + d.Overhead)))
}

// Change returns the direction of a link with the given MTU after settings are applied to it. Later
// settings override earlier ones. Settings that they do not name stay. The exception is a ReorderBy
// that is the default for the rate and the overhead: it becomes the default for the new rate and
// overhead, as in a file. Check reports settings that contradict each other.
func (d Direction) Change(mtu int, sets ...spec.Direction) Direction {
	made, byDefault := d, d.ReorderBy != 0 && d.ReorderBy == d.defaultReorderBy(mtu)
	for _, set := range sets {
		made = made.With(set)
		byDefault = byDefault && set.ReorderBy == 0
	}
	if byDefault {
		made.ReorderBy = made.defaultReorderBy(mtu)
	}
	return made
}

// conflict is a setting that another setting, or the link's MTU, does not allow.
type conflict struct {
	key        string
	has        func(spec.Direction) bool // reports whether settings have the key
	what, want string
}

// conflicts returns the conflicts of a direction of a link with the given MTU.
func (d Direction) conflicts(mtu int) (found []conflict) {
	if frame := units.Bytes(mtu + frameOverhead); d.Queue < frame {
		found = append(found, conflict{
			"queue", func(d spec.Direction) bool { return d.Queue != 0 },
			fmt.Sprintf("queue is %s", d.Queue),
			fmt.Sprintf("want at least %s, one frame of mtu %d", frame, mtu),
		})
	}
	if d.Jitter > d.Delay && d.JitterKind != spec.Exponential {
		found = append(found, conflict{
			"jitter", func(d spec.Direction) bool { return d.Jitter != 0 },
			fmt.Sprintf("jitter is %s and delay %s", d.Jitter, d.Delay),
			"want a delay at least as long as the jitter: no packet arrives before it was sent",
		})
	}
	return found
}

// Check reports settings of a direction that contradict each other or the MTU of its link. It uses
// the messages for files. The error is a spec.Problems.
func (d Direction) Check(mtu int) error {
	var problems spec.Problems
	for _, found := range d.conflicts(mtu) {
		problems = append(problems, spec.Problem{What: found.what, Want: found.want})
	}
	return problems.Err()
}

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
		for _, found := range side.d.Change(l.MTU, *step.Set).conflicts(l.MTU) {
			path := fmt.Sprintf("steps[%d].link.set", number)
			if found.has(*step.Set) {
				path += "." + found.key
			}
			c.once(path, found.want, "%s on %s", found.what, l.Name)
		}
	}
}
