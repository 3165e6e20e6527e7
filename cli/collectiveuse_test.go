package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestCollectivesOfOneSwitch runs two processes whose collectives need the same switch. The second
// gets an error that names the first, before it has sent anything. A process that was killed no
// longer holds the switch. A process whose messages exceed the MTU of the NICs does not get the
// switch.
func TestCollectivesOfOneSwitch(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-collective-use"
	must(t, "up", writeFile(t, "name: "+name+"\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: soft, aggregation: {elements: 359}}}\n"))
	t.Cleanup(func() { must(t, "down", name) })
	collective := strings.Fields("collective all_reduce -t " + name + " --algorithm in-network -b 1K -n ")
	long := do(t, append(collective, "1", "--ip", "6")...)
	if want := "railbed: messages of 359 elements by IPv6 do not fit mtu 1500 of h0:eth0; want ip: 4, or " +
		"aggregation: {elements: 354}\n"; long.code != verdict.ExitUsage || long.stderr != want {
		t.Errorf("by IPv6: exit %d, %q, want %d and %q", long.code, long.stderr, verdict.ExitUsage, want)
	}
	first := command(append(collective, "1000000")...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = first.Process.Kill() // it is dead unless the test failed
		_ = first.Wait()
	}()
	awaitHolder(t, name, first.Process.Pid)

	second := command(append(collective, "1")...)
	var said bytes.Buffer
	second.Stderr = &said
	_ = second.Run() // its code says more
	want := "railbed: the aggregation job of switch leaf1: in use by process " +
		strconv.Itoa(first.Process.Pid) + "; run the collectives one after the other, or use another switch\n"
	if code := second.ProcessState.ExitCode(); code != verdict.ExitUsage || said.String() != want {
		t.Errorf("beside another one: exit %d, %q, want %d and %q", code, said.String(), verdict.ExitUsage,
			want)
	}

	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	hosttest.Eventually(t, "a collective after the one that was killed", func() error {
		third := do(t, append(collective, "1")...)
		if third.code == verdict.ExitPass {
			return nil
		}
		err := fmt.Errorf("exit %d, %q", third.code, third.stderr)
		// Its ranks end a moment later, and have their ports until then.
		if !strings.Contains(third.stderr, "address already in use") {
			t.Fatalf("after the one that was killed: %v", err)
		}
		return err
	})
}

// awaitHolder waits until a process has a switch's job.
func awaitHolder(t *testing.T, name string, pid int) {
	t.Helper()
	dir, err := rundir.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, fmt.Sprintf("the switch's job of process %d", pid), func() error {
		locks, err := filepath.Glob(filepath.Join(dir.Path, "aggregation-*.lock"))
		if err != nil {
			t.Fatal(err)
		}
		if len(locks) != 1 {
			return fmt.Errorf("locks %v", locks)
		}
		text, err := os.ReadFile(locks[0])
		if holder := strings.TrimSpace(string(text)); err != nil || holder != strconv.Itoa(pid) {
			return fmt.Errorf("the holder is %q, %w", holder, err)
		}
		return nil
	})
}
