package cli_test

import (
	"strings"
	"testing"

	"railbed/testbed/hosttest"
	"railbed/testbed/verdict"
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
	file := writeFile(t, strings.Replace(twoHosts(name), "}}\n", "}, switch: {kind: "+kind+"}, links: {default: {rate: 100mbit}}}\n", 1))
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
	if got := do(t, "link", "down", "h0--leaf1", "sideways", "-t", name); got.code != verdict.ExitUsage || !strings.Contains(got.stderr, "want a-to-b or b-to-a") {
		t.Errorf("a third direction: %+v", got)
	}
	events := must(t, "events", "-t", name).stdout
	if !strings.Contains(events, "h0--leaf1 b-to-a") || strings.Count(events, "link.down") != 4 {
		t.Errorf("events do not tell:\n%s", events)
	}
}
