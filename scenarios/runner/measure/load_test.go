package measure

import (
	"math"
	"strings"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/fabric"
	"railbed/internal/usage"
	"railbed/plan"
)

// TestLoad feeds a sampler with the use of the CPUs and of a link in each interval. The operations take from
// the third to the seventh interval.
func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name       string
		busy, link [10]float64 // shares, by interval
		own        float64     // share of the CPUs in each interval
		others     float64     // share of the CPUs over the run
		from, to   float64     // in intervals
		want       string
	}{
		{"processors", [10]float64{0, 0, 0, .95, .95, .9, .9, 0, 0, 0},
			[10]float64{1, 1, 1, .2, .4, .3, .3, 1, 1, 1}, .7, 0, 3, 7,
			"this machine's processors were the bound, and not the network: they were busy for 92% of the " +
				"time, and the busiest link, h0--s0 a-to-b, carried 30% of its rate; dilation: gives them " +
				"more time"},
		{"only whole intervals count", [10]float64{0, 0, 0, .95, .95, .9, .9, 0, 0, 0},
			[10]float64{1, 1, 1, .2, .4, .3, .3, 1, 1, 1}, .7, .1, 2.5, 7.5,
			"this machine's processors were the bound, and not the network: they were busy for 92% of the " +
				"time, and the busiest link, h0--s0 a-to-b, carried 30% of its rate; dilation: gives them " +
				"more time"},
		{"others", [10]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, [10]float64{}, .25, .6, 3, 7,
			"other programs had 60% of the time of this machine's processors, and the testbed's programs " +
				"25%: times are not those of the network"},
		// The kernel moves the testbed's packets.
		{"the kernel", [10]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, [10]float64{}, .25, .05, 3, 7,
			"this machine's processors were the bound, and not the network: they were busy for 100% of the " +
				"time, and the busiest link, h0--s0 b-to-a, carried 0% of its rate; dilation: gives them " +
				"more time"},
		{"network", [10]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
			[10]float64{0, 0, 0, .8, .8, .9, .9, 0, 0, 0}, .7, 0, 3, 7, "not bound"},
		{"neither", [10]float64{1, 1, 1, .8, .8, .9, .9, 1, 1, 1}, [10]float64{}, .7, 0, 3, 7,
			"not bound"},
		{"too short", [10]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, [10]float64{}, .7, 0, 3, 5.5, ""},
		{"no times", [10]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, [10]float64{}, .7, 0, -1, -1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, epoch := &Sampler{plan: &plan.Plan{Nodes: []plan.Node{{Name: "h0"}}}}, time.Unix(1000, 0)
			at := func(interval float64) time.Time {
				return epoch.Add(time.Duration(interval * float64(sampleInterval)))
			}
			bytes, cpus := 0.0, cpuTime{}
			for i := 0; ; i++ {
				l := state(uint64(bytes), 0)
				s.add(at(float64(i)), 0, []fabric.LinkState{l}, cpus)
				if i == len(c.busy) {
					break
				}
				bytes += c.link[i] * float64(l.AToB.Rate) / 8 * sampleInterval.Seconds()
				cpus.add(cpuTime{idle: 1 - c.busy[i], total: 1, own: c.own}, 2)
			}
			from, to := at(c.from), at(c.to)
			if c.from < 0 {
				from, to = time.Time{}, time.Time{}
			}
			got := ""
			if l := s.Load(from, to); l != nil {
				got = "not bound"
				l.Processors, l.Others = 2, c.others
				// The first line of a run that is not faithful names the same programs.
				f := report.Fidelity{Verdict: report.Degraded, Samples: 2, Idle: 1 - l.CPUs,
					Others: []usage.Busy{{Name: "x", CPUs: 2 * c.others}}}
				Explain(&f, 2, s.plan)
				if theirs := strings.HasPrefix(f.Cause, "other programs"); l.Bound() &&
					theirs != strings.HasPrefix(l.String(), "other programs") {
					t.Errorf("%q and %q", f.Cause, l)
				}
				if l.Bound() {
					got = l.String()
				}
				if sent := l.Use * 1e9; math.Abs(sent-l.Sent) > 1 {
					t.Errorf("sent %v bit/s, want %v", l.Sent, sent)
				}
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
