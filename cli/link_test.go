package cli_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"railbed/fabric"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestLinkDirection takes one direction down and up again, in both ways of
// writing it, and lets up of the file put it back.
func TestLinkDirection(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	for _, kind := range []string{"router", "soft"} {
		t.Run(kind, func(t *testing.T) { linkDirection(t, "cli-direction-"+kind, kind) })
	}
}

func linkDirection(t *testing.T, name, kind string) {
	file := writeFile(t, strings.Replace(twoHosts(name), "}}\n",
		"}, switch: {kind: "+kind+"}, links: {default: {rate: 20mbit}}}\n", 1))
	must(t, "up", file)
	t.Cleanup(func() { must(t, "down", name) })
	states := func() string {
		t.Helper()
		var states []string
		for line := range strings.Lines(must(t, "link", "show", "h0--leaf1", "-t", name).stdout) {
			states = append(states, strings.Fields(line)[2])
		}
		return strings.Join(states[1:], " ")
	}
	reaches := func() bool {
		return do(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "-W0.3", "h1").code == 0
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"link", "down", "h0--leaf1", "a-to-b"}, "down up"},
		{[]string{"link", "up", "h0--leaf1 a-to-b"}, "up up"},
		{[]string{"link", "down", "h0--leaf1 b-to-a"}, "up down"},
		{[]string{"link", "up", "h0--leaf1"}, "up up"},
		{[]string{"link", "down", "h0--leaf1"}, "down down"},
		{[]string{"link", "up", "h0--leaf1"}, "up up"},
		{[]string{"link", "down", "h0--leaf1", "b-to-a"}, "up down"},
		{[]string{"up", file}, "up up"},
	} {
		args := c.args
		if args[0] == "link" {
			args = append(args, "-t", name)
		}
		must(t, args...)
		if got := states(); got != c.want {
			t.Errorf("after %v: %s, want %s", c.args, got, c.want)
		}
		if got, want := reaches(), c.want == "up up"; got != want {
			t.Errorf("after %v: a ping crosses %t, want %t", c.args, got, want)
		}
	}
	if got := do(t, "link", "down", "h0--leaf1", "sideways", "-t", name); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "want a-to-b or b-to-a") {
		t.Errorf("a third direction: %+v", got)
	}
	if got := do(t, "link", "set", "h0--leaf1", "rate=1mbit", "-t", name); got.code != verdict.ExitUsage ||
		!strings.Contains(got.stderr, "--rate 1mbit") {
		t.Errorf("a setting as a direction: %+v", got)
	}
	events := must(t, "events", "-t", name).stdout
	if !strings.Contains(events, "h0--leaf1 b-to-a") || strings.Count(events, "link.down") != 4 {
		t.Errorf("events do not tell:\n%s", events)
	}
}

// TestLinkSetPrintsChanges changes several links with one command, which prints the changes in units for
// people. A name that matches nothing, and a value that one of the links cannot have, change nothing.
func TestLinkSetPrintsChanges(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-link-changes"
	must(t, "up", writeFile(t, strings.Replace(twoHostsOn(name, "soft"), "}}\n",
		"}, links: {default: {rate: 1gbit}, h1--leaf1: {delay: 100us}}}\n", 1)))
	t.Cleanup(func() { must(t, "down", name) })
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"set", "leaf1--h0", "a-to-b", "--delay", "2ms", "--loss", "0.1%"}, 0,
			"LINK DIRECTION SETTING WAS NOW; h0--leaf1 leaf1 -> h0 delay none 2 ms; " +
				"h0--leaf1 leaf1 -> h0 loss none 0.1 %"},
		{[]string{"set", "h*--leaf1", "--rate", "100mbit"}, 0,
			"LINK DIRECTION SETTING WAS NOW; h0--leaf1 both rate 1 Gbit/s 100 Mbit/s; " +
				"h1--leaf1 both rate 1 Gbit/s 100 Mbit/s"},
		{[]string{"set", "h1--leaf1", "a-to-b", "--queue", "100KB", "-o", "json"}, 0,
			`[ { "link": "h1--leaf1", "direction": "a-to-b", "from": "h1", "to": "leaf1", ` +
				`"setting": "queue", "was": "256KiB", "now": "100KB" } ]`},
		{[]string{"set", "h*--leaf1", "--rate", "100mbit"}, 0,
			"nothing changed: h*--leaf1 was so already"},
		{[]string{"down", "leaf1--h*"}, 0,
			"LINK DIRECTION SETTING WAS NOW; h0--leaf1 both state up down; h1--leaf1 both state up down"},
		{[]string{"up", "h0--leaf1"}, 0, "LINK DIRECTION SETTING WAS NOW; h0--leaf1 both state down up"},
		{[]string{"up", "h0-leaf1"}, verdict.ExitUsage, `did you mean "h0--leaf1"?`},
		{[]string{"set", "h0", "--rate", "1mbit"}, verdict.ExitUsage, "the links of h0 are h0--leaf1"},
		{[]string{"set", "*--leaf1", "a-to-b", "--jitter", "50us"}, verdict.ExitUsage,
			"h0--leaf1 a-to-b: jitter is 50us and delay 0s"},
		{[]string{"set", "h1--leaf1", "a-to-b", "--rate", "100mbit", "-o", "json"}, 0, "[]"},
	} {
		got := do(t, append([]string{"link", "-t", name}, c.args...)...)
		var lines []string
		for line := range strings.Lines(got.stdout + got.stderr) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		joined := strings.Join(lines, "; ")
		if strings.HasPrefix(c.want, "[") {
			joined = strings.Join(lines, " ")
		}
		if got.code != c.code || joined != c.want && (c.code == 0 || !strings.Contains(joined, c.want)) {
			t.Errorf("%q: exit %d, %s, want %d, %s", c.args, got.code, joined, c.code, c.want)
		}
	}
	if got := must(t, "link", "show", "leaf1--h1", "-t", name).stdout; strings.Contains(got, "jitter") {
		t.Errorf("a refused change of several links changed h1--leaf1:\n%s", got)
	}
}

