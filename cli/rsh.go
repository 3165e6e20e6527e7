package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"railbed/testbed"
)

func newRshCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rsh NODE COMMAND [ARG]...",
		Short: "In a node, run a command in another node",
		Long: `In a node, run a command in another node of the testbed, as rsh and ssh do between
machines, for programs that start others with them. A shell in the other node gets the
words, joined by spaces. Input, output and the exit code are the command's. When
railbed rsh ends, the command ends.

It works in nodes of runtime netns, below railbed exec and railbed shell, and for the
user whose testbed it is. The command may run in any node.`,
		Example: `  railbed exec h0 -- mpirun --allow-run-as-root --mca plm_rsh_agent 'railbed rsh' --host h0,h1 ./program
  railbed exec h0 -e HYDRA_LAUNCHER_EXTRA_ARGS=rsh -- mpiexec.mpich -launcher rsh -launcher-exec railbed -localhost h0 -hosts h0,h1 ./program`,
		Args:              rangeArgs(2, -1),
		ValidArgsFunction: inTurn(completeInside, completeAnyFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
			defer cancel()
			command := testbed.Inside().Node(args[0]).Command(ctx, "/bin/sh", "-c",
				strings.Join(args[1:], " "))
			err := a.attach(command, false, cancel)
			if errors.Is(err, testbed.ErrOutside) {
				return usage("rsh: %w", err)
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// completeInside completes the nodes of the testbed in which this process runs.
func completeInside(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	tb, err := testbed.OpenInside(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return programNames(tb.Plan()), cobra.ShellCompDirectiveNoFileComp
}
