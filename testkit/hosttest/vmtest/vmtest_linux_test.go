package vmtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"railbed/internal/frame"
	"railbed/testkit/hosttest"
)

// The tests boot guests.
var _ = hosttest.MarkPackage(hosttest.Unraced)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// TestInGuest looks at the guest from inside.
func TestInGuest(t *testing.T) {
	if !InGuest(t, Options{Modules: []string{"sch-netem"}, CPUs: 2, Env: []string{"GIVEN=yes"}}) {
		return
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if release := unix.ByteSliceToString(name.Release[:]); !strings.HasSuffix(release, "-amd64") {
		t.Errorf("the kernel is %s, want Debian's", release)
	}
	modules, err := os.ReadFile("/proc/modules")
	if err != nil || !bytes.Contains(modules, []byte("sch_netem ")) {
		t.Errorf("sch_netem is not among the modules: %v\n%s", err, modules)
	}
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if count := bytes.Count(cpus, []byte("processor\t")); err != nil || count != 2 ||
		os.Getenv("GIVEN") != "yes" {
		t.Errorf("%d processors, GIVEN is %q, %v", count, os.Getenv("GIVEN"), err)
	}
	// What of the host is to be seen, and that it cannot be written to.
	for _, closed := range []string{"/etc/shadow", "/etc/gshadow"} {
		if _, err := os.Stat(closed); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is in the guest: %v", closed, err)
		}
	}
	for _, dir := range []string{"/root", "/home"} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, %v", dir, entries, err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/usr", here} {
		if err := os.WriteFile(filepath.Join(dir, "written"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing to %s: %v, want that it is read-only", dir, err)
		}
	}
	if _, err := os.Stat("doc.go"); err != nil {
		t.Errorf("the test's own folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(t.TempDir(), "written"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	// Programs of the host's run, and find a loopback that is up.
	if out, err := exec.Command("ip", "-o", "address", "show").CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "127.0.0.1/8") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRun holds exit codes, output, and the ends of guests that go wrong.
func TestRun(t *testing.T) {
	result := Run(t, Options{}, "sh", "-c", "echo out; echo err >&2; (sleep 60 &) ; exit 7")
	if result.Code != 7 || string(result.Output) != "out\nerr\n" {
		t.Errorf("got %d and %q, want 7 and both outputs", result.Code, result.Output)
	}
}

func TestGuestsThatGoWrong(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.VM)
	for _, c := range []struct {
		name string
		o    Options
		argv []string
		want string
	}{
		{"too long", Options{Timeout: 500 * time.Millisecond}, []string{"true"}, "not done after 500ms"},
		{"no such module", Options{Modules: []string{"no_such"}}, []string{"true"},
			"load module no_such: the kernel has no such module"},
		{"panic", Options{}, []string{"sh", "-c",
			"echo before; sleep 1; echo c > /proc/sysrq-trigger; sleep 60"},
			"the guest ended before its program did"},
	} {
		result, err := run(t.TempDir(), c.o.withDefaults(), c.argv)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q\n%s", c.name, err, c.want, result.Output)
		}
		if c.name == "panic" && (err == nil || !strings.Contains(err.Error(), "sysrq triggered crash") ||
			string(result.Output) != "before\n") {
			t.Errorf("%s: got %v and %q, want the kernel's last words, and the program's", c.name, err,
				result.Output)
		}
	}
}

// TestCollect: the last word is an exit code, or why there is none.
func TestCollect(t *testing.T) {
	var wire bytes.Buffer
	w := frame.NewWriter(&wire)
	w.Write(frame.Stdout, []byte("text"))
	if result, err := collect(bytes.NewReader(wire.Bytes())); err == nil || string(result.Output) != "text" {
		t.Errorf("without an exit code: %+v, %v", result, err)
	}
	w.WriteJSON(frame.Exit, 3)
	if result, err := collect(bytes.NewReader(wire.Bytes())); err != nil || result.Code != 3 {
		t.Errorf("got %+v, %v", result, err)
	}
	w.Write(frame.Failure, []byte("why"))
	if _, err := collect(&wire); err == nil || err.Error() != "why" {
		t.Errorf("got %v", err)
	}
}
