package testbed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// leafSpine is the fabric that bring-up is measured on.
type leafSpine struct{ leaves, spines, hosts int }

func (l leafSpine) nodes() int { return l.leaves * l.hosts }

var benchFabrics = []leafSpine{{8, 4, 8}, {16, 4, 16}, {32, 8, 32}}

func (l leafSpine) plan(b testing.TB, kind string) *plan.Plan {
	return plantest.Compile(b, fmt.Sprintf(`
name: bench
fabric:
  topology: leaf-spine
  params: {leaves: %d, spines: %d, hosts-per-leaf: %d}
  switch: {kind: %s}
`, l.leaves, l.spines, l.hosts, kind))
}

// bringUp is one run: a testbed up and down, and the supervisor's memory in
// between, in KiB.
func bringUp(b *testing.B, p *plan.Plan) (up, down time.Duration, rss int) {
	b.Helper()
	start := time.Now()
	tb, err := testbed.Up(b.Context(), p, testbed.Options{})
	if err != nil {
		b.Fatal(err)
	}
	up = time.Since(start)
	state, err := tb.Inspect(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	rss = residentKiB(b, state.PID)
	start = time.Now()
	if err := tb.Close(); err != nil {
		b.Fatal(err)
	}
	return up, time.Since(start), rss
}

func residentKiB(b *testing.B, pid int) int {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				b.Fatal(err)
			}
			return kib
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// BenchmarkBringUp measures a leaf-spine of routers, of bridges and of soft switches. Every link is shaped
// and everything is read back. It reports the times up and down, the time per node, and the
// supervisor's resident memory per node.
func BenchmarkBringUp(b *testing.B) {
	hosttest.Need(b, hosttest.Testbed)
	for _, kind := range []string{spec.Router, spec.Bridge, spec.Soft} {
		for _, fabric := range benchFabrics {
			if kind == spec.Bridge {
				fabric.spines = 1 // more would form loops
			}
			b.Run(fmt.Sprintf("%s/nodes=%d", kind, fabric.nodes()), func(b *testing.B) {
				benchBringUp(b, fabric, kind)
			})
		}
	}
}

func benchBringUp(b *testing.B, fabric leafSpine, kind string) {
	p := fabric.plan(b, kind)
	bringUp(b, p) // the calibration, when it is the first
	b.ResetTimer()
	var ups, downs []time.Duration
	rss := 0
	for b.Loop() {
		up, down, kib := bringUp(b, p)
		ups, downs, rss = append(ups, up), append(downs, down), kib
	}
	b.ReportMetric(median(ups).Seconds(), "s-up")
	b.ReportMetric(median(downs).Seconds(), "s-down")
	b.ReportMetric(float64(median(ups).Microseconds())/float64(fabric.nodes()), "us-up/node")
	b.ReportMetric(float64(rss)/float64(fabric.nodes()), "KiB/node")
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkBringUpBesideMininet runs the two in turn on one fabric and reports the ratio of the
// medians. Mininet gets its fastest settings. It runs once with the same four spines, and with STP,
// which Linux bridges need for loops. It also runs with a single spine, the setting that favours it
// most.
func BenchmarkBringUpBesideMininet(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Mininet)
	for _, run := range []struct {
		kind string
		peer leafSpine
	}{
		{spec.Router, leafSpine{16, 4, 16}}, {spec.Router, leafSpine{16, 1, 16}},
		{spec.Bridge, leafSpine{16, 1, 16}},
	} {
		peer := run.peer
		b.Run(fmt.Sprintf("%s/nodes=%d/spines=%d", run.kind, peer.nodes(), peer.spines), func(b *testing.B) {
			p := peer.plan(b, run.kind)
			bringUp(b, p)
			var ups, downs, peerUps, peerDowns []time.Duration
			for b.Loop() {
				up, down, _ := bringUp(b, p)
				ups, downs = append(ups, up), append(downs, down)
				up, down = mininet(b, peer)
				peerUps, peerDowns = append(peerUps, up), append(peerDowns, down)
			}
			b.ReportMetric(median(ups).Seconds(), "s-up")
			b.ReportMetric(median(peerUps).Seconds(), "s-up-mininet")
			b.ReportMetric(median(peerUps).Seconds()/median(ups).Seconds(), "x-up")
			b.ReportMetric(median(downs).Seconds(), "s-down")
			b.ReportMetric(median(peerDowns).Seconds(), "s-down-mininet")
			b.ReportMetric(median(peerDowns).Seconds()/median(downs).Seconds(), "x-down")
		})
	}
}

// mininet brings the fabric up and down with Mininet, in network and mount
// namespaces of its own so that it leaves the host's alone.
func mininet(b *testing.B, fabric leafSpine) (up, down time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "testdata/mininet_leafspine.py",
		strconv.Itoa(fabric.leaves), strconv.Itoa(fabric.spines), strconv.Itoa(fabric.hosts))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS |
		syscall.CLONE_NEWPID}
	output, err := cmd.Output()
	if err != nil {
		b.Fatalf("mininet: %v", err)
	}
	var took struct{ Up, Down float64 }
	if err := json.Unmarshal(output, &took); err != nil {
		b.Fatalf("mininet printed %q: %v", output, err)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return seconds(took.Up), seconds(took.Down)
}
