package proof

import (
	"strings"
	"testing"
)

// TestSettingsWithoutEffect has settings of switches that silence each other. What it should say is the
// beginning of the one line, or "" for settings that work together.
func TestSettingsWithoutEffect(t *testing.T) {
	const (
		marked = "workload: {name: w, kind: all-to-all, size: 64KiB, transport: roce}"
		other  = "workload: {name: w, kind: all-to-all, size: 64KiB, transport: roce, dscp: 40}"
		quiet  = "capture: {at: [all], file: a.pcapng}"
		probe  = "probe: {name: p, from: h0, to: h1}"
		many   = "hosts: 24"
	)
	for name, c := range map[string]struct{ hosts, settings, links, step, want string }{
		"defaults":              {"", "pfc: true, ecn: true", "", marked, ""},
		"defaults of ECN#":      {"", "pfc: true, ecn: {kind: ecn-sharp}", "rate: 10gbit", marked, ""},
		"a threshold above ECN": {"", "pfc: {xoff: 200KB}, ecn: true", "", marked, ""},
		"no ECN":                {"", "pfc: {xoff: 7KB}", "", marked, ""},
		"ECN on other packets":  {"", "pfc: {xoff: 7KB}, ecn: {priorities: [0, 6]}", "", marked, ""},
		"several ports together": {"", "pfc: {xoff: 30KB}, ecn: true", "", marked,
			"f:4:24: queues that packets of one port fill are never marked: pfc of leaf1 holds the " +
				"sender back at 30KB, and ecn marks from 40KB on; want xoff above 40KB"},
		"no queue": {"", "pfc: {xoff: 2KB, headroom: 4KB}, ecn: true", "", marked,
			"f:4:24: ecn of leaf1 marks nothing at priority 3: pfc holds every sender back at 2KB, " +
				"and ecn marks from 40KB on"},
		"a small buffer": {many, "pfc: true, ecn: {kmin: 200KB, kmax: 400KB}", "", marked,
			"f:4:17: queues"},
		"a large buffer": {many, "pfc: true, ecn: {kmin: 200KB, kmax: 400KB}, buffer: 30MB", "", marked, ""},
		"ECN# on a fast link": {"", "pfc: {xoff: 50KB}, ecn: {kind: ecn-sharp}", "rate: 100gbit", marked,
			"f:4:24: ecn of leaf1 marks nothing at priority 3: pfc holds every sender back at 50KB"},
		"GFC before marks": {"", "gfc: true, ecn: true", "", marked,
			"f:4:17: ecn of leaf1 marks nothing at priority 3: gfc holds"},
		"GFC above marks": {"", "gfc: {b1: 170KB}, ecn: true", "", marked, ""},
		"GFC by its end":  {"", "gfc: {bm: 39KB}, ecn: true", "", marked, "f:4:22: queues"},
		"a buffer below marks": {"", "buffer: 64KB, ecn: true", "", marked,
			"f:4:31: ecn of leaf1 marks nothing at priority 3: it marks from 40KB on, and a queue " +
				"holds at most 32KB; want ecn that marks below 32KB"},
		"a small share": {"", "buffer: 1MB, alpha: 0.02, ecn: true", "", marked,
			"f:4:43: ecn of leaf1 marks nothing"},
		"a link with few bytes": {"", "ecn: true", "queue: 30KB", marked,
			"f:4:17: ecn of leaf1 marks nothing"},
		"kmin that fits": {"", "buffer: 64KB, ecn: {kmin: 10KB}", "", marked, ""},
		"a priority without use": {"", "pfc: {priorities: [5]}", "", marked,
			"f:4:18: pfc of leaf1 pauses nothing: no step sends packets of priority 5; want a " +
				"priority of the packets that steps send: DSCP 26 of w has priority 3, DSCP 48 of w " +
				"has priority 6"},
		"a DSCP of the step": {"", "pfc: true", "", other, "f:4:17: pfc of leaf1 pauses nothing"},
		"its priority":       {"", "pfc: {priorities: [5]}", "", other, ""},
		"unused but unknown": {"", "pfc: {priorities: [5]}", "", program, ""},
		"nothing sent":       {"", "pfc: {priorities: [5]}, int: true", "", quiet, ""},
		"marks of other packets": {"", "ecn: {priorities: [1]}", "", marked,
			"f:4:18: ecn of leaf1 marks nothing: no step"},
		"trims of other packets": {"", "trim: true", "", marked,
			"f:4:18: trim of leaf1 trims nothing: no step"},
		"trims": {"", "trim: true", "", overRD, ""},
		"no DSCP": {"", "pfc: {priorities: [3, 4]}, priorities: {32: 0, 33: 0, 34: 0, 35: 0, 36: 0, 37: " +
			"0, 38: 0, 39: 0}", "", marked,
			"f:4:18: no DSCP of leaf1 has priority 4, so pfc pauses only frames with a priority " +
				"tag"},
		"telemetry":           {"", "int: true", "", overRD, ""},
		"telemetry of probes": {"", "int: true", "", probe, ""},
		"telemetry of nobody": {"", "int: true", "", marked, "f:4:17: int of leaf1 writes nothing"},
		"sums of nobody": {"", "aggregation: true", "", marked,
			"f:4:25: aggregation of leaf1 adds up nothing"},
	} {
		hosts, links := c.hosts, c.links
		if hosts == "" {
			hosts = "hosts: 4"
		}
		if links == "" {
			links = "rate: 100mbit"
		}
		_, got := look(t, "name: t\nfabric:\n  topology: single-switch\n  switch: {"+c.settings+"}\n  "+
			"params: {"+hosts+
			"}\n  links: {default: {"+links+", delay: 5us}}\nsteps:\n- "+c.step+"\n")
		if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// TestSettingsWithoutEffectOfOneSwitch reports the entry of the switch that decides.
func TestSettingsWithoutEffectOfOneSwitch(t *testing.T) {
	_, got := look(t, `name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {pfc: {xoff: 200KB}, ecn: true, buffer: 8MB}
  switches:
    "spine*": {pfc: {xoff: 20KB}}
    spine2: {pfc: {xoff: 10KB}}
steps:
- workload: {name: w, kind: all-reduce, size: 64KiB, transport: roce}
`)
	lines := strings.Split(got, "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "f:7:28: ecn of spine1 marks nothing") ||
		!strings.HasPrefix(lines[1], "f:8:26: ecn of spine2 marks nothing") {
		t.Errorf("%s", got)
	}
}
