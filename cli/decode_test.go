package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"railbed/capture/display"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestDecode prints packets of Linux's rxe as lines, as JSON and as fields.
func TestDecode(t *testing.T) {
	const name = "../capture/verify/rocechecks/testdata/rxe/write.pcap"
	code, stdout, stderr := runMain(t, "decode", name, "-Y", "infiniband.bth.opcode == 17", "-c", "1")
	if code != 0 || !strings.Contains(stdout, "10.0.0.1:4791 RoCEv2") ||
		!strings.Contains(stdout, "RC_ACKNOWLEDGE qp") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	_, stdout, _ = runMain(t, "decode", name, "-c", "2", "-o", "json")
	for line := range strings.Lines(stdout) {
		var s display.Summary
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.Protocol != "RoCEv2" || s.Length == 0 {
			t.Errorf("%s: %v", line, err)
		}
	}
	_, stdout, _ = runMain(t, "decode", name, "-c", "1", "-e", "frame.number", "-e", "udp.port",
		"-e", "tcp.port", "-e", "ip.src")
	if stdout != "1\t49441,4791\t\t10.0.0.1\n" {
		t.Errorf("fields %q", stdout)
	}
	_, stdout, _ = runMain(t, "decode", name, "-c", "2", "--time", "absolute")
	if !regexp.MustCompile(`^ +1 \d\d:\d\d:\d\d\.\d{6} `).MatchString(stdout) {
		t.Errorf("absolute times: %q", stdout)
	}
	_, stdout, _ = runMain(t, "decode", name, "--time", "message", "-Y", "run.message == 1", "-c", "1")
	if !strings.HasPrefix(strings.TrimLeft(stdout, " 0123456789"), ".000000 ") {
		t.Errorf("times from the start of the message: %q", stdout)
	}
	for _, wrong := range [][]string{{"-Y", "ip.scr == 1"}, {"-e", "ip.scr"}, {"-Y", "ip.src == x"}} {
		code, _, stderr = runMain(t, append([]string{"decode", name}, wrong...)...)
		if code != verdict.ExitUsage || !strings.Contains(stderr, "column ") {
			t.Errorf("%v: exit code %d: %s", wrong, code, stderr)
		}
	}
}

// TestDecodeLive prints packets of a running testbed as they come, and says what a name is that is neither
// a file nor a tap.
func TestDecodeLive(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const name = "cli-decode"
	must(t, "up", writeFile(t, twoHosts(name)))
	t.Cleanup(func() { must(t, "down", name) })
	pinged := make(chan struct{})
	go func() {
		defer close(pinged)
		do(t, "exec", "h0", "-t", name, "--", "ping", "-q", "-4", "-i", "0.05", "-w", "4", "10.0.0.2")
	}()
	got := must(t, "decode", "h*", "-t", name, "-Y", `icmp.type == 8 && railbed.node == "h1"`, "-c", "3",
		"-e",
		"railbed.port", "-e", "ip.dst")
	if got.stdout != strings.Repeat("eth0\t10.0.0.2\n", 3) {
		t.Errorf("got %q", got.stdout)
	}
	<-pinged
	for wrong, want := range map[string]string{"nosuch": `want "all", "nics", "switches"`,
		"./nosuch": "no such file"} {
		if got := do(t, "decode", wrong, "-t", name); got.code != verdict.ExitUsage ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d: %s", wrong, got.code, got.stderr)
		}
	}
}
