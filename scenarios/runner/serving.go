package runner

import (
	"time"

	"railbed/capture/report"
	"railbed/plan/spec"
	"railbed/workloads/flows"
)

// finishServing adds the results of serving requests to a report. came are the times at which the
// requests' caches arrived. It returns the requests' times to first token. The time to first token
// has three parts: the wait for prefill, prefill itself, and the wait for the rest of the cache. If
// ranks decode, the report also has the wait for decoding and the time per token.
func finishServing(made *report.Messages, c *spec.CacheMessages, s *flows.Schedule, came []time.Duration,
	last time.Duration) (first []float64) {
	var decoded []flows.Decoded
	if c.Decode != nil {
		decoded = s.Decode(flows.Decode{Slots: c.Decode.Slots, TokenTime: time.Duration(c.Decode.TokenTime)},
			came)
	}
	parts := make([][]float64, 6)
	add := func(part int, d time.Duration) { parts[part] = append(parts[part], max(d, 0).Seconds()) }
	serving := &report.Serving{Prefill: c.Prefill}
	var computed, end time.Duration
	attained := 0
	for request, p := range s.Prompts {
		at := came[request]
		add(0, p.Begun-p.Arrived)
		add(1, p.Computed-p.Begun)
		add(2, at-p.Computed)
		first = append(first, (at - p.Arrived).Seconds())
		within := c.SLO == 0 || at-p.Arrived <= time.Duration(c.SLO)
		if decoded != nil && p.Output > 0 {
			d := decoded[request]
			each := (d.Done - at) / time.Duration(p.Output)
			add(3, d.Begun-at)
			add(4, each)
			add(5, d.Done-p.Arrived)
			last = max(last, d.Done)
			within = within && (c.Decode.SLO == 0 || each <= time.Duration(c.Decode.SLO))
		}
		if within {
			attained++
		}
		computed, end = computed+p.Computed-p.Begun, max(end, p.Computed)
	}
	for i, what := range []string{"waits for prefill", "prefill", "rest of the cache", "waits for decode",
		"each token", "whole request"} {
		if len(parts[i]) > 0 {
			made.Parts = append(made.Parts,
				report.MessagesPart{What: what, Times: report.Percentiles(flows.PercentilesOf(parts[i]))})
		}
	}
	to := map[int]bool{}
	for _, p := range s.Prompts {
		to[p.To] = true
	}
	serving.Decode = len(to)
	if n := len(s.Prompts); n > 1 && s.Prompts[n-1].Arrived > 0 {
		serving.Offered = float64(n-1) / s.Prompts[n-1].Arrived.Seconds()
	}
	if end > 0 {
		serving.PrefillBusy = computed.Seconds() / (end.Seconds() * float64(c.Prefill))
	}
	serving.SLO = time.Duration(c.SLO).Seconds()
	if c.Decode != nil {
		serving.TokenSLO = time.Duration(c.Decode.SLO).Seconds()
	}
	if serving.SLO+serving.TokenSLO > 0 && len(s.Prompts) > 0 {
		share := float64(attained) / float64(len(s.Prompts))
		made.Attained, serving.Goodput = &share, float64(attained)/max(last.Seconds(), 1e-9)
	}
	made.Serving = serving
	return first
}
