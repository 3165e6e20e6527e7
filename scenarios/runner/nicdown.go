package runner

import (
	"slices"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/internal/clock"
	"railbed/plan"
)

// watchNICs records when NICs of nodes lost their carrier since the last sample, and when they have it again.
func (s *sampler) watchNICs(at time.Time, links []fabric.LinkState) {
	for i := range min(len(links), len(s.last.links)) {
		l, was := &links[i], &s.last.links[i]
		s.watchNIC(at, &l.A, was.A.Downs)
		s.watchNIC(at, &l.B, was.B.Downs)
	}
}

func (s *sampler) watchNIC(at time.Time, end *fabric.EndState, before uint64) {
	nic := end.Node + ":" + end.Port
	spans := s.downSpans[nic]
	open := len(spans) > 0 && spans[len(spans)-1].To.IsZero()
	if !open && end.Downs > before && len(spans) < report.MaxDownSpans && s.plan != nil &&
		s.plan.Node(end.Node) != nil {
		if s.downSpans == nil {
			s.downSpans = map[string][]report.DownSpan{}
		}
		spans, open = append(spans, report.DownSpan{From: s.ended}), true
		s.downSpans[nic] = spans
	}
	if open && end.Operstate == "up" {
		spans[len(spans)-1].To = at
	}
}

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
