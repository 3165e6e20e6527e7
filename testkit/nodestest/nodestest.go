// Package nodestest is the conformance suite of nodes.Node: how every runtime must treat commands,
// identity, isolation and the end of a node.
package nodestest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railbed/internal/reexec"
	"railbed/nodes"
	"railbed/testkit/hosttest"
)

// Make makes a node with a name, of the runtime under test. The suite closes the node.
type Make func(t *testing.T, name string) nodes.Node

// Options describe a runtime to the suite. The zero value is for a runtime whose nodes cost little
// and share the host's kernel.
type Options struct {
	// OwnKernel is true if each node has its own kernel. Namespaces in different kernels have the
	// same numbers.
	OwnKernel bool
	// Few is true if nodes are costly. Tests that do not need a fresh node then share a node.
	Few bool
	// NoProgram is true if the nodes have no railbed in their PATH.
	NoProgram bool
}

// Run runs the suite.
func Run(t *testing.T, makeNode Make, o Options) {
	suite := &suite{make: makeNode, options: o}
	if o.Few {
		suite.shared = map[string]nodes.Node{}
		defer func() {
			for name, node := range suite.shared {
				if err := node.Close(); err != nil {
					t.Errorf("close node %s: %v", name, err)
				}
			}
		}()
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Output", suite.output},
		{"ExitCodes", suite.exitCodes},
		{"NotFound", suite.notFound},
		{"InputAndChannel", suite.inputAndChannel},
		{"EnvironmentAndDirectory", suite.environment},
		{"Identity", suite.identity},
		{"ProgramInPath", suite.program},
		{"TwoNodesAreTwoHosts", suite.twoHosts},
		{"SignalReachesTheGroup", suite.signal},
		{"OrphansAreReaped", suite.orphans},
		{"CloseKillsEverything", suite.closeKills},
		{"ManyAtOnce", suite.manyAtOnce},
	} {
		t.Run(test.name, test.run)
	}
}

type suite struct {
	make    Make
	options Options
	shared  map[string]nodes.Node // by name, with Options.Few
}

func (s *suite) node(t *testing.T, name string) nodes.Node {
	t.Helper()
	if s.shared != nil {
		if s.shared[name] == nil {
			s.shared[name] = s.make(t, name)
		}
		return s.shared[name]
	}
	node := s.make(t, name)
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Errorf("close node %s: %v", name, err)
		}
	})
	return node
}

// last returns a node that the test closes itself. With Options.Few it is a node that the suite no
// longer needs.
func (s *suite) last(t *testing.T, name string) nodes.Node {
	t.Helper()
	if node := s.shared[name]; node != nil {
		delete(s.shared, name)
		return node
	}
	return s.make(t, name)
}

// start starts a command and returns it with the file for its output.
func start(t *testing.T, node nodes.Node, command nodes.Command) (nodes.Process, *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout = writer
	process, err := node.Start(t.Context(), command)
	writer.Close()
	if err != nil {
		reader.Close()
		t.Fatalf("start %q: %v", command.Args, err)
	}
	t.Cleanup(func() { reader.Close() })
	return process, reader
}

// shell runs a script to its end and returns its output.
func shell(t *testing.T, node nodes.Node, script string) string {
	t.Helper()
	process, output := start(t, node, nodes.Command{Args: []string{"/bin/sh", "-c", script}})
	text, err := io.ReadAll(output)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := process.Wait(); err != nil || exit.Code != 0 {
		t.Fatalf("script %q: exit %+v, error %v, output %q", script, exit, err, text)
	}
	return strings.TrimSpace(string(text))
}

func (s *suite) output(t *testing.T) {
	node := s.node(t, "a")
	if got := shell(t, node, "echo out"); got != "out" {
		t.Errorf("output %q, want %q", got, "out")
	}
}

func (s *suite) exitCodes(t *testing.T) {
	node := s.node(t, "a")
	for _, test := range []struct {
		script string
		want   nodes.Exit
	}{
		{"exit 0", nodes.Exit{}},
		{"exit 7", nodes.Exit{Code: 7}},
		{"kill -9 $$", nodes.Exit{Code: 128 + 9, Signal: syscall.SIGKILL}},
	} {
		process, _ := start(t, node, nodes.Command{Args: []string{"sh", "-c", test.script}})
		got, err := process.Wait()
		if err != nil || got != test.want {
			t.Errorf("%q: exit %+v, error %v; want %+v", test.script, got, err, test.want)
		}
	}
}

