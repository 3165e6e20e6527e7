package spec

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// Action is the action of a step: a field of Step with the tag "action", of a kind of step such as *Probe,
// or a Wait or Sleep. Each type has its check and its defaults beside it.
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
	// DSCP is set if the step sends datagrams without a transport, and is theirs.
	DSCP *int
	// Programs is set if the step runs programs, which can send any packets.
	Programs bool
}

// Wait is the action of a step that waits for background steps, by their names.
type Wait []string

// Sleep is the action of a step that waits for time to pass.
type Sleep units.Duration

// stepKey is a key of a step that gives it an action.
type stepKey struct {
	key   string
	index int // of the field of Step
	// sends is set if the step sends packets that checks are about. Commands do not count, because they
	// may do anything.
	sends bool
}

// actions are the fields of Step with the tag "action".
var actions = func() (all []stepKey) {
	step := reflect.TypeFor[Step]()
	for i, f := range strictyaml.Fields(step) {
		if kind, is := step.Field(i).Tag.Lookup("action"); is {
			all = append(all, stepKey{f.Key, i, kind == "sends"})
		}
	}
	return all
}()

// of returns the action of a step, or nil if the step lacks the key.
func (k *stepKey) of(s *Step) Action {
	v := reflect.ValueOf(s).Elem().Field(k.index)
	if v.IsNil() {
		return nil
	}
	switch a := v.Interface().(type) {
	case []string:
		return Wait(a)
	case *units.Duration:
		return Sleep(*a)
	default:
		return a.(Action)
	}
}

// Sends reports whether a step with a key sends packets that checks are about.
func Sends(key string) bool {
	return slices.ContainsFunc(actions, func(k stepKey) bool { return k.key == key && k.sends })
}

// stepKeys returns the keys of a step, of which it has exactly one.
func stepKeys() (keys []string) {
	for _, row := range actions {
		keys = append(keys, row.key)
	}
	return keys
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
		c.Report(at, "sleep is 0", "want a duration such as 100ms")
	}
}
