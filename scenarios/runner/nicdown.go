package runner

import (
	"slices"

	"railbed/capture/report"
	"railbed/internal/clock"
	"railbed/plan"
)

// nicActs returns the times in which programs in nodes took NICs down, as acts.
func nicActs(p *plan.Plan, f *report.Fidelity, steps []step, records []report.Step, c *clock.Clock) (
	all []report.Act) {
	if f == nil {
		return nil
	}
	for _, down := range f.Downs {
		for i := range p.Links {
			l := &p.Links[i]
			for _, end := range []plan.End{l.A, l.B} {
				if end.Node+":"+end.Port != down.NIC {
					continue
				}
				for _, span := range down.Spans {
					all = append(all, report.Act{Kind: report.NICDownKind, NIC: down.NIC, From: span.From,
						To: span.To, Step: commandOf(p, end.Node, span, steps, records, c),
						Links: []string{l.Name}, Nodes: []string{end.Node}})
				}
			}
		}
	}
	return all
}

// commandOf returns the name of the only step that ran a command in a node when its NIC went down, else "".
func commandOf(p *plan.Plan, node string, span report.DownSpan, steps []step, records []report.Step,
	c *clock.Clock) (name string) {
	for i, s := range steps {
		one, is := s.(*execStep)
		if !is || records[i].State == report.Skipped || !slices.Contains(one.programs(p), node) ||
			realTime(c, records[i].End).Before(span.From) ||
			!span.To.IsZero() && realTime(c, records[i].Start).After(span.To) {
			continue
		}
		if name != "" {
			return ""
		}
		name = records[i].Name
	}
	return name
}
