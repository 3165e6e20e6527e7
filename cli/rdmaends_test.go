package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"railbed/cli"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
	"railbed/transports/roce/perftest"
)

// await waits until a command has printed a text.
func await(t *testing.T, printed *spoken, text string) {
	t.Helper()
	hosttest.Eventually(t, fmt.Sprintf("the text %q", text), func() error {
		if now := printed.String(); !strings.Contains(now, text) {
			return fmt.Errorf("printed is %q", now)
		}
		return nil
	})
}

// TestRdmaStartsBothEnds runs each test between two nodes with one command, by the nodes' names and
// by NICs.
func TestRdmaStartsBothEnds(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-rdma-ends"
	must(t, "up", writeFile(t, "name: "+name+"\nfabric: {topology: rail-optimized, params: {servers: 2, "+
		"rails: 2, spines: 0}, switch: {kind: soft}}\n"))
	t.Cleanup(func() { must(t, "down", name) })
	of := []string{"--testbed", name, "-n", "10"}
	for _, path := range cli.CommandPaths() {
		if test, is := strings.CutPrefix(path, "rdma "); is {
			var result perftest.Result
			got := must(t, append([]string{"rdma", test, "h0", "h1", "--output", "json"}, of...)...)
			if err := json.Unmarshal([]byte(got.stdout), &result); err != nil || result.Test != test ||
				result.Server || result.Peer != "10.0.0.2" || got.stderr != "" {
				t.Errorf("%s: %v: %+v", test, err, got)
			}
		}
	}
	for ends, want := range map[string][]string{
		// Without the NIC the client would use its loopback address, as the server does.
		"h1:eth1 h0":         {"Device         : eth1\n", ":10:00:00:01\n"},
		"h1 h0:eth1":         {"Device         : eth1\n", ":10:128:00:05\n"},
		"h1:eth0 h0:eth0 -R": {"Device         : eth0\n", ":10:128:00:01\n", "rdma_cm QPs\t : ON"},
	} {
		got := must(t, append(append([]string{"rdma", "write-bw"}, strings.Fields(ends)...), of...)...).stdout
		for _, text := range append(want, "\n #bytes ") {
			if strings.Count(got, text) != 1 || strings.Contains(got, perftest.Waiting) {
				t.Errorf("%s: want %q:\n%s", ends, text, got)
			}
		}
	}
	for args, want := range map[string]string{
		"h0 h0:eth1":          "client and server are both in node h0",
		"h0 h7":               `server "h7": no node is named "h7"; did you mean "h0"?`,
		"h0 h1:eth5":          `node h1 has no NIC "eth5"; its NICs are eth0, eth1`,
		"h0:eth0 h1 -d eth1":  "client h0:eth0 and --ib-dev eth1: want one of them",
		"h0 h1 -m 1500":       "server in h1: write-bw: invalid options: mtu 1500",
		"h1":                  "--testbed " + name + ": want two nodes",
		"h0 h1 h0":            "3 arguments",
		"h0 h1 --ib-port 2":   "ib-port 2: want 1",
		"h0 h1 --duration -1": "invalid options: duration -1s",
	} {
		got := do(t, append(append([]string{"rdma", "write-bw"}, strings.Fields(args)...), of...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: %+v, want %s", args, got, want)
		}
	}
	t.Run("PortInUse", func(t *testing.T) { rdmaPortInUse(t, name) })
	t.Run("Interrupted", func(t *testing.T) { rdmaInterrupted(t, name) })
}

// rdmaPortInUse starts a server that takes the port, so the server of the test cannot listen. The
// client is not started: it would talk to the wrong server.
func rdmaPortInUse(t *testing.T, name string) {
	var printed spoken
	other := command("exec", "h1", "-t", name, "--", "railbed", "rdma", "write-bw")
	other.Stdout, other.Stderr = &printed, &printed
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, &printed, perftest.Waiting)
	got := do(t, "rdma", "write-bw", "h0", "h1", "--testbed", name)
	if got.code != verdict.ExitFail || got.stdout != "" || strings.Contains(got.stderr, "client") ||
		!strings.Contains(got.stderr, "server in h1: write-bw: ") ||
		!strings.Contains(got.stderr, "address already in use") {
		t.Errorf("%+v", got)
	}
	other.Process.Signal(os.Interrupt)
	other.Wait()
}

// rdmaInterrupted interrupts a test that would run for a minute. Both nodes have no process left when the
// command has ended.
func rdmaInterrupted(t *testing.T, name string) {
	var printed spoken
	cmd := command("rdma", "write-bw", "h0", "h1", "--testbed", name, "-D", "60")
	cmd.Stdout, cmd.Stderr = &printed, &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, &printed, " #bytes ")
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || strings.Contains(printed.String(), "railbed: ") {
		t.Errorf("exit code %d, want 130, and no error: %s", code, &printed)
	}
	var state struct {
		Nodes []struct {
			Name      string `json:"name"`
			Processes int    `json:"processes"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(must(t, "inspect", name, "-o", "json").stdout), &state); err != nil ||
		len(state.Nodes) != 2 || state.Nodes[0].Processes+state.Nodes[1].Processes != 0 {
		t.Errorf("after the interrupt: %v, %+v, want two nodes without processes", err, state)
	}
}
