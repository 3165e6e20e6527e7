// Package cli implements the railbed command. It parses arguments, calls the packages that do the
// work, and prints the results. Results go to stdout, everything else to stderr. -o json prints one
// JSON document.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"railbed/internal/input"
	"railbed/internal/plural"
	"railbed/internal/printable"
	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/scenarios/runner"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// app holds the input, the outputs and the global flags of every command. Each command is in a file
// of its own, as func newXCommand(a *app) *cobra.Command.
type app struct {
	stdin io.Reader
	// stdout and stderr filter control characters.
	stdout, stderr io.Writer
	// rawStdout and rawStderr pass every byte. They are for a user's programs that use the
	// terminal, for recordings, and for text that was made printable before it was coloured.
	rawStdout, rawStderr io.Writer
	// output is "table" or "json" (global flag -o).
	output string
	// trace prints each host change as the ip or tc line that it equals (global flag -x).
	trace bool
	// verbose prints all tables of a report (flag -v of run and report).
	verbose bool
	// set are the values of --set.
	set []string
}

// exitError ends the command with the given code. Err may be nil if everything was printed already.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

// Init runs the part of Railbed for which this process was started, if any, and then does not
// return. It comes first in main.
func Init() {
	command := func(args []string) int { return Main(args, os.Stdin, os.Stdout, os.Stderr) }
	testbed.Init(runner.Parts(), reexec.Parts{supervisor.CommandPart: command})
}

// Main runs the command line and returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 && os.Getenv(cniCommand) != "" { // as container runtimes do
		return plugin().Main()
	}
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	defer context.AfterFunc(ctx, input.Interrupt)()
	printed := &checkedWriter{to: stdout}
	a := newApp(stdin, printed, stderr)
	root := newRootCommand(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	code := a.exitCode(err)
	a.hint(err, args)
	// A closed pipe ends the process (SIGPIPE), except where onInterrupt was called.
	if printed.err != nil && !errors.Is(printed.err, syscall.EPIPE) {
		a.complain("railbed: the output is not complete: ", printed.err)
		code = cmp.Or(code, verdict.ExitFail)
	}
	return code
}

// exitCode prints an error that ended a command, if any, and returns the exit code.
func (a *app) exitCode(err error) int {
	switch {
	case err == nil:
		return verdict.ExitPass
	case input.Interrupted(err):
		a.complain("railbed: ", input.ErrInterrupted)
		return verdict.ExitFail
	}
	var exit *exitError
	if errors.As(err, &exit) {
		var problems spec.Problems
		switch {
		case errors.As(exit.Err, &problems):
			// Without a program name in front, editors recognise the position on each line.
			fmt.Fprintln(a.stderr, problems)
		case exit.Err != nil:
			a.complain("railbed: ", exit.Err)
		}
		return exit.Code
	}
	a.complain("railbed: ", err)
	switch {
	case errors.Is(err, verdict.ErrUnsupported):
		return verdict.ExitUnsupported
	case errors.Is(err, testbed.ErrNoSuchObject):
		return verdict.ExitUsage
	}
	return verdict.ExitFail
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{
		stdin: stdin, rawStdout: stdout, rawStderr: stderr,
		stdout: printable.NewWriter(stdout), stderr: printable.NewWriter(stderr),
	}
}

// input returns standard input for commands that read a file from it. A signal ends its reads.
func (a *app) input() io.Reader { return input.Reader(a.stdin) }

// say prints a line to stderr. It marks further lines, which occur in an error of several problems
// or of a program's output.
func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, printable.Text(plural.Text(format, args...)))
}

// complain prints an error to stderr, after the name of its origin.
func (a *app) complain(who string, err error) { fmt.Fprintln(a.stderr, who+printable.Error(err)) }

// show prints a line to stdout. It formats as plural.Text.
func (a *app) show(format string, args ...any) {
	fmt.Fprintln(a.stdout, printable.Line(plural.Text(format, args...)))
}

// checkedWriter records the first failed write to standard output. Most printing code ignores write
// errors, and a command whose output is lost has failed.
type checkedWriter struct {
	to  io.Writer
	mu  sync.Mutex
	err error
}

