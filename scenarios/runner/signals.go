package runner

import "railbed/capture/report"

// signals returns what soft switches did to hold senders back, or nil if no switch has PFC or ECN.
func (s *sampler) signals() *report.Signals {
	if s.plan == nil {
		return nil
	}
	var made report.Signals
	for i := range s.plan.Switches {
		if soft := s.plan.Switches[i].Soft; soft != nil {
			made.PFC, made.ECN = made.PFC || soft.PFC != nil, made.ECN || soft.ECN != nil
		}
	}
	if !made.PFC && !made.ECN {
		return nil
	}
	for i := range s.meters {
		now := momentOf(&s.meters[i])
		made.Pauses, made.Marks = made.Pauses+now.pauses, made.Marks+now.marks
	}
	return &made
}
