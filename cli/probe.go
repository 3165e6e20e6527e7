package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"railbed/internal/plural"
	"railbed/internal/verdict"
	"railbed/testbed/probe"
)

func newProbeCommand(a *app) *cobra.Command {
	var name string
	var o probe.Options
	cmd := &cobra.Command{
		Use:   "probe FROM TO",
		Short: "Show each switch between two nodes: queue, time, link use",
		Long: `Send telemetry probes from one node to another and show what the soft switches on the
path wrote into them (int: true of fabric.switch): the ports that a probe passed, the
bytes that waited in its queue when it left, the time since it left the
previous switch, and how busy the link was in the last whole 100 us.

Times and queues are the model's, in the testbed's clock. Probes wait in
queues as other packets of their priority do; with --flows they take the paths that
as many flows would take.

FROM and TO are nodes, or NICs as NODE:NIC. Probes leave by the NIC of FROM and go to
the address of the NIC of TO. Without a NIC they go from any NIC to the address that
the node's name has.

The exit code is 1 when no probe arrived.`,
		Example: `  railbed probe h0 h5
  railbed probe h0:eth1 h5:eth1                     # over the second rail
  railbed probe h0 h5 --flows 8 --count 80 --dscp 26`,
		Args:              exactArgs(2),
		ValidArgsFunction: ofTestbed(&name, nodesAndNICs),
		RunE: func(cmd *cobra.Command, args []string) error {
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			o.From, o.To = args[0], args[1]
			report, err := probe.Run(cmd.Context(), tb, o)
			switch {
			case errors.Is(err, probe.ErrOptions):
				return &exitError{Code: verdict.ExitUsage, Err: err}
			case err != nil:
				return err
			}
			if err := a.printProbed(report); err != nil {
				return err
			}
			if report.Arrived == 0 {
				return fmt.Errorf("no probe from %s arrived at %s", o.From, o.To)
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&o.Count, "count", "c", 10, "`NUMBER` of probes")
	cmd.Flags().DurationVarP(&o.Interval, "interval", "i", 10*time.Millisecond, "`TIME` between two probes")
	cmd.Flags().IntVar(&o.Flows, "flows", 1, "`NUMBER` of source ports that take turns")
	cmd.Flags().IntVar(&o.DSCP, "dscp", 0, "`DSCP` of the probes, 0 to 63, which decides their priority")
	cmd.Flags().BoolVarP(&o.IPv6, "ipv6", "6", false, "send over IPv6")
	testbedFlag(cmd, &name)
	return cmd
}

func (a *app) printProbed(r *probe.Report) error {
	if a.output == "json" {
		return a.printJSON(r)
	}
	fmt.Fprintf(a.stdout, "%s to %s: %d probes sent, %d arrived, by %s\n", r.From, r.To, r.Sent, r.Arrived,
		plural.Count(len(r.Paths), "paths"))
	if r.Doubled > 0 {
		fmt.Fprintf(a.stdout, "%d probes arrived twice\n", r.Doubled)
	}
	if r.Full > 0 {
		fmt.Fprintf(a.stdout, "%d probes passed more switches than they had room for\n", r.Full)
	}
	for i := range r.Paths {
		path := &r.Paths[i]
		fmt.Fprintf(a.stdout, "\npath %d: %s\n", i+1, plural.Count(len(path.Probes), "probes"))
		t := a.newTable("HOP", "SWITCH", "IN", "OUT", "PRIORITY", "QUEUE MEDIAN", "WORST", "LINK USE",
			"SINCE LAST HOP MEDIAN", "WORST")
		for n, hop := range path.Hops {
			s := path.Summary(n)
			since, worst := "", ""
			if n > 0 {
				since, worst = s.Since.String(), s.WorstSince.String()
			}
			t.AppendRow([]any{n + 1, hop.Switch, hop.In, hop.Out, s.Priority, fmt.Sprintf("%dB", s.Queue),
				fmt.Sprintf("%dB", s.WorstQueue),
				fmt.Sprintf("%.1f%%", float64(s.Use)/1e4), since, worst})
		}
		t.Render()
	}
	return nil
}
