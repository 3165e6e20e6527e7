package cli_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
)

// TestNetem is a user's session on a host with netem: a guest whose kernel has
// it. What the links then do is measured in package fabric.
func TestNetem(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root) // an ordinary user's guest would be the same one again
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "sch_tbf", "sch_netem", "overlay"},
		CPUs: 2, Timeout: 5 * time.Minute}) {
		return
	}
	const name = "cli-guest"
	if found := must(t, "doctor", "netem"); !regexp.MustCompile(`(?m)^netem +ok `).MatchString(found.stdout) {
		t.Errorf("doctor prints\n%s", found.stdout)
	}
	// A rate that a guest reaches even on a busy host.
	text := func(name string) string {
		return `name: ` + name + `
requires: [netem]
fabric:
  topology: single-switch
  params: {hosts: 2}
  switch: {kind: router}
  links:
    default: {rate: 500kbit}
    "h0--leaf1": {a-to-b: {delay: 50ms}, b-to-a: {delay: 20ms}}
`
	}
	file := writeFile(t, text(name))
	must(t, "up", file)
	t.Cleanup(func() {
		must(t, "down", name)
		noTrace(t, name)
	})
	rtt := func(asked float64) {
		t.Helper()
		least := leastRTT(t, must(t, "exec", "h0", "-t", name, "--", "ping", "-n", "-c10", "-i0.2",
			"h1").stdout)
		t.Logf("asked %.0f ms, took %.1f ms", asked, least)
		if least < asked || least > asked+15 {
			t.Errorf("asked %.0f ms, took %.1f ms", asked, least)
		}
	}
	rtt(70)
	must(t, "link", "set", "h0--leaf1", "a-to-b", "-t", name, "--delay", "150ms")
	rtt(170)
	if shown := must(t, "link", "show", "h0--leaf1", "-t", name).stdout; !strings.Contains(shown,
		"delay 150ms") || !strings.Contains(shown, "delay 20ms") {
		t.Errorf("link show prints\n%s", shown)
	}
	if again := must(t, "up", file); !strings.Contains(again.stdout, "it had delay 150ms, want 50ms") {
		t.Errorf("up of a changed link prints %q", again.stdout)
	}
	rtt(70)
	// Somebody else changes it: the next up says so.
	must(t, "exec", "h0", "-t", name, "--", "tc", "qdisc", "change", "dev", "eth0", "root", "handle", "2:",
		"netem", "delay", "1ms")
	if again := must(t, "up", file); !strings.Contains(again.stdout,
		"shape h0:eth0: kernel had delay 1ms, want 50ms") {
		t.Errorf("up of a link that somebody changed prints %q", again.stdout)
	}
	// A scenario that requires netem runs.
	steps := writeFile(t, text(name+"-run")+"steps:\n  - exec: {nodes: [h0], command: [ping, -c1, h1]}\n")
	out := filepath.Join(t.TempDir(), "out")
	if run := do(t, "run", steps, "--out", out); run.code != verdict.ExitPass {
		t.Errorf("run: %+v", run)
	}
}

// rttLine is ping's, in milliseconds: least, average, most, deviation.
var rttLine = regexp.MustCompile(`(?m)^rtt min/avg/max/mdev = ([0-9.]+)/`)

func leastRTT(t *testing.T, printed string) float64 {
	t.Helper()
	found := rttLine.FindStringSubmatch(printed)
	if found == nil {
		t.Fatalf("ping printed\n%s", printed)
	}
	least, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return least
}
