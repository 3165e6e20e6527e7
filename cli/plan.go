package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/allocation"
	"railbed/scenarios/runner"
)

func newPlanCommand(a *app) *cobra.Command {
	var rates ratesFlags
	var load bool
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Print the plan of a testbed, before anything is made",
		Long: `Plan compiles a testbed file and prints what was decided: nodes with their NICs
and addresses, switches, links with their rates and impairments, and the NIC of each
rank. The JSON form also has every route, rule and neighbour, and is what
"railbed up" applies; nothing is decided later.

The same file gives the same plan, byte for byte. Plan does not read the host. FILE
may be - for standard input. Standard error has the warnings that validate prints about
checks and rings.

--load prints whether this machine can carry the traffic of the file's collectives. It
brings the testbed up and runs each collective for about two seconds on links without
limits. The traffic at the rates of the links should be at most 60 % of what the machine
carried then, so that frames are on time.

--rates prints, as JSON, the rate at which each rank may send to each other rank in a
collective, for a workload over rd with "control: offline". Method max-min gives fair
shares of all links to all pairs at once, conflict-free has phases in which no NIC has
two peers. --rates also takes a step of the file with "control: offline". Its rates are
weighted by the bytes of each pair of ranks, if these are known: for a mixture of experts
the bytes of dispatch or, with --back, of combine. Pairs of a messages step have equal rates.`,
		Example: `  railbed plan scenarios/quickstart.yaml
  railbed generate hpn | railbed plan -o json - | jq '.switches[0].routes'
  railbed plan --load scenarios/quickstart.yaml
  railbed plan --rates all-to-all --method conflict-free FILE > rates.json
  railbed plan --rates demand --back scenarios/collectives/moe-rates.yaml`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, p, err := a.load(args[0], "")
			if err != nil {
				return err
			}
			o := runner.Options{File: file, Plan: p, Path: args[0]}
			if load {
				return a.printLoad(cmd.Context(), o)
			}
			if rates.Pattern != "" || rates.back {
				rates.chosen = cmd.Flags().Changed("method") || cmd.Flags().Changed("headroom")
				return a.printRates(o, &rates)
			}
			_, warnings := runner.Provable(o)
			a.warn(warnings)
			return a.printPlan(p)
		},
	}
	a.settingsFlag(cmd)
	cmd.Flags().StringVar(&rates.Pattern, "rates", "",
		"print rates for a collective of this `PATTERN`: "+strings.Join(allocation.Patterns(),
			", ")+"; or of the step with this name")
	cmd.Flags().BoolVar(&rates.back, "back", false,
		"print the rates of a mixture of experts for combine, not for dispatch")
	cmd.Flags().StringVar(&rates.Method, "method", allocation.MaxMin,
		"compute the rates by this `METHOD`: max-min or conflict-free")
	cmd.Flags().BoolVar(&load, "load", false,
		"measure whether this machine can carry the traffic of the file's collectives")
	cmd.MarkFlagsMutuallyExclusive("load", "rates")
	completeFlag(cmd, "rates", oneOf(allocation.Patterns()...))
	completeFlag(cmd, "method", oneOf(allocation.MaxMin, allocation.ConflictFree))
	cmd.Flags().StringVar(&rates.headroom, "headroom", "2%",
		"leave this `SHARE` of each link to acknowledgements and retransmissions")
	return cmd
}

// ratesFlags select the rates to print.
type ratesFlags struct {
	allocation.Options
	headroom string
	back     bool
	chosen   bool // The method or the headroom is given.
}

// printRates prints the rates of a pattern or of a step.
func (a *app) printRates(o runner.Options, f *ratesFlags) error {
	ofStep := f.Pattern != "" && !slices.Contains(allocation.Patterns(), f.Pattern)
	switch {
	case ofStep && f.chosen || !ofStep && f.back:
		return &exitError{Code: verdict.ExitUsage,
			Err: errors.New("--method and --headroom need a pattern, and --back needs a step: " +
				"remove the options that do not apply")}
	case ofStep:
		return a.printStepRates(o, f.Pattern, f.back)
	}
	share, err := units.ParseRatio(f.headroom)
	if err == nil {
		f.Headroom, f.Exact = share, share.IsZero()
		var file *allocation.File
		if file, err = allocation.Compute(o.Plan, f.Options); err == nil {
			return file.Write(a.stdout)
		}
	}
	return &exitError{Code: verdict.ExitUsage, Err: err}
}

// printStepRates prints the rates of a step.
func (a *app) printStepRates(o runner.Options, name string, back bool) error {
	file, other, err := runner.Rates(o, name)
	if err == nil && back {
		if file = other; file == nil {
			err = fmt.Errorf("rates for %q: its replies have no rates of their own: remove --back", name)
		}
	}
	if err != nil {
		return &exitError{Code: verdict.ExitUsage, Err: err}
	}
	return file.Write(a.stdout)
}

