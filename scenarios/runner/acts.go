package runner

import (
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/plan"
	"railbed/plan/spec"
)

// actor is a step that changes links or nodes.
type actor interface {
	// act returns what the step does in a plan, without times. Its kind is "" if the step does no such thing.
	act(p *plan.Plan) report.Act
	lasts() time.Duration
}

// act implements actor.
func (l *linkStep) act(p *plan.Plan) report.Act {
	name, _ := l.spec.Target()
	a := report.Act{Kind: l.spec.State}
	if l.spec.Set != nil {
		a.Kind = report.SetKind
	}
	for i := range p.Links {
		if spec.Match(name, p.Links[i].Name) {
			a.Links = append(a.Links, p.Links[i].Name)
		}
	}
	return a
}

// act implements actor.
func (f *faultStep) act(p *plan.Plan) report.Act {
	kind, _ := f.spec.Action()
	if !f.spec.OfNodes() && !f.spec.Reboot {
		return report.Act{}
	}
	a := report.Act{Kind: kind, Fault: f.spec.Name}
	for _, n := range p.Nodes {
		if f.spec.OfNodes() && p.FaultNode(f.spec, n.Name) {
			a.Nodes = append(a.Nodes, n.Name)
		}
	}
	name, _ := f.spec.Place()
	for _, l := range p.Links {
		unplugs := f.spec.Crash && !f.spec.OfPrograms() &&
			(slices.Contains(a.Nodes, l.A.Node) || slices.Contains(a.Nodes, l.B.Node))
		if unplugs || f.spec.Reboot && (spec.Match(name, l.A.Node) || spec.Match(name, l.B.Node)) {
			a.Links = append(a.Links, l.Name)
		}
	}
	return a
}

// acts returns the changes of links and nodes by the steps, in the order of the file.
func acts(p *plan.Plan, steps []step, records []report.Step, c *clock.Clock) (all []report.Act) {
	at := func(seconds float64) time.Time { return realTime(c, seconds) }
	for i, s := range steps {
		one, is := s.(actor)
		if !is || records[i].State == report.Skipped {
			continue
		}
		a := one.act(p)
		a.Step, a.From = records[i].Name, at(records[i].Start)
		switch {
		case a.Kind == "":
			continue
		case a.Kind == up:
			ended(all, a.Links, a.From)
			continue
		case one.lasts() > 0 || records[i].Times > 0:
			a.To = at(records[i].End)
		}
		all = append(all, a)
	}
	return all
}

// realTime returns the time of the host's clock for seconds from the start of the first step.
func realTime(c *clock.Clock, seconds float64) time.Time {
	return c.Real(clock.Time(0).Add(time.Duration(seconds * float64(time.Second))))
}

// ended sets the end of acts that took down links that a step has taken up.
func ended(all []report.Act, links []string, now time.Time) {
	for i := range all {
		if a := &all[i]; a.Kind == down && a.To.IsZero() && slices.ContainsFunc(links, func(l string) bool {
			return slices.Contains(a.Links, l)
		}) {
			a.To = now
		}
	}
}
