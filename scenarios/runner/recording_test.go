package runner

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railbed/scenarios/runner/judge"

	"railbed/capture/report"
	"railbed/capture/verify"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
)

// full is two hosts that send one more than its link carries, for long enough to
// measure that.
const full = `
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft}
  links: {default: {rate: 20mbit}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - traffic: {name: full, from: [h1, h2], to: [h0], rate: 15mbit, size: 1400B, for: 2s}
checks:
  - packets: {drops: {at: "leaf1:p0", reason: tail, count: ">= 1"}}
`

// TestVerifyJudgesRatesAsTheRunDid checks that a run judges the rates of the recorded links by the
// packets, as railbed verify does, so that both give the same result for each link. The counters
// must not contradict them.
func TestVerifyJudgesRatesAsTheRunDid(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	for name, c := range map[string]struct {
		options func() Options
		busy    string // who sends on a link that was busy, if any surely was
	}{
		"quickstart": {func() Options { return load(t, "../quickstart.yaml") }, ""},
		"full":       {func() Options { return options(t, full) }, "leaf1:p0"},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.options()
			counted := map[string]float64{}
			o.hold = func(e *judge.Evidence) {
				for _, l := range e.Fidelity.Links {
					if l.Busy > 0 {
						counted[l.From] = float64(l.Achieved) / float64(l.Asked)
					}
				}
			}
			r := runAll(t, t.Context(), o)
			if len(r.Captures) == 0 || r.Captures[0].Dropped() > 0 {
				t.Skipf("cannot run here: the machine is too busy: %s", r.Reason)
			}
			found := readBy(t, o, o.Plan)
			for _, l := range r.Fidelity.Links {
				share := 0.0
				if l.Busy > 0 {
					share = float64(l.Achieved) / float64(l.Asked)
				}
				if read := found[l.From]; math.Abs(read.Achieved-share) > 0.001 {
					t.Errorf("%s: the run says %s, %.3f of what was asked, and its packets %s, %.3f in %d "+
						"intervals",
						l.From, rateLevel(share), share, rateLevel(read.Achieved), read.Achieved, read.Busy)
				}
				// Counters that are looked at five times a second take a link for
				// busy that paused, and so for a little slow; never for fast.
				if read, by := found[l.From].Achieved, counted[l.From]; read > 0 && by > read+0.03 {
					t.Errorf("%s: %.3f of what was asked by its counters, %.3f by its packets", l.From, by,
						read)
				}
			}
			if told := strings.Join(r.Fidelity.Reasons, "\n"); c.busy != "" &&
				(found[c.busy].Achieved == 0 || strings.Contains(told, c.busy)) {
				t.Errorf("%s was busy, and is %+v by packets, %v by counters, told %q", c.busy, found[c.busy],
					counted[c.busy], told)
			}
			if c.busy != "" {
				turnRed(t, o, c.busy)
			}
		})
	}
}

// turnRed judges the recording by plans that ask the busy link for half, and for twice, the rate
// that it carried.
func turnRed(t *testing.T, o Options, busy string) {
	t.Helper()
	for factor, want := range map[float64]string{
		0.5: report.Overloaded, 0.95: report.Degraded, 1: report.Faithful, 2: report.Overloaded,
	} {
		wrong := *o.Plan
		wrong.Links = append([]plan.Link{}, o.Plan.Links...)
		for i := range wrong.Links {
			l := &wrong.Links[i]
			node, port, _ := strings.Cut(busy, ":")
			for end, d := range map[plan.End]*plan.Direction{l.A: &l.AToB, l.B: &l.BToA} {
				if end.Node == node && end.Port == port {
					d.Rate = units.Rate(float64(d.Rate) * factor)
				}
			}
		}
		if got := readBy(t, o, &wrong)[busy]; rateLevel(got.Achieved) != want {
			t.Errorf("asked for %v of the rate, %s is %s: %+v, want %s", factor, busy,
				rateLevel(got.Achieved), got, want)
		}
	}
}

