package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"railbed/capture/display"
	"railbed/internal/verdict"
)

// TestDecode prints packets of Linux's rxe as lines, as JSON and as fields.
func TestDecode(t *testing.T) {
	const name = "../capture/verify/roce/testdata/rxe/write.pcap"
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
	for _, wrong := range [][]string{{"-Y", "ip.scr == 1"}, {"-e", "ip.scr"}, {"-Y", "ip.src == x"}} {
		code, _, stderr = runMain(t, append([]string{"decode", name}, wrong...)...)
		if code != verdict.ExitUsage || !strings.Contains(stderr, "column ") {
			t.Errorf("%v: exit code %d: %s", wrong, code, stderr)
		}
	}
}