// Write implements io.Writer.
func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = cmp.Or(w.err, err)
	}
	return n, err
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "railbed",
		Short: "Emulated AI clusters with real network stacks, and the packets that prove what happened",
		Long: `Railbed brings up an emulated AI cluster on this machine: nodes with real network
stacks, joined by links and switches as a YAML file describes them. Run programs
in the nodes, change links, record every packet; or run a file's steps and checks
as a test.

Results go to standard output, everything else to standard error. Exit codes:
0 success, 1 failure, 2 bad input or usage, 3 the host lacks a feature (railbed doctor
names it), 4 the emulation was overloaded, 5 nothing was proved or evidence was lost.
Exec and shell exit with the exit code of their program.`,
		Example: `  railbed generate leaf-spine > cluster.yaml     # a file to start from
  railbed up cluster.yaml                        # the cluster, until railbed down
  railbed exec h0 -- ping -c3 h7                 # a program in a node
  railbed run scenarios/quickstart.yaml          # a test: cluster, steps, checks`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(wrongFlag)
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table",
		"output `FORMAT`: table, or json for one JSON document on standard output")
	completeFlag(root, "output", oneOf("table", "json"))
	root.PersistentFlags().BoolVarP(&a.trace, "trace", "x", false,
		"with up and run, print the equivalent ip or tc command of each change of the host, on "+
			"standard error")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if a.output != "table" && a.output != "json" {
			return &exitError{Code: verdict.ExitUsage,
				Err: fmt.Errorf("output format %q: want table or json", a.output)}
		}
		return nil
	}
	root.AddCommand(newUpCommand(a), newDownCommand(a), newLsCommand(a), newInspectCommand(a),
		newExecCommand(a), newShellCommand(a), newRshCommand(a), newLinkCommand(a), newFaultCommand(a),
		newProbeCommand(a), newRdmaCommand(a), newCollectiveCommand(a), newCaptureCommand(a),
		newEventsCommand(a), newUICommand(a), newGcCommand(a), newVersionCommand(a), newCniCommand(a))
	root.AddCommand(newRunCommand(a), newTestCommand(a), newReportCommand(a))
	root.AddCommand(newVerifyCommand(a), newDecodeCommand(a), newFollowCommand(a), newWhyCommand(a),
		newTraceCommand(a), newBundleCommand(a))
	root.AddCommand(newDoctorCommand(a))
	root.AddCommand(newPlanCommand(a), newValidateCommand(a), newGenerateCommand(a), newGraphCommand(a),
		newSchemaCommand(a), newExplainCommand(a))
	root.AddCommand(newDissectorCommand(a), newWiresharkCommand(a), newExtcapCommand(a),
		newManCommand(a))
	root.AddCommand(newImportCommand(a), newExportCommand(a))
	root.InitDefaultHelpCmd()
	refuseUnknownTopics(root)
	return root
}

// refuseUnknownTopics makes help for an unknown command the same usage error as the command itself.
// Cobra would show the help of the parent command.
func refuseUnknownTopics(root *cobra.Command) {
	help, _, err := root.Find([]string{"help"})
	if err != nil || help == root {
		return
	}
	help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
		topic, rest, err := root.Find(args)
		switch {
		case err != nil:
			return usage("%w", err)
		case len(rest) > 0 && topic.HasAvailableSubCommands():
			return noSuchCommand(topic, rest)
		case len(rest) > 0:
			return usage("unknown command %q: %s has no subcommands", rest[0], topic.CommandPath())
		}
		topic.InitDefaultHelpFlag()
		return topic.Help()
	}
}

// printJSON prints v as indented JSON on stdout.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printJSONLine prints v as one line of JSON.
func (a *app) printJSONLine(v any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// longOutputFlag gives a command --output without the letter of the global flag, which the command has for an
// option of its own.
func (a *app) longOutputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.output, "output", "table",
		"output `FORMAT`: table, or json for one JSON document on standard output")
	completeFlag(cmd, "output", oneOf("table", "json"))
}

// outFlag adds --out, the file that a command writes. Its former name is an alias.
func outFlag(cmd *cobra.Command, path *string, short, former, usage string) {
	cmd.Flags().StringVarP(path, "out", short, "", usage)
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == former {
			name = "out"
		}
		return pflag.NormalizedName(name)
	})
}