func (s *suite) notFound(t *testing.T) {
	node := s.node(t, "a")
	for _, args := range [][]string{{"no-such-program"}, {"/no/such/program"}, {"/etc/hosts"}} {
		process, err := node.Start(t.Context(), nodes.Command{Args: args})
		if !errors.Is(err, nodes.ErrNotFound) {
			t.Errorf("start %q: process %v, error %v; want ErrNotFound", args, process, err)
		}
	}
}

func (s *suite) inputAndChannel(t *testing.T) {
	node := s.node(t, "a")
	input, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answer, channel, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	process, err := node.Start(t.Context(), nodes.Command{
		Args: []string{"sh", "-c", "cat >&3"}, Stdin: input, Channel: channel,
	})
	input.Close()
	channel.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := feed.WriteString("through the node"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	got, err := io.ReadAll(answer)
	if err != nil || string(got) != "through the node" {
		t.Errorf("descriptor 3 carried %q, error %v", got, err)
	}
	if exit, err := process.Wait(); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, error %v", exit, err)
	}
}

func (s *suite) environment(t *testing.T) {
	node := s.node(t, "a")
	process, output := start(t, node, nodes.Command{
		Args: []string{"sh", "-c", "echo $COLOUR $RAILBED_NODE; pwd; ls /proc/self/fd | wc -l"},
		Env:  []string{"COLOUR=blue"}, Dir: "/usr",
	})
	text, err := io.ReadAll(output)
	if err != nil {
		t.Fatal(err)
	}
	// ls has its standard descriptors and the directory that it reads: none leaks in.
	if want := "blue a\n/usr\n4\n"; string(text) != want {
		t.Errorf("environment, directory, descriptors: %q, want %q", text, want)
	}
	if _, err := process.Wait(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []nodes.Command{
		{Dir: "/no/such/directory", DirHas: "."}, {Dir: "/usr", DirHas: "no-such-file"},
		{Dir: "/proc/version", DirHas: "."},
	} {
		wrong.Args = []string{"pwd"}
		if process, err := node.Start(t.Context(), wrong); !errors.Is(err, nodes.ErrNoFolder) {
			t.Errorf("start in %s, which should have %s: process %v, error %v; want ErrNoFolder", wrong.Dir,
				wrong.DirHas, process, err)
		}
	}
	process, output = start(t, node,
		nodes.Command{Args: []string{"./sh", "-c", "pwd"}, Dir: "/bin", DirHas: "sh"})
	// /bin may be a link to /usr/bin.
	if text, _ := io.ReadAll(output); !strings.HasSuffix(string(text), "/bin\n") {
		t.Errorf("a program of its directory printed %q, want /bin", text)
	}
	if _, err := process.Wait(); err != nil {
		t.Error(err)
	}
	process, output = start(t, node, nodes.Command{Args: []string{"pwd"}, Dir: "/no/such/directory"})
	if text, _ := io.ReadAll(output); string(text) != "/\n" {
		t.Errorf("a directory that the node lacks became %q, want /", text)
	}
	if _, err := process.Wait(); err != nil {
		t.Error(err)
	}
}

// program finds railbed along the PATH of a command, and compares it with this executable.
func (s *suite) program(t *testing.T) {
	node := s.node(t, "a")
	if s.options.NoProgram {
		if got := shell(t, node, "command -v railbed || echo none"); got != "none" {
			t.Errorf("the node has %s, want none", got)
		}
		return
	}
	own, err := os.Stat(reexec.Self)
	if err != nil {
		t.Fatal(err)
	}
	if got := shell(t, node, `wc -c < "$(command -v railbed)"`); got != strconv.FormatInt(own.Size(), 10) {
		t.Errorf("railbed in the node has %s bytes, want %d", got, own.Size())
	}
}

func (s *suite) identity(t *testing.T) {
	node := s.node(t, "a")
	for script, want := range map[string]string{
		"hostname":               "a",
		"cat /etc/hostname":      "a",
		"getent hosts a | wc -l": "1",
		"cat /proc/1/cmdline | tr '\\0' '\\n' | grep -o railbed:init": "railbed:init",
		"ls /sys/class/net":        "lo",
		"test -w /tmp && echo yes": "yes",
		"test -w /run && echo yes": "yes",
		"stat -c %a /tmp /dev/shm": "1777\n1777",
	} {
		if got := shell(t, node, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// Scripts that print what distinguishes hosts for programs.
const (
	identityFiles      = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id"
	identityNamespaces = "for n in net ipc uts mnt pid; do readlink /proc/self/ns/$n; done"
)

func (s *suite) twoHosts(t *testing.T) {
	a, b := s.node(t, "a"), s.node(t, "b")
	script, lines := identityFiles+"; "+identityNamespaces, 8
	if s.options.OwnKernel {
		script, lines = identityFiles, 3
	}
	ofA, ofB := strings.Split(shell(t, a, script), "\n"), strings.Split(shell(t, b, script), "\n")
	if len(ofA) != lines || len(ofB) != lines {
		t.Fatalf("identity has %d and %d lines, want %d: %q %q", len(ofA), len(ofB), lines, ofA, ofB)
	}
	for i := range ofA {
		if ofA[i] == ofB[i] {
			t.Errorf("both nodes have %q", ofA[i])
		}
	}
	shell(t, a, "echo secret | tee /tmp/f /run/f /dev/shm/f")
	if got := shell(t, b, "cat /tmp/f /run/f /dev/shm/f 2>/dev/null; true"); got != "" {
		t.Errorf("node b sees files of node a: %q", got)
	}
	if got := shell(t, a, "cat /tmp/f"); got != "secret" {
		t.Errorf("a later command in the same node reads %q, want %q", got, "secret")
	}
}

func (s *suite) signal(t *testing.T) {
	node := s.node(t, "a")
	process, output := start(t, node,
		nodes.Command{Args: []string{"sh", "-c", "sleep 1000 & echo started; wait"}})
	line := make([]byte, len("started\n"))
	if _, err := io.ReadFull(output, line); err != nil {
		t.Fatal(err)
	}
	nodes.Terminate(process, 5*time.Second)
	exit, err := process.Wait()
	if err != nil || exit.Signal == 0 {
		t.Errorf("exit %+v, error %v; want one by a signal", exit, err)
	}
	// The pipe ends when the background child has ended as well.
	if rest, err := io.ReadAll(output); err != nil || len(rest) != 0 {
		t.Errorf("after the signal: %q, error %v", rest, err)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("signal after the end: %v", err)
	}
}

// orphans leaves 20 children behind that end at once. Only the init can reap them. The count of
// processes must fall to zero.
func (s *suite) orphans(t *testing.T) {
	node := s.node(t, "a")
	shell(t, node, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do setsid sh -c 'exit 3' "+
		"& done")
	hosttest.Eventually(t, "no process left", func() error {
		count, err := node.Processes()
		if err == nil && count != 0 {
			err = fmt.Errorf("%d processes", count)
		}
		return err
	})
}

func (s *suite) closeKills(t *testing.T) {
	node := s.last(t, "b")
	process, output := start(t, node, nodes.Command{
		Args: []string{"sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; echo ready; sleep 1000' & sleep 1000"},
	})
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(output, line); err != nil {
		t.Fatal(err)
	}
	if count, err := node.Processes(); err != nil || count < 3 {
		t.Errorf("%d processes, error %v; want at least 3", count, err)
	}
	if err := node.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if exit, err := process.Wait(); err != nil || exit.Signal != syscall.SIGKILL {
		t.Errorf("exit %+v, error %v; want SIGKILL", exit, err)
	}
	if _, err := io.ReadAll(output); err != nil { // ends with the last process
		t.Error(err)
	}
	if err := node.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := node.Start(t.Context(), nodes.Command{Args: []string{"true"}}); !errors.Is(err,
		nodes.ErrClosed) {
		t.Errorf("start after close: %v, want ErrClosed", err)
	}
}

func (s *suite) manyAtOnce(t *testing.T) {
	const commands = 16
	node := s.node(t, "a")
	outputs := make(chan string, commands)
	for i := range commands {
		go func() {
			reader, writer, err := os.Pipe()
			if err != nil {
				outputs <- err.Error()
				return
			}
			defer reader.Close()
			process, err := node.Start(t.Context(), nodes.Command{
				Args: []string{"sh", "-c", fmt.Sprintf("echo %d", i)}, Stdout: writer,
			})
			writer.Close()
			if err != nil {
				outputs <- err.Error()
				return
			}
			var text bytes.Buffer
			_, err = io.Copy(&text, reader)
			exit, waitErr := process.Wait()
			if err := errors.Join(err, waitErr); err != nil || exit.Code != 0 {
				outputs <- fmt.Sprintf("exit %+v, error %v", exit, err)
				return
			}
			outputs <- strings.TrimSpace(text.String())
		}()
	}
	seen := map[string]bool{}
	for range commands {
		seen[<-outputs] = true
	}
	for i := range commands {
		if !seen[fmt.Sprint(i)] {
			t.Errorf("command %d did not answer; answers %v", i, seen)
		}
	}
}
