package rsh_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"railbed/internal/frame"
	"railbed/internal/kernel"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/dockertest"
	"railbed/testkit/plantest"
	"railbed/workloads/stacks/rsh"
)

// Parts of hostile programs in nodes.
const (
	impostorPart = "rsh-impostor"
	strangerPart = "rsh-stranger"
)

// socket is where relays listen.
const socket = "@railbed-rsh"

// impostor listens at the relay's address in its own network namespace and has the agent request a
// command there. It prints the bytes that it received and the agent's output.
func impostor(args []string) int {
	runtime.LockOSThread() // what it starts is in the thread's namespace
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		fmt.Println(err)
		return 1
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	got := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer conn.Close()
		_, payload, err := frame.NewReader(conn).Read()
		if err != nil {
			got <- "nothing"
			return
		}
		got <- string(payload)
	}()
	said, err := exec.Command(rsh.Agent, args...).CombinedOutput()
	fmt.Printf("impostor got %s; agent: %v: %s", <-got, err, said)
	return 0
}

// stranger is a program of a node that has become another user, and asks for a command
// without the agent.
func stranger(args []string) int {
	uid, err := strconv.Atoi(args[0])
	if err == nil {
		err = syscall.Setresuid(uid, uid, uid)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Print(answer(conn, args[1], "id -u"))
	return 0
}

// answer asks a relay for a command and returns how it answers.
func answer(conn net.Conn, host, command string) string {
	defer conn.Close()
	// A relay may refuse before it reads.
	_ = frame.NewWriter(conn).WriteJSON(frame.Message, map[string]string{"host": host, "command": command})
	kind, payload, err := frame.NewReader(conn).Read()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", kind, payload)
}

func refusal(text string) string { return fmt.Sprintf("%d %s", frame.Failure, text) }

// agentSays runs the agent in a node.
func agentSays(t *testing.T, tb *testbed.Testbed, node string, args ...string) (output string, code int) {
	t.Helper()
	said, err := tb.Node(node).Command(t.Context(), rsh.Agent, args...).CombinedOutput()
	var exit *testbed.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.Code
	}
	return string(said), code
}

