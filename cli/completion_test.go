package cli_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"railbed/cli"
)

// TestCompletion: the shell offers what can be typed.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"generate", ""}, "rail-optimized\tNIC i of every server"},
		{[]string{"generate", "hpn", "--param", ""}, "segments="},
		{[]string{"graph", "--format", ""}, "mermaid"},
		{[]string{"ls", "-o", ""}, "json"},
		{[]string{"plan", "--rates", ""}, "ring"},
		{[]string{"plan", "--method", ""}, "conflict-free"},
		{[]string{"verify", "--check", ""}, "deadlock: none"},
		{[]string{"verify", ""}, "pcapng"},
		{[]string{"report", "a", "--", ""}, "zip"}, // and directories
		{[]string{"doctor", ""}, "netns"},
		{[]string{"fault", "plan", "../scenarios/quickstart.yaml", "--cover", ""}, "rd\n"},
		{[]string{"fault", "plan", "../scenarios/quickstart.yaml", "--at", ""}, "spine1"},
		{[]string{"explain", "checks.packets.ro"}, "checks.packets.roce\tchecks a rule"},
		{[]string{"explain", ""}, "fabric\t"},
		{[]string{"rdma", ""}, "write-bw"},
		{[]string{"rdma", "atomic-bw", "--atomic_type", ""}, "CMP_AND_SWAP"},
	} {
		if _, out, _ := railbed("", append([]string{"__complete"}, c.args...)...); !strings.Contains(out,
			c.want) {
			t.Errorf("completing %v gives %q, want %q", c.args, out, c.want)
		}
	}
}

// freeText lists the words in help for values that no completion can offer.
var freeText = []string{
	"BYTES", "DELAY", "DSCP", "EXPRESSION", "FACTOR", "IMAGE", "MTU", "NAME", "NAME=VALUE", "NUMBER",
	"PATTERN", "QP", "RANK", "RATE", "SECONDS", "SENDER,RECEIVER", "SETTINGS", "SHARE", "SIZE", "TIME",
}

// TestEverythingCompletes walks all commands: each argument has a completion, and
// each flag whose value is none of freeText.
func TestEverythingCompletes(t *testing.T) {
	argument := regexp.MustCompile(`^[^ ]+ \[?[A-Z]`)
	walked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		walked++
		if argument.MatchString(c.Use) && c.ValidArgsFunction == nil && c.ValidArgs == nil {
			t.Errorf("%s: nothing is offered for %q", c.CommandPath(), c.Use)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			value, _ := pflag.UnquoteUsage(f)
			if _, offers := c.GetFlagCompletionFunc(f.Name); value != "" && !offers &&
				!slices.Contains(freeText, value) {
				t.Errorf("%s: nothing is offered for --%s %s", c.CommandPath(), f.Name, value)
			}
		})
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(cli.Root())
	if walked < 20 {
		t.Errorf("%d commands; there are more", walked)
	}
}
