package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"railbed/fabric"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

func newLinkCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Show and change the links of a running testbed",
		Long: `Show and change the links of a running testbed. A link is named by its ends, as in
leaf1--spine2 or h0--leaf1; its direction a-to-b leads from the first to the second.
The ends may be in either order, and a glob such as 'leaf1--*' names several links.
Railbed up with the testbed's file undoes the changes.`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLinkShowCommand(a), newLinkSetCommand(a),
		newLinkStateCommand(a, "up", "Bring a link, or one direction of it, back up",
			`Bring a link back up, or one direction that was taken down by itself. Without a
direction it undoes everything that link down did to the link, but not what link set
did.`),
		newLinkStateCommand(a, "down", "Take a link down, or one direction of it",
			`Take a link down, as if its cable were pulled: neither end has a carrier, routes
over it go away, and equal-cost paths carry the traffic.

With a direction only packets in that direction are lost, queued packets included.
Both ends keep their carrier, as with one broken fibre of a pair: neither end
notices, and equal-cost paths go on using the link.`))
	return cmd
}

func newLinkShowCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "show [LINK]",
		Short: "Show links, both directions, with live counters",
		Long: `Show each direction of every link, or of those that LINK names: -> is a-to-b, from the first end of
the link's name to the second.

ASKED is the requested rate, BURST the bytes that the shaper lets pass at once, REACHED
the share of the rate that the calibration measured on this host, QUEUE the drop-tail
queue in front of the link, OTHER delay, loss and the like. SENT, PACKETS and DROPS
count since the testbed came up, BACKLOG counts the bytes that wait now.`,
		Example: "  railbed link show\n  railbed link show h0--leaf1 -o json | jq " +
			"'.[0].a_to_b.shaper'",
		Args:              rangeArgs(0, 1),
		ValidArgsFunction: inTurn(ofTestbed(&name, linkNames), oneOf(directions...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			state, err := tb.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				places, err := tb.LinksAt(args[0])
				if err != nil {
					return err
				}
				state.Links = statesOf(state, places)
			}
			if a.output == "json" {
				return a.printJSON(state.Links)
			}
			a.printLinks(state)
			return nil
		},
	}
	testbedFlag(cmd, &name)
	return cmd
}

// printLinks prints a line per direction: the requested settings, the shaper's settings, and the
// traffic so far.
func (a *app) printLinks(s *supervisor.State) {
	t := a.newTable("LINK", "DIRECTION", "STATE", "ASKED", "BURST", "REACHED", "QUEUE", "OTHER", "SENT",
		"PACKETS", "DROPS", "BACKLOG")
	for _, link := range s.Links {
		for _, d := range []struct {
			arrow  string
			sender fabric.EndState
			fabric.DirectionState
		}{{"->", link.A, link.AToB}, {"<-", link.B, link.BToA}} {
			burst := "" // empty if the kernel does not shape
			if d.Burst > 0 {
				burst = d.Burst.String()
			}
			t.AppendRow([]any{link.Name, d.arrow, stateWord(d.Up), d.Rate, burst, reached(d.DirectionState),
				d.Queue, strings.Join(d.Effects(), ", "), units.Bytes(d.sender.Counters.TxBytes),
				d.sender.Counters.TxPackets, d.Shaper.Drops, units.Bytes(d.Shaper.BacklogBytes)})
		}
	}
	t.Render()
}

// reached returns the rate that the calibration measured for the requested rate.
func reached(d fabric.DirectionState) string {
	if d.Achieved == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(d.Achieved)/float64(d.Rate))
}

func newLinkStateCommand(a *app, state, short, long string) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   state + " LINK [a-to-b|b-to-a]",
		Short: short,
		Long:  long,
		Example: "  railbed link " + state + " leaf1--spine2\n  railbed link " + state +
			" leaf1--spine2 a-to-b",
		Args:              rangeArgs(1, 2),
		ValidArgsFunction: inTurn(ofTestbed(&name, linkNames), oneOf(directions...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			where := strings.Join(args, " ")
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.changeLinks(cmd.Context(), tb, where, func() error {
				return tb.SetLinkState(cmd.Context(), where, state)
			})
		},
	}
	testbedFlag(cmd, &name)
	return cmd
}

