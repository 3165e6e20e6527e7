package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// TestSignalsEndReadsOfPipes: a signal ends a command that waits for data from a pipe.
func TestSignalsEndReadsOfPipes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "small.yaml")
	if err := os.WriteFile(file, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	var cases [][]string
	for _, name := range []string{"/dev/stdin", "/dev/fd/3", "-"} {
		for _, command := range []string{"decode", "verify", "validate", "plan", "graph", "run", "up"} {
			cases = append(cases, []string{command, name})
		}
		cases = append(cases, []string{"import", "containerlab", name})
	}
	for _, name := range []string{"/dev/stdin", "/dev/fd/3"} {
		cases = append(cases, []string{"why", name}, []string{"follow", name}, []string{"trace", name},
			[]string{"verify", file, "--plan", name}, []string{"verify", file, "--testbed-file", name},
			[]string{"verify", file, "--mtu", "1500", "--keys", name})
	}
	for i, args := range cases {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			interruptSilent(t, args, []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}[i%3])
		})
	}
}

// interruptSilent sends a signal to a command that waits for a pipe.
func interruptSilent(t *testing.T, args []string, with os.Signal) {
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	defer from.Close()
	cmd := command(args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.ExtraFiles, cmd.Stderr, cmd.Dir = from, []*os.File{from}, &said, t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(hosttest.Bound, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	fmt.Fprint(to, "#")
	hosttest.Until(t, "the command reads the pipe", func() bool {
		waiting, err := unix.IoctlGetInt(int(from.Fd()), unix.TIOCINQ)
		return err != nil || waiting == 0
	})
	if err := cmd.Process.Signal(with); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if code != verdict.ExitFail && code != verdict.ExitUsage ||
		!strings.Contains(said.String(), "interrupted by a signal") {
		t.Errorf("after %v: %v, %q; want that the signal interrupted it", with, cmd.ProcessState,
			said.String())
	}
}
