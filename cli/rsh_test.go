package cli_test

import (
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestRsh runs commands in a node from another one, and in none.
func TestRsh(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-rsh"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	in := func(args ...string) outcome {
		return do(t, append([]string{"exec", "h0", "-t", name, "--", "railbed"}, args...)...)
	}
	// A shell there reads the words; options behind the node are the command's.
	if got := in("rsh", "h1", "echo", "-n", "$RAILBED_NODE;",
		"echo err >&2; exit 7"); got != (outcome{7, "h1", "err\n"}) {
		t.Errorf("%+v, want h1, err and 7", got)
	}
	if got := in("rsh", "h1", "kill -9 $$"); got.code != 128+9 {
		t.Errorf("a killed command: %+v", got)
	}
	if got := in("rsh", "h9", "true"); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "h0, h1") {
		t.Errorf("in no node: %+v; want the nodes named", got)
	}
	if got := in("__complete", "rsh", ""); !strings.HasPrefix(got.stdout, "h0\nh1\n") {
		t.Errorf("completes %q, want the nodes", got.stdout)
	}
	// A program in the node finds the same railbed in its PATH.
	if got := do(t, "exec", "h0", "-t", name, "--", "sh", "-c",
		"command -v railbed && railbed rsh h1 hostname"); got !=
		(outcome{0, "/run/.railbed/railbed\nh1\n", ""}) {
		t.Errorf("railbed in the PATH of a node: %+v", got)
	}
	if got := do(t, "rsh", "h1", "true"); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "not in a node") {
		t.Errorf("in no node: %+v", got)
	}
}
