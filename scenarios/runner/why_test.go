package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"railbed/capture/follow"
	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestWhyNamesTheCause runs scenarios with a known fault, and reads their results as railbed why does. The
// first cause is the fault. A machine that could not carry the scenario proves nothing.
func TestWhyNamesTheCause(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	for _, test := range []struct {
		path, part, where, what string
		unfinished              bool
	}{
		{"../debugging/incast-tail.yaml", "recover", "leaf1:", "dropped packets: tail", false},
		{"../debugging/grey-spine.yaml", "recover", "spine1:", "dropped packets: nth", false},
		{"../pfc-storm.yaml", "recover", ":eth0",
			"nic-overrun; flow control stopped the port: h2:eth0, a NIC, " +
				"asked for it first, and leaf2:p2, spine1:p0, leaf1:", true},
	} {
		t.Run(strings.TrimPrefix(test.path, "../"), func(t *testing.T) {
			// On a busy machine the senders of an incast start apart, and no last packet of a message may be
			// lost in a run.
			const runs = 3
			for run := 1; ; run++ {
				c, r, stolen := firstCause(t, test.path)
				dropped := false
				if shown := r.PacketOf(c.Record); shown >= 0 {
					dropped = r.Packets[shown].Dropped != ""
				}
				if c.Part == test.part && strings.Contains(c.What, test.what) &&
					c.Unfinished > 0 == test.unfinished && dropped &&
					slices.ContainsFunc(c.Where, func(at string) bool {
						return strings.Contains(at,
							test.where)
					}) {
					return
				}
				said := fmt.Sprintf("run %d: the first cause is %+v, its packet was dropped: %v", run, c,
					dropped)
				t.Log(said)
				if stolen > 0.05 {
					t.Skipf("the hypervisor took %.0f%% of the CPU time: most times are not the fabric's",
						stolen*100)
				} else if run == runs {
					t.Fatalf("the first cause of no run is %s at %s", test.what, test.where)
				}
			}
		})
	}
}

// firstCause runs a scenario and returns the first cause in the fabric: on a busy machine programs and the
// emulator are late, too. stolen is the share of the CPU time that the hypervisor took.
func firstCause(t *testing.T, path string) (first follow.Cause, recording *follow.Recording, stolen float64) {
	t.Helper()
	o := load(t, path)
	r := runAll(t, t.Context(), o)
	if r.Verdict != verdict.Pass {
		if r.Verdict == verdict.Overloaded || r.Verdict == verdict.Inconclusive {
			t.Skipf("cannot run here: %s: %s", r.Verdict, r.Reason)
		}
		want(t, r, verdict.Pass)
	}
	recording = recordingOf(t, o)
	slowestOperation(t, r, recording)
	answers := recording.Why(recording.Select(follow.Selection{}))
	if len(answers) != 1 {
		t.Fatalf("answers %+v", answers)
	}
	fabric := slices.DeleteFunc(answers[0].Causes, func(c follow.Cause) bool {
		return c.Part == follow.Host.String() || c.Part == follow.Emulator.String()
	})
	if len(fabric) == 0 {
		t.Fatalf("no cause in the fabric: %+v", answers[0])
	}
	return fabric[0], recording, r.Fidelity.Steal
}

// slowestOperation checks that the messages of a workload's slowest operation are in its time, and some of
// them have causes.
func slowestOperation(t *testing.T, r *report.Report, recording *follow.Recording) {
	t.Helper()
	for _, a := range r.Activities {
		if !a.Slowest {
			continue
		}
		all := recording.Select(follow.Selection{Workload: a.Step})
		from, to := a.Began.UnixNano(), a.Began.UnixNano()+int64(a.Took*1e9)
		within := 0
		for _, i := range all {
			if m := &recording.Messages[i]; m.Start >= from && m.Start <= to {
				within++
			}
		}
		answers := recording.WhyIn(all, from, to)
		if a.Took <= 0 || within == 0 || within > len(all) || len(answers) != 1 ||
			len(answers[0].Causes) == 0 ||
			answers[0].Causes[0].From < recording.Own(from-recording.Start) {
			t.Errorf("%s, %s of %.3f s: %d of %d messages, %+v", a.Step, a.What, a.Took, within, len(all),
				answers)
		}
	}
}

