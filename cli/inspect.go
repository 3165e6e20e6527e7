package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/internal/printable"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/nodes/cni"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// States of a testbed in ls.
const (
	stateUp      = "up"
	stateSilent  = "no answer"
	stateAborted = "aborted"
)

// listed is a testbed that is up, in the JSON of ls.
type listed struct {
	Condition string `json:"state"`
	*supervisor.State
}

// listedSilent is a testbed that is up and did not answer, in the JSON of ls.
type listedSilent struct {
	Condition string `json:"state"`
	Name      string `json:"name"`
	Error     string `json:"error"`
}

// listedAborted is a testbed that died, in the JSON of ls.
type listedAborted struct {
	Condition string `json:"state"`
	rundir.Aborted
}

func newLsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the testbeds that are up, and recently died testbeds",
		Long: fmt.Sprintf(`List the calling user's testbeds that are up. Testbeds whose supervisor died
without taking them down follow as aborted, with the directory that holds their
supervisor.log and report.json, which railbed report prints. Ls removes everything
else that they left behind.

A testbed that is up but does not answer shows %[4]q in place of its start. The
reason is printed on standard error.

The latest %[1]d aborted testbeds are kept for %[2]d days; railbed gc removes them at
once. With -o json each testbed has a state: %[3]q, %[4]q or %[5]q.`,
			rundir.KeptCount, int(rundir.KeptFor.Hours()/24), stateUp, stateSilent, stateAborted),
		Example: "  railbed ls\n  railbed ls -o json | jq -r '.[] | select(.state == \"up\") | .name'",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.sweep(rundir.SweepOptions{Try: true, Patience: besides})
			names, err := testbed.Testbeds()
			if err != nil {
				return err
			}
			aborted, err := rundir.ListAborted()
			if err != nil {
				return err
			}
			states, silent := a.states(cmd.Context(), names)
			return a.printTestbeds(states, silent, aborted)
		},
	}
}

// states asks the supervisors of the named testbeds for their states. It also returns the testbeds
// that did not answer.
func (a *app) states(ctx context.Context, names []string) (states []*supervisor.State,
	silent []listedSilent) {
	for _, name := range names {
		state, err := inspect(ctx, name)
		switch {
		case errors.Is(err, testbed.ErrNotRunning): // it has ended since it was listed
		case err != nil:
			// A testbed that does not answer must not hide the others.
			a.complain("railbed: ", err)
			silent = append(silent, listedSilent{stateSilent, name, err.Error()})
		default:
			states = append(states, state)
		}
	}
	return states, silent
}

func (a *app) printTestbeds(states []*supervisor.State, silent []listedSilent,
	aborted []rundir.Aborted) error {
	if a.output == "json" {
		all := []any{}
		for _, state := range states {
			all = append(all, listed{stateUp, state})
		}
		for _, one := range silent {
			all = append(all, one)
		}
		for _, one := range aborted {
			all = append(all, listedAborted{stateAborted, one})
		}
		return a.printJSON(all)
	}
	t := a.newTable("NAME", "NODES", "SWITCHES", "LINKS", "UP SINCE", "PID", "FILE")
	t.SetColumnConfigs(nil) // users copy paths, so paths must not wrap
	for _, s := range states {
		t.AppendRow([]any{s.Name, len(s.Nodes), len(s.Switches), len(s.Links),
			s.Created.Format(time.DateTime), s.PID, s.File})
	}
	for _, one := range silent {
		t.AppendRow([]any{one.Name, "-", "-", "-", stateSilent, "-", "-"})
	}
	t.Render()
	if len(aborted) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout)
	t = a.newTable("ABORTED", "FOUND DEAD", "LOG AND REPORT")
	t.SetColumnConfigs(nil)
	for _, one := range aborted {
		t.AppendRow([]any{one.Name, one.Found.Local().Format(time.DateTime), one.Dir})
	}
	t.Render()
	return nil
}

// lsTimeout is how long ls waits for each testbed. A stopped testbed must not hide the others for
// long.
const lsTimeout = 5 * time.Second

func inspect(ctx context.Context, name string) (*supervisor.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lsTimeout,
		fmt.Errorf("%w: %s, within %v", testbed.ErrNoAnswer, name, lsTimeout))
	defer cancel()
	tb, err := testbed.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return tb.Inspect(ctx)
}