// directions are the names of the directions, in the order of a link's ends.
var directions = []string{plan.AToB, plan.BToA}

func newLinkSetCommand(a *app) *cobra.Command {
	var name, words string
	cmd := &cobra.Command{
		Use:   "set LINK [a-to-b|b-to-a]",
		Short: "Change links' rate, queue or impairments while they run",
		Long: `Change a link in both directions, or in one, and print each setting that changed. A glob
such as 'leaf*--spine1' changes several links, and the ends may be in either order: a-to-b
leads from the end that LINK has first. Other settings stay unchanged, except
reorder-by, which follows the rate unless it was given. A value that a file must not
have is refused, and nothing changes. Every setting of the kernel is read back. Delay,
jitter, loss, duplicate and corrupt need netem (railbed doctor netem shows whether
the host has it), or soft switches, whose links can do more: --set takes every setting
that a link can have in a file.
The buffer that soft switches reserve for PFC and Gentle Flow Control follows rate and
delay, except for values in the file. If a switch's buffer has no room for it, nothing
changes.`,
		Example: `  railbed link set leaf1--spine2 --rate 100mbit
  railbed link set leaf1--spine2 a-to-b --loss 0.1%
  railbed link set 'spine1--*' a-to-b --rate 100mbit    # all that leaves spine1
  railbed link set leaf1--spine2 --set '{drop-list: [5, 6], jitter: 2us, jitter-kind: normal}'`,
		Args:              cobra.MatchAll(rangeArgs(1, 2), noSetting),
		ValidArgsFunction: inTurn(ofTestbed(&name, linkNames), oneOf(directions...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			where := strings.Join(args, " ")
			var sets []spec.Direction
			if cmd.Flags().Changed("set") {
				set, err := spec.ParseDirection("--set", words)
				if err != nil {
					return usage("%w", err)
				}
				sets = append(sets, set)
			}
			for _, s := range spec.LinkSettings {
				if s.Flag == "" || !cmd.Flags().Changed(s.Key) {
					continue
				}
				value := cmd.Flag(s.Key).Value.String()
				if value == "0" { // also a duration without a unit
					value = cmp.Or(s.Off, value)
				}
				set, err := s.Parse("--"+s.Key, value)
				if err != nil {
					return usage("%w", err)
				}
				sets = append(sets, set)
			}
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.changeLinks(cmd.Context(), tb, where, func() error {
				return setLink(cmd.Context(), tb, where, sets)
			})
		},
	}
	for _, s := range spec.LinkSettings {
		if s.Flag != "" {
			cmd.Flags().String(s.Key, "", s.Flag)
		}
	}
	cmd.Flags().StringVar(&words, "set", "", "`SETTINGS` as in files, such as {flap: {every: 1s, for: 10ms}}")
	testbedFlag(cmd, &name)
	return cmd
}

// noSetting returns an error if the argument in place of a direction is a setting, such as rate=1gbit.
func noSetting(cmd *cobra.Command, args []string) error {
	for _, arg := range args[1:] {
		setting, value, _ := strings.Cut(arg, "=")
		if cmd.Flags().Lookup(setting) != nil {
			return usage("%q is no direction; settings are flags: --%s %s", arg, setting,
				cmp.Or(value, "VALUE"))
		}
	}
	return nil
}

// setLink applies settings to a link, or to one of its directions. Settings that contradict each other are
// errors of usage.
func setLink(ctx context.Context, tb *testbed.Testbed, where string, sets []spec.Direction) error {
	if len(sets) == 0 {
		return usage("nothing to set on %s: want one of the flags, such as --rate 100mbit or --set "+
			"'{delay: 5us}'", where)
	}
	err := tb.SetLink(ctx, where, sets...)
	if problems := (spec.Problems)(nil); errors.As(err, &problems) {
		return usage("%w", err)
	}
	return err
}
