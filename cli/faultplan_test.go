package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
)

// planned is a file of two leaves and two spines, whose switches spray.
const planned = `name: planned
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 2}
  switch: {kind: soft, load-balance: spray}
nodes: {default: {ranks: 1}}
steps:
  - workload: {name: ar, kind: all-reduce, transport: tcp, size: 4KiB}
`

// TestFaultPlan: the table, how good the choice is, and faults that a file can have.
func TestFaultPlan(t *testing.T) {
	file := writeFile(t, planned)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--cover", "h[01]->h2"}, []string{"leaf2:p0  h2:eth0      2  h0->h2, h1->h2",
			"1 point sees all 2 flows; these are the fewest", `- fault: {where: "leaf2:p0", drop: {share: 1%}}`}},
		{[]string{"--cover", "h0->h2", "--at", "spine*"}, []string{"spine1:p1", "h0->h2 (1 of 2 paths)",
			"2 points see all 1 flow;"}},
		{[]string{"--cover", "tcp", "--at", "nics", "--max", "2"}, []string{"not seen: ar ",
			"no other choice of 2 sees more"}},
		{[]string{"--cover", "all", "--exact"}, []string{"4 points see all 12 flows; these are the fewest"}},
	} {
		shown := must(t, append([]string{"fault", "plan", file}, c.args...)...).stdout
		for _, text := range c.want {
			if !strings.Contains(shown, text) {
				t.Errorf("%q: no %q in\n%s", c.args, text, shown)
			}
		}
	}
	var c runner.Coverage
	text := must(t, "fault", "plan", file, "--cover", "ar", "-o", "json").stdout
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Points) == 0 || len(c.Faults) != len(c.Points) || !c.Optimal || c.Ratio != 1 {
		t.Errorf("%+v", c)
	}
	with := planned + "  " + strings.Join(c.Faults, "\n  ") + "\n"
	if decoded, err := spec.Decode("with.yaml", []byte(with)); err != nil {
		t.Errorf("with the faults: %v\n%s", err, with)
	} else if _, err := plan.Compile(decoded); err != nil {
		t.Errorf("with the faults: %v\n%s", err, with)
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{nil, "--cover is missing"},
		{[]string{"--cover", "all", "--max", "0"}, "want at least 1"},
		{[]string{"--cover", "h0->h9"}, `no node or NIC is named "h9"`},
		{[]string{"--cover", "rd"}, "no step of the file uses this transport"},
		{[]string{"--cover", "ar", "--at", "leaf9"}, `no port is at "leaf9"`},
		{[]string{"--cover", "ar", "--at", "h0"}, "allow more places, or take a limit of points"},
	} {
		got := do(t, append([]string{"fault", "plan", file}, wrong.args...)...)
		if got.code != verdict.ExitUsage || !strings.Contains(got.stderr, wrong.want) || got.stdout != "" {
			t.Errorf("%q: code %d, %q, want %q", wrong.args, got.code, got.stderr, wrong.want)
		}
	}
}
