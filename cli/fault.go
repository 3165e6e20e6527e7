package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"railbed/capture/display"
	"railbed/fabric/softswitch"
	"railbed/plan/spec"
	"railbed/testbed"
)

func newFaultCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Harm packets or nodes of a running testbed, and see what was hit",
		Long: `Harm chosen packets of a running testbed where they leave a port: lose, delay, copy,
change or misroute them, limit their rate, or answer them with pauses. Or partition the
nodes, reboot a switch, or harm nodes and their programs: crash, hang or slow them, fill
their disks, or change their clocks. fault add --help lists the kinds. Kernel links,
bridges and routers need root for faults of packets, and have only these:
` + strings.Join(spec.FaultKeys(true), ", ") + `.
In files, the step fault: does the same. fault plan needs no testbed: it finds the places
of faults in a file.`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFaultAddCommand(a), newFaultListCommand(a), newFaultClearCommand(a),
		newFaultPlanCommand(a))
	return cmd
}

// faultFlags are the flags of faults that are no kinds, with the forms of their values in files.
var faultFlags = []struct {
	key, usage string
	form       func(value string) string
}{
	{"program", "with --crash or --hang, `NAME` or glob of the only programs", strconv.Quote},
	{"rank", "with --crash or --hang, `RANK` of the only processes", strings.TrimSpace},
	{"for", "`TIME` after which the fault ends, such as 2s (default: it ends with fault clear)",
		strings.TrimSpace},
	{"name", "`NAME` of the fault in lists and in captures (default fault-1, fault-2, ...)", strconv.Quote},
	{"match", "display `FILTER` for the packets (default all)", strconv.Quote},
}

func newFaultAddCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "add [WHERE]",
		Short: "Begin a fault",
		Long: `Begin a fault. WHERE names the ports that send the packets: a link, optionally followed by
a-to-b or b-to-a, NODE:PORT, a node or a switch, all, nics, switches, or a glob of these.

Exactly one flag gives the action. Its value selects packets among the packets that match,
which each port counts from 1: all, nth: [5, 6], every: 10, share: 10% of the packets, or
flows: 10% of the flows with all their packets. Braces hold several settings, as in files.
--partition takes no WHERE: IP packets between nodes of different sets are lost. --reboot
takes a switch as WHERE, and needs --for.

--crash, --hang, --slow, --memory, --clock, --disk and --queue-pairs take a node or a glob
of nodes as WHERE. --crash and --hang with --program or --rank hit only these programs,
and the links stay up. fault clear takes links up, continues programs, and restores
processor time, memory, disk and clock. Programs that were killed stay dead, and queue
pairs stay lost.`,
		Example: `  railbed fault add leaf1--spine2 a-to-b --match 'tcp.len > 0' --drop 'nth: [5, 6]'
  railbed fault add h2 --drop all --for 200ms
  railbed fault add 'spine*' --name late --delay '{by: 5ms, share: 1%}'
  railbed fault add h1 --match tcp --rewrite '{field: tcp.window_size_value, to: 0}'
  railbed fault add spine1 --reboot --for 300ms
  railbed fault add --partition '[[h0, h1], ["h[2-7]"]]' --for 2s
  railbed fault add h2 --crash
  railbed fault add h2 --hang --program 'redis-*' --for 500ms
  railbed fault add --hang --rank 3
  railbed fault add h2 --slow 0.1
  railbed fault add vm1 --clock 'jump: -10s'`,
		Args:              rangeArgs(0, 2),
		ValidArgsFunction: inTurn(ofTestbed(&name, faultPlaces), oneOf(directions...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.addFault(cmd.Context(), name, "{"+strings.Join(faultWords(cmd, args), ", ")+"}")
		},
	}
	flags := cmd.Flags()
	for _, k := range spec.FaultKinds {
		if k.Switch() {
			flags.Bool(k.Key, false, k.Usage)
			continue
		}
		flags.String(k.Key, "", k.Usage)
		if k.Words != nil {
			completeFlag(cmd, k.Key, oneOf(k.Words...))
		}
	}
	for _, flag := range faultFlags {
		flags.String(flag.key, "", flag.usage)
	}
	completeFields(cmd, "match")
	testbedFlag(cmd, &name)
	return cmd
}

