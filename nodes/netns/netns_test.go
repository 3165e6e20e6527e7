package netns_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"railbed/internal/kernel"
	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/nodes"
	"railbed/nodes/cgroup"
	"railbed/nodes/netns"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/nodestest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

func TestMain(m *testing.M) {
	reexec.Run(reexec.Parts{netns.Part: netns.Main})
	if err := reexec.CloseInherited(3); err != nil {
		panic(err)
	}
	os.Exit(hosttest.MainInUserNS(m))
}

func TestConformance(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	made := 0
	nodestest.Run(t, func(t *testing.T, name string) nodes.Node {
		namespace, err := kernel.NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { namespace.Close() })
		made++
		node, err := netns.Runtime{}.Create(t.Context(), nodes.Config{
			Testbed: "test", Namespace: namespace,
			Node:  plan.Node{Name: name, MachineID: fmt.Sprintf("%032x", made)},
			Hosts: []plan.HostEntry{{Addr: netip.MustParseAddr("10.0.0.1"), Name: "a"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return node
	}, nodestest.Options{})
}

// TestLimits checks a node's memory and processor limits: a process that needs more memory is
// killed, and a spinning process gets its share.
func TestLimits(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	group, err := cgroup.Plan("test-limits", "a", cgroup.Limits{CPU: 0.25, Memory: 128 << 20})
	if err == nil {
		err = group.Make()
	}
	if errors.Is(err, verdict.ErrUnsupported) {
		t.Skip("cannot run here:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, dir := range slices.Backward(group.Dirs()) {
			os.Remove(dir) // shared with testbeds that may be up
		}
	})
	namespace, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	node, err := netns.Runtime{}.Create(t.Context(), nodes.Config{
		Testbed: "test-limits", Namespace: namespace, Cgroup: group,
		Node: plan.Node{Name: "a", MachineID: fmt.Sprintf("%032x", 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	start := func(command nodes.Command) nodes.Exit {
		process, err := node.Start(t.Context(), command)
		if err != nil {
			t.Fatal(err)
		}
		exit, err := process.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return exit
	}
	run := func(script string) nodes.Exit { return start(nodes.Command{Args: []string{"sh", "-c", script}}) }
	// tail keeps what it may have to print.
	if exit := run("head -c 300M /dev/zero | tail -c 256M | wc -c | grep 268435456"); exit.Code == 0 {
		t.Errorf("256 MiB fit into 128 MiB: %+v", exit)
	}
	for unlimited, code := range map[bool]int{false: 0, true: 1} {
		grep := []string{"grep", "-q", "/test-limits/a$", "/proc/self/cgroup"}
		if exit := start(nodes.Command{Args: grep, Unlimited: unlimited}); exit.Code != code {
			t.Errorf("a command with Unlimited %t is in the wrong group: %+v", unlimited, exit)
		}
	}
	if exit := run("head -c 64M /dev/zero | tail -c 32M | wc -c | grep 33554432"); exit.Code != 0 {
		t.Errorf("32 MiB do not fit into 128 MiB: %+v", exit)
	}
	if exit := run("true"); exit.Code != 0 {
		t.Errorf("exit %+v after another process met its limit", exit)
	}
	// In one second of time the loop may use a quarter of a second of the
	// processor: times in clock ticks of 10 ms, of the shell itself.
	script := `timeout 1 sh -c 'while :; do :; done'; read -r line < /proc/self/stat; set -- $line; [ $((${16} + ${17})) -lt 60 ]`
	if exit := run(script); exit.Code != 0 {
		t.Error("a quarter of a core gave more than 0.6 s of processor time in 1 s")
	}
	most := time.Duration(runtime.NumCPU()) * time.Since(began) // of all processors
	if held, err := group.Throttled(); err != nil || held < time.Millisecond || held > most {
		t.Errorf("the loop was throttled for %v, %v; want 1ms to %v", held, err, most)
	}
}

// TestNice: programs have the node's nice value and are no sessions, so that the
// kernel does not give each one the share of a session.
func TestNice(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	namespace, err := kernel.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Close() })
	node, err := netns.Runtime{}.Create(t.Context(), nodes.Config{
		Testbed:   "test-nice",
		Namespace: namespace,
		Nice:      7,
		Node:      plan.Node{Name: "a", MachineID: fmt.Sprintf("%032x", 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	// proc_pid_stat(5): pgrp, session and nice are fields 5, 6 and 19. A session of
	// another PID namespace is 0 here.
	script := `read -r line < /proc/$$/stat; set -- $line; [ "$5 $6 ${19}" = "$$ 0 7" ] || { echo "$5 $6 ${19}" >&2; exit 1; }`
	process, err := node.Start(t.Context(),
		nodes.Command{Args: []string{"sh", "-c", script}, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := process.Wait(); err != nil || exit.Code != 0 {
		t.Errorf("the program is not group leader, without a session, of nice 7: %+v, %v", exit, err)
	}
}
