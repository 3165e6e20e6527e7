package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"railbed/capture"
	"railbed/internal/input"
	"railbed/internal/verdict"
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
exit code: 127 when the node has no such program, 128 and the signal's number when
a signal ended it. A node sees the host's programs and files, and has a network,
a /tmp and processes of its own. In a container the command runs as the image's USER
and in its WORKDIR.

Ctrl-C and other signals go to the command; a second one ends it. The end of railbed
exec is the end of the command: it and its process group get SIGHUP and SIGTERM, and
two seconds later SIGKILL. A program that made itself a session of its own (setsid)
stays until the testbed's end.`,
		Example: `  railbed exec h0 -- ping -c1 h7
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
		"working directory `DIR` in the node; / when the node does not see it; in a container the image's")
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil,
		"`NAME=VALUE` for the command's environment; may be repeated; of yours only TERM, LANG, TZ and "+
			"their like are passed on")
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
		Long: `Open bash, or sh where the host has no bash, on a terminal in a node. It ends with
exit or Ctrl-D, and when this command does.`,
		Example:           "  railbed shell h0",
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
			return a.attach(command, true, cancel)
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

func newCaptureCommand(a *app) *cobra.Command {
	var name, path, events string
	var request supervisor.CaptureRequest
	cmd := &cobra.Command{
		Use:   "capture [TAP]...",
		Short: "Record packets of a running testbed into one pcapng",
		Long: `Record packets until Ctrl-C. Every port is a tap, and a packet is recorded at each
that it passes, with an id that is the same at all of them. TAP says which: all
(the default), nics, switches, a node's or switch's name, NODE:PORT, or a glob of
these. With -w - the pcapng goes to standard output as it happens, for Wireshark.

What soft switches mark, trim, pause and drop stands in the packet's comment, with
the reason and the queue's depth. With --events all there is a record of each
packet that enters a queue as well, without a direction.

With -o json the counts of each tap are printed as JSON at the end: on standard
output, or with -w - as the last line on standard error. The exit code is 5 when
packets were dropped.`,
		Example: `  railbed capture -w all.pcapng
  railbed capture h0:eth0 'leaf*' --filter 'tcp port 18600' -w run.pcapng
  railbed capture -w - | wireshark -k -i -`,
		ValidArgsFunction: ofTestbed(&name, tapNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			request.At = args
			if len(args) == 0 {
				request.At = []string{"all"}
			}
			if request.Events = events != ""; request.Events && events != "all" {
				return usage("--events %q: want all", events)
			}
			tb, err := openTestbed(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.capture(cmd.Context(), tb, request, path)
		},
	}
	cmd.Flags().StringVarP(&path, "write", "w", "", "`FILE` to write, or - for standard output (required)")
	cmd.Flags().StringVarP(&request.Filter, "filter", "f", "",
		"`EXPRESSION` of pcap-filter(7), as tcpdump takes it")
	cmd.Flags().IntVarP(&request.SnapLen, "snaplen", "s", 0, "`BYTES` kept of each packet; 0 is all")
	cmd.Flags().Int64Var(&request.Limit, "limit", 0,
		"write no packet after this many `BYTES` and count those left out; 0 is no limit")
	cmd.Flags().StringVar(&events, "events", "",
		"all: record what enters the queues of soft switches as well")
	completeFlag(cmd, "write", completeCaptures)
	completeFlag(cmd, "events", oneOf("all"))
	testbedFlag(cmd, &name)
	return cmd
}

func (a *app) capture(ctx context.Context, tb *testbed.Testbed, request supervisor.CaptureRequest,
	path string) error {
	var out io.Writer = a.rawStdout
	var file lateFile
	switch {
	case path == "":
		return usage("capture: no file named; give -w FILE, or -w - for standard output")
	case path == "-" && isTerminal(a.rawStdout):
		return usage("capture: standard output is a terminal; pipe it into wireshark -k -i - or give -w FILE")
	case path != "-":
		file.path = path
		out = &file
	}
	recording, err := tb.Capture(ctx, request, out)
	if err != nil {
		return err
	}
	fmt.Fprintln(a.stderr, "recording; Ctrl-C ends it")
	<-recording.Done()
	stats, err := recording.Stop()
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := a.printCaptured(stats, path == "-"); err != nil {
		return err
	}
	if stats.Dropped() > 0 {
		return &exitError{Code: verdict.ExitInconclusive,
			Err: errors.New("the recording lost packets; record fewer taps or a smaller snaplen")}
	}
	return nil
}

// printCaptured prints the statistics of a capture. taken reports whether stdout carries the
// packets.
func (a *app) printCaptured(stats capture.Stats, taken bool) error {
	switch {
	case a.output != "json":
		fmt.Fprintf(a.stderr, "%d packets recorded, %d dropped, %d over the limit\n", stats.Written(),
			stats.Dropped(), stats.Limited())
		return nil
	case taken:
		return json.NewEncoder(a.stderr).Encode(stats)
	}
	return a.printJSON(stats)
}

// lateFile creates the file with the first byte. A capture that cannot start therefore leaves an
// earlier file unchanged. A new file belongs to the invoking user, and an existing file keeps its
// owner.
type lateFile struct {
	path string
	file *os.File
}

// Write implements io.Writer.
func (l *lateFile) Write(p []byte) (int, error) {
	if l.file == nil {
		if err := l.open(); err != nil {
			return 0, err
		}
	}
	return l.file.Write(p)
}

func (l *lateFile) open() error {
	uid, gid := testbed.InvokingUser()
	file, made, err := input.Create(l.path, 0, 0o644, uid)
	if err != nil {
		return err
	}
	l.file = file
	if made {
		err = file.Chown(uid, gid)
	}
	return err
}

// Close closes the file, if there is one.
func (l *lateFile) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
