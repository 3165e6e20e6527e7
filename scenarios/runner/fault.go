package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"railbed/capture/display"
	"railbed/capture/report"
	"railbed/fabric/softswitch"
	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/testbed"
)

// faultStep begins a fault. The fabric ends it by itself.
type faultStep struct {
	stepFrame
	spec *spec.Fault
}

// fault makes the step. It reports a filter that is wrong.
func (p *preparation) fault(f stepFrame, a *spec.Fault) step {
	if a.Match != "" {
		if _, err := display.CompileBytes(a.Match); err != nil {
			p.wrong(ErrWord, f.at+".match", err)
		}
	}
	return &faultStep{f, a}
}

func (f *faultStep) object() string {
	return strings.TrimSpace(f.spec.Name + " " + f.spec.Where + " " + f.spec.String())
}

func (f *faultStep) limit(clock.Dilation) time.Duration { return controlTimeout }

func (f *faultStep) do(ctx context.Context, s *session) error {
	return s.testbed.AddFault(ctx, *f.spec)
}

// lasts implements temporary, so that the run goes on until the fault ends.
func (f *faultStep) lasts() time.Duration { return time.Duration(f.spec.For) }

// undo implements temporary.
func (f *faultStep) undo(context.Context) error { return nil }

// readFaults adds to the report what the faults did.
func (r *run) readFaults(ctx context.Context, tb *testbed.Testbed) error {
	if !hasFaults(r.File) {
		return nil
	}
	all, err := tb.Faults(ctx)
	for _, f := range all {
		r.report.Faults = append(r.report.Faults, faultRow(&f))
	}
	return err
}

func hasFaults(file *spec.Testbed) bool {
	for _, step := range file.Steps {
		if step.Fault != nil {
			return true
		}
	}
	return false
}

func faultRow(f *softswitch.FaultState) report.Fault {
	row := report.Fault{Name: f.Name, Where: f.Where, Does: f.String(), Matched: f.Matched, Hit: f.Hit,
		Places: []report.FaultPlace{}}
	for _, at := range f.Places {
		row.Places = append(row.Places, report.FaultPlace{Port: at.Port, Matched: at.Matched, Hit: at.Hit})
	}
	return row
}

// errNoHit is the cause of an inconclusive run.
var errNoHit = errors.New("hit no packet")

// idleFaults returns why the run proves nothing if a fault hit no packet, or nil.
func idleFaults(faults []report.Fault) error {
	for _, f := range faults {
		if f.Hit == 0 {
			return fmt.Errorf("fault %s at %s %w: %d packets matched", f.Name, f.Where, errNoHit, f.Matched)
		}
	}
	return nil
}
