package rsh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
	"railbed/workloads/stacks/rsh"
)

const twoHosts = "name: rsh-%d\nfabric: {topology: single-switch, params: {hosts: 2}}\n"

func up(t *testing.T) *testbed.Testbed {
	t.Helper()
	hosttest.Need(t, hosttest.Testbed)
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, fmt.Sprintf(twoHosts, os.Getpid())),
		testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	})
	return tb
}

// sleeping waits until a node runs so many programs with an argument.
func sleeping(t *testing.T, tb *testbed.Testbed, node, argument string, want int) {
	t.Helper()
	// The pattern is no text of its own, which stands in this command's arguments.
	count := fmt.Sprintf("n=0; for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f 2>/dev/null | grep -q "+
		"'^sleep [%s]%s ' && n=$((n+1)); done; echo $n", argument[:1], argument[1:])
	hosttest.Eventually(t, fmt.Sprintf("%d times sleep %s in %s", want, argument, node), func() error {
		output, err := tb.Node(node).Command(context.Background(), "sh", "-c", count).Output()
		if err != nil {
			t.Fatal(err)
		}
		if running := strings.TrimSpace(string(output)); running != fmt.Sprint(want) {
			return fmt.Errorf("%s run", running)
		}
		return nil
	})
}

func TestAgent(t *testing.T) {
	tb := up(t)
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1"}, []string{"MARK=yes"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ask := func(args ...string) (string, string, int) {
		t.Helper()
		var out, said bytes.Buffer
		cmd := tb.Node("h0").Command(t.Context(), rsh.Agent, args...)
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		var exit *testbed.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if exit == nil {
			return out.String(), said.String(), 0
		}
		return out.String(), said.String(), exit.Code
	}
	// A shell there reads the words, as one does behind rsh.
	if out, said, code := ask("-x", "h1", "echo $RAILBED_NODE $MARK;",
		"echo err >&2; exit 3"); out != "h1 yes\n" || said != "err\n" || code != 3 {
		t.Errorf("out %q, err %q, code %d", out, said, code)
	}
	if out, _, code := ask("h1", "kill -9 $$"); out != "" || code != 128+9 {
		t.Errorf("a killed command: out %q, code %d", out, code)
	}
	if _, said, code := ask("h7", "true"); code != 255 || !strings.Contains(said, `"h7"`) {
		t.Errorf("no such node: err %q, code %d", said, code)
	}
	if _, said, code := ask("h1"); code != 255 || !strings.Contains(said, "want HOST COMMAND") {
		t.Errorf("no command: err %q, code %d", said, code)
	}
	// More than a pipe holds, in order.
	if out, _, code := ask("h1", "seq 1 40000"); code != 0 || len(out) != 228894 ||
		!strings.HasSuffix(out, "\n39999\n40000\n") {
		t.Errorf("%d bytes, code %d", len(out), code)
	}
}

// A command ends when its requester ends, and when the server ends.
func TestCommandsEnd(t *testing.T) {
	tb := up(t)
	server, err := rsh.Serve(t.Context(), tb, []string{"h0", "h1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	start := func(argument string) *testbed.Cmd {
		t.Helper()
		cmd := tb.Node("h0").Command(t.Context(), rsh.Agent, "h1", "exec sleep", argument)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sleeping(t, tb, "h1", argument, 1)
		return cmd
	}
	first, second := start("611"), start("622")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	sleeping(t, tb, "h1", "611", 0)
	sleeping(t, tb, "h1", "622", 1)
	server.Close()
	sleeping(t, tb, "h1", "622", 0)
	for _, agent := range []*testbed.Cmd{first, second} {
		if err := agent.Wait(); err == nil {
			t.Error("an agent whose command was ended exits with 0")
		}
	}
	again, err := rsh.Serve(t.Context(), tb, []string{"h0"}, nil)
	if err != nil {
		t.Fatalf("served again: %v", err)
	}
	again.Close()
}
