package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/capture/display"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/fabric/bpf"
	"railbed/fabric/softswitch"
	"railbed/internal/clock"
	"railbed/plan/spec"
	"railbed/testbed"
)

// faultStep begins a fault. The fabric ends packet faults and partitions by itself. The step ends a crash or
// hang.
type faultStep struct {
	stepFrame
	spec    *spec.Fault
	testbed *testbed.Testbed              // once the step is done
	nodes   []string                      // These crashed, hung or are slow.
	restore []func(context.Context) error // This takes the links of crashed nodes up again.
	took    time.Duration                 // It was in force after this real time.
	row     report.Fault                  // This is the row of a fault of nodes or their programs.
}

// fault makes the step. It reports an invalid filter.
func (p *preparation) fault(f stepFrame, a *spec.Fault) step {
	if a.Match != "" {
		if _, err := display.CompileBytes(a.Match); err != nil {
			p.wrong(ErrWord, f.at+".match", err)
		}
	}
	if !p.o.Plan.Soft() && !a.OfNodes() {
		var match *display.Error
		switch err := bpf.Check(p.o.Plan, a); {
		case errors.As(err, &match):
			p.wrong(ErrWord, f.at+".match", err)
		case err != nil:
			p.wrong(ErrWord, f.at, err)
		}
	}
	if r := a.Rewrite; r != nil {
		if _, err := display.CompileRewrite(r.Field, r.To); err != nil {
			p.wrong(ErrWord, f.at+".rewrite.field", err)
		}
	}
	return &faultStep{stepFrame: f, spec: a, row: report.Fault{Name: a.Name, Where: a.Where, Does: a.String(),
		Places: []report.FaultPlace{}}}
}

func (f *faultStep) object() string {
	return strings.Join(strings.Fields(f.spec.Name+" "+f.spec.Where+" "+f.spec.String()), " ")
}

func (f *faultStep) limit(clock.Dilation) time.Duration { return controlTimeout }

func (f *faultStep) do(ctx context.Context, s *session) error {
	f.testbed, f.nodes, f.restore = s.testbed, nil, nil
	began := time.Now()
	defer func() { f.took = max(f.took, time.Since(began)) }()
	if !f.spec.OfNodes() {
		s.keepHarm(harmOf(f.spec, nil, s.dilation().Wait))
		return s.testbed.AddFault(ctx, *f.spec)
	}
	for _, n := range s.plan.Nodes {
		if s.plan.FaultNode(f.spec, n.Name) {
			f.nodes = append(f.nodes, n.Name)
		}
	}
	s.keepHarm(harmOf(f.spec, f.nodes, s.dilation().Wait)) // before other steps fail because of it
	for i, name := range f.nodes {
		processes, err := f.harm(ctx, s, name)
		if err != nil {
			return err
		}
		if i == len(f.row.Places) { // else the step is repeated
			f.row.Places = append(f.row.Places, report.FaultPlace{Port: name})
		}
		at := &f.row.Places[i]
		at.Matched, at.Hit = at.Matched+1, at.Hit+uint64(processes)
		f.row.Matched, f.row.Hit = f.row.Matched+1, f.row.Hit+uint64(processes)
	}
	return nil
}

// harm crashes a node or stops its programs, and returns the number of its processes.
func (f *faultStep) harm(ctx context.Context, s *session, node string) (processes int, err error) {
	if f.spec.Slow != nil {
		return 1, s.testbed.Slow(ctx, node, f.spec.Slow.CPU)
	}
	if f.spec.Hang {
		return s.testbed.Hang(ctx, node, f.programs())
	}
	for _, l := range s.plan.Links {
		if f.spec.OfPrograms() || l.A.Node != node && l.B.Node != node {
			continue
		}
		undo, err := s.links.apply(ctx, &spec.LinkChange{Where: l.Name, State: down})
		if err != nil {
			return 0, err
		}
		f.restore = append(f.restore, undo)
	}
	return s.testbed.KillPrograms(ctx, node, f.programs())
}

