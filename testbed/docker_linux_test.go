package testbed_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/nodes/docker"
	"railbed/testbed"
	"railbed/testbed/hosttest"
	"railbed/testbed/hosttest/dockertest"
	"railbed/testbed/rundir"
)

// TestContainers has two containers and a netns node on one soft switch.
func TestContainers(t *testing.T) {
	hosttest.Need(t, hosttest.Ping)
	engine := dockertest.Start(t)
	base := dockertest.Root(t, "sh", "ps", "ping", "cat", "sleep", "ls", "true", "head", "seq", "setsid", "stty", "env", "yes", "grep", "tty", "wc", "id", "dd", "tr", "readlink")
	tb := upWith(t, fmt.Sprintf(`
name: go-containers
fabric:
  topology: single-switch
  params: {hosts: 3}
  links: {default: {rate: 1gbit, delay: 50us, mtu: 4200}}
nodes:
  "h[0-1]": {runtime: docker, rootfs: %s, sysctls: {net.ipv4.tcp_ecn: 1}}
`, base), testbed.Options{})
	ctx := t.Context()
	run := func(node, program string, args ...string) (string, error) {
		output, err := tb.Node(node).Command(ctx, program, args...).CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}
	for _, way := range [][2]string{{"h0", "h1"}, {"h2", "h0"}, {"h1", "h2"}} {
		for family, size := range map[string]string{"-4": "4172", "-6": "4152"} {
			if out, err := run(way[0], "ping", family, "-c3", "-i0.2", "-W20", "-Mdo", "-s"+size, way[1]); err != nil {
				t.Errorf("ping %s from %s to %s: %v\n%s", family, way[0], way[1], err, out)
			}
		}
	}
	if out, err := run("h0", "cat", "/proc/sys/net/ipv4/tcp_ecn"); err != nil || out != "1" {
		t.Errorf("tcp_ecn of h0: %q, %v", out, err)
	}
	if err := tb.Verify(ctx); err != nil {
		t.Error(err)
	}
	if done, err := tb.Converge(ctx, tb.Plan(), testbed.Options{}); err != nil || len(done.Repaired) > 0 {
		t.Errorf("converge: %+v, %v; want nothing to repair", done, err)
	}
	t.Run("Commands", func(t *testing.T) { commands(t, tb, tb.Node("h1")) })
	t.Run("Killed", func(t *testing.T) { killedWithContainers(t, tb, engine) })
}

// killedWithContainers kills the supervisor: its containers stop, and the next sweep
// removes them.
func killedWithContainers(t *testing.T, tb *testbed.Testbed, engine *dockertest.Engine) {
	state := inspected(t, tb)
	if err := unix.Kill(state.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-tb.Done()
	dir, err := rundir.Of(tb.Name())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "no container runs", func() error {
		out, err := engine.Docker("ps", "-q")
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
	left, err := docker.Sweep(engine.Host, dir.Path, true)
	if err != nil || len(left) != 3 { // and the image
		t.Errorf("left %q, error %v; want two containers and their image", left, err)
	}
	if _, err := rundir.Sweep(rundir.SweepOptions{}); err != nil {
		t.Error(err)
	}
	for _, what := range [][]string{{"ps", "-aq"}, {"images", "-aq"}} {
		if out, err := engine.Docker(what...); err != nil || out != "" {
			t.Errorf("docker %v after the sweep: %q, %v", what, out, err)
		}
	}
}

// eventually waits for what other processes bring about.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Errorf("%s: %v", what, err)
}