func newInspectCommand(a *app) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "inspect [TESTBED]",
		Short: "Show nodes, switches and links, with live counters",
		Long: `Show the present state: nodes with their addresses and processes, switches, and each
direction of each link with the requested rate, the shaper's burst, the rate that the
calibration reached with it, and the kernel's live counters. For soft switches it
shows queues and counters, and why NICs do not use the fastest driver. --verify first
reads every setting back from the kernel and compares it with the plan; it prints
the differences, with exit code 1. TESTBED is needed only when several are up.`,
		Example: "  railbed inspect\n  railbed inspect --verify\n  railbed inspect quickstart -o " +
			"json | jq '.links[0]'",
		Args:              rangeArgs(0, 1),
		ValidArgsFunction: completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.sweep(rundir.SweepOptions{Try: true, Patience: besides})
			tb, err := openTestbed(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			if verify {
				if err := tb.Verify(cmd.Context()); err != nil {
					return err
				}
			}
			state, err := tb.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(state)
			}
			a.printState(state)
			return nil
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "compare every setting in the kernel with the plan first")
	return cmd
}

func (a *app) printState(s *supervisor.State) {
	fmt.Fprintf(a.stdout, "%s: up since %s, supervisor %d, rootless %t\n\n", printable.Line(s.Name),
		s.Created.Format(time.DateTime), s.PID, s.Rootless)
	nodes := a.newTable("NODE", "RUNTIME", "ADDRESSES", "NICS", "NIC-PATH", "RANKS", "PROCESSES", "NETNS")
	for _, n := range s.Nodes {
		nodes.AppendRow([]any{n.Name, n.Runtime, strings.Join(n.Addresses, " "), strings.Join(n.NICs, " "),
			n.NICPath, strings.Trim(fmt.Sprint(n.Ranks), "[]"), n.Processes,
			orPath(n.Namespace, n.NamespacePath)})
	}
	nodes.Render()
	fmt.Fprintln(a.stdout)
	a.printGuests(s.Guests)
	a.printRDMA(s.RDMA)
	a.printContainers(s.CNI)
	switches := a.newTable("SWITCH", "KIND", "ROLE", "PORTS", "NETNS")
	for _, sw := range s.Switches {
		switches.AppendRow([]any{sw.Name, sw.Kind, sw.Role, sw.Ports, orPath(sw.Namespace, sw.NamespacePath)})
	}
	switches.Render()
	fmt.Fprintln(a.stdout)
	a.printRouting(s.Routing)
	a.printLinks(s)
	a.printQueues(s)
}

// reactionsShown is the number of the routers' latest reactions that are printed.
const reactionsShown = 8

// printRouting prints the recent reactions of routers' daemons, and the daemons that have ended.
func (a *app) printRouting(r *supervisor.RoutingState) {
	if r == nil {
		return
	}
	for _, end := range r.Ended {
		a.show("%s of %s ended at %s: %s", end.Daemon, end.Switch, end.At.Local().Format(time.DateTime),
			end.How)
	}
	latest := r.Reactions[max(0, len(r.Reactions)-reactionsShown):]
	if len(latest) > 0 {
		t := a.newTable("ROUTERS REACT TO", "AT", "ROUTES CHANGED", "IN ROUTERS", "CONVERGED AFTER")
		for _, one := range latest {
			t.AppendRow([]any{strings.Join(one.To, ", "), one.At.Local().Format(time.DateTime), one.Routes,
				one.Routers, one.Last.Round(time.Microsecond)})
		}
		t.Render()
	}
	if len(r.Ended)+len(latest) > 0 {
		fmt.Fprintln(a.stdout)
	}
}

// printContainers prints the nodes that are containers of other runtimes.
func (a *app) printContainers(ports []cni.Port) {
	if len(ports) == 0 {
		return
	}
	t := a.newTable("FOR CONTAINERS", "CONTAINER", "INTERFACE", "NETWORK", "SINCE")
	for _, p := range ports {
		if one := p.Attached; one != nil {
			t.AppendRow([]any{p.Node + ":" + p.NIC, one.Container, one.Interface, one.Network,
				one.Since.Local().Format(time.DateTime)})
		} else {
			t.AppendRow([]any{p.Node + ":" + p.NIC, "free", "", "", ""})
		}
	}
	t.Render()
	fmt.Fprintln(a.stdout)
}

