package runner

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/capture/report"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/plan"
	"railbed/plan/schedule"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// crashBound is the time after a crash within which every workload ends, by docs/how-to/node-faults.md.
const crashBound = 30 * time.Second

// crashed are steps that take longer than a test, and words of their errors after h1 has crashed.
func crashed() map[string][2]string {
	const rank = "rank 1 on h1"
	cases := map[string][2]string{
		"moe":     {"workload: {kind: moe, moe: {experts: 3}, iterations: 10000", rank},
		"barrier": {"workload: {kind: barrier, iterations: 1000000", rank},
		"sgd":     {"workload: {kind: sgd, iterations: 100000", rank},
		"in-switch": {"workload: {kind: all-reduce, algorithm: in-network, transport: in-switch, " +
			"size: 1MiB, iterations: 10000", rank},
		"training": {"training: {model: {layers: 4, hidden: 64, sequence: 32, tflops: 1, dp: 3}, " +
			"iterations: 10000", rank},
		"open":   {"messages: {open: {sizes: web-search, scale: 0.01, count: 5000, load: 10%}", rank},
		"closed": {"messages: {closed: {sizes: web-search, scale: 0.01, count: 8000}", rank},
		"cache": {"messages: {cache: {prefill: 1, requests: 400, per-second: 10, layers: 8, " +
			"layer-time: 1ms, layer-bytes: 64KiB}", rank},
		"blocks": {"messages: {blocks: {servers: 1, count: 20000, reads: 50%}", rank},
		// Traffic and probes need no connection. The sink and the receiver in h1 are missing.
		"traffic":    {"traffic: {from: [h0], to: [h1], rate: 1mbit, for: 60s", "sink in h1"},
		"probe to":   {"probe: {from: h0, to: h1, count: 100000", "in h1"},
		"probe from": {"probe: {from: h1, to: h0, count: 100000", "in h1"},
		"exec":       {"exec: {nodes: [h1], command: [sleep, '60']", "sleep in h1"},
	}
	for _, kind := range schedule.Kinds() {
		if kind == schedule.SendReceive || kind == schedule.Barrier {
			continue
		}
		cases[string(kind)] = [2]string{
			fmt.Sprintf("workload: {kind: %s, size: 1MiB, iterations: 10000", kind), rank}
	}
	for _, over := range []string{"all-reduce rd", "all-reduce roce", "all-reduce quic", "training rd",
		"closed rd"} {
		kind, transport, _ := strings.Cut(over, " ")
		cases[over] = [2]string{cases[kind][0] + ", transport: " + transport, rank}
	}
	cases["hang"] = cases["all-reduce roce"]
	cases["queue pairs"] = cases["all-reduce roce"]
	cases["partition"] = [2]string{cases["all-reduce rd"][0], "peer failed"}
	for _, kind := range []string{spec.OpenMPI, spec.MPICH, spec.UCX, spec.Libfabric, spec.IPerf3,
		spec.Redis} {
		long := "iterations: 10000000"
		if kind == spec.IPerf3 {
			long = "size: 10GB"
		}
		cases["stack "+kind] = [2]string{fmt.Sprintf("stack: {kind: %s, timeout: 5m, %s", kind, long), ""}
	}
	return cases
}

// harms are the cases with other faults than a crash, and the words for them in errors.
var harms = map[string][2]string{
	"hang":        {"where: h1, hang: true", "h1 hung"},
	"queue pairs": {"where: h1, queue-pairs: lost", "h1 lost its queue pairs"},
	"partition":   {"partition: [[h1], [h0, h2]]", "no packets between h1 and h0, h2"},
}

// TestFaultsEndEveryKind crashes a node while a workload, a stack or another step runs. The step ends within
// the bound, and its error names the node that is missing.
func TestFaultsEndEveryKind(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Need(t, hosttest.Testbed)
	cases := crashed()
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains([]string{"all-reduce rd", "stack iperf3", "queue pairs"}, name) {
				hosttest.Long(t)
			}
			if kind, is := strings.CutPrefix(name, "stack "); is {
				hosttest.Need(t, stackFeatures[kind])
			}
			fault, other := harms[name]
			if !other {
				fault = [2]string{"where: h1, crash: true", "h1 crashed"}
			}
			when := "when: 20th tcp || udp" // a busy host may have no ranks after a second
			switch {
			case name == "queue pairs":
				when = "when: 1000th udp.dstport == 4791"
			case name == "exec" || strings.HasPrefix(name, "stack "):
				when = "at: 1s"
			}
			t.Parallel()
			o := options(t, fmt.Sprintf(`
fabric:
  topology: single-switch
  params: {hosts: 3}
  switch: {kind: soft, int: true, aggregation: {}}
  links: {default: {rate: 40mbit}}
nodes: {default: {ranks: 1}}
steps:
  - %s, name: job}
  - %s
    fault: {name: gone, %s}
`, cases[name][0], when, fault[0]))
			o.File.Name = fmt.Sprintf("harm-%d-%d", os.Getpid(), i)
			var err error
			if o.Plan, err = plan.Compile(o.File); err != nil {
				t.Fatal(err)
			}
			r, err := Run(t.Context(), o) // a busy host changes the verdict, but not the step's error
			if err != nil {
				t.Fatal(err)
			}
			job := r.Steps[0]
			took := time.Duration((job.End - r.Steps[1].Start) * float64(time.Second))
			if job.State != report.Failed || took > crashBound || r.Verdict == verdict.Unsupported ||
				!strings.Contains(job.Error, cases[name][1]) ||
				!strings.HasSuffix(job.Error, "; fault gone: "+fault[1]) {
				t.Errorf("%s, %s %v after the fault: %s", r.Verdict, job.State, took, job.Error)
			}
		})
	}
}

