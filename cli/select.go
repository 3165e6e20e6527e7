package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"railbed/capture/bundle"
	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/testbed"
)

// usage returns a usage error, with exit code 2.
func usage(format string, args ...any) error {
	return &exitError{Code: verdict.ExitUsage, Err: fmt.Errorf(format, args...)}
}

// exactArgs is cobra.ExactArgs with the exit code of a usage error.
func exactArgs(n int) cobra.PositionalArgs { return rangeArgs(n, n) }

// rangeArgs accepts between low and high arguments. A negative high means no limit.
func rangeArgs(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || high >= 0 && len(args) > high {
			return usage("%d arguments; usage: %s", len(args), cmd.UseLine())
		}
		return nil
	}
}

// testbedFlag adds --testbed, which selects the testbed of a command.
func testbedFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVarP(name, "testbed", "t", "", "`NAME` of the testbed; needed only when several are up")
	completeFlag(cmd, "testbed", completeTestbeds)
}

// captureFlag adds --capture, which selects one of a run's recordings.
func captureFlag(cmd *cobra.Command, capture *string) {
	cmd.Flags().StringVar(capture, "capture", "",
		"`FILE` of the only recording to read of a run with several (default: all, as one)")
	completeFlag(cmd, "capture", func(_ *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		run, err := openRun(args[0], "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		defer run.Close()
		return run.Captures(), cobra.ShellCompDirectiveNoFileComp
	})
}

// openRun opens a run, with only one of its recordings unless capture is "".
func openRun(name, capture string) (*bundle.Run, error) {
	run, err := bundle.Open(name)
	if err != nil {
		return nil, &exitError{Code: verdict.ExitUsage, Err: err}
	}
	if capture != "" {
		if err := run.Choose(capture); err != nil {
			return nil, errors.Join(usage("--capture: %w", err), run.Close())
		}
	}
	return run, nil
}

// openTestbed opens the named testbed, or the only testbed that is up.
func openTestbed(ctx context.Context, name string) (*testbed.Testbed, error) {
	if name == "" {
		names, err := testbed.Testbeds()
		if err != nil {
			return nil, err
		}
		switch len(names) {
		case 0:
			return nil, usage("no testbed is up; railbed up FILE brings one up")
		case 1:
			name = names[0]
		default:
			return nil, usage("%d testbeds are up (%s); choose one with --testbed", len(names),
				strings.Join(names, ", "))
		}
	}
	tb, err := testbed.Open(ctx, name)
	if errors.Is(err, testbed.ErrNotRunning) {
		return nil, &exitError{Code: verdict.ExitUsage, Err: err}
	}
	return tb, err
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	if printed, ok := w.(*checkedWriter); ok {
		w = printed.to
	}
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// besides is how long commands wait for a sweep that is not their purpose.
const besides = time.Second

// sweep removes the remains of dead testbeds and prints where their logs are now. Commands that
// make, end or show testbeds call it. It prints what it cannot remove as a warning and continues.
func (a *app) sweep(o rundir.SweepOptions) {
	swept, err := rundir.Sweep(o)
	for _, testbed := range swept {
		a.printKept(testbed)
	}
	if err != nil {
		a.complain("railbed: warning: ", err)
	}
}

func (a *app) printKept(swept rundir.Swept) {
	if swept.Kept != "" {
		a.say("railbed: testbed %s died without being taken down; its log and report are in %s", swept.Name,
			swept.Kept)
	}
}
