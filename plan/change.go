package plan

import (
	"fmt"

	"railbed/internal/units"
	"railbed/plan/spec"
)

// reorderFrames is how many frames overtake a reordered one by default.
const reorderFrames = 4

// defaultReorderBy is how long a reordered packet is held back where the file does
// not say it: the time of reorderFrames full frames of a link with an MTU.
func (d Direction) defaultReorderBy(mtu int) units.Duration {
	return units.Duration(d.Rate.SerialisationTime(
		reorderFrames * (units.Bytes(mtu+frameOverhead) + d.Overhead)))
}

// Change returns the direction of a link with an MTU as it is after settings are
// made on top of it, the later ones over the earlier. What they do not name stays,
// but for a ReorderBy that is the default of the rate and the overhead that the
// direction had: it is then that of the new ones, as in a file. Check says whether
// the settings go together.
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

// conflict is a setting that another one, or the link's MTU, does not allow.
type conflict struct {
	key        string
	has        func(spec.Direction) bool // whether settings have the key
	what, want string
}

// conflicts are those of a direction of a link with an MTU.
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

// Check refuses settings of a direction that do not go together, or not with the
// MTU of its link, in the words of which a file would be refused. The error is
// spec.Problems.
func (d Direction) Check(mtu int) error {
	var problems spec.Problems
	for _, found := range d.conflicts(mtu) {
		problems = append(problems, spec.Problem{What: found.what, Want: found.want})
	}
	return problems.Err()
}

// checkLinkSteps refuses link steps that would be refused in the run: what they set
// does not go together with the rest of the link. Where several steps set something
// of one link, it depends on their times, and the run says it.
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

// checkLinkStep is checkLinkSteps for the one step that sets something of a link.
func (c *compiler) checkLinkStep(l *Link, number int) {
	step := c.t.Steps[number].Link
	_, direction := step.Target()
	for _, side := range []struct {
		name string
		d    Direction
	}{{"a-to-b", l.AToB}, {"b-to-a", l.BToA}} {
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
