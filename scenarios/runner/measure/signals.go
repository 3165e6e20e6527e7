package measure

import "railbed/capture/report"

// Signals returns what soft switches did to hold senders back, or nil if no switch has PFC or ECN.
func (s *Sampler) Signals() *report.Signals {
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
		made.Pauses, made.Marks = made.Pauses+now.Pauses, made.Marks+now.Marks
	}
	return &made
}
