package testbed_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
)

// TestContainerLimits slows a container, and leaves it too little memory.
func TestContainerLimits(t *testing.T) {
	hosttest.Long(t)
	engine := dockertest.Start(t)
	base := dockertest.Root(t, "sh", "head", "tail", "cat", "sleep", "true")
	tb := upWith(t, fmt.Sprintf(`
name: go-container-limits
fabric: {topology: single-switch, params: {hosts: 2}}
nodes: {default: {runtime: docker, rootfs: %s}, h1: {cpu: 0.5, memory: 200MiB, restart: always}}
`, base), testbed.Options{})
	t.Run("Slow", func(t *testing.T) { slowContainers(t, tb) })
	t.Run("Memory", func(t *testing.T) { squeezeContainers(t, tb) })
	t.Run("Restart", func(t *testing.T) { restartSqueezed(t, tb, engine) })
	// The limits are the file's again.
	for node, want := range map[string]string{"h0": "0 -1 2305843009213693952 4611686018427387904",
		"h1": "0 50000 209715200 209715200"} {
		const format = "{{with .HostConfig}}{{.NanoCpus}} {{.CpuQuota}} {{.Memory}} {{.MemorySwap}}{{end}}"
		out, err := engine.Docker("inspect", "--format", format, "railbed-go-container-limits-"+node)
		if err != nil || out != want {
			t.Errorf("limits of %s: %q, %v; want %q", node, out, err, want)
		}
	}
}

