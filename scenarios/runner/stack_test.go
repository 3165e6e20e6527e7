package runner

import (
	"strings"
	"testing"

	"railbed/internal/hosttest"
	"railbed/internal/verdict"
)

// TestCommandsThatAreNotThere checks that a command which the node does not have is reported as a
// feature that the host lacks, whether the supervisor or a shell finds this. If the file expects
// the exit code of a missing command, the step passes.
func TestCommandsThatAreNotThere(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for command, is := range map[string]verdict.Verdict{
		`[no-such-program]`:                      verdict.Unsupported,
		`[sh, -c, no-such-program]`:              verdict.Unsupported,
		`[sh, -c, no-such-program], expect: 127`: verdict.Pass,
		`[sh, -c, "exit 126"]`:                   verdict.Fail,
	} {
		r := runAll(t, t.Context(), options(t,
			twoHosts+"steps:\n  - exec: {nodes: [h0], command: "+command+"}\n"))
		want(t, r, is)
		if is == verdict.Unsupported &&
			(r.Unsupported == nil || r.Unsupported.Remedy == "" ||
				!strings.Contains(r.Reason, "no-such-program")) {
			t.Errorf("%s: %+v, reason %q", command, r.Unsupported, r.Reason)
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