// programs are the programs that the fault hits.
func (f *faultStep) programs() testbed.Programs {
	return testbed.Programs{Name: f.spec.Program, Rank: f.spec.Rank}
}

// lasts implements temporary, so that the run goes on until the fault ends.
func (f *faultStep) lasts() time.Duration { return time.Duration(f.spec.For) }

// undo implements temporary.
func (f *faultStep) undo(ctx context.Context) error {
	var failures []error
	for _, restore := range f.restore {
		failures = append(failures, restore(ctx))
	}
	for _, node := range f.nodes {
		switch {
		case f.spec.Slow != nil:
			failures = append(failures, f.testbed.Slow(ctx, node, 0))
		case f.spec.Hang:
			failures = append(failures, f.testbed.Resume(ctx, node, f.programs()))
		}
	}
	return errors.Join(failures...)
}

// readFaults adds the faults and their hits to the report.
func (r *run) readFaults(ctx context.Context, tb *testbed.Testbed, s *session) error {
	if !hasFaults(r.File) {
		return nil
	}
	for _, step := range r.prepared {
		if f, is := step.(*faultStep); is && f.row.Matched > 0 {
			r.report.Faults = append(r.report.Faults, f.row)
		}
	}
	all, err := tb.Faults(ctx)
	for _, f := range all {
		r.report.Faults = append(r.report.Faults, faultRow(&f))
		if !r.Plan.Soft() {
			r.evidence.addHarm(&f)
		}
	}
	r.faultsLate(s.dilation())
	return err
}

// faultsLate adds to the report how late the faults were in force.
func (r *run) faultsLate(by clock.Dilation) {
	for _, step := range r.prepared {
		f, is := step.(*faultStep)
		if !is {
			continue
		}
		late := by.Passed(f.took).Seconds()
		if at := r.File.Steps[f.index].At; at != nil {
			late += r.report.Steps[f.index].Start - time.Duration(*at).Seconds()
		}
		for i := range r.report.Faults {
			if row := &r.report.Faults[i]; row.Name == f.spec.Name {
				row.Late = late
			}
		}
	}
}

// addHarm adds what a fault did at ports of kernel links and switches.
func (e *evidence) addHarm(f *softswitch.FaultState) {
	if e.harm == nil {
		e.harm = map[string]verify.Harm{}
	}
	for _, at := range f.Places {
		h := e.harm[at.Port]
		switch {
		case f.Drop != nil || f.Partition != nil:
			h.Dropped += at.Hit
		case f.Corrupt != nil || f.Truncate != nil:
			h.Changed += at.Hit
		case f.Duplicate != nil:
			h.Copied += at.Hit
		}
		e.harm[at.Port] = h
	}
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
		Joined: f.Joined, Refused: f.Refused, Places: []report.FaultPlace{}}
	for _, at := range f.Places {
		row.Places = append(row.Places, report.FaultPlace{Port: at.Port, Matched: at.Matched, Hit: at.Hit})
	}
	return row
}

// idleFault returns a reason for INCONCLUSIVE if a fault hit no packet and no program, or not those that it
// should have hit, or "".
func idleFault(faults []report.Fault) string {
	for _, f := range faults {
		name := "fault " + f.Name
		if f.Where != "" {
			name += " at " + f.Where
		}
		switch {
		case f.Joined > 0:
			return fmt.Sprintf("%s counted %d times several packets as one: a program sent a batch, or a "+
				"connection began before the port had a fault", name, f.Joined)
		case f.Refused > 0:
			return fmt.Sprintf("%s: the kernel let it change all but %d of its packets", name, f.Refused)
		case f.Hit > 0:
		case slices.Contains([]string{spec.FaultCrashes, spec.FaultHangs}, strings.Fields(f.Does)[0]):
			return name + " found no program"
		default:
			return fmt.Sprintf("%s hit no packet: %d packets matched", name, f.Matched)
		}
	}
	return ""
}
