package hosttest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(MainInUserNS(m)) }

func TestRequired(t *testing.T) {
	for _, test := range []struct {
		list string
		want bool
	}{{"", false}, {"docker", false}, {"netns", true}, {"docker, netns", true}, {"all", true},
		{"netnsx", false}} {
		if got := required(test.list, Netns); got != test.want {
			t.Errorf("required(%q, netns) = %v, want %v", test.list, got, test.want)
		}
	}
}

// TestATestBinaryIsNoProgram: code under test that executes its own path with a
// command must not run every test of the package instead.
func TestATestBinaryIsNoProgram(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "/proc/self/exe", "extcap").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "called as a program") {
		t.Errorf("%v: %s", err, out)
	}
}

// recorder is a testing.TB that remembers how the test ended; like the real
// one it ends the test's goroutine.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (*recorder) Helper() {}
func (r *recorder) Skip(args ...any) {
	r.skipped = args[0].(string)
	runtime.Goexit()
}
func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestNeedSaysWhyInOneLine(t *testing.T) {
	if testing.Short() {
		var r recorder
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Need(&r, Root)
		}()
		<-ended
		if !strings.Contains(r.skipped, "-short") || !strings.Contains(r.skipped, string(Root)) {
			t.Errorf("under -short a test that needs root says %q", r.skipped)
		}
		return
	}
	for _, required := range []bool{false, true} {
		if required {
			t.Setenv(requireEnv, "no-such-thing")
		} else {
			t.Setenv(requireEnv, "")
		}
		var r recorder
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Need(&r, "no-such-thing")
		}()
		<-ended
		if (r.skipped != "") == required || (r.failed != "") != required {
			t.Fatalf("required %v: skipped %q, failed %q", required, r.skipped, r.failed)
		}
		if line := r.skipped + r.failed; !strings.Contains(line, "cannot run here: no-such-thing: ") ||
			strings.Contains(line, "\n") {
			t.Errorf("got %q", line)
		}
	}
}

func TestMissingProgram(t *testing.T) {
	err := program("railbed-no-such-program")()
	if err == nil || !strings.Contains(err.Error(), "not found") {
		t.Fatalf("got %v", err)
	}
}

func TestProgramThatFails(t *testing.T) {
	err := program("sh", "-c", "echo first; echo because >&2; exit 4")()
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 4: because") {
		t.Fatalf("got %v", err)
	}
}

// Everything that takeCensus looks for is made, seen, undone and gone.
func TestLeaksAreSeen(t *testing.T) {
	before := takeCensus()
	stop := make(chan struct{})
	go func() { <-stop }()
	sockets, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "60")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}

	left := strings.Join(leftBehind(before, takeCensus, 0), "\n")
	for _, want := range []string{"hosttest.TestLeaksAreSeen", "socket:[", "sleep 60"} {
		if !strings.Contains(left, want) {
			t.Errorf("%q is not among what was left:\n%s", want, left)
		}
	}

	close(stop)
	syscall.Close(sockets[0])
	syscall.Close(sockets[1])
	process.Process.Kill()
	process.Wait()
	if left := leftBehind(before, takeCensus, leakGrace); len(left) > 0 {
		t.Errorf("after undoing everything:\n%s", strings.Join(left, "\n"))
	}
}

func TestInUserNS(t *testing.T) {
	const nested = "RAILBED_HOSTTEST_NESTED" // the ordinary user is root of MainInUserNS
	if os.Getenv(stageEnv) == stageIsolated {
		t.Setenv(nested, "yes")
	}
	if !InUserNS(t) {
		return
	}
	if os.Geteuid() != 0 || os.Getpid() != 1 {
		t.Fatalf("uid %d pid %d, want 0 and 1", os.Geteuid(), os.Getpid())
	}
	mapping, err := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(mapping)); err != nil || len(fields) != 3 ||
		fields[1] == "0" && os.Getenv(nested) == "" {
		t.Errorf("user map %q, %v; want an ordinary user of the host", mapping, err)
	}
	if Probe(Root) == nil {
		t.Error("root of a user namespace counts as the host's root")
	}
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 || links[0].Name != "lo" {
		t.Fatalf("links %v, %v; want lo alone", links, err)
	}
	before := takeCensus()
	if err := syscall.Mount("none", "/mnt", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if left := leftBehind(before, takeCensus, 0); len(left) != 1 || !strings.Contains(left[0], " /mnt ") {
		t.Errorf("left %q, want the mount", left)
	}
	if err := syscall.Unmount("/mnt", 0); err != nil {
		t.Fatal(err)
	}
}

// The features that this machine's package list is known to give are found.
func TestProbesAgreeWithThePath(t *testing.T) {
	Need(t) // which takes its time
	for feature, name := range map[Feature]string{
		Ping:    "ping",
		Tshark:  "tshark",
		Tcpdump: "tcpdump",
		Python:  "python3",
		Mininet: "mn",
		OpenMPI: "mpirun",
		UCX:     "ucx_info",
		Redis:   "redis-server",
	} {
		_, missing := exec.LookPath(name)
		if err := Probe(feature); (err == nil) != (missing == nil) {
			t.Errorf("%s: probe says %v, the path says %v", feature, err, missing)
		}
	}
}

// As an ordinary user, MainInUserNS has brought the tests to where they may
// make namespaces.
func TestMainInUserNS(t *testing.T) {
	Need(t, UserNS, Netns)
	inside := os.Getenv(stageEnv) == stageIsolated
	if root := Probe(Root) == nil; root == inside {
		t.Errorf("the host's root: %v, in a user namespace: %v", root, inside)
	}
}
