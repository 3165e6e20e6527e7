package cli_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"railbed/testkit/hosttest"
)

// TestSwitchesAlone brings up fabrics without hosts, as imported labs have them.
func TestSwitchesAlone(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	for _, kind := range []string{"soft", "router", "bridge"} {
		t.Run(kind, func(t *testing.T) {
			name := fmt.Sprintf("cli-alone-%s-%d", kind, os.Getpid())
			file := writeFile(t, "name: "+name+"\nfabric:\n  topology: explicit\n  switches: {s1: {}, "+
				"s2: {}, s3: {}}\n  connect: [s1 -- s2, s2 -- s3]\n  switch: {kind: "+kind+"}\n")
			must(t, "up", file)
			defer must(t, "down", name)
			state := stateOf(t, name)
			if len(state.Nodes) != 0 || len(state.Switches) != 3 || len(state.Links) != 2 {
				t.Errorf("%d nodes, %d switches, %d links", len(state.Nodes), len(state.Switches),
					len(state.Links))
			}
			must(t, "link", "down", "s1--s2", "-t", name)
			if got := must(t, "inspect", name).stdout; !strings.Contains(got, "down") {
				t.Errorf("a link that is down: %s", got)
			}
			must(t, "link", "up", "s1--s2", "-t", name)
			must(t, "inspect", name, "--verify")
			for _, place := range []string{"s1", "h0"} {
				got := do(t, "exec", place, "-t", name, "--", "true")
				if got.code == 0 || !strings.Contains(got.stderr, "the testbed has only switches") {
					t.Errorf("exec in %s: %+v", place, got)
				}
			}
		})
	}
	name := fmt.Sprintf("cli-alone-run-%d", os.Getpid())
	file := writeFile(t, "name: "+name+"\nfabric:\n  topology: explicit\n  switches: {s1: {}, s2: {}}\n"+
		"  connect: [s1 -- s2]\nsteps: [{sleep: 10ms}]\n")
	if got := must(t, "run", file, "--out", t.TempDir()+"/out"); !strings.Contains(got.stdout, "PASS") {
		t.Errorf("run: %+v", got)
	}
	noTrace(t, name)
}