// readBy reads the recording of a run by a plan.
func readBy(t *testing.T, o Options, p *plan.Plan) map[string]verify.Rate {
	t.Helper()
	file, err := os.Open(filepath.Join(o.Out, "run.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	check := verify.NewFidelity(verify.Faithful, verify.HostLoad{Pressure: -1, Steal: -1})
	if _, _, err := verify.Run(t.Context(), file, verify.Options{Plan: p}, check); err != nil {
		t.Fatal(err)
	}
	found := map[string]verify.Rate{}
	rates, missing := check.Rates()
	for _, rate := range rates {
		found[rate.From] = rate
	}
	if missing > 0 || len(found) == 0 {
		t.Errorf("%d rates, %d directions missing", len(found), missing)
	}
	return found
}

// rateLevel is the judgement of a share of the asked rate; 0 is of a link that was
// not busy.
func rateLevel(share float64) string {
	switch off := math.Abs(share - 1); {
	case share == 0 || off <= verify.RateDegraded:
		return report.Faithful
	case off <= verify.RateOverloaded:
		return report.Degraded
	}
	return report.Overloaded
}

// TestPartOfARecording keeps the last of a recording, and the time around a packet. The report counts the
// packets of the file, which is a whole capture.
func TestPartOfARecording(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: last.pcapng, last: 300ms}
  - capture: {at: ["h0:eth0"], file: around.pcapng, start: [icmpv6.type == 129], stop: [icmpv6.type == 129],
	after: 100ms}
  - capture: {at: [all], file: never.pcapng, start: [tcp, "counter railbed_node_drops_total{node=\"h1\",reason=\"udp-checksum\"} > 3"]}
  - exec: {name: ping, nodes: [h0], command: [ping, -6, -c, "20", -i, "0.05", h1]}
`)
	r := runAll(t, t.Context(), o)
	want(t, r, verdict.Pass)
	for i, name := range []string{"last.pcapng", "around.pcapng", "never.pcapng"} {
		file, err := os.Open(filepath.Join(o.Out, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		_, summary, err := verify.Run(t.Context(), file, verify.Options{Plan: o.Plan})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		reported := uint64(0)
		for _, tap := range r.Captures[i].Taps {
			reported += tap.Packets
		}
		longest := []time.Duration{300 * time.Millisecond, 150 * time.Millisecond, 0}[i]
		if summary.Truncated || summary.Note != "" || summary.Packets != reported ||
			summary.Duration > longest ||
			(summary.Packets > 0) != (i < 2) {
			t.Errorf("%s: %+v, and %d packets in the report", name, summary, reported)
		}
	}
}

// TestRotatedRecording records into several files. The checks of the run read all of them, and are
// INCONCLUSIVE if a file is missing.
func TestRotatedRecording(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	for name, c := range map[string]struct {
		gone string
		want verdict.Verdict
	}{"all": {"", verdict.Pass}, "a file is missing": {"run-2.pcapng", verdict.Inconclusive}} {
		t.Run(name, func(t *testing.T) {
			o := options(t, twoHosts+`
steps:
  - capture: {at: [all], file: run.pcapng, rotate: 64KiB}
  - exec: {name: ping, nodes: [h0], command: [ping, -4, -q, -c, "100", -i, "0.002", -s, "500", h1]}
checks:
  - packets: {rule: {count: icmp.type == 8, at: "h1:eth0", is: "== 100"}}
`)
			o.hold = func(*judge.Evidence) {
				if c.gone != "" {
					if err := os.Remove(filepath.Join(o.Out, c.gone)); err != nil {
						t.Error(err)
					}
				}
			}
			r := runAll(t, t.Context(), o)
			want(t, r, c.want, c.want)
			recorded := r.Captures[0]
			size, files := int64(0), 0
			for files < recorded.Files {
				files++
				info, err := os.Stat(filepath.Join(o.Out, spec.CapturePart("run.pcapng", files)))
				if err == nil {
					size += info.Size()
				} else if spec.CapturePart("run.pcapng", files) != c.gone {
					t.Error(err)
				}
			}
			if files < 3 || c.gone == "" && size != recorded.Bytes {
				t.Errorf("%d files of %d bytes, and the report says %+v", files, size, recorded)
			}
			details := strings.Join(r.Checks[0].Details, "\n")
			if c.gone != "" && !strings.Contains(details, "file 2 of the recording is missing") {
				t.Errorf("%s: %s", r.Checks[0].Summary, details)
			}
		})
	}
}

// TestRecordingsAreJudgedTogether has the evidence of checks in several recordings: of different ports, of
// different times, and of the same port twice. A packet in the last of them breaks a check. A check of ports
// that no recording had in the whole time of their packets cannot pass.
func TestRecordingsAreJudgedTogether(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	o := options(t, `
fabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft}, links: {default: {rate: 50mbit}}}
steps:
  - capture: {at: [h0], file: a.pcapng}
  - capture: {at: [h1], file: b.pcapng}
  - traffic: {name: x, from: [h0], to: [h1], rate: 2mbit, size: 300B, for: 100ms}
  - capture: {at: [all], file: c.pcapng}
  - fault: {name: cut, where: "leaf1:p2", drop: {nth: [3]}}
  - traffic: {name: y, from: [h0], to: [h2], rate: 2mbit, size: 300B, for: 100ms}
checks:
  - packets: {lossless: {from: h0, to: h1}}
  - packets: {lossless: {from: h0, to: h2}}
  - packets: {rule: {never: 'railbed.verdict == "drop"', at: "leaf1:p2"}}
  - packets: {conservation: "leaf1"}
  - packets: {rule: {count: 'udp && frame.packet_flags_direction == 2', at: "h0:eth0", is: ">= 1"}}
`)
	want := []verdict.Verdict{verdict.Pass, verdict.Inconclusive, verdict.Fail, verdict.Inconclusive,
		verdict.Pass}
	r, err := Run(t.Context(), o)
	if err != nil || len(r.Checks) != len(want) {
		t.Fatalf("%v: %+v", err, r)
	}
	for i, c := range r.Checks {
		overruled := want[i] == verdict.Fail && c.Verdict == verdict.Overloaded
		if c.Verdict != want[i] && !overruled {
			t.Errorf("want %s: %s %s: %v", want[i], c.Verdict, c.Summary, c.Details)
		}
	}
}
