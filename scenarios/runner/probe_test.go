package runner

import (
	"strings"
	"testing"

	"railbed/plan/spec"
	"railbed/testbed/probe"
)

// TestProbeBounds checks that a step of probes fails if its telemetry breaks a bound, and lists what broke.
func TestProbeBounds(t *testing.T) {
	path := func(queues ...uint32) (p probe.Path) {
		p.Hops = []probe.Hop{{Switch: "leaf1"}}
		for _, q := range queues {
			p.Probes = append(p.Probes, probe.Probe{Reports: []probe.Reading{{Queue: q}}})
		}
		return p
	}
	found := &probe.Report{Sent: 4, Arrived: 3, Paths: []probe.Path{path(0, 2000), path(500)}}
	for _, c := range []struct {
		bounds spec.Probe
		want   string
	}{
		{spec.Probe{Count: 4}, "3 of 4 probes arrived, want >= 4"},
		{spec.Probe{Count: 4, Arrived: ">= 3"}, ""},
		{spec.Probe{Count: 3, Paths: "== 2", Queue: "<= 2KB"}, ""},
		{spec.Probe{Count: 3, Paths: ">= 3", Queue: "< 2KB"},
			"probes took 2 paths, want >= 3; the longest queue was 2KB, want < 2KB"},
	} {
		err := judgeProbes(&c.bounds, found)
		if got := errorText(err); got != c.want {
			t.Errorf("%+v: %q, want %q", c.bounds, got, c.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimSpace(err.Error())
}
