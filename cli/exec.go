package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// exitNotFound is the shell's exit code for a command that does not exist.
const exitNotFound = 127

// passedOn are the variables of the user's environment that a command in a node gets. They affect
// the display of text and contain no secrets.
var passedOn = []string{"TERM", "LANG", "LC_ALL", "LC_CTYPE", "COLORTERM", "NO_COLOR", "TZ"}

func newExecCommand(a *app) *cobra.Command {
	var name, dir string
	var env []string
	var tty bool
	cmd := &cobra.Command{
		Use:   "exec NODE [--testbed NAME] -- COMMAND [ARG]...",
		Short: "Run a command in a node",
		Long: `Run a command in a node with this terminal's input and output, and exit with its
exit code: 127 when the node has no such program, 128 plus the signal's number when
a signal ended it. A node sees the host's programs and files, and has a network,
a /tmp and processes of its own. The railbed that runs the testbed is in its PATH, so
scripts there can call railbed rdma or railbed rsh. In a container the command runs as
the image's USER and in its WORKDIR.

Ctrl-C and other signals go to the command; a second one ends it. When railbed exec
ends, the command ends: it and its process group get SIGHUP and SIGTERM, and two
seconds later SIGKILL. A program in a session of its own (setsid) stays until the
testbed ends.`,
		Example: `  railbed exec h0 -- ping -c1 h7
  railbed exec h0 -- bash -c 'railbed rsh h1 hostname; railbed version'
  railbed exec h0 -e UCX_TLS=tcp -- ucx_perftest -t tag_bw`,
		Args:              rangeArgs(2, -1),
		ValidArgsFunction: inTurn(ofTestbed(&name, programNames), completeAnyFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
			defer cancel()
			command := tb.Node(args[0]).Command(ctx, args[1], args[2:]...)
			command.Dir, command.Env = dir, append(a.environment(), env...)
			if n := tb.Plan().Node(args[0]); n != nil && n.Container != nil &&
				!cmd.Flags().Changed("workdir") {
				command.Dir = "" // the image's working directory
			}
			return a.attach(command, tty, cancel)
		},
	}
	cmd.Flags().SetInterspersed(true)
	cmd.Flags().StringVarP(&dir, "workdir", "w", workingDirectory(),
		"working directory `DIR` in the node; / if the node lacks it; in a container by default the image's")
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil,
		"`NAME=VALUE` for the command's environment; may be repeated; of your variables only TERM, LANG, "+
			"TZ and the like are passed on")
	cmd.Flags().Lookup("workdir").DefValue = "." // in help and manual pages, which are the same everywhere
	completeFlag(cmd, "workdir", completeDirs)
	cmd.Flags().BoolVar(&tty, "tty", false, "give the command a terminal, as a shell or an editor needs")
	testbedFlag(cmd, &name)
	return cmd
}

func newShellCommand(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "shell NODE [--testbed NAME]",
		Short: "Open a shell in a node",
		Long: `Open bash, or sh where the host has no bash, on a terminal in a node. The
shell ends with exit or Ctrl-D, and when this command ends. If standard input is no
terminal, the shell runs the commands that it reads there, and railbed exits with the
exit code of the last one.`,
		Example: `  railbed shell h0
  echo 'ip addr; ping -c1 h1' | railbed shell h0`,
		Args:              exactArgs(1),
		ValidArgsFunction: inTurn(ofTestbed(&name, programNames), completeAnyFile),
		RunE: func(cmd *cobra.Command, args []string) error {
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			// $SHELL is not used: a node has the host's programs but no login.
			script := `if [ -x /bin/bash ]; then exec /bin/bash --norc; fi; exec /bin/sh`
			ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
			defer cancel()
			command := tb.Node(args[0]).Command(ctx, "/bin/sh", "-c", script)
			command.Env = append(a.environment(), fmt.Sprintf(`PS1=%s:%s:\w# `, tb.Name(), args[0]))
			return a.attach(command, isTerminal(a.stdin), cancel)
		},
	}
	testbedFlag(cmd, &name)
	return cmd
}

func workingDirectory() string {
	dir, err := os.Getwd()
	if err != nil {
		return "/"
	}
	return dir
}

func (a *app) environment() []string {
	var env []string
	for _, name := range passedOn {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// attach runs the command with this process's input, output and signals. end kills the command.
func (a *app) attach(command *testbed.Cmd, tty bool, end context.CancelFunc) error {
	command.Stdin, command.Stdout, command.Stderr = a.stdin, a.rawStdout, a.rawStderr
	if file, ok := a.stdin.(*os.File); ok && tty && isTerminal(file) {
		restore, err := rawTerminal(file, command)
		if err != nil {
			return err
		}
		defer restore()
	} else if tty {
		command.Terminal = &supervisor.WindowSize{Rows: 24, Cols: 80}
	}
	if err := command.Start(); err != nil {
		if errors.Is(err, testbed.ErrNotFound) {
			return &exitError{Code: exitNotFound, Err: err}
		}
		return err
	}
	defer forwardSignals(command, end)()
	defer forwardResizes(command)()
	err := command.Wait()
	var exit *testbed.ExitError
	if errors.As(err, &exit) {
		return &exitError{Code: exit.Code}
	}
	if errors.Is(err, context.Canceled) {
		return &exitError{Code: 128 + int(syscall.SIGINT)}
	}
	return err
}

// forwardSignals sends the first signal to the command, which may react in its own way. The second
// signal kills the command.
func forwardSignals(command *testbed.Cmd, end context.CancelFunc) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	go func() {
		sent := false
		for received := range signals {
			if sent || command.Signal(received.(syscall.Signal)) != nil {
				end()
			}
			sent = true
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// rawTerminal puts this terminal into raw mode for the command until restore is called.
func rawTerminal(file *os.File, command *testbed.Cmd) (restore func(), err error) {
	fd := int(file.Fd())
	size, err := windowSize(fd)
	if err != nil {
		return nil, err
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("switch terminal to raw mode: %w", err)
	}
	command.Terminal = &size
	return func() { term.Restore(fd, state) }, nil
}

func windowSize(fd int) (supervisor.WindowSize, error) {
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		return supervisor.WindowSize{}, fmt.Errorf("read terminal size: %w", err)
	}
	return supervisor.WindowSize{Rows: uint16(rows), Cols: uint16(cols)}, nil
}

// forwardResizes sets the size of the command's terminal to this terminal's size when that changes.
func forwardResizes(command *testbed.Cmd) (stop func()) {
	file, ok := command.Stdin.(*os.File)
	if command.Terminal == nil || !ok || !isTerminal(file) {
		return func() {}
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	go func() {
		for range resized {
			if size, err := windowSize(int(file.Fd())); err == nil {
				command.Resize(size)
			}
		}
	}()
	return func() {
		signal.Stop(resized)
		close(resized)
	}
}
