package reexec

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const nameEnv = "RAILBED_TEST_NAME"

// TestName: Name renames all threads that exist, and NameThread only its own.
func TestName(t *testing.T) {
	if os.Getenv(nameEnv) == "" { // the threads of the test's process keep their names
		self := exec.Command(Self, "-test.run", "^TestName$")
		self.Env = append(os.Environ(), nameEnv+"=1")
		if out, err := self.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	Name("h3", "rank3")
	check := func(id int, want string) error {
		got, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/comm", id))
		if err == nil && strings.TrimSpace(string(got)) != want {
			t.Errorf("thread %d has the name %q, want %q", id, got, want)
		}
		return nil // some threads end meanwhile
	}
	if err := EachThread(func(id int) error { return check(id, "rb:h3:rank3") }); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	NameThread("timing")
	own := unix.Gettid()
	if err := EachThread(func(id int) error {
		if id == own {
			return check(id, "rb:timing")
		}
		return check(id, "rb:h3:rank3")
	}); err != nil {
		t.Fatal(err)
	}
}

func TestThreadName(t *testing.T) {
	for _, c := range []struct{ node, what, want string }{
		{"", "supervisor", "rb:supervisor"},
		{"h3", "rank3", "rb:h3:rank3"},
		{"storage-server-1", "rank12", "rb:stora:rank12"},
		{"h1", "a-name-that-is-longer", "rb:a-name-that-"},
		{"", "a-name-that-is-longer", "rb:a-name-that-"},
	} {
		if got := threadName(c.node, c.what); got != c.want || len(got) > nameBytes {
			t.Errorf("%q and %q: %q, want %q", c.node, c.what, got, c.want)
		}
	}
}
