package runner

import (
	"fmt"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestCommandsThatAreNotThere runs commands that the nodes do not have. Only a program that the file requires
// may be missing without a FAIL.
func TestCommandsThatAreNotThere(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const requires = "requires: [no-such-program]\n"
	for _, test := range []struct {
		requires, step string
		is             verdict.Verdict
		says           string
	}{
		{"", `[no-such-program]`, verdict.Fail, "name it in requires"},
		{"", `[sh, -c, no-such-program]`, verdict.Fail, "no-such-program"},
		{"", `[./no-such-program]`, verdict.Fail, "no file /no-such-program"},
		{"", `[/etc/passwd]`, verdict.Fail, "is not an executable file"},
		{"", `[sh, -c, /etc/passwd]`, verdict.Fail, "exit code 126"},
		{"", `[no-such-program], expect: 1`, verdict.Fail, "no-such-program"},
		{"", `[sh, -c, no-such-program], expect: 127`, verdict.Pass, ""},
		{"", "[no-such-program], background: true}\n  - exec: {nodes: [h1], command: [sleep, \"5\"]",
			verdict.Fail, "no-such-program"},
		{"", `[no-such-program], background: true`, verdict.Fail, "no-such-program"},
		{requires, `[no-such-program]`, verdict.Unsupported, "no-such-program"},
		{requires, `[sh, -c, "no-such-program || exit 3"]`, verdict.Unsupported, "no-such-program"},
		{"requires: [sh]\n", `[./no-such-program]`, verdict.Fail, "no file /no-such-program"},
	} {
		step := "  - exec: {nodes: [h0], command: " + test.step + "}\n"
		r := runAll(t, t.Context(), options(t, test.requires+twoHosts+"steps:\n"+step))
		if want(t, r, test.is); !strings.Contains(r.Reason, test.says) {
			t.Errorf("%s%s: reason %q, want %q", test.requires, test.step, r.Reason, test.says)
		}
		if r.Verdict == verdict.Unsupported && (r.Unsupported == nil || r.Unsupported.Remedy == "" ||
			!strings.HasSuffix(r.Unsupported.Where, ":2:12") || r.Testbed.BringUp != 0) {
			t.Errorf("%s: %+v; up in %v", test.step, r.Unsupported, r.Testbed.BringUp)
		}
	}
}

// A launcher that finds no program of the user makes the step fail, also where the file expects a failure.
func TestLauncherWithoutAProgram(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.OpenMPI)
	const missing = "/no-such-program: not found"
	for fails, want := range map[bool]string{false: missing, true: missing} {
		r := runAll(t, t.Context(), options(t, twoHosts+fmt.Sprintf("nodes: {default: {ranks: 1}}\nsteps:\n"+
			"  - fails: %t\n    stack: {name: x, kind: openmpi, command: [/no-such-program], timeout: "+
			"60s}\n", fails)))
		if r.Verdict != verdict.Fail || !strings.Contains(r.Reason, want) {
			t.Errorf("fails: %t: %s: %s", fails, r.Verdict, r.Reason)
		}
	}
}

// A stack that the host lacks is known before anything is brought up, with the line
// that installs it and the place in the file.
func TestStackThatIsNotThere(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	t.Setenv("PATH", t.TempDir())
	r := runAll(t, t.Context(), options(t, twoHosts+"steps:\n  - stack: {name: cache, kind: redis}\n"))
	want(t, r, verdict.Unsupported)
	u := r.Unsupported
	if u == nil || u.Remedy != "apt-get install --no-install-recommends redis-server redis-tools" ||
		!strings.HasSuffix(u.Where, ":7:32") || r.Testbed.BringUp != 0 {
		t.Errorf("got %+v; up in %v", u, r.Testbed.BringUp)
	}
}

// Open MPI's transport does not bind its connections: of two NICs of a node, with a rank
// each, one carries everything, and the packets say so.
func TestRanksThatUseOneNIC(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.OpenMPI)
	const file = `
fabric:
  topology: rail-optimized
  params: {servers: 2, rails: 2, spines: 1}
  switch: {kind: soft}
  links: {default: {rate: 200mbit}}
nodes: {default: {ranks: 2}}
steps:
  - capture: {at: [nics], file: run.pcapng, snaplen: 338B}
  - stack: {name: first, kind: openmpi, test: all-to-all, size: 16KiB, iterations: 2, timeout: 60s}
checks:
  - packets: {crossed: first}
`
	r := runAll(t, t.Context(), options(t, file))
	if len(r.Stacks) != 1 || r.Stacks[0].Ranks != 4 || len(r.Stacks[0].Rows) != 3 {
		t.Errorf("stacks %+v", r.Stacks)
	}
	if c := r.Checks[0]; c.Verdict != verdict.Fail ||
		!strings.Contains(c.Summary, "bytes of payload left, want at least") {
		t.Errorf("%s: %s", c.Verdict, c.Summary)
	}
}

// UCX moves its bytes through the memory of one node, and says how fast it was: the
// packets say that nothing crossed.
func TestRunThatStaysInMemory(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.OpenMPI, hosttest.UCX)
	const steps = `steps:
  - capture: {at: [nics], file: run.pcapng, snaplen: 338B}
  - stack:
      name: here
      kind: openmpi
      sends: 1MiB
      timeout: 30s
      command: [sh, -c, '[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0; export UCX_TLS=posix,self; unset UCX_NET_DEVICES; ucx_perftest >/dev/null & until ucx_perftest localhost -t tag_bw -s 65536 -n 32 -w 1; do sleep 0.1; done']
checks:
  - packets: {crossed: here}
`
	o := options(t, twoHosts+steps)
	r := runAll(t, t.Context(), o)
	if c := r.Checks[0]; c.Verdict != verdict.Fail || !strings.Contains(c.Summary, "want at least 1048576") {
		t.Errorf("%s: %s", c.Verdict, c.Summary)
	}
	if said := readOut(t, o, "logs/h0/here.out"); !strings.Contains(said, "Final: ") {
		t.Errorf("UCX said %q", said)
	}
}
