package spec

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"railbed/internal/units"
)

// Action is the action of a step: *Capture, *Workload, *Training, *Messages, *Traffic, *Probe,
// *Stack, *Exec, *LinkChange, *Fault, Wait or Sleep. Each type has its check and its defaults beside it.
type Action interface {
	// Traits returns the properties that several kinds of steps have.
	Traits() Traits
	setDefaults()
	// check finds problems of the action at a path, in step number index.
	check(c *checker, at string, index int)
}

// Traits are the properties of a step that do not depend on its kind. The zero value is a step
// without any of them.
type Traits struct {
	// Name is the name by which checks, waits and logs refer to the step, or "".
	Name string
	// Background is set if the next step does not wait for this one. Serves is set if, besides that,
	// the run ends the step when all others have ended, unless a step waits for its end.
	Background, Serves bool
	// Timeout is the maximum duration, in the testbed's time. 0 means that the step has none in the file.
	Timeout units.Duration
	// Transport and Carriage are set if ranks send over a transport. Checks of workloads refer to
	// such steps.
	Transport string
	Carriage  *Carriage
	// Programs is set if the step runs programs, which can send any packets.
	Programs bool
}

// Wait is the action of a step that waits for background steps, by their names.
type Wait []string

// Sleep is the action of a step that waits for time to pass.
type Sleep units.Duration

// actions has a row for each key of a step: its action, or nil if the step lacks the key.
var actions = []struct {
	key string
	of  func(*Step) Action
}{
	{"capture", func(s *Step) Action { return there(s.Capture) }},
	{"workload", func(s *Step) Action { return there(s.Workload) }},
	{"training", func(s *Step) Action { return there(s.Training) }},
	{"messages", func(s *Step) Action { return there(s.Messages) }},
	{"traffic", func(s *Step) Action { return there(s.Traffic) }},
	{"probe", func(s *Step) Action { return there(s.Probe) }},
	{"stack", func(s *Step) Action { return there(s.Stack) }},
	{"exec", func(s *Step) Action { return there(s.Exec) }},
	{"link", func(s *Step) Action { return there(s.Link) }},
	{"fault", func(s *Step) Action { return there(s.Fault) }},
	{"wait", func(s *Step) Action {
		if s.Wait == nil {
			return nil
		}
		return Wait(s.Wait)
	}},
	{"sleep", func(s *Step) Action {
		if s.Sleep == nil {
			return nil
		}
		return Sleep(*s.Sleep)
	}},
}

// sending are the keys of steps that send packets that checks are about. Commands do not count, because they
// may do anything.
var sending = []string{"workload", "training", "messages", "traffic", "stack"}

// Sends reports whether a step with a key sends packets that checks are about.
func Sends(key string) bool { return slices.Contains(sending, key) }

// stepKeys returns the keys of a step, of which it has exactly one.
func stepKeys() (keys []string) {
	for _, row := range actions {
		keys = append(keys, row.key)
	}
	return keys
}

// there returns nil for an action that is a nil pointer.
func there(a Action) Action {
	if reflect.ValueOf(a).IsNil() {
		return nil
	}
	return a
}

// Action returns a step's action and the action's key. A step of a file that was decoded without
// problems has exactly one action.
func (s *Step) Action() (key string, a Action) {
	for _, row := range actions {
		if a := row.of(s); a != nil {
			return row.key, a
		}
	}
	return "", nil
}

// Traits returns the traits of a step's action. A step without an action has none.
func (s *Step) Traits() Traits {
	if _, a := s.Action(); a != nil {
		return a.Traits()
	}
	return Traits{}
}

// Work returns the name of a step whose ranks send over a transport, by which checks refer to it. It
// is empty for other steps.
func (s *Step) Work() string {
	if t := s.Traits(); t.Carriage != nil {
		return t.Name
	}
	return ""
}

// Lasts returns the name of a step that may still run when the next step starts, and for which
// steps can wait. It is empty for other steps.
func (s *Step) Lasts() string {
	if t := s.Traits(); t.Background {
		return t.Name
	}
	return ""
}

// Awaited returns the path of the first "wait" or "after" that names a step, by the step's index, or "".
func (t *Testbed) Awaited(index int) string {
	name := t.Steps[index].Traits().Name
	if name == "" {
		return ""
	}
	for i, step := range t.Steps[index+1:] {
		at := fmt.Sprintf("steps[%d].", index+1+i)
		if n := slices.Index(step.After, name); n >= 0 {
			return fmt.Sprintf("%safter[%d]", at, n)
		}
		if n := slices.Index(step.Wait, name); n >= 0 {
			return fmt.Sprintf("%swait[%d]", at, n)
		}
	}
	return ""
}

func (s *Step) setDefaults() {
	if s.Retry != nil {
		s.Retry.Every = cmp.Or(s.Retry.Every, defaultRetryEvery)
	}
	for _, row := range actions {
		if a := row.of(s); a != nil {
			a.setDefaults()
		}
	}
}

// Traits implements Action.
func (Wait) Traits() Traits { return Traits{} }

func (Wait) setDefaults() {}

// Traits implements Action.
func (Sleep) Traits() Traits { return Traits{} }

func (Sleep) setDefaults() {}

func (s Sleep) check(c *checker, at string, _ int) {
	if s == 0 {
		c.report(at, "sleep is 0", "want a duration such as 100ms")
	}
}