func (a *app) printPlan(p *plan.Plan) error {
	if a.output == "json" {
		return p.WriteJSON(a.stdout)
	}
	fmt.Fprint(a.stdout, plural.Text("testbed %s, seed %d, plan %.12s: %d nodes, %d switches, %d links, "+
		"%d ranks\n\n", p.Name, p.Seed, p.Hash(), len(p.Nodes), len(p.Switches), len(p.Links), len(p.Ranks)))
	a.printPlanNodes(p)
	a.printGuests(p.Guests())
	a.printRDMA(p.RDMADevices())
	a.printPlanSwitches(p)
	a.printPlanLinks(p)
	if len(p.Ranks) > 0 {
		rows := a.newTable("rank", "node", "nic", "ipv4", "ipv6")
		for _, r := range p.Ranks {
			rows.AppendRow(table.Row{r.Rank, r.Node, r.NICs(), r.Addr4, r.Addr6})
		}
		rows.Render()
	}
	a.printPlanAggregation(p)
	for _, r := range p.Requires {
		fmt.Fprintf(a.stdout, "\nneeds %s: %s (%s)\n", r.Feature, r.Reason, r.Where)
	}
	return nil
}

func (a *app) printPlanNodes(p *plan.Plan) {
	rows := a.newTable("node", "addresses", "nic", "switch port", "nic addresses", "mac", "mtu")
	for _, n := range p.Nodes {
		name, loopbacks := n.Name, addresses(n.Loopbacks)
		for _, nic := range n.NICs {
			rows.AppendRow(table.Row{name, loopbacks, nic.Name, nic.Peer, addresses(nic.Addrs), nic.MAC,
				nic.MTU})
			name, loopbacks = "", ""
		}
	}
	rows.Render()
	fmt.Fprintln(a.stdout)
}

// printGuests prints virtual machines, if there are any.
func (a *app) printGuests(guests []plan.Guest) {
	if len(guests) == 0 {
		return
	}
	rows := a.newTable("virtual machine", "processors", "memory", "modules")
	for _, g := range guests {
		rows.AppendRow(table.Row{g.Node, g.Processors, g.Memory, strings.Join(g.Modules, " ")})
	}
	rows.Render()
	fmt.Fprintln(a.stdout)
}

// printRDMA prints nodes' RDMA devices, if there are any.
func (a *app) printRDMA(devices []plan.NodeRDMA) {
	if len(devices) == 0 {
		return
	}
	rows := a.newTable("rdma device", "node", "nic", "kind", "path mtu")
	for _, d := range devices {
		rows.AppendRow(table.Row{d.Name, d.Node, d.NIC, d.Kind, d.PathMTU})
	}
	rows.Render()
	fmt.Fprintln(a.stdout)
}

func (a *app) printPlanSwitches(p *plan.Plan) {
	rows := a.newTable("switch", "kind", "role", "tier", "group", "addresses", "ports", "routes")
	for _, s := range p.Switches {
		rows.AppendRow(table.Row{s.Name, s.Kind, s.Role, s.Tier, s.Group, addresses(s.Loopbacks),
			len(s.Ports), s.Routes.Len()})
	}
	rows.Render()
	fmt.Fprintln(a.stdout)
}

// printPlanAggregation prints which switches add up for which ranks, and the switch that an
// all-reduce of all ranks uses.
func (a *app) printPlanAggregation(p *plan.Plan) {
	jobs := p.AggregationJobs()
	if len(jobs) == 0 {
		return
	}
	all, _ := p.AggregationFor(p.Ranks, "")
	rows := a.newTable("in-network all-reduce of", "tree", "busiest link", "links crossed")
	for _, job := range jobs {
		ranks, cost := plural.Count(len(job.Workers), "ranks"), p.AggregationCost(job)
		if job == all {
			ranks = "all ranks"
		}
		rows.AppendRow(table.Row{ranks, job.Text(), cost.Busiest, cost.Crossings})
	}
	fmt.Fprintln(a.stdout)
	rows.Render()
}

func (a *app) printPlanLinks(p *plan.Plan) {
	rows := a.newTable("link", "ends", "mtu", "a to b", "b to a")
	for _, l := range p.Links {
		back := "same"
		if !l.BToA.Equal(l.AToB) {
			back = describe(l.BToA)
		}
		rows.AppendRow(table.Row{l.Name, fmt.Sprintf("%s:%s %s:%s", l.A.Node, l.A.Port, l.B.Node, l.B.Port),
			l.MTU, describe(l.AToB), back})
	}
	rows.Render()
	fmt.Fprintln(a.stdout)
}

func addresses(prefixes []netip.Prefix) string {
	var words []string
	for _, p := range prefixes {
		words = append(words, p.Addr().String())
	}
	return strings.Join(words, " ")
}

// describe returns the settings of one direction of a link, in the words of the file.
func describe(d plan.Direction) string {
	words := []string{d.Rate.String(), "queue " + d.Queue.String()}
	return strings.Join(append(words, d.Effects()...), ", ")
}