// TestWhyNamesSwitchSettings: a leaf sprays the packets of a queue pair over two spines. Another leaf puts
// the packets of a small job into the queue of a large job.
func TestWhyNamesSwitchSettings(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	hosttest.Long(t)
	for _, test := range []struct{ name, file, where, what string }{
		{"spray", `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2, striped: 1}
  switch: {kind: soft}
  switches: {leaf1: {load-balance: spray}}
  links: {default: {rate: 50mbit, delay: 10us}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: ar, kind: all-reduce, transport: roce, size: 128KiB, iterations: 2}
`, "leaf1", "packets of one flow left by several ports, p2, p3, and overtook each other on their paths, and " +
			"packets were sent again that had arrived"},
		{"priority", `
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 3}
  switch: {kind: soft, scheduler: {strict: [7, 3]}}
  switches: {leaf2: {priorities: {26: 0}}}
  links: {default: {rate: 50mbit, delay: 10us}}
steps:
  - capture: {at: [all], file: run.pcapng}
  - workload: {name: large, kind: all-to-all, ranks: [0, 1, 3, 4], size: 1MiB, iterations: 6,
	background: true}
  - sleep: 200ms
  - workload: {name: small, kind: all-reduce, transport: roce, roce: {timeout: 1s}, ranks: [2, 5],
	size: 128KiB}
`, "leaf2:p3", "; they had priority 0 there, and priority 3 at "},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := options(t, test.file)
			want(t, runAll(t, t.Context(), o), verdict.Pass)
			r := recordingOf(t, o)
			answers := r.Why(r.Select(follow.Selection{}))
			for _, a := range answers {
				for _, c := range a.Causes {
					if slices.Contains(c.Where, test.where) && strings.Contains(c.What, test.what) {
						return
					}
				}
			}
			t.Errorf("%s: %q is no cause: %+v", test.where, test.what, answers)
		})
	}
}

// TestWhyCheck: a check of causes knows the fault that delays packets, and not another one. A run without a
// fault has no cause.
func TestWhyCheck(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const text = `
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: soft}
  links: {default: {rate: 50mbit, delay: 20us}}
steps:
  - capture: {at: [all], file: run.pcapng}
FAULT  - workload: {name: ar, kind: all-reduce, transport: rd, size: 128KiB, iterations: 4}
checks:
`
	fault := "  - fault: {name: f, where: h0--leaf1 a-to-b, match: ip.len > 500, delay: {by: 30ms, share: " +
		"10%}}\n"
	o := options(t, strings.Replace(text, "FAULT", fault,
		1)+`  - why: {cause: "fault f", at: "h0:*", workload: ar}
  - why: {cause: "fault f", at: "leaf1:*"}
  - why: {cause: "fault g", among: 9}
  - why: {cause: none}
`)
	r, held := runAndHold(t, o)
	if r.Checks[0].Verdict != verdict.Pass {
		t.Errorf("%+v", r.Checks[0])
	}
	held.Fidelity = faithful
	for i, c := range rejudge(t, o, held)[1:] {
		if c.Verdict != verdict.Fail || !strings.Contains(c.Summary, "fault f") {
			t.Errorf("check %d: %+v", i+1, c)
		}
	}
	o = options(t, strings.Replace(text, "FAULT", "", 1)+"  - why: {cause: none}\n")
	if r := runAll(t, t.Context(), o); r.Checks[0].Verdict != verdict.Pass &&
		(r.Checks[0].Verdict == verdict.Fail || r.Fidelity.Verdict == report.Faithful) {
		t.Errorf("%s: %+v", r.Fidelity.Verdict, r.Checks[0])
	}
}
