package measure

import (
	"time"

	"railbed/capture/report"
	"railbed/fabric"
)

// watchNICs records when NICs of nodes lost their carrier since the last sample, and when they have it again.
func (s *Sampler) watchNICs(at time.Time, links []fabric.LinkState) {
	for i := range min(len(links), len(s.last.Links)) {
		l, was := &links[i], &s.last.Links[i]
		s.watchNIC(at, &l.A, was.A.Downs)
		s.watchNIC(at, &l.B, was.B.Downs)
	}
}

func (s *Sampler) watchNIC(at time.Time, end *fabric.EndState, before uint64) {
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
