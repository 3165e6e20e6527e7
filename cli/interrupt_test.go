package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railbed/internal/rundir"
	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// spoken collects the output of a command so far.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// interruptTwice stops the testbed's supervisor, so that nothing that asks it
// can come to an end, and interrupts the command twice. It returns what the
// command said, and how long the second one took.
func interruptTwice(t *testing.T, name string, cmd *exec.Cmd, stderr *spoken) time.Duration {
	t.Helper()
	pid := supervisorOf(name)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await(t, stderr, "interrupt again to kill it")
	start := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	hosttest.Until(t, "the end of the supervisor", func() bool { return !alive(pid) })
	if code := cmd.ProcessState.ExitCode(); code != verdict.ExitFail {
		t.Errorf("exit code %d, want %d: %s", code, verdict.ExitFail, stderr)
	}
	if want := "interrupted twice: killed the supervisor of testbed " + name +
		"\n"; !strings.Contains(stderr.String(), want) {
		t.Errorf("standard error %q, want %q in it", stderr, want)
	}
	noTrace(t, name)
	for _, one := range kept0(t, name) {
		os.RemoveAll(one.Dir)
	}
	return time.Since(start)
}

// TestSecondInterrupt of up, run and down with a supervisor that does nothing
// any more.
func TestSecondInterrupt(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	const most = 20 * time.Second // downTimeout, which a second interrupt cuts short, is longer
	begin := func(t *testing.T, name string, args ...string) (*exec.Cmd, *spoken) {
		t.Helper()
		cmd, stderr := command(args...), &spoken{}
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		hosttest.Eventually(t, "a supervisor", func() error {
			if supervisorOf(name) == 0 {
				return errors.New(stderr.String())
			}
			return nil
		})
		return cmd, stderr
	}
	t.Run("up", func(t *testing.T) {
		const name = "cli-twice-up"
		// Large enough to be still on its way.
		file := writeFile(t, fmt.Sprintf("name: %s\nfabric: {topology: leaf-spine, params: {leaves: 16, "+
			"spines: 4, hosts-per-leaf: 16}}\n", name))
		cmd, stderr := begin(t, name, "up", file)
		if took := interruptTwice(t, name, cmd, stderr); took > most {
			t.Errorf("the second interrupt took %v", took)
		}
	})
	t.Run("run", func(t *testing.T) {
		const name = "cli-twice-run"
		out := filepath.Join(t.TempDir(), "out")
		cmd, stderr := begin(t, name, "run", writeFile(t, twoHosts(name)+"steps:\n  - sleep: 10m\n"), "--out",
			out)
		await(t, stderr, "up in ")
		if took := interruptTwice(t, name, cmd, stderr); took > most {
			t.Errorf("the second interrupt took %v", took)
		}
		if r := readVerdict(t, out); r.Verdict != verdict.Aborted || r.Finished.IsZero() {
			t.Errorf("verdict %s, finished %v; want ABORTED, and written by the run itself", r.Verdict,
				r.Finished)
		}
	})
	t.Run("down", func(t *testing.T) {
		const name = "cli-twice-down"
		must(t, "up", writeFile(t, twoHosts(name)))
		dir, err := rundir.Of(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(supervisorOf(name), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		cmd, stderr := begin(t, name, "down", name)
		time.Sleep(500 * time.Millisecond) // for it to ask
		if took := interruptTwice(t, name, cmd, stderr); took > most {
			t.Errorf("the second interrupt took %v", took)
		}
		if dir.Running() {
			t.Error("it still runs")
		}
	})
}
