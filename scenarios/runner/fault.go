package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/display"
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/fabric/bpf"
	"railbed/fabric/softswitch"
	"railbed/internal/clock"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/testbed"
)

// faultStep begins a fault. The fabric ends packet faults and partitions by itself. The step ends a fault of
// nodes, with which it has links to take up.
type faultStep struct {
	stepFrame
	spec *spec.Fault
	// clear ends a fault of nodes that is in force, and plug takes up the links that it took down.
	clear func(ctx context.Context, names ...string) ([]softswitch.FaultState, error)
	plug  []func(context.Context) error
	took  time.Duration // It was in force after this real time.
	row   report.Fault  // This is the row of a fault of nodes or their programs.
}

var _ = makes((*preparation).fault)

// fault makes the step. It reports an invalid filter.
func (p *preparation) fault(f stepFrame, a *spec.Fault) step {
	if a.Match != "" {
		if _, err := display.CompileBytes(a.Match); err != nil {
			p.wrong(ErrWord, f.at+".match", err)
		}
	}
	if !p.o.Plan.Soft() && !a.OfNodes() && !a.Reboot {
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
	began := time.Now()
	defer func() { f.took = max(f.took, time.Since(began)) }()
	if !f.spec.OfNodes() {
		s.keepHarm(harmOf(f.spec, nil, s.dilation().Wait))
		return s.testbed.AddFault(ctx, *f.spec)
	}
	return f.meet(ctx, s)
}

// lasts implements temporary, so that the run goes on until the fault ends.
func (f *faultStep) lasts() time.Duration { return time.Duration(f.spec.For) }

// readFaults adds the faults and their hits to the report.
func (r *run) readFaults(ctx context.Context, tb *testbed.Testbed, s *session) error {
	if !hasFaults(r.File) {
		return nil
	}
	all, err := tb.Faults(ctx)
	for _, step := range r.prepared {
		f, is := step.(*faultStep)
		if !is || !f.spec.OfNodes() {
			continue
		}
		for i := range all {
			if all[i].Name == f.spec.Name {
				f.did(&all[i])
			}
		}
		if f.row.Matched > 0 {
			r.report.Faults = append(r.report.Faults, f.row)
		}
	}
	for _, f := range all {
		if f.OfNodes() {
			continue
		}
		r.report.Faults = append(r.report.Faults, faultRow(&f))
		addHarm(&r.evidence, &f)
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

// addHarm adds what a fault did at ports, some of which may have no tap.
func addHarm(e *judge.Evidence, f *softswitch.FaultState) {
	if e.Harm == nil {
		e.Harm = map[string]verify.Harm{}
	}
	for _, at := range f.Places {
		h := e.Harm[at.Port]
		switch f.Kind().Packets {
		case spec.PacketsLost:
			h.Dropped += at.Hit
		case spec.PacketsChanged:
			h.Changed += at.Hit
		case spec.PacketsCopied:
			h.Copied += at.Hit
		}
		e.Harm[at.Port] = h
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
func (r *run) idleFault() string {
	for _, f := range r.report.Faults {
		name := "fault " + f.Name
		if f.Where != "" {
			name += " at " + f.Where
		}
		idle := spec.FaultKindOf(strings.Fields(f.Does)[0]).Idle
		switch {
		case f.Joined > 0:
			return plural.Text("%s counted %d times several packets as one: a program sent a batch, or a "+
				"connection began before the port had a fault", name, f.Joined)
		case f.Refused > 0:
			return fmt.Sprintf("%s: the kernel let it change all but %d of its packets", name, f.Refused)
		case f.Hit > 0:
		case idle != "":
			return name + " " + idle
		default:
			return plural.Text("%s hit no packet: %d packets matched", name, f.Matched) + r.inForce(f.Name)
		}
	}
	return ""
}

// inForce describes the time of a packet fault with an end, and the first packets if they came later.
func (r *run) inForce(name string) (text string) {
	for _, step := range r.prepared {
		f, is := step.(*faultStep)
		if !is || f.spec.Name != name || f.spec.For == 0 {
			continue
		}
		from := r.report.Steps[f.index].Start
		end := from + time.Duration(f.spec.For).Seconds()
		text = fmt.Sprintf(" from %s to %s", seconds(from), seconds(end))
		if first, known := r.firstPackets(f.spec); known && first >= end {
			text += fmt.Sprintf(", and the first packets there came %s after the first step; start the "+
				"fault by an event (when:)", seconds(first))
		}
	}
	return text
}

// firstPackets returns the time at which the first packets passed the places of a fault, in seconds from the
// first step. It is accurate to an interval of the links' time lines.
func (r *run) firstPackets(of *spec.Fault) (first float64, known bool) {
	if r.report.Series == nil {
		return 0, false
	}
	s := r.report.Series
	for _, end := range r.Plan.FaultPlaces(of) {
		for _, link := range s.Links {
			i := slices.IndexFunc(link.Bits, func(bits uint64) bool { return bits > 0 })
			at := s.Start + float64(i)*s.Interval
			if link.From == end.Name() && i >= 0 && (!known || at < first) {
				first, known = at, true
			}
		}
	}
	return first, known
}

func seconds(s float64) string { return units.Took(time.Duration(s * float64(time.Second))) }
