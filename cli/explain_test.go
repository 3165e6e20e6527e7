package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/plan/spec/keys"
)

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"links.loss"}, []string{"KEY:      fabric.links.loss", "TYPE:     share", "DEFAULT:  none",
			"leaf1--spine2:\n        loss: 0.1%"}},
		{[]string{"checks.packets.roce"}, []string{fmt.Sprintf("exactly one of roce and the %d keys "+
			"beside it is set", len(spec.PacketChecks())-1),
			"rule*", "within", "again",
			"  roce: {rule: cnp}\n    PASS  4 of 4 ECN-capable packets came", "    FAIL  5 of 5 ECN"}},
		{[]string{"dilation"}, []string{"TYPE:     integer, 1 to 1000", "DEFAULT:  1"}},
		{[]string{"fabric.links.mtu"}, []string{"UNIT:     bytes", "DEFAULT:  1500"}},
		{[]string{"fabric.switch.ecn"}, []string{"  kmin                size             the queue length " +
			"up to which red marks\n                                       nothing\n"}},
		{[]string{"messages.open"}, []string{
			"DEFAULT:  none; exactly one of open, closed, cache and blocks is set"}},
		{[]string{"links.default"}, []string{"KEY:      fabric.links\n", "  delay "}},
		{[]string{"striped"}, []string{"KEY:      fabric.params.striped\nTYPE:     integer\n",
			"- leaf-spine: 1 numbers the hosts", "    params:\n      striped: 1\n"}},
		{nil, []string{"fabric*", "steps", "checks"}},
		{[]string{"steps.fault", "--recursive"}, []string{
			"  delay  <mapping>\n    by  <duration, required>"}},
		{[]string{"nodes", "-o", "json"}, []string{`"path": "nodes.runtime"`, `"values": [`,
			`"default": "netns"`}},
	} {
		code, out, errors := railbed("", append([]string{"explain"}, c.args...)...)
		if code != 0 {
			t.Errorf("%v: exit code %d, %s", c.args, code, errors)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v prints no %q:\n%s", c.args, want, out)
			}
		}
	}
	code, out, errors := railbed("", "explain", "checks.packet.roce")
	if code != verdict.ExitUsage || out != "" ||
		!strings.Contains(errors, "did you mean checks.packets.roce?") {
		t.Errorf("a wrong key: exit code %d, %q, %q", code, out, errors)
	}
}

// Explanations fit into a terminal of 80 columns.
func TestExplanationsAreNarrow(t *testing.T) {
	for _, k := range append(keys.All(), keys.Root()) {
		_, out, _ := railbed("", "explain", k.Path)
		before, _, _ := strings.Cut(out, "\nEXAMPLE:")
		_, after, _ := strings.Cut(out, "\nKEYS:")
		for line := range strings.Lines(before + after) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("explain %s: %d columns: %s", k.Path, n, line)
			}
		}
	}
}