// Commands run in the job's own nodes alone.
func TestOtherNodesAreRefused(t *testing.T) {
	tb := up(t)
	server, err := rsh.Serve(t.Context(), tb, []string{"h0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if said, code := agentSays(t, tb, "h0", "h1", "echo got in"); code != 255 ||
		!strings.Contains(said, `node "h1" is not in this job, want one of h0`) {
		t.Errorf("exit code %d: %s", code, said)
	}
	if said, code := agentSays(t, tb, "h0", "h0", "echo here"); code != 0 || said != "here\n" {
		t.Errorf("in a node of the job: exit code %d: %s", code, said)
	}
}

// A program of a node that dropped its privileges starts no commands, nor does a process
// outside the node that joined its network, whoever it is.
func TestStrangersAreRefused(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tb := up(t)
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	said, err := tb.Node("h0").Part(t.Context(), strangerPart, "65534", "h1").Output()
	if want := refusal("user 65534 may not start commands in nodes; want user 0"); err != nil ||
		string(said) != want {
		t.Errorf("another user: %v: %s, want %s", err, said, want)
	}
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	network, err := kernel.OpenNamespace(state.Nodes[0].NamespacePath)
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	var conn net.Conn
	if err := network.Do(func() (err error) {
		conn, err = net.Dial("unix", socket)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := answer(conn, "h1", "id -u"),
		refusal("a process outside this node may not start commands in nodes; "+
			"want a process of user 0 in this node"); got != want {
		t.Errorf("process %d outside the node: %s, want %s", os.Getpid(), got, want)
	}
}

// The agent sends no command to a program that took the relay's name.
func TestImpostorsAreRefused(t *testing.T) {
	tb := up(t)
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	output, err := tb.Node("h0").Part(t.Context(), impostorPart, "h1", "secret").Output()
	if said := string(output); err != nil ||
		!strings.HasPrefix(said, "impostor got nothing; agent: exit status 255:") ||
		!strings.Contains(said, "want the testbed's relay") {
		t.Errorf("%v: %s", err, said)
	}
}

// A program that has the name before the relay keeps a job from starting, with the reason,
// and a file in the agent's place is replaced and not written through.
func TestTakenNames(t *testing.T) {
	tb := up(t)
	plant := "echo mine > /run/victim && ln -s /run/victim " + rsh.Agent
	if err := tb.Node("h0").Command(t.Context(), "sh", "-c", plant).Run(); err != nil {
		t.Fatal(err)
	}
	server, err := rsh.Serve(t.Context(), tb, []string{"h0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if said, err := tb.Node("h0").Command(t.Context(), "cat", "/run/victim").Output(); err != nil ||
		string(said) != "mine\n" {
		t.Errorf("the file behind a planted link: %v: %q", err, said)
	}
	if second, err := rsh.Serve(t.Context(), tb, []string{"h0"}, nil); err == nil {
		second.Close()
		t.Error("two relays have one name")
	} else if !strings.Contains(err.Error(),
		"another MPI job runs in this node, or a program uses this address") {
		t.Error(err)
	}
}

// What a node is decides where its programs start commands: in a container as the user of
// its image, and from there in no node that sees the host's files.
func TestContainersStartNothingInNetnsNodes(t *testing.T) {
	engine := dockertest.Start(t)
	root := dockertest.Root(t, "sh", "bash", "id", "cat")
	if _, err := engine.Docker("import", "--change", "USER 1000", root, "local/user"); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
name: rsh-mixed-%d
fabric: {topology: single-switch, params: {hosts: 3}}
nodes: {"h[12]": {runtime: docker, image: local/user, idle: true}}
`, os.Getpid())
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, text), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}()
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1", "h2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, test := range []struct {
		from, to, want string
		code           int
	}{
		{"h0", "h1", "1000\n", 0},
		{"h1", "h2", "1000\n", 0},
		{"h1", "h0", "h1 may not start commands in h0", 255},
	} {
		if said, code := agentSays(t, tb, test.from, test.to, "id -u"); code != test.code ||
			!strings.Contains(said, test.want) {
			t.Errorf("from %s in %s: exit code %d: %s; want %d: %s", test.from, test.to, code, said,
				test.code, test.want)
		}
	}
	for from, to := range map[string]string{"h0": "h1", "h1": "h2"} {
		if err := rsh.Reaches(tb, []string{"h0", "h1", "h2"}, from, to); err != nil {
			t.Errorf("a job whose launcher is in %s: %v", from, err)
		}
	}
	if err := rsh.Reaches(tb, []string{"h1", "h0"}, "h1", "h0"); err == nil ||
		!strings.Contains(err.Error(), "name a node of runtime netns first") {
		t.Errorf("a job whose launcher is in a container: %v", err)
	}
	said, err := tb.Node("h1").Part(t.Context(), strangerPart, "65534", "h2").Output()
	if want := refusal("user 65534 may not start commands in nodes; want user 1000"); err != nil ||
		string(said) != want {
		t.Errorf("another user in a container: %v: %s, want %s", err, said, want)
	}
}

// A guest starts commands in guests, and in no node that sees the host's files.
func TestGuestsStartNothingInNetnsNodes(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.VM, hosttest.Tap)
	text := fmt.Sprintf(`
name: rsh-guest-%d
fabric: {topology: single-switch, params: {hosts: 2}}
nodes: {h1: {runtime: vm, memory: 320MiB}}
`, os.Getpid())
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, text), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}()
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if said, code := agentSays(t, tb, "h1", "h0", "id -u"); code != 255 ||
		!strings.Contains(said, "h1 may not start commands in h0") {
		t.Errorf("from a guest: exit code %d: %s", code, said)
	}
	if said, code := agentSays(t, tb, "h0", "h1", "echo $RAILBED_NODE"); code != 0 || said != "h1\n" {
		t.Errorf("in a guest: exit code %d: %s", code, said)
	}
}

// Guests and containers of an MPI step start commands in each other, in containers as the user of
// their image, and in nodes of the step alone.
func TestGuestsAndContainersOfAStep(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.VM, hosttest.Tap)
	engine := dockertest.Start(t)
	root := dockertest.Root(t, "sh", "bash", "id", "cat")
	if _, err := engine.Docker("import", "--change", "USER 1000", root, "local/user"); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
name: rsh-guests-%d
fabric: {topology: single-switch, params: {hosts: 3}}
nodes:
  h0: {runtime: vm, memory: 320MiB}
  "h[12]": {runtime: docker, image: local/user, idle: true}
`, os.Getpid())
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, text), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}()
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, test := range []struct {
		from, to, want string
		code           int
	}{
		{"h0", "h1", "1000\n", 0},
		{"h1", "h0", "0\n", 0},
		{"h0", "h2", "\"h2\" is not in this job", 255},
		{"h1", "h2", "\"h2\" is not in this job", 255},
	} {
		said, code := agentSays(t, tb, test.from, test.to, "id -u")
		if code != test.code || !strings.Contains(said, test.want) {
			t.Errorf("from %s in %s: exit code %d: %s; want %d: %s", test.from, test.to, code, said,
				test.code, test.want)
		}
	}
}
