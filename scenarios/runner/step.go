package runner

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"railbed/internal/clock"
	"railbed/plan/spec"
)

// step is a step of the file that is ready to run: what it needs was read from other files, computed and
// proved. Each kind of step is a type in a file of its own.
type step interface {
	// frame returns the part that all steps have.
	frame() *stepFrame
	// object is the text for people that follows the step's key: a name, a file, or a change.
	object() string
	// limit returns the maximum duration of do, in real time. 0 means none.
	limit(by clock.Dilation) time.Duration
	// do does the step. It returns when the step has ended, or, for captures and link changes, when it is
	// in force.
	do(ctx context.Context, s *session) error
}

// stepFrame is the part that all steps have.
type stepFrame struct {
	spec.Traits
	index int    // in the file
	key   string // of the step's kind
	at    string // the path of the key in the file
}

// frameOf returns the frame of a file's step, which has an action. A step for whose end another step waits
// does not end with the run.
func frameOf(file *spec.Testbed, i int) stepFrame {
	key, action := file.Steps[i].Action()
	f := stepFrame{action.Traits(), i, key, fmt.Sprintf("steps[%d].%s", i, key)}
	f.Serves = f.Serves && file.Awaited(i) == ""
	return f
}

func (f *stepFrame) frame() *stepFrame { return f }

func (f *stepFrame) limit(by clock.Dilation) time.Duration { return by.Wait(time.Duration(f.Timeout)) }

// temporary is a step whose effect may end later than the step itself.
type temporary interface {
	// lasts returns how long the effect lasts, in the testbed's time. 0 means until the end of the run.
	lasts() time.Duration
	undo(ctx context.Context) error
}

// preparation makes the steps of a file.
type preparation struct {
	*findings
	ranked   int            // steps so far whose ranks run workers
	traffics uint16         // traffic steps so far
	taken    map[int]string // by rank: the background training job that uses it
}

// steps returns the steps of a file. It records every problem.
func (p *preparation) steps() []step {
	p.taken = map[int]string{}
	var all []step
	for i := range p.o.File.Steps {
		_, action := p.o.File.Steps[i].Action()
		if action == nil {
			p.wrong(ErrJob, fmt.Sprintf("steps[%d]", i), errors.New("does nothing"))
			continue
		}
		p.event(i)
		prepare, known := makers[reflect.TypeOf(action)]
		if !known {
			panic(fmt.Sprintf("the runner has no step for %T", action))
		}
		all = append(all, prepare(p, frameOf(p.o.File, i), action))
	}
	return all
}

// makers make the steps of each kind, by the types of their actions.
var makers = map[reflect.Type]func(*preparation, stepFrame, spec.Action) step{}

// makes registers a kind of step. The file of the kind calls it when the program starts.
func makes[A spec.Action](prepare func(*preparation, stepFrame, A) step) struct{} {
	makers[reflect.TypeFor[A]()] = func(p *preparation, f stepFrame, a spec.Action) step {
		return prepare(p, f, a.(A))
	}
	return struct{}{}
}

// title returns the kind and the object of a step, for people.
func title(s step) string { return s.frame().key + " " + s.object() }
