package cli_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

// commandLimit is the longest that one command of a page may take.
const commandLimit = 3 * time.Minute

// runTries is how often a run of a page is tried on a host that others keep busy. runs are the commands.
const runTries = 3

// busyHost begins the reason of a run whose emulator did not keep up because of other programs.
const busyHost = "the emulator did not keep up: other programs used "

var runs = regexp.MustCompile(`railbed (run|test) |scripts/quickstart`)

// TestPages runs the console blocks of README.md and of docs/ in a copy of the repository. It compares the
// output of each command with the page.
func TestPages(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	repository := sync.OnceValue(func() string { return copyOfRepository(t) })
	for i, path := range pages(t) {
		t.Run(path, func(t *testing.T) {
			p := readPage(t, path)
			if len(p.blocks) == 0 || !hosttest.Sampled(t, i) {
				t.Skip("nothing to run, or not in the sample")
			}
			r := newReader(t, repository())
			for name, text := range p.files {
				if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range p.blocks {
				r.run(b)
			}
		})
	}
}

// reader types the commands of a page, in a folder with the files of the repository.
type reader struct {
	*testing.T
	dir string
	// enter is the start of command lines that see no testbeds but the reader's, as pages name no testbed
	// where only one is up.
	enter []string
}

// visibleDir returns a temporary directory that nodes see. Nodes have a /tmp of their own.
func visibleDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "railbed-pages-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// copyOfRepository copies the files of the repository into a folder, with this test's program as
// .programs/railbed. The repository may belong to another user, which git wants to be told.
func copyOfRepository(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := visibleDir(t)
	if out, err := exec.Command("bash", "-c", `set -e -o pipefail
git -c safe.directory='*' -C .. ls-files -z | tar -C .. --null --ignore-failed-read -T - -c | tar -x -C "$1"
mkdir "$1/.programs" && ln -s "$2" "$1/.programs/railbed"`, "-", dir, self).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// newReader makes a folder with the files of a copy of the repository. The files have hard links only, so
// commands of pages must not change them in place. When the test ends, newReader takes down the testbeds that
// are still up.
func newReader(t *testing.T, repository string) *reader {
	t.Helper()
	r := &reader{T: t, dir: visibleDir(t), enter: []string{"env", "--"}}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-al", repository+"/.", r.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if os.Geteuid() == 0 {
		r.enter = r.namespace()
	}
	t.Cleanup(func() {
		down := r.command(context.Background(),
			"railbed ls | awk 'NR == 1 {next} NF == 0 {exit} {print $1}' | xargs -r railbed down")
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return r
}

// namespace makes a mount namespace in which root has other folders of testbeds and of network namespaces,
// and returns the start of command lines in it.
func (r *reader) namespace() []string {
	r.Helper()
	holder := exec.Command("unshare", "--mount", "sh", "-ec", `mkdir -p /run/railbed /run/netns
mount -t tmpfs -o mode=700 tmpfs /run/railbed
mount -t tmpfs tmpfs /run/netns
mount --make-shared /run/netns
echo ready
exec sleep infinity`)
	ready, err := holder.StdoutPipe()
	if err != nil {
		r.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		r.Fatal(err)
	}
	return []string{"nsenter", "--target", strconv.Itoa(holder.Process.Pid), "--mount", "--wd=" + r.dir, "--"}
}

// command is a command line in its own shell. When the context ends, all its processes are killed.
func (r *reader) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.enter[0], append(r.enter[1:], "bash", "-c", text)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(r.dir, ".programs")+":"+os.Getenv("PATH"),
		"HOME="+r.dir, "XDG_RUNTIME_DIR="+r.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// run runs the commands of a block one after the other. A command that ends in & goes on beside those after
// it.
func (r *reader) run(b block) {
	r.Helper()
	for _, feature := range b.needs {
		if err := hosttest.Probe(feature); err != nil {
			b.notRun = fmt.Sprintf("%s: %v", feature, err)
		}
	}
	if b.notRun != "" {
		r.Logf("%s: not run: %s", b.at, b.notRun)
		return
	}
	for _, c := range b.commands {
		text, beside := strings.CutSuffix(b.tested.Replace(c.text), "&")
		if beside {
			cmd := r.command(r.Context(), text)
			if err := cmd.Start(); err != nil {
				r.Fatal(err)
			}
			defer func() { _ = cmd.Wait() }()
			time.Sleep(300 * time.Millisecond) // a page cannot say when a server is ready
			continue
		}
		code, out := r.foreground(b, text)
		for try := 1; code != b.exit && try < runTries && runs.MatchString(text); try++ {
			r.Logf("%s: once more: %s", b.at, out)
			code, out = r.foreground(b, text)
		}
		if code == verdict.ExitOverloaded && code != b.exit && strings.Contains(out, busyHost) {
			r.Logf("%s: not compared: %s", b.at, out)
			return
		}
		if code != b.exit {
			r.Errorf("%s: %s: exit code %d, want %d\n%s", b.at, text, code, b.exit, out)
			return
		}
		if line := missing(c.output, out); line != "" && !b.varies {
			r.Errorf("%s: the page shows %q, but %s printed\n%s", b.at, line, text, out)
		}
	}
}

// foreground runs a command and returns its exit code and what it printed.
func (r *reader) foreground(b block, text string) (int, string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), commandLimit)
	defer cancel()
	cmd, out := r.command(ctx, text), new(spoken)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	if b.until != "" {
		for !strings.Contains(out.String(), b.until) && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}
