package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/testbed/probe"
	"railbed/testkit/hosttest"
)

const probed = `
name: %s
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 1}
  switch: {kind: soft, int: %t, priorities: {26: 3}}
  links: {default: {rate: 100mbit, delay: 1ms}}
`

// TestProbe sends probes through a running testbed: every hop is the plan's, and
// no hop comes sooner than the link and the frame before it allow.
func TestProbe(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-probe"
	must(t, "up", writeFile(t, fmt.Sprintf(probed, name, true)))
	t.Cleanup(func() { must(t, "down", name) })

	for _, v6 := range []string{"--ipv6=false", "--ipv6"} {
		var r probe.Report
		got := must(t, "probe", "h0", "h1", "-t", name, "--flows", "16", "--count", "32", "--interval", "2ms",
			"--dscp", "26", "-o", "json", v6)
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
			t.Fatal(err)
		}
		if r.Sent != 32 || r.Arrived != 32 || r.Doubled+r.Full != 0 || len(r.Paths) != 2 {
			t.Fatalf("%d of %d arrived over %d paths, want all over both spines: %s", r.Arrived, r.Sent,
				len(r.Paths), got.stdout)
		}
		ip := map[string]int{"--ipv6=false": 20, "--ipv6": 40}[v6]
		frame := 14 + ip + 8 + 16 + 8*24 + 16
		least := time.Millisecond + time.Duration(frame)*8*10 // at 100 Mbit/s a bit takes 10 ns
		for _, path := range r.Paths {
			if len(path.Hops) != 3 || path.Hops[0].Switch != "leaf1" ||
				!strings.HasPrefix(path.Hops[1].Switch, "spine") || path.Hops[2].Switch != "leaf2" {
				t.Fatalf("a path of %+v", path.Hops)
			}
			if path.Hops[0].In != "p0" || path.Hops[2].Out != "p0" || path.Hops[0].Out != path.Hops[2].In {
				t.Errorf("ports of %+v", path.Hops)
			}
			for _, one := range path.Probes {
				for i, reading := range one.Reports {
					if reading.Priority != 3 || i > 0 &&
						(reading.Since < least || reading.Since > least+100*time.Millisecond) {
						t.Errorf("hop %d: %+v, want priority 3 and at least %v since the last", i, reading,
							least)
					}
				}
			}
		}
	}
	if got := must(t, "probe", "h0:eth0", "h1:eth0", "-t", name, "-c", "1").stdout; !strings.HasPrefix(got,
		"h0:eth0 to h1:eth0: 1 probes sent, 1 arrived, by 1 path\n") {
		t.Errorf("between NICs printed\n%s", got)
	}
	table := must(t, "probe", "h1", "h0", "-t", name).stdout
	if !strings.HasPrefix(table, "h1 to h0: 10 probes sent, 10 arrived, by 1 path\n") ||
		!strings.Contains(table, "  1  leaf2   p0") {
		t.Errorf("printed\n%s", table)
	}
	if got := must(t, "inspect", name).stdout; !strings.Contains(got,
		"telemetry: 225 hops written, link use over windows of 100µs; 0 blocks int-full") {
		t.Errorf("inspect prints\n%s", got)
	}
	must(t, "link", "down", "h0--leaf1", "-t", name)
	if got := do(t, "probe", "h0", "h1", "-t", name, "-c", "1"); got.code != verdict.ExitFail ||
		!strings.Contains(got.stderr, "no probe from h0 arrived at h1") {
		t.Errorf("over a link that is down: %+v", got)
	}
}

// TestProbeRefuses what cannot be answered.
func TestProbeRefuses(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-probe-off"
	must(t, "up", writeFile(t, fmt.Sprintf(probed, name, false)))
	t.Cleanup(func() { must(t, "down", name) })
	for want, args := range map[string][]string{
		"add int: true to fabric.switch": {"h0", "h1"},
		`no node is named "h7"`:          {"h0", "h7"},
		`node h1 has no NIC "eth7"; its`: {"h0", "h1:eth7"},
		"pass no switch":                 {"h0", "h0:eth0"},
		"DSCP 64":                        {"h0", "h1", "--dscp", "64"},
		"want 1 to 64":                   {"h0", "h1", "--flows", "65"},
	} {
		if got := do(t, append([]string{"probe", "-t", name}, args...)...); got.code != verdict.ExitUsage ||
			!strings.Contains(got.stderr, want) {
			t.Errorf("probe %v: exit %d, %s; want %q", args, got.code, got.stderr, want)
		}
	}
}
