package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
)

func newFaultPlanCommand(a *app) *cobra.Command {
	var o runner.CoverOptions
	cmd := &cobra.Command{
		Use:   "plan FILE --cover FLOWS",
		Short: "Find the fewest ports at which faults hit all given flows",
		Long: `Plan finds the fewest ports that send packets of all given flows, and prints a fault: line
for each. FLOWS is one of these; --cover may be repeated:

  'SRC->DST'  names or globs of nodes, or of NICs as h0:eth1; the shell needs the quotes
  STEP        what the ranks or nodes of this step send to each other
  tcp         what the ranks of all steps over this transport send to each other; or rd,
              roce, quic
  all         a flow from each node to each other node

Acknowledgements and answers are flows in the other direction. Without known ports a flow
may take any of its equal-cost paths. Ports see such a flow only if each of these paths has
one of them. The ports of traffic steps, and of ranks over tcp and quic, are known: a
switch that balances by a hash of the flow sends these packets over one path. All links
are taken to be up.

On small graphs the answer is the fewest ports. If the search for them takes long, plan
prints a greedy choice and how far it may be from the fewest. --exact searches longer, and
fails if it finds no proof. --max NUMBER finds so many ports that see as many flows as possible.`,
		Example: `  railbed fault plan scenarios/ecmp-seeded.yaml --cover flows --at switches
  railbed fault plan scenarios/ecmp-seeded.yaml --cover 'h0->h1[2-5]' --cover 'h12->h0'
  railbed fault plan scenarios/quickstart.yaml --cover rd --max 3 --at 'spine*'
  railbed fault plan FILE --cover all -o json | jq -r '.faults[]'`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("max") && o.Max < 1 {
				return usage("--max is %d, want at least 1", o.Max)
			}
			if len(o.Flows) == 0 {
				return usage("fault plan: --cover is missing, want flows such as 'h0->h1', a step or all")
			}
			file, p, err := a.load(args[0], "")
			if err != nil {
				return err
			}
			c, err := runner.Cover(runner.Options{File: file, Plan: p, Path: args[0]}, o)
			if err != nil {
				return &exitError{Code: verdict.ExitUsage, Err: err}
			}
			if a.output == "json" {
				return a.printJSON(c)
			}
			a.printCoverage(c, &o)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&o.Flows, "cover", nil, "see these `FLOWS`; may be repeated")
	flags.StringArrayVar(&o.At, "at", nil,
		"choose only ports at `WHERE`, as for fault add; may be repeated (default all)")
	flags.IntVar(&o.Max, "max", 0, "choose at most `NUMBER` ports (default as many as see all flows)")
	flags.BoolVar(&o.Exact, "exact", false,
		"search longer, and fail unless the choice is proven to be the best")
	completeFlag(cmd, "cover", ofFile(a, func(file *spec.Testbed, p *plan.Plan) []string {
		return runner.FlowWords(runner.Options{File: file, Plan: p})
	}))
	completeFlag(cmd, "at", ofFile(a, func(_ *spec.Testbed, p *plan.Plan) []string { return faultPlaces(p) }))
	return cmd
}

// ofFile completes words of the file that is the command's first argument.
func ofFile(a *app, words func(*spec.Testbed, *plan.Plan) []string) completion {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		file, p, err := a.load(args[0], "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return words(file, p), cobra.ShellCompDirectiveNoFileComp
	}
}

// printCoverage prints the points, how good the choice is, and faults for a file.
func (a *app) printCoverage(c *runner.Coverage, o *runner.CoverOptions) {
	rows := a.newTable("POINT", "TO", "FLOWS", "SEES")
	for _, p := range c.Points {
		rows.AppendRow(table.Row{p.Point, p.To, len(p.Sees), seen(p.Sees)})
	}
	rows.Render()
	fmt.Fprintf(a.stdout, "\n%s\n", quality(c, o.Max))
	if len(c.NotSeen) > 0 {
		fmt.Fprintf(a.stdout, "not seen: %s\n", strings.Join(c.NotSeen, ", "))
	}
	fmt.Fprintln(a.stdout)
	for _, line := range c.Faults {
		fmt.Fprintln(a.stdout, "  "+line)
	}
}

// seen returns the flows that a point sees, without those beyond the first few.
func seen(flows []runner.Sees) string {
	const most = 6
	var words []string
	for i, s := range flows {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(flows)-most))
			break
		}
		word := s.Flow
		if s.Paths < s.Of {
			word += plural.Text(" (%d of %d paths)", s.Paths, s.Of)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// quality returns how good a choice is, in words.
func quality(c *runner.Coverage, limit int) string {
	points, sees := plural.Count(len(c.Points), "points"), "see"
	if len(c.Points) == 1 {
		sees = "sees"
	}
	text := plural.Text("%s %s %d of %d flows", points, sees, c.Flows-len(c.NotSeen), c.Flows)
	if len(c.NotSeen) == 0 {
		text = plural.Text("%s %s all %d flows", points, sees, c.Flows)
	}
	switch {
	case len(c.NotSeen) > 0 && c.Optimal:
		return fmt.Sprintf("%s; no other choice of %d sees more", text, limit)
	case len(c.NotSeen) > 0:
		return text + "; other choices may see more: --exact searches longer"
	case c.AtLeast < len(c.Points):
		return fmt.Sprintf("%s: at most %.2f times the fewest, which are at least %d; "+
			"--exact searches longer", text, c.Ratio, c.AtLeast)
	case c.Greedy > len(c.Points):
		return fmt.Sprintf("%s; these are the fewest, and the greedy method takes %d", text, c.Greedy)
	}
	return text + "; these are the fewest"
}
