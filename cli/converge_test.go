package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestConverge changes links on request and more behind Railbed's back: a second
// up puts all of it back, and says so.
func TestConverge(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const name = "cli-converge"
	file := writeFile(t, twoHosts(name))
	must(t, "up", file)
	t.Cleanup(func() { must(t, "down", name) })
	must(t, "link", "set", "h0--leaf1", "a-to-b", "--rate", "100mbit", "-t", name)
	must(t, "link", "down", "h1--leaf1", "-t", name)
	rates := func() string {
		var links []struct {
			Name string
			Up   bool
			AToB struct{ Rate string } `json:"a_to_b"`
			BToA struct{ Rate string } `json:"b_to_a"`
		}
		if err := json.Unmarshal([]byte(must(t, "link", "show", "-t", name, "-o", "json").stdout),
			&links); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(links)
	}
	if got := rates(); got != "[{h0--leaf1 true {100mbit} {1gbit}} {h1--leaf1 false {1gbit} {1gbit}}]" {
		t.Errorf("after the changes: %s", got)
	}
	must(t, "up", file)
	if got := rates(); got != "[{h0--leaf1 true {1gbit} {1gbit}} {h1--leaf1 true {1gbit} {1gbit}}]" {
		t.Errorf("after up: %s", got)
	}
	must(t, "inspect", name, "--verify")
	must(t, "exec", "h0", "-t", name, "--", "ip", "route", "del", "default")
	must(t, "exec", "h1", "-t", name, "--", "ip", "link", "delete", "eth0")
	if got := do(t, "inspect", name, "--verify"); got.code == 0 || !strings.Contains(got.stderr, "h0") {
		t.Errorf("verify after a route was deleted: exit %d, %q", got.code, got.stderr)
	}
	got := must(t, "up", file)
	for _, want := range []string{": up already, repaired in ", "\nrepaired: add route 0.0.0.0/0 via ",
		"\nrepaired: make h1:eth0: kernel had no such interface\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("up after damage printed %q, want %q", got.stdout, want)
		}
	}
	if events := must(t, "events", "-t", name); !strings.Contains(events.stdout,
		"make h1:eth0: kernel had no such interface") {
		t.Errorf("events: %s", events.stdout)
	}
	must(t, "inspect", name, "--verify")
	must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "h1")
	must(t, "exec", "h0", "-t", name, "--", "ip", "link", "set", "eth0", "mtu", "1400")
	var document struct {
		State    string
		Changed  []struct{ Where, What string }
		Repaired []struct{ Where, What string }
	}
	if err := json.Unmarshal([]byte(must(t, "up", file, "-o", "json").stdout), &document); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", document) != "{State:up already, repaired Changed:[] Repaired:[{Where:h0:eth0 "+
		"What:set MTU of h0:eth0: kernel had 1400, want 1500}]}" {
		t.Errorf("up -o json after damage: %+v", document)
	}
	must(t, "exec", "h0", "-t", name, "--", "ip", "link", "set", "eth0", "mtu", "1400")
	if got := must(t, "up", "-x", file); !strings.Contains(got.stderr, "ip -n h0 link set eth0 mtu 1500\n") {
		t.Errorf("up -x printed %q", got.stderr)
	}
}

// TestConvergeToAnotherPlan brings up a file that has changed since. Only settings of links have
// changed.
func TestConvergeToAnotherPlan(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const name = "cli-another"
	file := writeFile(t, twoHosts(name))
	must(t, "up", file)
	t.Cleanup(func() { must(t, "down", name) })
	sleeper := command("exec", "h0", "-t", name, "--", "sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Wait()
	defer sleeper.Process.Signal(os.Interrupt)
	slower := writeFile(t, strings.Replace(twoHosts(name), "hosts: 2}",
		"hosts: 2}, links: {default: {rate: 100mbit}}", 1))
	got := must(t, "up", slower)
	if !strings.Contains(got.stdout, "up already, changed to the new plan") ||
		!strings.Contains(got.stdout, "changed: change h0--leaf1 a-to-b: it had rate 1gbit, want 100mbit") {
		t.Errorf("up of the slower plan printed %q", got.stdout)
	}
	state := must(t, "inspect", name, "-o", "json").stdout
	if !strings.Contains(state, slower) || strings.Contains(state, `"rate": "1gbit"`) {
		t.Errorf("inspect after the change: %s", state)
	}
	if got := must(t, "up", slower); !strings.Contains(got.stdout, "up already, verified") ||
		strings.Contains(got.stdout, "change") {
		t.Errorf("second up of the slower plan printed %q", got.stdout)
	}
	must(t, "inspect", name, "--verify")
	must(t, "exec", "h0", "-t", name, "--", "pgrep", "sleep")
	if got := must(t, "up", file); !strings.Contains(got.stdout, "it had rate 100mbit, want 1gbit") {
		t.Errorf("up of the first plan printed %q", got.stdout)
	}
}

// TestPublishedNamesComeBack removes a name for ip-netns, and puts something
// else in the place of another.
func TestPublishedNamesComeBack(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Netns)
	const name = "cli-names"
	file := writeFile(t, twoHosts(name))
	must(t, "up", file)
	t.Cleanup(func() {
		must(t, "down", name)
		noTrace(t, name)
	})
	path := func(node string) string { return "/run/netns/" + name + "-" + node }
	if err := os.Remove(path("h0")); err != nil {
		t.Fatal(err)
	}
	if got := do(t, "inspect", name, "--verify"); got.code == 0 || !strings.Contains(got.stderr, path("h0")) {
		t.Errorf("verify without a name: exit %d, %q", got.code, got.stderr)
	}
	if got := must(t, "up", file); !strings.Contains(got.stdout, "repaired: publish "+path("h0")) {
		t.Errorf("up printed %q", got.stdout)
	}
	if output, err := exec.Command("ip", "netns", "exec", name+"-h0", "true").CombinedOutput(); err != nil {
		t.Errorf("ip netns exec: %v: %s", err, output)
	}
	if err := errors.Join(os.Remove(path("h1")), os.WriteFile(path("h1"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	got := do(t, "up", file)
	if got.code != verdict.ExitFail || !strings.Contains(got.stderr, path("h1")) ||
		!strings.Contains(got.stderr, "take it down and up again") ||
		!strings.Contains(got.stdout, "not as planned") {
		t.Errorf("up with a foreign name: exit %d, %q", got.code, got.stderr)
	}
	if info, err := os.Lstat(path("h1")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the foreign name: %v, error %v", info, err)
	}
	if err := os.Remove(path("h1")); err != nil {
		t.Fatal(err)
	}
	must(t, "up", file)
}

// TestConvergeOfSoftSwitches: their links are changed back, too, and an end that
// they hold open is made anew.
func TestConvergeOfSoftSwitches(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.Ping)
	const name = "cli-soft"
	text := "name: " + name + "\nfabric: {topology: leaf-spine, params: {leaves: 2, spines: 1, " +
		"hosts-per-leaf: 1}, switch: {kind: soft}, links: {default: {rate: 100mbit}}}\n"
	file := writeFile(t, text)
	must(t, "up", file)
	t.Cleanup(func() { must(t, "down", name) })
	must(t, "link", "set", "leaf1--spine1", "b-to-a", "--rate", "10mbit", "-t", name)
	must(t, "link", "down", "h0--leaf1", "-t", name)
	must(t, "exec", "h1", "-t", name, "--", "ip", "route", "del", "default")
	got := must(t, "up", file)
	for _, want := range []string{"changed: change leaf1--spine1 b-to-a: it had rate 10mbit, want 100mbit",
		"changed: set h0--leaf1 up: it was down\n", "repaired: add route 0.0.0.0/0 via "} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("up printed %q, want %q", got.stdout, want)
		}
	}
	must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "h1")
	if got := must(t, "up", writeFile(t, strings.Replace(text, "100mbit", "50mbit", 1))); strings.Count(
		got.stdout, "it had rate 100mbit, want 50mbit") != 8 {
		t.Errorf("up of another plan printed %q", got.stdout)
	}
	must(t, "inspect", name, "--verify")
	must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "h1")
	must(t, "exec", "h0", "-t", name, "--", "ip", "link", "delete", "eth0")
	if got := must(t, "up", file); !strings.Contains(got.stdout,
		"repaired: make h0:eth0: kernel had no such interface") {
		t.Errorf("up after an end was deleted printed %q", got.stdout)
	}
	must(t, "inspect", name, "--verify")
	must(t, "exec", "h0", "-t", name, "--", "ping", "-c1", "h1")
}
