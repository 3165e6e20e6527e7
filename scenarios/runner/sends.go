package runner

import (
	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/clock"
	"railbed/plan"
)

// sends returns the flows of the traffic steps that ran.
func sends(p *plan.Plan, prepared []step, records []report.Step, c *clock.Clock) (flows []verify.Send) {
	for _, step := range prepared {
		t, is := step.(*trafficStep)
		if !is || t.index >= len(records) {
			continue
		}
		record := &records[t.index]
		if record.State != report.Passed && record.State != report.Failed {
			continue
		}
		for _, send := range t.sends(p) {
			if c != nil {
				send.Begun = realTime(c, record.Start).UnixNano()
				send.Ended = realTime(c, record.End).UnixNano()
			}
			flows = append(flows, send)
		}
	}
	return flows
}