func orPath(namespace, path string) string {
	if namespace == "" {
		return path
	}
	return namespace
}

func newEventsCommand(a *app) *cobra.Command {
	var name string
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [TESTBED]",
		Short: "Show the events of a testbed",
		Long: `Show the events of a testbed: when it came up, links were changed, programs
started and exited, recordings began and ended, and what railbed up repaired. The
latest thousand events are kept; events of programs are dropped before others. The
first event, events.dropped, has the number of dropped events. With -o json each
event is a document on a line of its own.

A reader that does not keep up with --follow gets a last event, events.lost, with
the number of events that it missed, and the exit code is 5.`,
		Example: `  railbed events --follow -o json | jq .kind
  railbed events quickstart`,
		Args:              rangeArgs(0, 1),
		ValidArgsFunction: completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && name != "" && name != args[0] {
				return usage("testbed %s and --testbed %s: want one of them", args[0], name)
			}
			if len(args) > 0 {
				name = args[0]
			}
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			err = tb.Events(cmd.Context(), follow, a.printEvent)
			if errors.Is(err, testbed.ErrEventsLost) {
				return &exitError{Code: verdict.ExitInconclusive, Err: err}
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C or the testbed's end")
	testbedFlag(cmd, &name)
	return cmd
}

// printEvent prints a line per event, as JSON with -o json.
func (a *app) printEvent(e supervisor.Event) error {
	if a.output == "json" {
		return a.printJSONLine(e)
	}
	_, err := fmt.Fprintf(a.stdout, "%s  %-14s %s  %s\n", e.Time.Format("15:04:05.000000"),
		printable.Line(e.Kind), printable.Line(e.Subject), printable.Line(e.Detail))
	return err
}

func newGcCommand(a *app) *cobra.Command {
	var dryRun, keep bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove the remains of dead testbeds, their logs included",
		Long: fmt.Sprintf(`Remove the remains of testbeds whose supervisor died: their run directories, and
the names, cgroups and containers that they recorded as their own. Also remove
containers with Railbed's labels whose run directory is gone, and names in /run/netns
of testbeds that are gone. The kernel has removed everything else already. Gc never
touches live testbeds or objects that Railbed did not make.

Up, down, run, ls and inspect do this, too, but keep the logs and reports of dead
testbeds, the latest %d for %d days (railbed ls shows where). Gc removes these, too,
unless --keep-aborted is given.`,
			rundir.KeptCount, int(rundir.KeptFor.Hours()/24)),
		Example: "  railbed gc --dry-run\n  railbed gc --keep-aborted",
		Args:    exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			swept, err := rundir.Sweep(rundir.SweepOptions{DryRun: dryRun, Forget: !keep})
			orphans, orphansErr := testbed.SweepContainers(dryRun)
			return errors.Join(a.printSwept(append(swept, orphans...), dryRun), err, orphansErr)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	cmd.Flags().BoolVar(&keep, "keep-aborted", false, "keep logs and reports of testbeds that died")
	return cmd
}

func (a *app) printSwept(swept []rundir.Swept, dryRun bool) error {
	if a.output == "json" {
		if swept == nil {
			swept = []rundir.Swept{}
		}
		return a.printJSON(swept)
	}
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	for _, testbed := range swept {
		for _, path := range testbed.Removed {
			a.show("%s: %s %s", testbed.Name, verb, path)
		}
		for _, what := range testbed.Left {
			a.say("railbed: warning: %s: left %s, whose engine does not answer; run gc when it does",
				testbed.Name, what)
		}
		a.printKept(testbed)
	}
	return nil
}

// version is set in the build of a release (-ldflags -X).
var version = "development"

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the versions of railbed and of its control protocol. A testbed answers only a
railbed with the same control protocol as the railbed that brought it up.`,
		Args: exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			goVersion := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = info.GoVersion
			}
			if a.output == "json" {
				return a.printJSON(map[string]string{"version": version, "protocol": supervisor.Protocol,
					"go": goVersion})
			}
			fmt.Fprintf(a.stdout, "railbed %s (control protocol %s, %s)\n", version, supervisor.Protocol,
				goVersion)
			return nil
		},
	}
}
