package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/kernel"
	"railbed/internal/nicqueue"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes/docker"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
)

// TestContainers has two containers and a netns node on one soft switch.
func TestContainers(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Ping)
	engine := dockertest.Start(t)
	base := dockertest.Root(t, "sh", "ps", "ping", "cat", "sleep", "ls", "true", "head", "seq", "setsid",
		"stty", "env", "yes", "grep", "tty", "wc", "id", "dd", "tr", "readlink")
	text := fmt.Sprintf(`
name: go-containers
fabric:
  topology: single-switch
  params: {hosts: 3}
  links: {default: {rate: 1gbit, delay: 50us, mtu: 4200}}
nodes:
  "h[0-1]": {runtime: docker, rootfs: %s, sysctls: {net.ipv4.tcp_ecn: 1}}
  h0: {restart: on-failure, entrypoint: [sh, -c, "echo here"], nic-mirror: true}
`, base)
	tb := upWith(t, text, testbed.Options{})
	ctx := t.Context()
	run := func(node, program string, args ...string) (string, error) {
		output, err := tb.Node(node).Command(ctx, program, args...).CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}
	for _, way := range [][2]string{{"h0", "h1"}, {"h2", "h0"}, {"h1", "h2"}} {
		for family, size := range map[string]string{"-4": "4172", "-6": "4152"} {
			if out, err := run(way[0], "ping", family, "-c3", "-i0.2", "-W20", "-Mdo", "-s"+size,
				way[1]); err != nil {
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
	t.Run("LeftBehind", func(t *testing.T) { leftBehind(t, tb.Node("h1")) })
	t.Run("Restarted", func(t *testing.T) { restarted(t, tb, engine) })
	t.Run("Killed", func(t *testing.T) { killedWithContainers(t, tb, engine) })
	t.Run("GcBesideUp", func(t *testing.T) { gcBesideUp(t, engine) })
	t.Run("KilledHalfWay", func(t *testing.T) { killedHalfWay(t, text, engine) })
}

// killedHalfWay kills the supervisor while it makes containers.
func killedHalfWay(t *testing.T, text string, engine *dockertest.Engine) {
	file, err := spec.Decode("half.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		tb, err := testbed.Up(t.Context(), p, testbed.Options{})
		if err == nil {
			err = tb.Close()
		}
		ended <- err
	}()
	hosttest.Eventually(t, "a container is there", func() error {
		out, err := engine.Docker("ps", "-aq")
		if err == nil && out == "" {
			err = errors.New("none")
		}
		return err
	})
	if killed, err := testbed.KillStarted(); err != nil || len(killed) != 1 {
		t.Errorf("killed %q, %v", killed, err)
	}
	if err := <-ended; err == nil {
		t.Error("it came up")
	}
	hosttest.Eventually(t, "nothing is left", func() error {
		_, err := rundir.Sweep(rundir.SweepOptions{})
		_, orphansErr := testbed.SweepContainers(false) // containers that the engine was making then
		out, listErr := engine.Docker("ps", "-aq")
		if err = errors.Join(err, orphansErr, listErr); err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
}

// leftBehind ends a command whose shell has left a process in its group that ignores
// being asked.
func leftBehind(t *testing.T, node *testbed.Node) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := node.Command(ctx, "sh", "-c", "trap '' HUP TERM; (echo ready; exec sleep 1000) & "+
		"trap - HUP TERM; echo ready; sleep 1000")
	output := &lockedBuffer{}
	cmd.Stdout = output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, "both processes", func() bool { return output.String() == "ready\nready\n" })
	cancel()
	if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	hosttest.Eventually(t, "nobody is left", func() error {
		out, err := node.Command(t.Context(), "sh", "-c", "ps ax | grep -c '[s]leep 1000'; true").Output()
		if err == nil && strings.TrimSpace(string(out)) != "0" {
			err = fmt.Errorf("%s run", out)
		}
		return err
	})
}

// restarted kills a container whose file wants it back, and one whose does not.
func restarted(t *testing.T, tb *testbed.Testbed, engine *dockertest.Engine) {
	for _, node := range []string{"h0", "h1"} {
		if _, err := engine.Docker("kill", "railbed-go-containers-"+node); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	hosttest.Eventually(t, "h0 runs again", func() error {
		seen = nil
		err := tb.Events(t.Context(), false, func(e supervisor.Event) error {
			if strings.HasPrefix(e.Kind, "container.") {
				seen = append(seen, e.Kind+" "+e.Subject+" "+e.Detail)
			}
			return nil
		})
		if err == nil && !slices.Contains(seen,
			"container.restart h0 the container runs again, with its links") {
			err = fmt.Errorf("events %q", seen)
		}
		return err
	})
	for _, node := range []string{"h0", "h1"} {
		if !slices.Contains(seen, "container.died "+node+" the container exited with 137") {
			t.Errorf("no event of the end of %s: %q", node, seen)
		}
	}
	if out, err := tb.Node("h0").Command(t.Context(), "ping", "-c3", "-i0.2", "-W20",
		"h2").CombinedOutput(); err != nil {
		t.Errorf("ping from h0 after its restart: %v\n%s", err, out)
	}
	opensQueues(t, tb, "h0")
	if err := tb.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	hosttest.Eventually(t, "the entry point of h0 has said the same twice", func() error {
		out, err := engine.Docker("logs", "railbed-go-containers-h0")
		if err == nil && out != "here\nhere" {
			err = fmt.Errorf("it said %q", out)
		}
		return err
	})
	if err := tb.Node("h1").Command(t.Context(), "true").Run(); err == nil ||
		!strings.Contains(err.Error(), "the container does not run any more") {
		t.Errorf("a command in h1: %v", err)
	}
}

// opensQueues requires that a program of a node reaches the NIC past the kernel.
func opensQueues(t *testing.T, tb *testbed.Testbed, node string) {
	t.Helper()
	nodes := inspected(t, tb).Nodes
	at := slices.IndexFunc(nodes, func(n supervisor.NodeState) bool { return n.Name == node })
	namespace, err := kernel.OpenNamespace(nodes[at].NamespacePath)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	err = namespace.Do(func() error {
		queues, err := nicqueue.Open(nicqueue.Request{NIC: "eth0", First: 20000, Last: 20000,
			Geometry: nicqueue.Geometry{Send: 16, Receive: 16, Room: 1514}})
		if err != nil {
			return err
		}
		return queues.Close()
	})
	if err != nil {
		t.Errorf("kernel bypass in %s: %v", node, err)
	}
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
	hosttest.Eventually(t, "no container runs", func() error {
		out, err := engine.Docker("ps", "-q")
		if err == nil && out != "" {
			err = errors.New(out)
		}
		return err
	})
	left, err := docker.Sweep(engine.Host, dir.Path, rundir.Patience, true)
	if err != nil || len(left) != 3 { // and the image
		t.Errorf("left %q, error %v; want two containers and their image", left, err)
	}
	// A container whose testbed has no directory any more, and three that are not ours.
	mark := []string{"--label=" + docker.LabelTestbed + "=x", "--label=" + docker.LabelNode + "=h1",
		"--label=" + docker.LabelRunDir + "=/nonexistent/x"}
	for name, labels := range map[string][]string{
		"railbed-x-h1": mark, "users": mark, // of an image that was committed of one of ours
		"other": {"--label=" + docker.LabelTestbed + "=x"}, "railbed-x-h0": nil,
	} {
		image, err := engine.Docker("images", "-q")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Docker(
			append(append([]string{"create", "--name", name}, labels...), image, "true")...); err != nil {
			t.Fatal(err)
		}
	}
	for _, dryRun := range []bool{true, false} {
		swept, err := testbed.SweepContainers(dryRun)
		if err != nil || len(swept) != 1 ||
			!slices.Equal(swept[0].Removed, []string{"container railbed-x-h1"}) {
			t.Errorf("swept %+v, error %v; want the orphan", swept, err)
		}
	}
	if out, err := engine.Docker("rm", "other", "users", "railbed-x-h0"); err != nil {
		t.Errorf("what is not ours: %s, %v", out, err)
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

// TestNoEngine: one line says what is not there, before anything is made.
func TestNoEngine(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	file, err := spec.Decode("f.yaml",
		[]byte("name: go-no-engine\nfabric: {topology: single-switch, params: {hosts: 2}}\nnodes: "+
			"{default: {runtime: docker, image: a}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{
		"unix:///nonexistent": "unix:///PATH",
		"tcp://127.0.0.1:2375": "DOCKER_HOST is tcp://127.0.0.1:2375, and containers must be on this host: " +
			"want unix:///PATH",
	} {
		t.Setenv("DOCKER_HOST", host)
		tb, err := testbed.Up(t.Context(), p, testbed.Options{})
		// That there is an engine is found out once; where it was there before, the supervisor says it.
		if !errors.Is(err, verdict.ErrUnsupported) ||
			!strings.Contains(err.Error(), "docker: unsupported here: ") ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: testbed %v, error %v; want %q", host, tb, err, want)
		}
	}
	if dir, err := rundir.Of("go-no-engine"); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(dir.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", dir.Path, err)
	}
}