// faultWords returns the keys and values of a fault as in files.
func faultWords(cmd *cobra.Command, args []string) []string {
	words := whereWords(args)
	given := func(key string, form func(value string) string) {
		if flag := cmd.Flag(key); flag.Changed {
			words = append(words, key+": "+form(flag.Value.String()))
		}
	}
	for _, k := range spec.FaultKinds {
		given(k.Key, k.Value)
	}
	for _, flag := range faultFlags {
		given(flag.key, flag.form)
	}
	return words
}

// whereWords returns the place of the arguments as in files, or none.
func whereWords(args []string) []string {
	if len(args) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("where: %q", strings.Join(args, " "))}
}

// addFault adds a fault. text is the fault as in a file.
func (a *app) addFault(ctx context.Context, name, text string) error {
	f, err := spec.ParseFault("the flags", text)
	if err != nil {
		return usage("%w", err)
	}
	if f.Match != "" {
		if _, err := display.CompileBytes(f.Match); err != nil {
			return usage("--match: %w", err)
		}
	}
	if r := f.Rewrite; r != nil {
		if _, err := display.CompileRewrite(r.Field, r.To); err != nil {
			return usage("--rewrite: %w", err)
		}
	}
	tb, err := openTestbed(ctx, name)
	if err != nil {
		return err
	}
	if f.Name == "" {
		if f.Name, err = freeFaultName(ctx, tb); err != nil {
			return err
		}
	}
	if err := tb.AddFault(ctx, f); err != nil {
		return err
	}
	return a.printFault(ctx, tb, f.Name)
}

// freeFaultName returns the first of the names fault-1, fault-2, ... that no fault has.
func freeFaultName(ctx context.Context, tb *testbed.Testbed) (string, error) {
	all, err := tb.Faults(ctx)
	taken := map[string]bool{}
	for _, f := range all {
		taken[f.Name] = true
	}
	for number := 1; ; number++ {
		if name := fmt.Sprintf("fault-%d", number); !taken[name] {
			return name, err
		}
	}
}

func newFaultListCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the faults, and how many packets they matched and hit",
		Example: "  railbed fault list\n  railbed fault list -o json | jq '.[].hit'",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			all, err := tb.Faults(cmd.Context())
			if err != nil {
				return err
			}
			return a.showFaults(all)
		},
	}
	testbedFlag(cmd, &name)
	return cmd
}

func newFaultClearCommand(a *app) *cobra.Command {
	var name string
	var all bool
	cmd := &cobra.Command{
		Use:     "clear FAULT...",
		Short:   "End faults, and show what they did",
		Example: "  railbed fault clear fault-1\n  railbed fault clear --all",
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) (names []string,
			_ cobra.ShellCompDirective) {
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			all, _ := tb.Faults(cmd.Context()) // a completion has no place for an error
			for _, f := range all {
				names = append(names, f.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usage("fault clear: want the names of faults, or --all")
			}
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			cleared, err := tb.ClearFaults(cmd.Context(), args...)
			if err != nil {
				return err
			}
			return a.showFaults(cleared)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all faults")
	testbedFlag(cmd, &name)
	return cmd
}

// printFault prints the fault with a name.
func (a *app) printFault(ctx context.Context, tb *testbed.Testbed, name string) error {
	all, err := tb.Faults(ctx)
	if err != nil {
		return err
	}
	var chosen []softswitch.FaultState
	for _, f := range all {
		if f.Name == name {
			chosen = append(chosen, f)
		}
	}
	return a.showFaults(chosen)
}

func (a *app) showFaults(all []softswitch.FaultState) error {
	if a.output == "json" {
		if all == nil {
			all = []softswitch.FaultState{}
		}
		return a.printJSON(all)
	}
	t := a.newTable("FAULT", "AT", "DOES", "MATCHED", "HIT", "STATE") // nodes match, and processes are hit
	for _, f := range all {
		state := "in force"
		if f.Over {
			state = "over"
		}
		t.AppendRow([]any{f.Name, f.Where, f.String(), f.Matched, f.Hit, state})
	}
	t.Render()
	return nil
}
