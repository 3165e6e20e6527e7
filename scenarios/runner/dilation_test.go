package runner

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/scenarios/runner/measure"

	"railbed/capture/pcapng"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/testkit/hosttest"
)

// dilated is a run ten times slower than real time: a round trip of 20 ms over
// two links, and 100 Mbit/s.
const dilated = `
dilation: 10
%s
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 100mbit, delay: 5ms}}
nodes: {default: {ranks: 1}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - sleep: 100ms
  - exec: {name: ping, nodes: [h0], command: [ping, -c6, -i0.3, h1]}
  - exec: {name: routes, nodes: [h0], command: [sh, -c, "ip route show table all; ip -6 route show table all"]}
  - workload: {name: ar, kind: all-reduce, algorithm: ring, transport: tcp, size: 1MiB, iterations: 2, warmup: 1}
checks:
  - workload: {name: ar, correct: true, busbw: "<= 100 Mbit/s"}
  - packets: {conservation: "*"}
`

// medianOf is the median round trip that ping printed, in milliseconds.
func medianOf(t *testing.T, output string) float64 {
	t.Helper()
	var times []float64
	for _, found := range regexp.MustCompile(`time=([0-9.]+) ms`).FindAllStringSubmatch(output, -1) {
		ms, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, ms)
	}
	if len(times) < 4 {
		t.Fatalf("ping printed %d times: %q", len(times), output)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// Programs see real time; the report states the testbed's.
func TestDilation(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	o := options(t, fmt.Sprintf(dilated, "accept-undilated: [tcp, programs]"))
	real := map[string]time.Time{}
	o.Progress = func(u Update) {
		for _, what := range []string{"sleep", "exec ping", "workload ar"} {
			if strings.Contains(u.Phase+u.Line, what) {
				if _, known := real[what]; !known {
					real[what] = time.Now()
				}
				if u.Line != "" {
					real[what+" ended"] = time.Now()
				}
			}
		}
	}
	r := runAll(t, t.Context(), o)
	overall, bandwidth := verdict.Pass, verdict.Pass
	if r.Fidelity.Verdict == report.Overloaded { // by the host's other load
		overall, bandwidth = verdict.Overloaded, verdict.Inconclusive
	}
	want(t, r, overall, bandwidth, verdict.Pass)
	if r.Dilation != 10 {
		t.Errorf("dilation %d, want 10", r.Dilation)
	}

	if rtt := medianOf(t, readOut(t, o, "logs/h0/ping.out")); rtt < 200 || rtt > 210 {
		t.Errorf("round trip of %v ms of real time, want 10 x 20 ms", rtt)
	}
	took := func(what string) float64 { return real[what+" ended"].Sub(real[what]).Seconds() }
	for i, step := range r.Steps {
		for _, what := range []string{"sleep", "exec ping", "workload ar"} {
			if ratio := took(what) / (step.End - step.Start); strings.HasPrefix(step.Name, what) &&
				(ratio < 8 || ratio > 12) {
				t.Errorf("step %d, %s, took %.3f s of the testbed's time and %.3f s really, want a tenth", i,
					step.Name, step.End-step.Start, took(what))
			}
		}
	}
	// 100 Mbit/s of frames, less headers; what really went is a tenth.
	ar := r.Workloads[0]
	if bits := ar.BusBWBits(); bits < 40e6 || bits > 97e6 {
		t.Errorf("busbw %.1f Mbit/s, want below 97 of 100 Mbit/s and not a tenth of it", bits/1e6)
	}
	const payload = 3 * (1 << 20) * 8 // per rank: three iterations of 2(n-1)/n x 1 MiB
	if rate := payload / took("workload ar"); rate > 10e6 {
		t.Errorf("%.1f Mbit/s of real time, want below a tenth of 100 Mbit/s", rate/1e6)
	}
	for _, l := range r.Fidelity.Links {
		if l.Asked != 100e6 || l.Peak > 115e6 || l.Achieved > 103e6 {
			t.Errorf("%+v: want rates of the testbed's time", l)
		}
	}
	if unit := r.Fidelity.Timing.Unit; unit < 121 || unit > 122 { // 1,514 bytes at 100 Mbit/s, or 5 ms
		t.Errorf("smallest time %v us, want 121.12", unit)
	}
	if routes := readOut(t, o, "logs/h0/routes.out"); !strings.Contains(routes, "rto_min lock 2s") &&
		!strings.Contains(routes, "rto_min 2s") {
		t.Errorf("no route has ten times the least timeout: %s", routes)
	}
	checkSection(t, filepath.Join(o.Out, "run.pcapng"), o.Plan, r)
}

// checkSection holds the factor, the epoch and the plan against the header's comment.
func checkSection(t *testing.T, path string, p *plan.Plan, r *report.Report) {
	t.Helper()
	comment := strings.Join(openRecording(t, path).Section().Comments, " ")
	note, ok := pcapng.ParseSectionNote([]byte(comment))
	if !ok || note.Dilation != 10 || note.Plan != p.Hash() || note.Testbed == "" {
		t.Fatalf("comment %q, want dilation 10 and plan %s", comment, p.Hash())
	}
	if up := r.Started.Add(time.Duration(r.Testbed.BringUp*1e9) + time.Second); note.Epoch.Before(
		r.Started) || note.Epoch.After(up) {
		t.Errorf("epoch %v, want when the switches started, between %v and %v", note.Epoch, r.Started, up)
	}
}

// TestQUICKeepsRealTime: quic-go's timers are not dilated, and a file can accept that.
func TestQUICKeepsRealTime(t *testing.T) {
	text := strings.Replace(dilated, "transport: tcp", "transport: quic", 1)
	found := measure.Undilated(options(t, fmt.Sprintf(text, "accept-undilated: [quic]")).File)
	if len(found) != 2 || found[0].What != "quic" || !found[0].Accepted || len(found[0].Timers) < 3 ||
		found[1].What != "programs" {
		t.Errorf("undilated %+v, want quic, which is accepted, and programs", found)
	}
}

// What the file does not accept makes the run degraded, and the report lists the
// timers.
func TestUndilatedIsDegraded(t *testing.T) {
	for _, accepted := range []string{"", "accept-undilated: [tcp]", "accept-undilated: [tcp, programs]"} {
		o := options(t, fmt.Sprintf(dilated, accepted))
		f := &report.Fidelity{Undilated: measure.Undilated(o.File)}
		measure.Judge(f, nil)
		if len(f.Undilated) != 2 || len(f.Undilated[0].Timers) < 3 {
			t.Errorf("undilated %+v, want tcp's timers and programs", f.Undilated)
		}
		missing := 2 - strings.Count(accepted, ",") - strings.Count(accepted, "tcp")
		wanted := report.Degraded
		if missing == 0 {
			wanted = report.Faithful
		}
		if f.Verdict != wanted || len(f.Reasons) != missing {
			t.Errorf("%q: %s %q, want %s for %d reasons", accepted, f.Verdict, f.Reasons, wanted, missing)
		}
	}
	if measure.Undilated(options(t, strings.Replace(fmt.Sprintf(dilated, ""), "dilation: 10", "dilation: 1",
		1)).File) != nil {
		t.Error("undilated in real time")
	}
}
