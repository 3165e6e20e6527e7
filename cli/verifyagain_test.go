package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railbed/capture/report"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestVerifyJudgesAsRun has the recordings of a run judged by "run" and by "verify". Both require the packets
// of the steps that send, and not more. Without a report verify knows only the recorded packets.
func TestVerifyJudgesAsRun(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const check = `throughput: {to: h1, rate: "<= 1gbit"}`
	for name, c := range map[string]struct {
		steps         string
		want, without verdict.Verdict
	}{
		"packets of a command before the recording": {`
  - capture: {at: [h0], file: a.pcapng}
  - exec: {nodes: [h0], command: [ping, "-4", -c, "3", -i, "0.02", h2]}
  - capture: {at: [h1], file: b.pcapng}
  - traffic: {name: x, from: [h0], to: [h1], rate: 2mbit, size: 300B, for: 100ms}
`, verdict.Pass, verdict.Inconclusive},
		"a step before the recording": {`
  - traffic: {name: y, from: [h0], to: [h1], rate: 2mbit, size: 300B, for: 100ms}
  - capture: {at: [all], file: a.pcapng}
  - traffic: {name: x, from: [h0], to: [h1], rate: 2mbit, size: 300B, for: 100ms}
`, verdict.Inconclusive, verdict.Pass},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ran := do(t, "run", writeFile(t, `
name: cli-again
fabric: {topology: single-switch, params: {hosts: 3}, switch: {kind: soft}, links: {default: {rate: 50mbit}}}
steps:`+c.steps+`checks:
  - packets: {`+check+`}
`), "--out", dir)
			text, err := os.ReadFile(filepath.Join(dir, report.JSONFile))
			var r report.Report
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			if err != nil || len(r.Checks) != 1 || r.Checks[0].Verdict != c.want {
				t.Fatalf("want %s: %v, %+v\n%s%s", c.want, err, r.Checks, ran.stdout, ran.stderr)
			}
			again := do(t, "verify", dir, "--check", "{"+check+"}")
			if code := c.want.ExitCode(); again.code != code ||
				!strings.Contains(again.stdout, string(c.want)) {
				t.Errorf("with a report: code %d, want %d\n%s", again.code, code, again.stdout)
			}
			if err := os.Remove(filepath.Join(dir, report.JSONFile)); err != nil {
				t.Fatal(err)
			}
			again = do(t, "verify", dir, "--check", "{"+check+"}")
			if code := c.without.ExitCode(); again.code != code {
				t.Errorf("without a report: code %d, want %d\n%s", again.code, code, again.stdout)
			}
		})
	}
}
