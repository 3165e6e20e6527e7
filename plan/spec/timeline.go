package spec

import (
	"fmt"
	"slices"

	"railbed/internal/printable"
	"railbed/internal/units"
)

// Retry repeats a command that fails. The command's logs have the output of all attempts, with a heading
// before the output of each further one.
type Retry struct {
	// Times is the maximum number of further attempts.
	Times int `yaml:"times" json:"times" jsonschema:"minimum=1,maximum=1000" unit:"attempts"`
	// Every is the time between the end of an attempt and the start of the next one. Default 1s.
	Every units.Duration `yaml:"every,omitempty" json:"every,omitzero"`
}

const defaultRetryEvery = units.Duration(1e9)

// Begins reports whether the step starts at a time, at an event or after other steps. It then does not follow
// the step before it in the file, and the steps after it follow it.
func (s *Step) Begins() bool { return s.At != nil || s.Waits() }

// Waits reports whether the step starts at an event or after other steps.
func (s *Step) Waits() bool { return s.When != "" || len(s.After) > 0 }

// timeline checks when a step starts, and how often.
func (c *checker) timeline(at string, step *Step, index int) {
	var starts []string
	for _, start := range []struct {
		key   string
		given bool
	}{{"at", step.At != nil}, {"when", step.When != ""}, {"after", len(step.After) > 0}} {
		if start.given {
			starts = append(starts, start.key)
		}
	}
	if len(starts) > 1 {
		c.ReportKey(at+"."+starts[1], fmt.Sprintf("%s has %s and %s", at, starts[0], starts[1]),
			"want one of at, when and after")
	}
	if len(step.When) > 4096 {
		c.Report(at+".when", fmt.Sprintf("an event of %d characters", len(step.When)), "want at most 4096")
	}
	for i, name := range step.After {
		if !slices.ContainsFunc(c.t.Steps[:index], func(s Step) bool {
			return name != "" && s.Traits().Name == name
		}) && !c.Broken("steps") {
			c.Report(fmt.Sprintf("%s.after[%d]", at, i), fmt.Sprintf("no step above is named %q",
				printable.Clip(name)), "name an earlier step")
		}
	}
	c.repetition(at, step)
}

// repetition checks how often a step is done.
func (c *checker) repetition(at string, step *Step) {
	key, action := step.Action()
	traits := step.Traits()
	if step.Retry != nil && (step.Exec == nil || traits.Background) && action != nil {
		c.ReportKey(at+".retry", "retry of a "+key,
			"take it for exec without background: true, or remove retry:")
	}
	if step.Fails && action != nil && traits.Carriage == nil && step.Stack == nil {
		c.ReportKey(at+".fails", "fails of a "+key,
			"take it for workload, training, messages or stack, or remove fails:; exec has expect:")
	}
	if step.Every == 0 {
		for _, key := range []struct {
			name  string
			given bool
		}{{"times", step.Times != 0}, {"until", step.Until != 0}} {
			if key.given && !c.Known(at+".every") {
				c.ReportKey(at+"."+key.name, key.name+" without every",
					"add every: with the time between two starts")
			}
		}
		c.positive(at+".every", uint64(step.Every), "every is 0", "want a duration such as 100ms")
		return
	}
	var lasts *units.Duration
	switch {
	case action == nil:
		return
	case step.Link != nil:
		lasts = &step.Link.For
	case step.Fault != nil:
		lasts = &step.Fault.For
	case step.Exec == nil || traits.Background:
		c.ReportKey(at+".every", "every of a "+key,
			"take it for link, fault, or exec without background: true")
	}
	if step.Times != 0 && step.Until != 0 {
		c.ReportKey(at+".until", at+" has times and until", "want at most one of them")
	}
	if lasts != nil && (*lasts == 0 || *lasts >= step.Every) {
		c.ReportKey(at+".every", fmt.Sprintf("every is %s, and for is %s", step.Every, *lasts),
			"want a for: that is shorter than every:")
	}
}