// addFault adds a fault to a testbed.
func addFault(t *testing.T, tb *testbed.Testbed, f spec.Fault) {
	t.Helper()
	if err := tb.AddFault(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// clearFault ends a fault and returns its state at its node.
func clearFault(t *testing.T, tb *testbed.Testbed, name string) softswitch.FaultPlaceState {
	t.Helper()
	ended, err := tb.ClearFaults(t.Context(), name)
	if err != nil || len(ended) != 1 || len(ended[0].Places) != 1 {
		t.Fatalf("clear %s: %+v, %v", name, ended, err)
	}
	return ended[0].Places[0]
}

// slowContainers compares how far a loop counts in a container with and without the fault.
func slowContainers(t *testing.T, tb *testbed.Testbed) {
	// The loop has as much time as it gets in 2 s. The shell counts its processor time itself.
	share := func(node string) float64 {
		t.Helper()
		const script = `(while :; do :; done) & sleep 2; kill $!; wait; times`
		began := time.Now()
		out, err := tb.Node(node).Command(t.Context(), "sh", "-c", script).Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		user, _, _ := strings.Cut(lines[len(lines)-1], " ") // of the children: 0m2.990000s
		_, seconds, _ := strings.Cut(strings.TrimSuffix(user, "s"), "m")
		used, err := strconv.ParseFloat(seconds, 64)
		if err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return used / time.Since(began).Seconds()
	}
	// most measures again where other programs of the host take the loop's time.
	most := func(node string, want float64) (largest float64) {
		t.Helper()
		for try := 0; try < 5 && largest < want; try++ {
			largest = max(largest, share(node))
		}
		return largest
	}
	if before := most("h0", 0.3); before < 0.3 {
		t.Skipf("the host is too busy: without the fault the loop has %.2f of a core", before)
	}
	addFault(t, tb, spec.Fault{Name: "slow", Where: "h0", Slow: &spec.FaultSlow{CPU: 0.1}})
	if slow := share("h0"); slow < 0.03 || slow > 0.2 {
		t.Errorf("with the fault the loop has %.2f of a core, want 0.1", slow)
	}
	if at := clearFault(t, tb, "slow"); at.Hit != 1 {
		t.Errorf("%+v", at)
	}
	if after := most("h0", 0.3); after < 0.3 {
		t.Errorf("after the fault the loop has %.2f of a core", after)
	}
	addFault(t, tb, spec.Fault{Name: "slow", Where: "h1", Slow: &spec.FaultSlow{CPU: 0.1}})
	clearFault(t, tb, "slow")
	if after := most("h1", 0.2); after < 0.2 || after > 0.6 {
		t.Errorf("after the fault the loop of h1 has %.2f of a core, want the 0.5 of the file", after)
	}
}

// squeezeContainers has programs that need more than the limit, when it begins and later, and a program that
// needs less.
func squeezeContainers(t *testing.T, tb *testbed.Testbed) {
	limit := 64 * units.Bytes(1<<20)
	tight := func(name, node string) spec.Fault {
		return spec.Fault{Name: name, Where: node, Memory: &limit}
	}
	// tail has all of a line in memory.
	run := func(node string, mib int) error {
		script := fmt.Sprintf("head -c %dM /dev/zero | tail | cat >/dev/null", mib)
		return tb.Node(node).Command(t.Context(), "sh", "-c", "set -e; "+script+"; true").Run()
	}
	addFault(t, tb, tight("enough", "h0"))
	if err := run("h0", 16); err != nil {
		t.Error(err)
	}
	if at := clearFault(t, tb, "enough"); at.Hit != 0 || at.Killed != 0 {
		t.Errorf("a program with 16 MiB of 64: %+v", at)
	}
	for _, node := range []string{"h0", "h1"} {
		addFault(t, tb, tight("tight", node))
		_ = run(node, 100) // a pipeline ends like its last program
		if at := clearFault(t, tb, "tight"); at.Hit != 1 || at.Killed != 1 {
			t.Errorf("a program with 100 MiB of 64: %+v", at)
		}
		// The first process was not killed, although it is in the same control group.
		if err := run(node, 100); err != nil {
			t.Error(err)
		}
	}
	const hold = "head -c 100M /dev/zero | tail | (head -c 1 >/ready; sleep 1000)"
	large := tb.Node("h0").Command(t.Context(), "sh", "-c", hold)
	if err := large.Start(); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "tail has read all", func() error {
		return tb.Node("h0").Command(t.Context(), "sh", "-c", "[ -s /ready ]").Run()
	})
	addFault(t, tb, tight("late", "h0"))
	if at := clearFault(t, tb, "late"); at.Hit != 1 || at.Killed != 1 {
		t.Errorf("a program that had 100 MiB before the limit of 64: %+v", at)
	}
	addFault(t, tb, spec.Fault{Name: "dead", Where: "h0", Crash: true})
	if err := large.Wait(); err == nil {
		t.Error("it survived a crash")
	}
	if _, err := tb.ClearFaults(t.Context(), "dead"); err != nil {
		t.Error(err)
	}
	// Small programs are killed before the first process of the container, which is larger.
	limit = 32 << 20
	addFault(t, tb, tight("small", "h0"))
	const small = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do " +
		"(head -c 2500K /dev/zero | tail | sleep 4)& done; wait"
	said, err := tb.Node("h0").Command(t.Context(), "sh", "-c", small).CombinedOutput()
	killed := uint64(strings.Count(string(said), "Killed"))
	if at := clearFault(t, tb, "small"); err != nil || at.Killed == 0 || at.Killed != killed {
		t.Errorf("small programs: %+v, %v, %q", at, err, said)
	}
}

// restartSqueezed kills a container while its memory is limited. The next run has the limit.
func restartSqueezed(t *testing.T, tb *testbed.Testbed, engine *dockertest.Engine) {
	limit := units.Bytes(64 << 20)
	large := func() error {
		const script = "head -c 100M /dev/zero | tail | cat >/dev/null"
		return tb.Node("h1").Command(t.Context(), "sh", "-c", script).Run()
	}
	addFault(t, tb, spec.Fault{Name: "tight", Where: "h1", Memory: &limit})
	_ = large()
	states, err := tb.Faults(t.Context())
	if err != nil || len(states) != 1 || states[0].Places[0].Killed != 1 {
		t.Errorf("before the restart: %+v, %v", states, err)
	}
	if _, err := engine.Docker("kill", "railbed-go-container-limits-h1"); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "h1 runs again", func() error {
		return tb.Node("h1").Command(t.Context(), "true").Run()
	})
	_ = large()
	if at := clearFault(t, tb, "tight"); at.Killed != 2 {
		t.Errorf("after the restart: %+v", at)
	}
}