// TestFaultThatHitsNothing: the errors of steps do not say that a fault did what it could not do.
func TestFaultThatHitsNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for _, fault := range []string{"where: h1, queue-pairs: lost",
		"where: h1, crash: true, program: nosuch"} {
		r, err := Run(t.Context(), options(t, fmt.Sprintf(`
fabric: {topology: single-switch, params: {hosts: 2}}
steps:
  - fault: {name: f, %s}
  - exec: {nodes: [h0], command: ["false"]}
`, fault)))
		if err != nil {
			t.Fatal(err)
		}
		if text := r.Steps[1].Error; !strings.HasSuffix(text, "; fault f: hit nothing") {
			t.Errorf("%s: %s", fault, text)
		}
	}
}

// TestKilledServers: a crash explains the end of programs in its nodes, and a crash of some programs explains
// only signal 9.
func TestKilledServers(t *testing.T) {
	s := &session{}
	by := func(d time.Duration) time.Duration { return d }
	s.keepHarm(harmOf(&spec.Fault{Name: "a", Crash: true}, []string{"h1"}, by))
	s.keepHarm(harmOf(&spec.Fault{Name: "b", Crash: true, Program: "redis-*"}, []string{"h2"}, by))
	s.keepHarm(harmOf(&spec.Fault{Name: "c", Hang: true}, []string{"h3"}, by))
	exited := &testbed.ExitError{Exit: nodes.Exit{Code: 1}, Args: []string{"a"}}
	killed := &testbed.ExitError{Exit: nodes.Exit{Signal: syscall.SIGKILL}, Args: []string{"a"}}
	for _, row := range []struct {
		node string
		err  error
		want bool
	}{
		{"h1", exited, true}, {"h1", killed, true}, {"h2", exited, false}, {"h2", killed, true},
		{"h3", killed, false}, {"h0", killed, false}, {"h1", errors.New("no such node"), false},
		{"h1", nil, false},
	} {
		if got := s.killed(row.node, row.err); got != row.want {
			t.Errorf("%s, %v: %t, want %t", row.node, row.err, got, row.want)
		}
	}
}

// TestBlame: the errors of steps name the faults that the steps met.
func TestBlame(t *testing.T) {
	s := &session{}
	began := time.Now()
	failed := errors.New("failed")
	if err := s.withFaults(failed, began); err != failed {
		t.Errorf("without a fault: %v", err)
	}
	by := func(d time.Duration) time.Duration { return 2 * d }
	second := units.Duration(time.Second)
	for _, f := range []struct {
		fault spec.Fault
		nodes []string
	}{
		{spec.Fault{Name: "a", Crash: true, For: second}, []string{"h1", "h2"}},
		{spec.Fault{Name: "b", Hang: true, For: second}, []string{"h3"}},
		{spec.Fault{Name: "c", Partition: [][]string{{"h0"}, {"h1", "h[2-3]"}}}, nil},
		{spec.Fault{Name: "d", Drop: &spec.Pick{}}, nil},
		{spec.Fault{Name: "e", Reboot: true, Where: "spine1", For: second}, nil},
		{spec.Fault{Name: "f", Hang: true, Program: "redis-*", For: second}, []string{"h3"}},
		{spec.Fault{Name: "g", Crash: true, Rank: new(int)}, []string{"h0"}},
	} {
		s.keepHarm(harmOf(&f.fault, f.nodes, by))
	}
	const always = "failed; fault a: h1, h2 crashed"
	const parted = "; fault c: no packets between h0 and h1, h[2-3]"
	const killed = "; fault g: rank 0 in h0 crashed"
	for after, want := range map[time.Duration]string{
		0: always + "; fault b: h3 hung" + parted + "; fault e: spine1 rebooted" +
			"; fault f: redis-* in h3 hung" + killed,
		3 * time.Second: always + parted + killed,
	} {
		if err := s.withFaults(failed, began.Add(after)); err.Error() != want || !errors.Is(err, failed) {
			t.Errorf("a step that began %v later: %v, want %s", after, err, want)
		}
	}
	lacks := &verdict.UnsupportedError{Feature: "f", Reason: "exit code 127"}
	if err := s.withFaults(lacks, began); errors.Is(err, verdict.ErrUnsupported) {
		t.Errorf("after a crash something is unsupported: %v", err)
	}
}