// TestLinkSetIsCheckedAsFilesAre: what a file could not say of a link is refused
// and changes nothing, and what the file does not say follows what it does.
func TestLinkSetIsCheckedAsFilesAre(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-link-checks"
	must(t, "up", writeFile(t, strings.Replace(twoHostsOn(name, "soft"), "}}\n",
		"}, links: {default: {rate: 100mbit}}}\n", 1)))
	t.Cleanup(func() { must(t, "down", name) })
	link := func() (state fabric.LinkState) {
		t.Helper()
		var all []fabric.LinkState
		if err := json.Unmarshal([]byte(
			must(t, "link", "show", "h0--leaf1", "-t", name, "-o", "json").stdout), &all); err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	before := link()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "{jitter: 5s, delay: 1us}"},
			"jitter is 5s and delay 1us; want a delay at least as long as the jitter: no packet arrives " +
				"before it was sent"},
		{[]string{"--jitter", "5s", "--delay", "1us"},
			"jitter is 5s and delay 1us; want a delay at least as long as the jitter: no packet arrives " +
				"before it was sent"},
		{[]string{"b-to-a", "--queue", "100B"}, "queue is 100B; want at least 1514B, one frame of mtu 1500"},
		{[]string{"--delay", "2m"}, "--delay: set.delay is 2m0s; want at most 1m0s"},
		{[]string{"--rate", "1bit"}, "set.rate is 1bit; want 1kbit to 1600gbit"},
		{[]string{"--queue", "0B"}, "--queue: queue is 0B, which drops every packet"},
		{[]string{"--loss", "1%, rate: 5mbit"}, "--loss: "},
		{nil, "nothing to set on h0--leaf1"},
	} {
		got := do(t, append([]string{"link", "set", "h0--leaf1", "-t", name}, c.args...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%q: exit %d, %q, want %q", c.args, got.code, got.stderr, c.want)
		}
		if after := link(); !after.AToB.Equal(before.AToB.Direction) ||
			!after.BToA.Equal(before.BToA.Direction) {
			t.Errorf("%q changed %+v into %+v", c.args, before, after)
		}
	}
	must(t, "link", "set", "h0--leaf1", "b-to-a", "-t", name, "--set", "{reorder: 10%, rate: 10mbit}")
	if after := link(); after.BToA.ReorderBy != units.Duration(4844800*time.Nanosecond) ||
		!after.AToB.Equal(before.AToB.Direction) {
		t.Errorf("reordered by %s, want the time of four frames at 10mbit: %+v", after.BToA.ReorderBy, after)
	}
	if events := must(t, "events", "-t", name).stdout; !strings.Contains(events, "reorder 10%, ") ||
		!strings.Contains(events, "rate 10mbit") {
		t.Errorf("events do not tell what was set:\n%s", events)
	}
	must(t, "link", "set", "h0--leaf1", "-t", name, "--delay", "0", "--loss", "0%", "--rate", "50mbit")
	if after := link(); after.AToB.Rate != 5e7 || after.BToA.Rate != 5e7 ||
		after.BToA.ReorderBy != units.Duration(968960*time.Nanosecond) {
		t.Errorf("after another rate: %+v", after)
	}
}
