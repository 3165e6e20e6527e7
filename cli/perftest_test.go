package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"railbed/cli"
	"railbed/testkit/hosttest"
	"railbed/transports/roce/perftest"
)

// TestRdmaJSON: each test between two ends on a loopback device prints one document,
// and a table without --output json.
func TestRdmaJSON(t *testing.T) {
	if !hosttest.InNetns(t) {
		return
	}
	paths := cli.CommandPaths()
	ran := 0
	for _, path := range paths {
		test, ok := strings.CutPrefix(path, "rdma ")
		if !ok {
			continue
		}
		ran++
		type outcome struct {
			code           int
			stdout, stderr string
		}
		server := make(chan outcome, 1)
		go func() {
			var o outcome
			o.code, o.stdout, o.stderr = railbed("", "rdma", test, "-n", "10", "--output", "json")
			server <- o
		}()
		var client outcome
		hosttest.Until(t, "a server that listens", func() bool {
			client.code, client.stdout, client.stderr = railbed("", "rdma", test, "-n", "10", "127.0.0.1")
			return client.code == 0 || !strings.Contains(client.stderr, "refused")
		})
		s := <-server
		if client.code != 0 || s.code != 0 {
			t.Errorf("%s: %+v, %+v", test, client, s)
			continue
		}
		var result perftest.Result
		if err := json.Unmarshal([]byte(s.stdout), &result); err != nil || result.Test != test ||
			!result.Server || len(result.Bandwidth)+len(result.Latency) != 1 {
			t.Errorf("%s: %v: %s", test, err, s.stdout)
		}
		if !strings.Contains(client.stdout, "\n #bytes") || s.stderr != "" {
			t.Errorf("%s: %s%s", test, client.stdout, s.stderr)
		}
	}
	if ran != 6 {
		t.Errorf("%d tests, want 6", ran)
	}
}

// TestRdmaOptions: what is refused is said in one line, with exit code 2.
func TestRdmaOptions(t *testing.T) {
	for _, args := range []string{
		"-c UD", "-i 2", "-s -1", "-m 1500", "--rate_limit 5", "-D 2 -f 1", "-q 100000", "h0 h1 h2",
		"-t 9000", "-o 16",
	} {
		code, stdout, stderr := railbed("", append([]string{"rdma", "write-bw"}, strings.Fields(args)...)...)
		if code != 2 || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%s: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
	// All of perftest's usual ones are taken, -x with a value included.
	args := "-d no-such-nic -a -F -x 1 -I 0 -c RC -T 104 -l 4 -u 14 -S 0 -q 2 -n 10 -t 16 -p 1 -b " +
		"--report_gbits -N -Q 10 -e 127.0.0.1"
	if code, _, stderr := railbed("",
		append([]string{"rdma", "write-bw"}, strings.Fields(args)...)...); code != 1 ||
		!strings.Contains(stderr, "refused") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// TestRdmaInNodes: the command measures between nodes, with nothing but what nodes
// have, where they meet by TCP and by rdma_cm.
func TestRdmaInNodes(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-rdma"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	inNode := func(node, args string) (code int, stdout, stderr string) {
		words := []string{"exec", node, "-t", name, "--", asCommand, "rdma", "write-bw", "-n", "50",
			"--verify"}
		return railbed("", append(words, strings.Fields(args)...)...)
	}
	type outcome struct {
		code           int
		stdout, stderr string
	}
	for meet, nobody := range map[string]string{"": "refused", "-R": "no answer"} {
		server := make(chan outcome, 1)
		go func() {
			var o outcome
			o.code, o.stdout, o.stderr = inNode("h0", meet)
			server <- o
		}()
		var client outcome
		hosttest.Until(t, "a server that listens", func() bool {
			client.code, client.stdout, client.stderr = inNode("h1", "h0 -o json "+meet)
			return client.code == 0 || !strings.Contains(client.stderr, nobody)
		})
		s := <-server
		var result perftest.Result
		if err := json.Unmarshal([]byte(client.stdout), &result); err != nil || s.code != 0 ||
			result.Device == "lo" || len(result.Bandwidth) != 1 || result.Bandwidth[0].Iterations != 50 {
			t.Errorf("%s: %v: %+v, %+v", meet, err, client, s)
		}
	}
}
